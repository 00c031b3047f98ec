"""Facts that a strategy can request: kinds, prices, requests and schedules."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

ALL = "all"  # each available client; before the first round, each client (or see `--start-queries`)
CANDIDATES = "candidates"  # the clients that the strategy's `candidates` returns
SELECTED = "selected"  # the cohort, on the round's model; `update` can read the answers of clients that report
SERVER = "server"  # no client: the server's own data

NEVER = jnp.iinfo(jnp.int32).max // 2
"""The age of a fact that was never measured. Half the int32 range, so that adding rounds cannot overflow."""


class Rule(NamedTuple):
    """The rounds first, first + period, first + 2 period, ..., up to last (None: no end)."""

    first: int
    last: int | None
    period: int


class Schedule(NamedTuple):
    """The rounds in which a fact is bought. Static; depends only on the round number."""

    before_first_round: bool
    rules: tuple[Rule, ...] = ()

    def __or__(self, other: "Schedule") -> "Schedule":
        return Schedule(self.before_first_round or other.before_first_round, self.rules + other.rules)

    def due(self, round: jax.Array) -> jax.Array:
        """Return whether the fact is due in a round: bool scalar."""
        due = jnp.zeros((), bool)
        for first, last, period in self.rules:
            inside = (round >= first) & ((round - first) % period == 0)
            due |= inside if last is None else inside & (round <= last)
        return due

    @property
    def in_every_round(self) -> bool:
        """Whether the fact is due in every round."""
        return any(rule.first == 0 and rule.last is None and rule.period == 1 for rule in self.rules)


def at_start() -> Schedule:
    """Schedule a fact once, on the initial model, before the first round. The first round pays for it."""
    return Schedule(before_first_round=True)


def every(period: int, offset: int = 0) -> Schedule:
    """Schedule a fact for rounds offset, offset + period, ... (rounds count from 0)."""
    return Schedule(False, (Rule(offset, None, period),))


def rounds(first: int, last: int) -> Schedule:
    """Schedule a fact for every round from first to last, inclusive."""
    return Schedule(False, (Rule(first, last, 1),))


def always() -> Schedule:
    """Schedule a fact for every round."""
    return every(1)


class Request(NamedTuple):
    """A fact that a strategy buys, such as Request("gradient", ALL, at_start()). Static.

    Shapes: N clients, Q profile floats, P parameters, C classes, S probes. `KINDS` holds the same catalog as data.
    Each kind, the entries of its table, and its options (pairs of name and value):
      `loss`             mean loss of the round's model on the client's own data, [N]; 1 float up.
                         on: train, holdout or all (default: --loss-on); batch_size=b: on b random examples of it;
                         statistic="rms": root of the mean squared loss of single examples;
                         nonfinite: replacement for a NaN: the "largest" finite loss (default), or "missing", age NEVER
      `training_loss`    mean loss over the mini-batches of the client's local training in this round, [N]; 1 float up;
                         from CANDIDATES or SELECTED. statistic="last-pass": over the last pass only;
                         "rms-first-pass": root mean square over single examples of the first pass; nonfinite as for
                         `loss`
      `loss_change`      probes: S random cohorts of K train from the round's model. Each resulting global model is sent
                         to all clients and discarded. Its loss minus the loss of the round's model, [N, S];
                         1 + S floats up. probes=S (default 1); on, nonfinite as for `loss`; restored=True: restores
                         the round's model before the measurement, so that every change is zero, as in the FedCor runs
                         of GPFL's authors
      `profile`          mean output of the model's first fully-connected layer over the client's data, [N, Q];
                         Q floats up; relu=True: after the activation
      `gradient`         gradient of the client's mean loss over all its data, flat, [N, P]; P floats up
      `update`           result of one local training, w_k - w, flat, [N, P]; P floats up. The cohort's own are free
      `label_histogram`  number of examples of each label, [N, C]; C floats up, no model down
      `server_metrics`   no table: `outcome.metrics`. From SERVER, in every round, and once before the first round,
                         which pays for it. on: validation (--server-validation) or test
      `subset_loss`      no table: `outcome.subset_loss(mask)`, the loss of averages of subsets of the cohort's models
                         on the server's data, for Shapley values; free for clients. From SERVER, in every round.
                         subsets=M (default 1), the rows of the mask [M, K]; on: validation or test
      `update_norm`      Euclidean norm of the update of one local training, [N]; 1 float up
      `seconds`          duration of one local training with both transfers, seconds, [N]; 1 float up; needs --timing

    Every client that answers receives the model once per round, except where noted. Requests of one kind share a table
    and must have the same options. `age` counts the rounds since a client's answer. SELECTED clients send their answers
    with their updates. If a report is lost, the table keeps its old entry and no float is billed.
    """

    kind: str
    who: str
    when: Schedule
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option's value."""
        return dict(self.options).get(name, default)

    @property
    def is_on_validation_data(self) -> bool:
        """Whether the server answers on data of its own."""
        return self.who == SERVER and self.option("on", "validation") == "validation"


class Counts(NamedTuple):
    """The sizes that determine the length of an answer, together with the request."""

    num_params: int  # P
    num_classes: int  # C
    profile_size: int  # Q


class Kind(NamedTuple):
    """A kind of fact.

    Attributes:
        words: display name in the list of a strategy's facts.
        shape: (counts, request) -> shape of one client's entry in the table.
        who: the groups that can answer.
        options: name -> allowed values, or the value's type; such values must be at least 1.
        has_table: whether clients' answers fill a table; if not, clients send nothing.
        symbol: symbol of the answer's length in the table of costs; empty for single numbers.
        extra_floats: floats that a client sends in addition to its entry.
        needs_model: whether a client must receive the model to answer.
        trains: whether a client trains to answer.
        needs_clock: whether only a run with simulated time (`--timing`) can serve it.
        evaluates: the examples that a client evaluates to answer: the "part" named by the option `on` (once more per
            probe), "all" of its own, or "none".
        passes: cost of evaluating one example, in forward passes; a backward pass costs two.
        is_loss: whether the values are losses; the server makes losses finite before a strategy reads them.
    """

    words: str
    shape: Callable[[Counts, Request], tuple[int, ...]]
    who: tuple[str, ...]
    options: Mapping[str, tuple | type[int]] = MappingProxyType({})
    has_table: bool = True
    symbol: str = ""
    extra_floats: int = 0
    needs_model: bool = True
    trains: bool = False
    needs_clock: bool = False
    evaluates: Literal["part", "all", "none"] = "none"
    passes: int = 1
    is_loss: bool = False


ANY_CLIENT = (ALL, CANDIDATES, SELECTED)
PARTS = ("train", "holdout", "all")  # parts of a client's data
ON_NONFINITE = ("largest", "missing")


def num_probes(request: Request) -> int:
    """Return the number of probes: random cohorts that train, and whose models all clients evaluate; usually 0."""
    return request.option("probes", 1) if "probes" in KINDS[request.kind].options else 0


def _number(counts: Counts, request: Request) -> tuple[int, ...]:
    return ()


KINDS: Mapping[str, Kind] = {
    "loss": Kind(
        "loss", _number, ANY_CLIENT,
        {"on": PARTS, "statistic": ("mean", "rms"), "batch_size": int, "nonfinite": ON_NONFINITE},
        evaluates="part", is_loss=True,
    ),
    "training_loss": Kind(
        "training loss", _number, (CANDIDATES, SELECTED),
        {"statistic": ("mean", "last-pass", "rms-first-pass"), "nonfinite": ON_NONFINITE},
        trains=True, is_loss=True,
    ),
    "loss_change": Kind(
        "loss change", lambda counts, request: (num_probes(request),), (ALL,),
        {"probes": int, "restored": (False, True), "on": PARTS, "nonfinite": ON_NONFINITE},
        extra_floats=1, evaluates="part", is_loss=True,  # extra: the loss of the round's model
    ),
    "profile": Kind(
        "profile", lambda counts, request: (counts.profile_size,), ANY_CLIENT, {"relu": (False, True)},
        symbol="Q", evaluates="all",
    ),
    "gradient": Kind(
        "gradient", lambda counts, request: (counts.num_params,), ANY_CLIENT, symbol="P", evaluates="all", passes=3
    ),
    "update": Kind(
        "local update", lambda counts, request: (counts.num_params,), (ALL, CANDIDATES), symbol="P", trains=True
    ),
    "label_histogram": Kind(
        "label histogram", lambda counts, request: (counts.num_classes,), ANY_CLIENT, symbol="C", needs_model=False
    ),
    "server_metrics": Kind(
        "the server's own evaluation", _number, (SERVER,), {"on": ("validation", "test")},
        has_table=False, needs_model=False,
    ),
    "subset_loss": Kind(
        "the server's loss of averages of subsets of the cohort", _number, (SERVER,),
        {"subsets": int, "on": ("validation", "test")}, has_table=False, needs_model=False,
    ),
    "update_norm": Kind("length of the local update", _number, (ALL, CANDIDATES), trains=True),
    "seconds": Kind("duration of one local training", _number, (ALL, CANDIDATES), trains=True, needs_clock=True),
}  # fmt: skip
"""Append new kinds at the end: the conformance kit's random draws follow this order."""


def shape(request: Request, counts: Counts) -> tuple[int, ...]:
    """Return the shape of one client's entry in the table of a request."""
    return KINDS[request.kind].shape(counts, request)


def floats(request: Request, counts: Counts) -> int:
    """Return the number of floats that one client uploads to answer a request."""
    kind = KINDS[request.kind]
    return math.prod(kind.shape(counts, request)) + kind.extra_floats if kind.has_table else 0
