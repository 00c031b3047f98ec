"""The protocol of a round: the order of a strategy's hooks and queries, and the values that its hooks read."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import facts
from fedjax_sel.strategies.contract import (
    Evaluation,
    Fact,
    Information,
    Now,
    Outcome,
    Selection,
    ServerMetrics,
    Strategy,
    Unrequested,
    keep_state,
    no_state,
)
from fedjax_sel.strategies.facts import ALL, CANDIDATES, KINDS, NEVER, SELECTED, Counts, Request

Params = Any  # a pytree of float32 arrays


def fields_read(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the tuple of arguments with a flag per leaf: whether the pure function's outputs depend on it.

    A nested function (a branch, a loop body, a jitted helper) counts as reading all of its arguments. Leaves have a
    shape and dtype.
    """
    leaves, structure = jax.tree.flatten(arguments)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    jaxpr = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(structure, flat)))(*shapes).jaxpr
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed.update(var for var in equation.invars if not isinstance(var, Literal))
    return jax.tree.unflatten(structure, [var in needed for var in jaxpr.invars])


class OutcomeReads(NamedTuple):
    """Fields of the outcome that a strategy's `update` reads."""

    updates: bool
    losses_before: bool
    losses_after: bool
    path_lengths: bool

    @property
    def num_losses(self) -> int:
        """The number of losses that each client sends with its report."""
        return int(self.losses_before) + int(self.losses_after)


def outcome_reads(strategy: Strategy, params: Params, state: Any, now: Now, selection: Selection) -> OutcomeReads:
    """Return the fields that `update` reads, as Python Booleans also under tracing, before the outcome is computed.

    Arrays have a leading axis S, except `now.round`; `params` are the trained weights.
    """
    if strategy.update is keep_state:
        return OutcomeReads(False, False, False, False)
    batched = params, state, now._replace(round=None), selection
    params, state, now_shapes, selection = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), batched
    )
    outcome = outcome_shapes(strategy, selection.ids.shape[0], params, now.env.has_clock)
    reads = fields_read(strategy.update, state, now_shapes._replace(round=now.round), selection, outcome)[-1]
    scalars = (reads.losses_before, reads.losses_after, reads.path_lengths)
    return OutcomeReads(any(jax.tree.leaves(reads.updates)), *map(bool, scalars))


def outcome_shapes(strategy: Strategy, num_places: int, params: Params, has_clock: bool = False) -> Any:
    """Return the shapes of an Outcome for a model of float32 weights."""
    shape: Any = jax.ShapeDtypeStruct
    per_client, scalar = shape((num_places,), jnp.float32), shape((), jnp.float32)
    evaluation = Evaluation(shape((), jnp.int32), scalar, scalar)
    bought = any(request.kind == "server_metrics" for request in strategy.requests)
    return Outcome(
        updates=jax.tree.map(lambda leaf: shape((num_places, *leaf.shape), jnp.float32), params),
        losses_before=per_client,
        losses_after=per_client,
        step=params,
        reported=shape((num_places,), jnp.bool_),
        finite=shape((num_places,), jnp.bool_),
        metrics=ServerMetrics(evaluation, evaluation) if bought else Unrequested(strategy.name, "server_metrics"),
        path_lengths=per_client,
        subset_loss=subset_loss_placeholder(strategy, per_client),
        seconds=per_client if has_clock else None,
        staleness=shape((num_places,), jnp.int32),
    )


Serve = Callable[..., tuple[Information, Any]]


class SelectionState(NamedTuple):
    """The server's knowledge, passed from step to step."""

    state: Any  # the strategy's state
    now: Now
    bill: Any = None  # the cost of this round's queries


class Keys(NamedTuple):
    """The random keys of one round."""

    candidates: jax.Array
    select: jax.Array


class Choice(NamedTuple):
    """A strategy's choice of clients in one round."""

    selection: Selection
    candidates: jax.Array | None  # int32 [d]; None without requests to CANDIDATES


def requests_at_start(strategy: Strategy) -> list[tuple[int, Request]]:
    """Return the requests that all clients answer before the first round, as pairs (index, request)."""
    return [(place, request) for place, request in enumerate(strategy.requests) if request.when.before_first_round]


def requests_to(strategy: Strategy, who: str) -> list[tuple[int, Request]]:
    """Return the requests that a group answers during rounds, as pairs (index, request); see `request.when.due`."""
    return [(place, one) for place, one in enumerate(strategy.requests) if one.who == who and one.when.rules]


def initial_state(strategy: Strategy, key: jax.Array, now: Now) -> Any:
    """Return the state before the first round, in host memory; `now.info` holds the facts due at the start.

    The strategy's `init` runs on the CPU with 64-bit types; the state is cast to 32-bit types.
    """
    if strategy.init is no_state:
        return ()
    arguments = jax.tree.map(_on_host, (key, now))
    with jax_settings.enable_x64(True), jax.default_device(jax_settings.cpu()):
        state = jax.tree.map(_on_host, jax.jit(strategy.init)(*arguments))
    return jax.tree.map(lambda leaf: leaf if jax_settings.is_key(leaf) else leaf.astype(_narrow(leaf.dtype)), state)


def state_shapes(strategy: Strategy, key: Any, now: Any) -> Any:
    """Return the shapes of `initial_state`, from the shapes of its arguments."""
    with jax_settings.enable_x64(True):
        state = jax.eval_shape(strategy.init, key, now)
    return jax.tree.map(
        lambda leaf: leaf if jax_settings.is_key(leaf) else jax.ShapeDtypeStruct(leaf.shape, _narrow(leaf.dtype)), state
    )


def _narrow(dtype: Any) -> Any:
    """Return the 32-bit type in place of a 64-bit one."""
    return {"float64": np.dtype("float32"), "int64": np.dtype("int32"), "uint64": np.dtype("uint32")}.get(
        str(dtype), dtype
    )


def select(strategy: Strategy, serve: Serve, known: SelectionState, keys: Keys) -> tuple[SelectionState, Choice]:
    """Open a round: query all clients, call `observe`, query the candidates, and select the cohort.

    `serve` is the server's query function, (info, bill, who, ...) -> (info, bill).
    """
    known = _served(serve, known, ALL)
    state, candidates = observe(strategy, known.state, known.now, keys.candidates)
    known = known._replace(state=state)
    if candidates is not None:
        known = _served(serve, known, CANDIDATES, candidates)
    return known, Choice(strategy.select(keys.select, state, known.now), candidates)


def observe(strategy: Strategy, state: Any, now: Now, key: jax.Array) -> tuple[Any, jax.Array | None]:
    """Run the first half of `select`: update the state from all clients' answers, and choose the candidates.

    The candidates are int32 [d], or None without requests to CANDIDATES.
    """
    state = strategy.observe(state, now)
    if not requests_to(strategy, CANDIDATES):
        return state, None
    assert strategy.candidates is not None, "checks.requests rejects this strategy"
    return state, strategy.candidates(key, state, now)


def query_cohort(
    serve: Serve, known: SelectionState, selection: Selection, arrives: jax.Array | None = None
) -> SelectionState:
    """Query the cohort on the round's model, before it trains; `arrives`, bool [K], marks the reports that arrive."""
    return _served(serve, known, SELECTED, selection.ids, selection.mask, arrives)


def _served(serve: Serve, known: SelectionState, *queried: Any) -> SelectionState:
    info, bill = serve(known.now.info, known.bill, *queried)
    return known._replace(now=known.now._replace(info=info), bill=bill)


def learn(strategy: Strategy, known: SelectionState, selection: Selection, outcome: Outcome) -> SelectionState:
    """Close a round: call `update`, and age every fact by one round."""
    state = strategy.update(known.state, known.now, selection, outcome)
    return known._replace(state=state, now=known.now._replace(info=advance_ages(known.now.info)))


def over_replicates(strategy: Strategy) -> Strategy:
    """Return a strategy whose hooks are batched over S replicates: arguments and results have leaves [S, ...].

    All replicates share the round number; `now.available` is None for all of them or for none.
    """

    def over(hook: Any, *axes: Any) -> Any:
        return hook if hook in (None, keep_state, no_state) else jax.vmap(hook, in_axes=axes)

    now: Any = Now(0, 0, None, 0)  # pyright: ignore
    return strategy._replace(
        init=over(strategy.init, 0, now),
        observe=over(strategy.observe, 0, now),
        candidates=over(strategy.candidates, 0, 0, now),
        select=over(strategy.select, 0, 0, now),
        update=over(strategy.update, 0, now, 0, 0),
        inclusion=over(strategy.inclusion, 0, now),
    )


def empty_information(strategy: Strategy, counts: Counts, *clients: int) -> Information:
    """Return tables in which no fact has been measured; `clients` are the leading axes: N, or S and N."""
    tables = {}
    for request in strategy.requests:
        if KINDS[request.kind].has_table:
            value = jnp.zeros((*clients, *facts.shape(request, counts)), jnp.float32)
            tables[request.kind] = Fact(value, jnp.full(clients, NEVER, jnp.int32))
    return Information(strategy.name, tables)


def enter_answers(
    info: Information, kind: str, values: jax.Array, arrived: jax.Array, age: jax.Array | int = 0
) -> Information:
    """Return the tables with new answers, float32 [N, ...], of the clients in `arrived`, bool [N].

    The age, int32 [N] or scalar, is NEVER for an imputed value.
    """
    old: Fact = getattr(info, kind)
    rows = arrived.reshape(-1, *[1] * (old.value.ndim - 1))
    return info.replace(kind, Fact(jnp.where(rows, values, old.value), jnp.where(arrived, age, old.age)))


def advance_ages(info: Information) -> Information:
    """Return the tables with every age increased by one round."""
    for kind in info.kinds():
        fact = getattr(info, kind)
        info = info.replace(kind, Fact(fact.value, jnp.minimum(fact.age + 1, NEVER)))
    return info


def _on_host(leaf: Any) -> Any:
    return jax.device_put(leaf, jax_settings.cpu()) if jax_settings.is_key(leaf) else np.asarray(leaf)


SUBSET_LOSS = "subset_loss"


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SubsetLoss:
    """A function from subsets to losses: `outcome.subset_loss(mask)` with bool [M, K] returns float32 [M].

    The model of a subset is the average of its members' models, with the aggregation's weights. Lost and nonfinite
    reports are excluded; an empty subset has the round's model. M is the request's option `subsets`. Each round is
    billed for M evaluations, so call the function once in `update`.
    """

    _loss: Callable[[Any, jax.Array], jax.Array] = dataclasses.field(metadata={"static": True})
    _reports: Any
    _subsets: int = dataclasses.field(metadata={"static": True})

    def __call__(self, mask: jax.Array) -> jax.Array:
        """Return the loss of each subset, nats."""
        if mask.ndim != 2 or mask.shape[0] != self._subsets or mask.dtype != bool:
            raise UserError(
                f"subset_loss: the mask is {mask.dtype} {list(mask.shape)}, but subsets={self._subsets} was requested; "
                f"pass bool [{self._subsets}, K], or request subsets={mask.shape[0] if mask.ndim else 1}"
            )
        return self._loss(self._reports, mask)


def requested_subset_loss(strategy: Strategy) -> Request | None:
    """Return the strategy's request for subset losses, or None."""
    return next((request for request in strategy.requests if request.kind == SUBSET_LOSS), None)


def make_subset_loss(
    strategy: Strategy, loss: Callable[[Any, jax.Array], jax.Array], reports: Any
) -> SubsetLoss | Unrequested:
    """Return the field `subset_loss` of an Outcome, with loss: (reports, mask) -> losses [M]; or `Unrequested`."""
    request = requested_subset_loss(strategy)
    if request is None:
        return Unrequested(strategy.name, SUBSET_LOSS)
    return SubsetLoss(loss, reports, request.option("subsets", 1))


def subset_loss_placeholder(strategy: Strategy, losses: Any) -> SubsetLoss | Unrequested:
    """Return a stand-in without a model: the mean of the members' losses [K], and 0 for an empty subset."""
    return make_subset_loss(strategy, _mean, losses)


def _mean(losses: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask, losses, 0.0).sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)
