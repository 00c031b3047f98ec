"""The catalogue of facts: for each kind its table, its price, its options, and what a client does for it.

Whoever serves facts (the simulator, the benchmark of selection, the conformance kit, a server of real clients), bills
them or speaks of them takes it from here. How a client answers belongs to whoever serves.

Shapes: N clients, Q profile floats, P parameters, C classes, S probes.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from fedjax_sel.core.names import one_of
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.requests import ALL, CANDIDATES, SELECTED, SERVER, Request


class Counts(NamedTuple):
    """What the length of an answer depends on, beside the request."""

    num_params: int  # P
    num_classes: int  # C
    profile_size: int  # Q


class Kind(NamedTuple):
    """A kind of fact.

    Attributes:
        words: what it is called where a strategy's purchases are listed.
        shape: (counts, request) -> shape of one client's entry in the table.
        who: who may be asked.
        options: name -> allowed values, or the type of the value, which is then at least 1.
        has_table: whether clients' answers fill a table; else nobody sends anything.
        symbol: of the length of an answer, for the table of costs; empty for single numbers.
        extra_floats: that a client sends up beside its entry.
        needs_model: whether a client must receive the model to answer.
        trains: whether it trains to answer.
        evaluates: the examples that it evaluates to answer: the "part" that the option `on` names (and as often again
            as there are probes), "all" of its own, or "none".
        is_loss: whether its values are losses, which are made finite before a strategy sees them.
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
    evaluates: Literal["part", "all", "none"] = "none"
    is_loss: bool = False


ANYBODY = (ALL, CANDIDATES, SELECTED)
PARTS = ("train", "holdout", "all")  # of a client's data
ON_NONFINITE = ("largest", "missing")


def probes(request: Request) -> int:
    """Return how many random cohorts train for an answer, whose models are sent out to be evaluated; mostly 0."""
    return request.option("probes", 1) if "probes" in KINDS[request.kind].options else 0


def _number(counts: Counts, request: Request) -> tuple[int, ...]:
    return ()


KINDS: Mapping[str, Kind] = {
    "loss": Kind(
        "loss",
        _number,
        ANYBODY,
        {"on": PARTS, "statistic": ("mean", "rms"), "batch_size": int, "nonfinite": ON_NONFINITE},
        evaluates="part",
        is_loss=True,
    ),
    "training_loss": Kind(
        "training loss",
        _number,
        (CANDIDATES, SELECTED),
        {"statistic": ("mean", "last-pass", "rms-first-pass"), "nonfinite": ON_NONFINITE},
        trains=True,
        is_loss=True,
    ),
    "loss_change": Kind(
        "loss change",
        lambda counts, request: (probes(request),),
        (ALL,),
        {"probes": int, "restored": (False, True), "on": PARTS, "nonfinite": ON_NONFINITE},
        extra_floats=1,  # the loss of the round's model
        evaluates="part",
        is_loss=True,
    ),
    "profile": Kind(
        "profile",
        lambda counts, request: (counts.profile_size,),
        ANYBODY,
        {"relu": (False, True)},
        symbol="Q",
        evaluates="all",
    ),
    "gradient": Kind(
        "gradient", lambda counts, request: (counts.num_params,), ANYBODY, symbol="P", evaluates="all"
    ),
    "update": Kind(
        "local update", lambda counts, request: (counts.num_params,), (ALL, CANDIDATES), symbol="P", trains=True
    ),
    "label_histogram": Kind(
        "label histogram", lambda counts, request: (counts.num_classes,), ANYBODY, symbol="C", needs_model=False
    ),
    "server_metrics": Kind(
        "the server's own evaluation",
        _number,
        (SERVER,),
        {"on": ("validation", "test")},
        has_table=False,
        needs_model=False,
    ),
    "subset_loss": Kind(
        "the server's loss of averages of subsets of the cohort",
        _number,
        (SERVER,),
        {"subsets": int, "on": ("validation", "test")},
        has_table=False,
        needs_model=False,
    ),
    "update_norm": Kind("length of the local update", _number, (ALL, CANDIDATES), trains=True),
}  # fmt: skip
"""A kind may be added at the end; the order is that of the kit's random draws."""


def shape(request: Request, counts: Counts) -> tuple[int, ...]:
    """Return the shape of one client's entry in the table of a request."""
    return KINDS[request.kind].shape(counts, request)


def floats(request: Request, counts: Counts) -> int:
    """Return the floats that one client sends up to answer a request."""
    kind = KINDS[request.kind]
    return math.prod(kind.shape(counts, request)) + kind.extra_floats if kind.has_table else 0


def check(strategy: Strategy) -> None:
    """Refuse requests that are not in the catalogue, or that could never be served.

    Args:
        strategy: whose requests.

    Raises:
        UserError: one sentence with the strategy, the request and the way out.
    """
    options: dict[str, tuple] = {}
    for request in strategy.requests:
        name = f"strategy {strategy.name!r} requests {request.kind!r}"
        if request.kind not in KINDS:
            raise UserError(f"{name}; the simulator serves {', '.join(KINDS)}")
        kind = KINDS[request.kind]
        if request.who not in kind.who:
            raise UserError(f"{name} of {request.who!r}; it can be had of {' or '.join(kind.who)}")
        for option, value in request.options:
            allowed = kind.options[one_of(f"options of {request.kind} in {strategy.name}", option, kind.options)]
            if isinstance(allowed, type):
                if not isinstance(value, allowed) or value < 1:
                    raise UserError(f"{name} with {option}={value!r}; give a whole number from 1")
            elif value not in allowed:
                raise UserError(f"{name} with {option}={value!r}; give one of {', '.join(map(str, allowed))}")
        if options.setdefault(request.kind, request.options) != request.options:
            raise UserError(f"{name} twice with different options; one table holds one measure")
        if request.who != ALL and request.when.before_first_round:
            raise UserError(f"{name} of {request.who!r} before the first round, when only {ALL!r} can be asked")
        if request.who == CANDIDATES and strategy.candidates is None:
            raise UserError(f"{name} of its candidates, but has no `candidates` function to name them")
        if request.who == SERVER and not request.when.in_every_round:
            raise UserError(f"{name} in some rounds only; the server evaluates in every round: use always()")
