"""The contract between a selection strategy and the simulator.

A strategy is a value: pure functions beside static fields. It never trains, evaluates or aggregates anything itself. It
declares the facts that it buys (`requests`), the simulator measures and bills them, and the strategy reads them. So
every fact is traceable and every fact has a price.

    measure ALL -> observe -> measure CANDIDATES -> select -> measure SELECTED -> train -> aggregate -> update

`protocol.py` calls the hooks in this order; `kinds.py` is the catalogue of facts.

Shapes throughout: N clients, K selected, d candidates, C classes, P parameters of the model.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.environment import Env, OutputLayer
from fedjax_sel.strategies.requests import (
    ALL,
    CANDIDATES,
    NEVER,
    SELECTED,
    SERVER,
    Request,
    Schedule,
    always,
    at_start,
    every,
    rounds,
)

__all__ = [
    "ALL", "CANDIDATES", "NEVER", "SELECTED", "SERVER",
    "Env", "Evaluation", "Fact", "Information", "Outcome", "OutputLayer", "Request", "Schedule", "Selection",
    "ServerMetrics", "State", "Static", "Strategy", "UndeclaredFactError", "always", "at_start", "every",
    "keep_state", "rounds",
]  # fmt: skip

State = Any  # a pytree; its structure and shapes never change during a run


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A number inside a state that stays static under jit, vmap and scan, such as K: `state.num_selected.value`."""

    value: int

    def __post_init__(self) -> None:
        try:
            hash(self.value)
            plain = not isinstance(self.value, jax.Array)
        except TypeError:
            plain = False
        if not plain:
            raise UserError(
                f"Static({type(self.value).__name__}): it holds counts and other plain values that never change; "
                "put an array into the state as it is"
            )


class Fact(NamedTuple):
    """One table of bought facts."""

    value: jax.Array  # float32 [N, ...]
    age: jax.Array  # rounds since measured, int32 [N]; NEVER at first


class UndeclaredFactError(UserError, AttributeError):
    """A strategy reads what it did not buy."""


def undeclared(strategy: str, kind: str, declared: tuple[str, ...]) -> UndeclaredFactError:
    """Return the error for a fact that is read and was not bought."""
    return UndeclaredFactError(
        f"strategy {strategy!r} reads the fact {kind!r} without buying it: "
        f"add Request({kind!r}, ...) to its requests (it has {', '.join(declared) or 'none'})"
    )


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
            raise undeclared(self._strategy, kind, self.kinds())
        return self._facts[kind]

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of fact that the strategy requested."""
        return tuple(self._facts)

    def replace(self, kind: str, fact: Fact) -> "Information":
        """Return a copy with one table exchanged."""
        return Information(self._strategy, {**self._facts, kind: fact})

    def tree_flatten(self):
        """Return the facts as leaves and the names as what is static."""
        return tuple(self._facts.values()), (self._strategy, tuple(self._facts))

    @classmethod
    def tree_unflatten(cls, static, facts):
        """Make the Information that `tree_flatten` took apart."""
        strategy, kinds = static
        return cls(strategy, dict(zip(kinds, facts)))


class Selection(NamedTuple):
    """The cohort of a round."""

    ids: jax.Array  # int32 [K]
    weights: jax.Array | None  # float32 [K]; None: the simulator's aggregation rule applies
    mask: jax.Array  # bool [K]; False: nobody trains in this place


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Unrequested:
    """Stands where a fact would stand if it had been bought."""

    strategy: str
    kind: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise undeclared(self.strategy, self.kind, ())

    def __call__(self, *_: Any) -> Any:
        raise undeclared(self.strategy, self.kind, ())


class Evaluation(NamedTuple):
    """Of a global model on data that the server holds; scalars."""

    correct: jax.Array  # examples classified correctly, int32; else the measure's sum, negated where less is better
    accuracy: jax.Array  # a share, or the mean of the task's first measure, float32
    loss: jax.Array  # mean, of cross-entropy in nats, float32


class ServerMetrics(NamedTuple):
    """The server's own evaluation of a round, bought with Request("server_metrics", SERVER, always())."""

    before: Evaluation  # of w^t
    after: Evaluation  # of w^(t+1)


class Outcome(NamedTuple):
    """What a round tells the server. What a strategy does not read is never computed.

    Updates and the step come with training itself. A cohort's losses travel as one float each: a strategy whose
    `update` reads them is billed for them. Of a client whose report is lost there are zeros.
    """

    updates: Any  # w_k - w of the cohort: the model's pytree with leading axis [K, ...]
    losses_before: jax.Array  # loss of the received model on the client's own data, float32 [K]
    losses_after: jax.Array  # loss after local training, float32 [K]
    step: Any  # the aggregated step of the global model: its pytree
    finite: jax.Array  # whether the client's update arrived and holds only finite numbers, bool [K]
    metrics: ServerMetrics | Any = None  # reading it without a "server_metrics" request is an error
    # Learning rate times local steps (with momentum: FedNova's |a_k|_1), which the server sets: an update divided by it
    # is minus the mean gradient along the client's local path. float32 [K]; None where the server does not say.
    path_lengths: Any = None
    subset_loss: Any = None  # mask [M, K] -> losses [M] of averages; calling it without a request is an error


def keep_state(state: State, *_: Any) -> State:
    """Return the state as it is: the `update` or `prepare` of a strategy that learns nothing from it."""
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
        update: (state, info, round, selection, outcome) -> state, after the round's aggregation. `info` then holds what
            SELECTED clients answered in this round. The mask of `selection` is False also for those whose report is
            lost, of whom nothing is known.
        observe: (state, info, round, available) -> state, every round, after ALL clients' answers are in and before the
            cohort is selected: where a strategy learns from facts that open the round.
        candidates: (key, state, info, round, available) -> int32 [d], distinct: whom requests to CANDIDATES ask. Facts
            that they answered have age 0 in `select`; unavailable clients among them do not answer. None where no
            request asks them.
        inclusion: (state, info, round, available) -> how often `select` is expected to name each client, float32 [N],
            positive where it can; None where it cannot say for such an `available`. It serves the aggregation rule
            `unbiased` and nothing else. None for strategies whose law has no closed form.
    """

    name: str
    init: Callable[[jax.Array, Env], State]
    select: Callable[[jax.Array, State, Information, jax.Array, jax.Array | None], Selection]
    requests: tuple[Request, ...] = ()
    with_replacement: bool = False
    prepare: Callable[[State, Information], State] = keep_state
    update: Callable[[State, Information, jax.Array, Selection, Outcome], State] = keep_state
    candidates: Callable[[jax.Array, State, Information, jax.Array, jax.Array | None], jax.Array] | None = None
    observe: Callable[[State, Information, jax.Array, jax.Array | None], State] = keep_state
    inclusion: Callable[[State, Information, jax.Array, jax.Array | None], jax.Array | None] | None = None
