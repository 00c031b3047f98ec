"""Grids of runs by name; a grid is the rows of one table with their configurations."""

from functools import partial

from fedjax_sel import Config
from studies.boards import measures, series
from studies.boards.grid import BASELINE, Grid
from studies.papers_setting import clock, information, settings, tuning
from studies.papers_setting.settings import SETTINGS, Setting

TUNED = ("fmnist-2spc", "fmnist-dir")
WITHOUT_DROPOUT = ("fmnist-1spc", "fmnist-2spc", "fmnist-dir")
LENET_ROUNDS = 60
DRAWS = "-draws"
BEST = ": the best draw of each strategy"


def _of_setting(setting: Setting) -> Grid:
    rows = {who.name: settings.configuration(setting, who) for who in settings.contenders(setting)}
    return Grid(setting.name, setting.name.split("-")[0], setting.title, rows, setting.num_classes, timed=True)


def _tuned(setting: Setting) -> tuple[Grid, Grid]:
    name = f"tuned-{setting.name}"
    title = f"{setting.title}: {tuning.DRAWS} draws of each strategy's hyperparameters"
    drawn = Grid(name + DRAWS, "tuned", title, tuning.draws(setting), setting.num_classes, own_seeds=True)
    rows = {algo: settings.configuration(setting, settings.Contender(algo)) for algo in tuning.RANGES}
    title = setting.title + BEST
    choose = partial(tuning.chosen, setting)
    return drawn, Grid(name, "tuned", title, rows, setting.num_classes, after=drawn.name, choose=choose)


def _information(setting: Setting) -> tuple[Grid, ...]:
    studies = {
        "probes": ("FedCor with rarer probes", information.probes),
        "longer": ("as many megabytes as FedCor sends", information.longer),
        "absent": (f"{information.AVAILABLE:.0%} of the clients are available".replace("%", " %"), information.absent),
        "lost": (f"{information.LOST:.0%} of the reports are lost".replace("%", " %"), information.lost),
    }
    return tuple(
        Grid(f"information-{name}-{setting.name}", "information", f"{setting.title}: {words}", rows(setting),
             setting.num_classes)
        for name, (words, rows) in studies.items()
    )  # fmt: skip


def _without_dropout(setting: Setting) -> tuple[Grid, ...]:
    """Return the setting without dropout, with the MLP and with LeNet-5, for some strategies under FedAvg."""
    of_mlp = {
        algo: settings.configuration(setting, settings.Contender(algo)).replace(model_dropout=0.0)
        for algo in settings.WITHOUT_DROPOUT
    }
    of_lenet = {algo: config.replace(model="lenet", rounds=LENET_ROUNDS) for algo, config in of_mlp.items()}
    return (
        Grid(f"no-dropout-{setting.name}", "no-dropout", f"{setting.title}: no dropout", of_mlp, setting.num_classes),
        Grid(f"lenet-{setting.name}", "lenet", f"{setting.title}: LeNet-5", of_lenet, setting.num_classes),
    )


RATES = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Learning rates of the reference: random selection without dropout, tuned on other seeds and on training examples."""
REFERENCE, TUNING = "reference-", "-rates"


def _reference(setting: Setting) -> tuple[Grid, Grid]:
    bare = settings.configuration(setting, settings.Contender(BASELINE)).replace(model_dropout=0.0)
    tuned = bare.replace(seeds=(100, 101, 102), tuning_share=0.1)
    rates = {f"rate={rate:g}": tuned.replace(learning_rate=rate) for rate in RATES}
    name, title = REFERENCE + setting.name, f"{setting.title}: random selection, no dropout"

    def best(held: series.Setting) -> dict[str, Config]:
        found = {row: float(measures.last_rounds(one).mean()) for row, one in held.rows.items()}
        rate = rates[max(found, key=lambda row: found[row])].training.learning_rate
        return {BASELINE: bare.replace(learning_rate=rate)}

    return (
        Grid(name + TUNING, "reference", f"{title}, learning rates", rates, setting.num_classes, own_seeds=True),
        Grid(name, "reference", f"{title}, tuned", {BASELINE: bare}, setting.num_classes, after=name + TUNING,
             choose=best),
    )  # fmt: skip


def _clock(setting: Setting) -> tuple[Grid, ...]:
    return tuple(
        Grid(name, "clock", title, rows, setting.num_classes) for name, (title, rows) in clock.worlds(setting).items()
    )


def _grids() -> dict[str, Grid]:
    found = [_of_setting(setting) for setting in SETTINGS.values()]
    found += [grid for name in TUNED for grid in _tuned(SETTINGS[name])]
    found += [
        grid for name in WITHOUT_DROPOUT for grid in (*_without_dropout(SETTINGS[name]), *_reference(SETTINGS[name]))
    ]
    found += [grid for name in information.SETTINGS for grid in _information(SETTINGS[name])]
    found += [grid for name in clock.SETTINGS for grid in _clock(SETTINGS[name])]
    return {grid.name: grid for grid in found}


GRIDS: dict[str, Grid] = _grids()
