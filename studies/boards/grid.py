"""Grid: the rows of one table, each with its configuration."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_sel import Config, Result

BASELINE = "random"


class Grid(NamedTuple):
    """Rows of one table."""

    name: str  # name of the part and of its folder
    group: str  # command-line name for all parts of the group
    title: str
    rows: Mapping[str, Config]  # configurations without folders
    num_classes: int = 10
    timed: bool = False  # whether selection is timed separately
    own_seeds: bool = False  # whether the seeds differ from the study's; --seeds then sets only their number
    after: str = ""  # grid whose results determine the rows
    choose: Callable[[Any], Mapping[str, Config]] | None = None  # function from these results to the rows
    describe: Callable[[Result], Mapping[str, Any]] | None = None  # what about.json keeps of a run, beside the usual


class Contender(NamedTuple):
    """A row of a table: a strategy under an optimizer."""

    algo: str
    optimizer: str = "fedavg"

    @property
    def name(self) -> str:
        """Name of the row: the strategy, and the optimizer unless it is FedAvg."""
        return self.algo if self.optimizer == "fedavg" else f"{self.algo} + {self.optimizer}"

    @property
    def baseline(self) -> "Contender":
        """Baseline of the row: random selection under the same optimizer; for random selection, the FedAvg row."""
        return Contender(BASELINE, self.optimizer if self.algo != BASELINE else "fedavg")


def contender(name: str) -> Contender:
    """Return the contender of a row name."""
    algo, _, optimizer = name.partition(" + ")
    return Contender(algo, optimizer or "fedavg")
