"""The contract between a selection strategy and the simulator.

A strategy is a value: pure functions beside static fields. It never trains, evaluates or aggregates anything itself. It
declares the facts that it buys (`requests`), the simulator measures and bills them, and the strategy reads them. So
every fact is traceable and every fact has a price.

    measure -> select -> train cohort -> aggregate -> update

Shapes throughout: N clients, K selected, C classes, P parameters of the model.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError

State = Any  # a pytree; its structure and shapes never change during a run

NEVER = jnp.iinfo(jnp.int32).max // 2
"""The age of a fact that was never measured; half the range, so that adding a round cannot overflow."""


class Rule(NamedTuple):
    """The rounds first, first + period, first + 2 period, .. up to last (None: to the end)."""

    first: int
    last: int | None
    period: int


class Schedule(NamedTuple):
    """When a fact is bought. Static; depends on the round number alone."""

    before_first_round: bool
    rules: tuple[Rule, ...] = ()

    def __or__(self, other: "Schedule") -> "Schedule":
        return Schedule(self.before_first_round or other.before_first_round, self.rules + other.rules)

    def due(self, round: jax.Array) -> jax.Array:
        """Whether the fact is bought at the opening of this round: bool scalar."""
        due = jnp.zeros((), bool)
        for first, last, period in self.rules:
            inside = (round >= first) & ((round - first) % period == 0)
            due |= inside if last is None else inside & (round <= last)
        return due


def at_start() -> Schedule:
    """Once, on the initial model, before the first round; billed to the first round."""
    return Schedule(before_first_round=True)


def every(period: int, offset: int = 0) -> Schedule:
    """In rounds offset, offset + period, .. (rounds count from 0)."""
    return Schedule(False, (Rule(offset, None, period),))


def rounds(first: int, last: int) -> Schedule:
    """In every round from first to last, both included."""
    return Schedule(False, (Rule(first, last, 1),))


def always() -> Schedule:
    """In every round."""
    return every(1)


class Request(NamedTuple):
    """A fact that a strategy buys. Static.

    kind, and what the table then holds for each client:
      `profile`   mean output of the model's first fully-connected layer over the client's data, [Q]
                  (option relu=True: after the activation); Q floats up
      `gradient`  gradient of the client's mean loss over all its data, flat [P]; P floats up
      `update`    result of one local training, w_k - w, flat [P]; P floats up

    Every answering client receives the model. Options are (name, value) pairs.
    """

    kind: str
    when: Schedule
    options: tuple[tuple[str, Any], ...] = ()


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A number inside a state that stays static under jit, vmap and scan, such as K: `state.num_selected.value`."""

    value: int


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["sizes", "importance"],
    meta_fields=["num_clients", "num_selected", "num_rounds", "num_classes", "num_params"],
)
@dataclasses.dataclass(frozen=True)
class Env:
    """What every strategy knows before the first round. The counts are static."""

    num_clients: int
    num_selected: int
    num_rounds: int
    num_classes: int
    num_params: int
    sizes: jax.Array  # training examples of each client, int32 [N]
    importance: jax.Array  # p_k = n_k / sum n, float32 [N]


class Fact(NamedTuple):
    """One table of bought facts."""

    value: jax.Array  # float32 [N, ...]
    age: jax.Array  # rounds since measured, int32 [N]; NEVER at first


class UndeclaredFactError(UserError, AttributeError):
    """A strategy reads what it did not buy."""


@jax.tree_util.register_pytree_node_class
class Information:
    """What the server has bought: `info.profile.value`, `info.profile.age`, one table a requested kind."""

    def __init__(self, strategy: str, facts: dict[str, Fact]):
        self._strategy = strategy
        self._facts = facts

    def __getattr__(self, kind: str) -> Fact:
        if kind.startswith("_"):
            raise AttributeError(kind)
        if kind not in self._facts:
            raise UndeclaredFactError(
                f"strategy {self._strategy!r} reads the fact {kind!r} without buying it: "
                f"add Request({kind!r}, ...) to its requests (it has {', '.join(self._facts) or 'none'})"
            )
        return self._facts[kind]

    def kinds(self) -> tuple[str, ...]:
        """The kinds of fact that the strategy requested."""
        return tuple(self._facts)

    def replace(self, kind: str, fact: Fact) -> "Information":
        """A copy with one table exchanged."""
        return Information(self._strategy, {**self._facts, kind: fact})

    def tree_flatten(self):
        """Facts are leaves; the names are static."""
        return tuple(self._facts.values()), (self._strategy, tuple(self._facts))

    @classmethod
    def tree_unflatten(cls, static, facts):
        """The inverse of `tree_flatten`."""
        strategy, kinds = static
        return cls(strategy, dict(zip(kinds, facts)))


class Selection(NamedTuple):
    """The cohort of a round."""

    ids: jax.Array  # int32 [K]
    weights: jax.Array | None  # float32 [K]; None: the simulator's aggregation rule applies
    mask: jax.Array  # bool [K]; False: nobody trains in this place


class Outcome(NamedTuple):
    """What a round tells the server at no further cost. What a strategy does not read is never computed."""

    updates: Any  # w_k - w of the cohort: the model's pytree with leading axis [K, ...]
    losses_before: jax.Array  # loss of the received model on the client's own data, float32 [K]
    losses_after: jax.Array  # loss after local training, float32 [K]
    step: Any  # the aggregated step of the global model: its pytree
    finite: jax.Array  # whether the client's update holds only finite numbers, bool [K]


def keep_state(state: State, *_: Any) -> State:
    """The `update` or `prepare` of a strategy that learns nothing from it."""
    return state


class Strategy(NamedTuple):
    """A selection strategy. Functions are pure and traceable; `round` counts from 0 and is never batched.

    Attributes:
        name: for messages.
        init: (key, env) -> state.
        select: (key, state, info, round, available) -> Selection. `available` is bool [N], or None where every client
            is, so that what is constant over the run need not be done again.
        requests: the facts that it buys beyond what `Outcome` gives for free.
        with_replacement: whether a client may stand in `ids` more than once; a declaration for tests and readers.
        prepare: (state, info) -> state, once, after the facts due `at_start` are in and before the first round. It runs
            on the CPU with 64-bit types enabled, so that decompositions which are constant over the run can be done in
            float64; the state that it returns is cast back to the dtypes that `init` gave.
        update: (state, info, round, selection, outcome) -> state, after the round's aggregation.
    """

    name: str
    init: Callable[[jax.Array, Env], State]
    select: Callable[[jax.Array, State, Information, jax.Array, jax.Array | None], Selection]
    requests: tuple[Request, ...] = ()
    with_replacement: bool = False
    prepare: Callable[[State, Information], State] = keep_state
    update: Callable[[State, Information, jax.Array, Selection, Outcome], State] = keep_state
