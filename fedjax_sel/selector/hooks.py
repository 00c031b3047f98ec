"""Compiled hooks of a strategy for one federation, with a leading axis of one replicate.

The simulator has the same axis. Both therefore compile the same program, with the same rounding.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings
from fedjax_sel.simulation import keys
from fedjax_sel.strategies import contract, dependencies, protocol, subset_loss
from fedjax_sel.strategies.base import (
    Env,
    Evaluation,
    Information,
    Outcome,
    OutputLayer,
    Selection,
    ServerMetrics,
    Strategy,
    Unrequested,
    keep_state,
)
from fedjax_sel.strategies.kinds import Counts
from fedjax_sel.strategies.protocol import Known


class Size(NamedTuple):
    """Size of a federation."""

    num_clients: int
    num_selected: int
    num_rounds: int


class ModelShapes(NamedTuple):
    """Shapes of the server's model."""

    params: Any  # shapes of the trained weights; None: not given
    output_layer: OutputLayer | None


class Hooks:
    """Compiled hooks of one strategy."""

    def __init__(self, strategy: Strategy, size: Size, counts: Counts, model: ModelShapes, seed: int):
        self.strategy, self.size, self.counts, self.model = strategy, size, counts, model
        self._loss_of: Callable[[np.ndarray], float] | None = None  # mask of a subset -> its loss, for this round
        self._failed: Exception | None = None
        over = protocol.over_replicates(strategy)
        self._stream = keys.streams(keys.roots([seed], {})).selection
        self._observe = jax.jit(partial(protocol.observe, over))
        self._select = jax.jit(over.select)
        self._learn = jax.jit(partial(_learn, over, self._shapes(), self._losses))

    def init(self, sizes: np.ndarray, all_sizes: np.ndarray) -> tuple[Any, Information]:
        """Return the initial state and the empty tables.

        Args:
            sizes: training examples per client, int32 [N].
            all_sizes: training and held-out examples per client, int32 [N].
        """
        n, k, t = self.size
        total = np.float32(sizes.sum(dtype=np.int64))  # real federations can exceed the int32 range

        def initial(stream, sizes, all_sizes):
            counts = (n, k, t, self.counts.num_classes, self.counts.num_params)
            env = Env(*counts, sizes, sizes / total, all_sizes, *self.model)
            return self.strategy.init(keys.of_round(stream, jnp.int32(keys.INITIALISATION)), env)

        with contract.explained("init"):
            state = jax.jit(jax.vmap(initial))(self._stream, sizes[None], all_sizes[None])
        return state, _on_host(protocol.nothing_known(self.strategy, self.counts, 1, n))

    def prepare(self, state: Any, info: Information) -> Any:
        """Return the state at the start of the first round."""
        if self.strategy.prepare is keep_state:
            return state
        only = jax.tree.map(lambda leaf: leaf[0], (state, info))
        return jax.tree.map(lambda leaf: leaf[None], protocol.prepare(self.strategy, *only))

    def observe(self, state, info, round: int, available: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """Return the state after the answers of ALL clients, and the candidates, int32 [d] or None."""
        selection_key = self._key(round)
        key = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(selection_key)
        state, candidates = self._observe(state, info, key, np.int32(round), _batch(available))
        return state, None if candidates is None else np.asarray(candidates[0])

    def select(self, state, info, round: int, available: np.ndarray | None) -> Selection:
        """Return the cohort, [K]."""
        answer = self._select(self._key(round), state, info, np.int32(round), _batch(available))
        return jax.tree.map(lambda leaf: np.asarray(leaf[0]), answer)

    def learn(
        self, state, info, round: int, reports: Selection, fields: dict[str, Any], loss_of: Any
    ) -> tuple[Any, Information]:
        """Return the state and the tables after a round.

        Args:
            state: the strategy's state after the selection.
            info: tables with the cohort's answers.
            round: the round, from 0.
            reports: the cohort, with a mask of the clients that reported.
            fields: fields of the Outcome, `finite` and the ones that `update` reads.
            loss_of: function from a mask of members, bool [K], to the server's loss of their average; None if unread.
        """
        self._loss_of, self._failed = loss_of, None
        state, info = self._learn(state, info, np.int32(round), *jax.tree.map(_batch, (reports, fields)))
        info = _on_host(info)
        if self._failed is not None:
            raise self._failed
        return state, info

    def _shapes(self) -> Any:
        """Return the shapes of the trained weights; one vector of length P if the model is not given."""
        vector = {"all": jax.ShapeDtypeStruct((self.counts.num_params,), jnp.float32)}
        return vector if self.model.params is None else self.model.params

    def _losses(self, reports: Any, mask: jax.Array) -> jax.Array:
        """Query the server for the losses of subsets from inside the compiled `learn`."""

        def query(mask: np.ndarray) -> np.ndarray:
            losses = np.zeros((len(mask),), np.float32)
            try:
                assert self._loss_of is not None, "reports.arrange requires subset_loss if the strategy reads it"
                losses[:] = [self._loss_of(np.asarray(members)) for members in mask]
            except Exception as error:  # `learn` raises it, because JAX would wrap an error of a callback
                self._failed = error
            return losses

        result = jax.ShapeDtypeStruct(mask.shape[:1], jnp.float32)
        return jax.pure_callback(query, result, mask, vmap_method="sequential")

    def outcome_reads(self, state: Any, info: Information) -> Outcome:
        """Return an Outcome of Booleans, True for the fields that `update` reads; `metrics` is None if not bought."""
        k = self.size.num_selected

        def shape(*axes: int, dtype: Any = jnp.float32) -> Any:
            return jax.ShapeDtypeStruct(axes, dtype)

        evaluation: Any = Evaluation(shape(dtype=jnp.int32), shape(), shape())
        bought = any(request.kind == "server_metrics" for request in self.strategy.requests)
        unrequested = Unrequested(self.strategy.name, "server_metrics")
        params = self._shapes()
        outcome = Outcome(
            updates=jax.tree.map(lambda leaf: shape(k, *leaf.shape), params),
            losses_before=shape(k),
            losses_after=shape(k),
            step=jax.tree.map(lambda leaf: shape(*leaf.shape), params),
            finite=shape(k, dtype=jnp.bool_),
            metrics=ServerMetrics(evaluation, evaluation) if bought else unrequested,
            path_lengths=shape(k),
            subset_loss=subset_loss.stand_in(self.strategy, shape(k)),
        )
        own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (state, info))
        select = self.strategy.select
        answer = jax.eval_shape(select, jax.eval_shape(lambda: jax_settings.key(0)), *own, shape(dtype=jnp.int32), None)
        if self.strategy.update is keep_state:
            reads = jax.tree.map(lambda leaf: False, outcome)
        else:
            reads = dependencies.read(self.strategy.update, *own, shape(dtype=jnp.int32), answer, outcome)[-1]
        some: Any = any
        return reads._replace(
            updates=some(jax.tree.leaves(reads.updates)),
            step=some(jax.tree.leaves(reads.step)),
            metrics=reads.metrics if bought else None,
            subset_loss=some(jax.tree.leaves(reads.subset_loss)),
        )

    def _key(self, round: int) -> jax.Array:
        return jax.vmap(lambda stream: keys.of_round(stream, jnp.int32(round)))(self._stream)


def _learn(strategy: Strategy, shapes: Any, losses: Any, state, info, round, reports: Selection, fields: Any):
    k = reports.ids.shape[1]
    # Unread fields are zeros, with the shapes of the available ones.
    if "updates" in fields:
        params = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape[2:])), fields["updates"])
    else:
        zeros = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape)), shapes)
        params = jax.tree.map(jnp.zeros_like, fields.get("step", zeros))
    outcome = Outcome(
        updates=jax.tree.map(lambda leaf: jnp.zeros((1, k, *leaf.shape[1:])), params),
        losses_before=jnp.zeros((1, k)),
        losses_after=jnp.zeros((1, k)),
        step=params,
        finite=fields["finite"],
        metrics=Unrequested(strategy.name, "server_metrics"),
        subset_loss=subset_loss.of(strategy, losses, jnp.zeros((1,))),
    )._replace(**fields)
    known = protocol.learn(strategy, Known(state, info), round, reports, outcome)
    return known.state, known.info


def _batch(leaf: np.ndarray | None) -> Any:
    return None if leaf is None else leaf[None]


def _on_host(info: Information) -> Information:
    return jax.tree.map(np.asarray, info)
