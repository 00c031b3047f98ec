"""What a strategy's server sees of single clients, derived from its requests and from what its `update` reads."""

from collections.abc import Mapping
from typing import NamedTuple

import jax

from fedjax_sel.strategies import checks, protocol
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.facts import KINDS

NOTHING, NUMBERS, STATISTICS, MODELS = range(4)
CLASSES = ("nothing", "individual numbers", "individual statistics of data", "individual models or gradients")
"""Display names of the classes of disclosure, from the least to the most."""

OF_OUTCOME: Mapping[str, tuple[int, str]] = {
    "updates": (MODELS, "updates of the cohort"),
    "losses_before": (NUMBERS, "losses of the cohort"),
    "losses_after": (NUMBERS, "losses of the cohort"),
    "seconds": (NUMBERS, "durations of the cohort"),
}
"""Field of the outcome that holds single clients' values -> its class, and its display name."""

_OF_SYMBOL = {"": NUMBERS, "C": STATISTICS, "Q": STATISTICS, "P": MODELS}
_TRACED_SIZE = (200, 10, 1000)  # clients, cohort and rounds of the traced run


class Disclosure(NamedTuple):
    """What the server sees of single clients.

    Attributes:
        level: the largest class among `values`, an index into `CLASSES`.
        values: display name of each value of single clients -> its class.
    """

    level: int
    values: Mapping[str, int]

    @property
    def with_secure_aggregation(self) -> bool:
        """Whether the strategy works if the server learns only the sum of the cohort's updates."""
        return self.level < MODELS

    def __str__(self) -> str:
        """Return the values by class, e.g. "individual numbers (loss)"; "nothing" without any."""
        found: dict[int, list[str]] = {}
        for words, level in self.values.items():
            found.setdefault(level, []).append(words)
        return "; ".join(f"{CLASSES[level]} ({', '.join(found[level])})" for level in sorted(found)) or CLASSES[NOTHING]


def outcome_fields(strategy: Strategy) -> tuple[str, ...]:
    """Return the fields of `OF_OUTCOME` that the strategy's `update` reads."""
    hook, shapes = checks.traced(strategy, *_TRACED_SIZE, everyone_available=True, has_clock=True)["update"]
    reads = protocol.fields_read(hook, *shapes)[-1]
    return tuple(name for name in OF_OUTCOME if any(jax.tree.leaves(getattr(reads, name))))


def disclosed(strategy: Strategy) -> Disclosure:
    """Return what the server sees of single clients under a strategy."""
    values = {}
    for request in strategy.requests:
        kind = KINDS[request.kind]
        if request.kind == protocol.SUBSET_LOSS:  # the server averages models of its choice, which it must hold
            values["models of the cohort"] = MODELS
        elif kind.has_table:
            values[kind.words] = _OF_SYMBOL[kind.symbol]
    for name in outcome_fields(strategy):
        level, words = OF_OUTCOME[name]
        values[words] = level
    return Disclosure(max(values.values(), default=NOTHING), values)
