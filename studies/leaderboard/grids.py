"""What is run by name: a grid is the rows of one table, each with its configuration."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from fedjax_sel.config import Config
from fedjax_sel.core.names import one_of
from studies.leaderboard import information, settings, tuning
from studies.leaderboard.settings import SETTINGS, Setting

TUNED = ("fmnist-2spc", "fmnist-dir")
WITHOUT_DROPOUT = ("fmnist-1spc", "fmnist-2spc", "fmnist-dir")
CONVOLUTIONAL_SEEDS, CONVOLUTIONAL_ROUNDS = 3, 60
DRAWS = "-draws"

# Seconds of a seed's round with its evaluation on two cores of an AMD EPYC, by the clients of a cohort, mean over
# strategies (of the MLP from results/leaderboard), and of reading data, compiling and timing.
SECONDS_OF_ROUND = {"mlp": {5: 0.043, 10: 0.053}, "cnn": {5: 4.0, 10: 8.0}, "lenet": {5: 1.5, 10: 3.0}}
SECONDS_OF_START = 10.0


class Grid(NamedTuple):
    """The rows of one table."""

    name: str  # of the part, and of its folder
    group: str  # that the command takes for all of its parts
    title: str
    rows: Mapping[str, Config]  # without folders
    num_classes: int = 10
    timed: bool = False  # whether selection is timed apart
    own_seeds: bool = False  # whether its seeds are not the leaderboard's: --seeds then says how many of them
    after: str = ""  # the grid from whose results the rows follow
    choose: Callable[[Any], Mapping[str, Config]] | None = None  # those results -> the rows

    @property
    def minutes(self) -> float:
        """About what it takes, on two free cores."""
        seconds = 0.0
        for config in self.rows.values():
            of_round = SECONDS_OF_ROUND[config.model.model][config.selection.num_selected]
            seconds += SECONDS_OF_START + of_round * config.run.rounds * len(config.run.seeds)
        return seconds / 60


def _of_setting(setting: Setting) -> Grid:
    rows = {who.name: settings.configuration(setting, who) for who in settings.contenders(setting)}
    return Grid(setting.name, setting.name.split("-")[0], setting.title, rows, setting.num_classes, timed=True)


def _tuned(setting: Setting) -> tuple[Grid, Grid]:
    name = f"tuned-{setting.name}"
    title = f"{setting.title}: {tuning.DRAWS} draws of each strategy's hyperparameters"
    drawn = Grid(name + DRAWS, "tuned", title, tuning.draws(setting), setting.num_classes, own_seeds=True)
    rows = {algo: settings.configuration(setting, settings.Contender(algo)) for algo in settings.ALGOS}
    title = f"{setting.title}: the best draw of each strategy"
    choose = partial(tuning.chosen, setting)
    return drawn, Grid(name, "tuned", title, rows, setting.num_classes, after=drawn.name, choose=choose)


def _information(setting: Setting) -> tuple[Grid, ...]:
    studies = {
        "probes": ("FedCor with rarer probes", information.probes),
        "longer": ("as many megabytes as FedCor sends", information.longer),
        "absent": (f"{information.AVAILABLE:.0%} of the clients can be reached".replace("%", " %"), information.absent),
        "lost": (f"{information.LOST:.0%} of the reports are lost".replace("%", " %"), information.lost),
    }
    return tuple(
        Grid(f"information-{name}-{setting.name}", "information", f"{setting.title}: {words}", rows(setting),
             setting.num_classes)
        for name, (words, rows) in studies.items()
    )  # fmt: skip


def _without_dropout(setting: Setting) -> tuple[Grid, ...]:
    """Return the setting without dropout, and with LeNet-5 in place of the MLP; some strategies under FedAvg."""
    of_mlp = {
        algo: settings.configuration(setting, settings.Contender(algo)).replace(model_dropout=0.0)
        for algo in settings.WITHOUT_DROPOUT
    }
    of_lenet = {
        algo: config.replace(model="lenet", seeds=CONVOLUTIONAL_SEEDS, rounds=CONVOLUTIONAL_ROUNDS)
        for algo, config in of_mlp.items()
    }
    return (
        Grid(f"no-dropout-{setting.name}", "no-dropout", f"{setting.title}: no dropout", of_mlp, setting.num_classes),
        Grid(f"lenet-{setting.name}", "lenet", f"{setting.title}: LeNet-5", of_lenet, setting.num_classes),
    )


def _grids() -> dict[str, Grid]:
    found = [_of_setting(setting) for setting in SETTINGS.values()]
    found += [grid for name in TUNED for grid in _tuned(SETTINGS[name])]
    found += [grid for name in WITHOUT_DROPOUT for grid in _without_dropout(SETTINGS[name])]
    found += [grid for name in information.SETTINGS for grid in _information(SETTINGS[name])]
    return {grid.name: grid for grid in found}


GRIDS: dict[str, Grid] = _grids()


def chosen(names: list[str]) -> list[Grid]:
    """Return the grids of names of parts or of groups, in order, each once.

    Raises:
        UserError: there is no such part.
    """
    groups = dict.fromkeys(grid.group for grid in GRIDS.values())
    found: dict[str, Grid] = {}
    for name in names:
        if name in groups:
            found |= {grid.name: grid for grid in GRIDS.values() if grid.group == name}
        else:
            found[name] = GRIDS[one_of("PART", name, (*groups, *GRIDS))]
    return list(found.values())
