"""The compiled hooks of a Selector's strategy."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings
from fedjax_sel.selector.terms import Terms
from fedjax_sel.simulation import keys
from fedjax_sel.strategies import checks, protocol
from fedjax_sel.strategies.contract import Env, Information, Now, Outcome, Selection, ServerMetrics
from fedjax_sel.strategies.from_numpy import raise_own_error
from fedjax_sel.strategies.protocol import SelectionState

# Compiled hooks have a leading axis of one replicate, as in the simulator. Both therefore compile the same program,
# with the same rounding.


class Hooks:
    """Compiled hooks of one strategy."""

    def __init__(self, terms: Terms):
        self.terms = terms
        vector = {"all": jax.ShapeDtypeStruct((terms.counts.num_params,), jnp.float32)}
        self._params = vector if terms.model.params is None else terms.model.params
        self._loss_of: Callable[[np.ndarray], float] | None = None  # mask of a subset -> its loss, for this round
        self._failed: Exception | None = None
        self._over = protocol.over_replicates(terms.strategy)
        self._stream = keys.streams(keys.roots([terms.seed], {})).selection
        self._env = self._environment()
        self._observe = jax.jit(partial(protocol.observe, self._over))
        self._select = jax.jit(self._over.select)
        self._learn = jax.jit(self._close)

    def _environment(self) -> Env:
        """Return what the strategy knows without a query, leaves [1, N]."""
        terms = self.terms
        total = np.float32(terms.sizes.sum(dtype=np.int64))  # real federations can exceed the int32 range
        shares = terms.sizes.astype(np.float32) / total
        (n, k, t), of_model = terms.size, terms.counts
        sizes, shares, all_sizes = (jnp.asarray(table[None]) for table in (terms.sizes, shares, terms.all_sizes))
        counts = (n, k, t, of_model.num_classes, of_model.num_params)
        noise = {}
        if terms.noise is not None:
            noise = terms.noise.deviations(of_model, lambda request: terms.examples(request)[None])
        return Env(*counts, sizes, shares, all_sizes, *terms.model, has_clock=terms.has_clock, noise=noise)

    def before_start(self) -> tuple[Any, Information]:
        """Return the empty tables, and a state of zeros instead of the initial state."""
        info = jax.tree.map(
            np.asarray, protocol.empty_information(self.terms.strategy, self.terms.counts, 1, len(self.terms.sizes))
        )
        key, now = jax.eval_shape(lambda: (self._key(keys.START), self._now(info, 0, None)))
        with checks.explained("init"):
            shapes = protocol.state_shapes(self._over, key, now)
        return jax.tree.map(_zeros, shapes), info

    def initial(self, info: Information) -> Any:
        """Return the state at the start of the first round."""
        with checks.explained("init"):
            state = protocol.initial_state(self._over, self._key(keys.START), self._now(info, 0, None))
        raise_own_error()
        return state

    def observe(self, state, info, round: int, available: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """Return the state after the answers of ALL clients, and the candidates, int32 [d] or None."""
        key = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(self._key(round))
        state, candidates = self._observe(state, self._now(info, round, available), key)
        jax.block_until_ready(state)
        raise_own_error()
        return state, None if candidates is None else np.asarray(candidates[0])

    def select(self, state, info, round: int, available: np.ndarray | None) -> Selection:
        """Return the cohort, [K]."""
        answer = self._select(self._key(round), state, self._now(info, round, available))
        answer = jax.tree.map(lambda leaf: np.asarray(leaf[0]), answer)
        raise_own_error()
        return answer

    def learn(
        self,
        state,
        info,
        round: int,
        available: np.ndarray | None,
        selection: Selection,
        fields: dict[str, Any],
        loss_of: Any,
    ) -> tuple[Any, Information]:
        """Return the state and the tables after a round.

        `fields` are fields of the Outcome: `reported`, `finite` and the ones that `update` reads. `loss_of` maps a mask
        of members, bool [K], to the server's loss of their average.
        """
        self._loss_of, self._failed = loss_of, None
        given = jax.tree.map(_batch, (selection, fields))
        state, info = self._learn(state, self._now(info, round, available), *given)
        info = jax.tree.map(np.asarray, info)
        jax.block_until_ready(state)
        raise_own_error()
        if self._failed is not None:
            raise self._failed
        return state, info

    def _close(self, state, now: Now, selection: Selection, fields: dict[str, Any]) -> tuple[Any, Information]:
        given, axes = (fields["updates"], 2) if "updates" in fields else (fields.get("step", self._params), 1)
        if given is not self._params:
            given = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], jnp.float32), given)
        # Unread fields are zeros, with the shapes of the available ones.
        shapes = protocol.outcome_shapes(self._over, selection.ids.shape[1], given, self.terms.has_clock)
        outcome = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape), leaf.dtype), shapes)
        subset_loss = protocol.make_subset_loss(self._over, self._losses, jnp.zeros((1,)))
        outcome = outcome._replace(**{"subset_loss": subset_loss, **fields})
        known = protocol.learn(self._over, SelectionState(state, now), selection, outcome)
        return known.state, known.now.info

    def _losses(self, reports: Any, mask: jax.Array) -> jax.Array:
        """Query the server for the losses of subsets from inside the compiled `learn`."""

        def query(mask: np.ndarray) -> np.ndarray:
            losses = np.zeros((len(mask),), np.float32)
            try:
                assert self._loss_of is not None
                losses[:] = [self._loss_of(np.asarray(members)) for members in mask]
            except Exception as error:  # `learn` raises it, because JAX would wrap an error of a callback
                self._failed = error
            return losses

        result = jax.ShapeDtypeStruct(mask.shape[:1], jnp.float32)
        return jax.pure_callback(query, result, mask, vmap_method="sequential")

    def outcome_reads(self, state: Any, info: Information) -> Outcome:
        """Return an Outcome of Booleans, True for the fields that `update` reads; `metrics` is None if not bought."""
        strategy = self.terms.strategy
        outcome = protocol.outcome_shapes(strategy, self.terms.num_places, self._params, self.terms.has_clock)
        own, env, known = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (state, self._env, info)
        )
        key, round = jax.eval_shape(lambda: (jax_settings.key(0), jnp.int32(0)))
        now = Now(env, known, round, None)
        answer = jax.eval_shape(strategy.select, key, own, now)
        with checks.explained("update"):
            reads = protocol.fields_read(strategy.update, own, now, answer, outcome)[-1]
        some: Any = any
        return reads._replace(
            updates=some(jax.tree.leaves(reads.updates)),
            step=some(jax.tree.leaves(reads.step)),
            metrics=reads.metrics if isinstance(reads.metrics, ServerMetrics) else None,
            subset_loss=some(jax.tree.leaves(reads.subset_loss)),
        )

    def _now(self, info: Information, round: int, available: np.ndarray | None) -> Now:
        return Now(self._env, info, np.int32(round), _batch(available))  # pyright: ignore

    def _key(self, round: int) -> jax.Array:
        return jax.vmap(lambda stream: keys.round_key(stream, jnp.int32(round)))(self._stream)


def _zeros(shape: Any) -> Any:
    if jax_settings.is_key(shape):
        return jnp.broadcast_to(jax_settings.key(0), shape.shape)
    return np.zeros(shape.shape, shape.dtype)


def _batch(leaf: np.ndarray | None) -> Any:
    return None if leaf is None else leaf[None]
