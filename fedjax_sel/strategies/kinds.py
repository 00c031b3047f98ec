"""The catalog of facts: the table, price, options and client work of each kind.

Every server reads this catalog: the simulator, the selection benchmark, the conformance kit and a server of real
clients. Each server implements the measurements itself.

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
        evaluates: the examples that a client evaluates to answer: the "part" named by the option `on` (once more per
            probe), "all" of its own, or "none".
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
    evaluates: Literal["part", "all", "none"] = "none"
    is_loss: bool = False


ANY_CLIENT = (ALL, CANDIDATES, SELECTED)
PARTS = ("train", "holdout", "all")  # parts of a client's data
ON_NONFINITE = ("largest", "missing")


def probes(request: Request) -> int:
    """Return the number of probes: random cohorts that train, and whose models all clients evaluate; usually 0."""
    return request.option("probes", 1) if "probes" in KINDS[request.kind].options else 0


def _number(counts: Counts, request: Request) -> tuple[int, ...]:
    return ()


KINDS: Mapping[str, Kind] = {
    "loss": Kind(
        "loss",
        _number,
        ANY_CLIENT,
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
        ANY_CLIENT,
        {"relu": (False, True)},
        symbol="Q",
        evaluates="all",
    ),
    "gradient": Kind(
        "gradient", lambda counts, request: (counts.num_params,), ANY_CLIENT, symbol="P", evaluates="all"
    ),
    "update": Kind(
        "local update", lambda counts, request: (counts.num_params,), (ALL, CANDIDATES), symbol="P", trains=True
    ),
    "label_histogram": Kind(
        "label histogram", lambda counts, request: (counts.num_classes,), ANY_CLIENT, symbol="C", needs_model=False
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
"""Append new kinds at the end: the conformance kit's random draws follow this order."""


def shape(request: Request, counts: Counts) -> tuple[int, ...]:
    """Return the shape of one client's entry in the table of a request."""
    return KINDS[request.kind].shape(counts, request)


def floats(request: Request, counts: Counts) -> int:
    """Return the number of floats that one client uploads to answer a request."""
    kind = KINDS[request.kind]
    return math.prod(kind.shape(counts, request)) + kind.extra_floats if kind.has_table else 0


def check(strategy: Strategy) -> None:
    """Reject requests that are not in the catalog, or that can never be served.

    Raises:
        UserError: a request is invalid.
    """
    options: dict[str, tuple] = {}
    for request in strategy.requests:
        name = f"strategy {strategy.name!r} requests {request.kind!r}"
        if request.kind not in KINDS:
            raise UserError(f"{name}; the simulator serves {', '.join(KINDS)}")
        kind = KINDS[request.kind]
        if request.who not in kind.who:
            raise UserError(f"{name} from {request.who!r}; request it from {' or '.join(kind.who)}")
        for option, value in request.options:
            allowed = kind.options[one_of(f"options of {request.kind} in {strategy.name}", option, kind.options)]
            if isinstance(allowed, type):
                if not isinstance(value, allowed) or value < 1:
                    raise UserError(f"{name} with {option}={value!r}; give a whole number of at least 1")
            elif value not in allowed:
                raise UserError(f"{name} with {option}={value!r}; give one of {', '.join(map(str, allowed))}")
        if options.setdefault(request.kind, request.options) != request.options:
            raise UserError(f"{name} twice with different options; use the same options in both requests")
        if request.who != ALL and request.when.before_first_round:
            raise UserError(f"{name} from {request.who!r} before the first round; only {ALL!r} can answer at_start()")
        if request.who == CANDIDATES and strategy.candidates is None:
            raise UserError(f"{name} from its candidates, but has no `candidates` function; add one")
        if request.who == SERVER and not request.when.in_every_round:
            raise UserError(f"{name} in some rounds only; the server evaluates in every round: use always()")
