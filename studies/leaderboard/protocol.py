"""Protocol of the leaderboard, committed before the first run: tasks, rows, tuning, tests.

**Tasks.** Gray images (Fashion-MNIST, an MLP without dropout), color images (CIFAR-10, features of a frozen
EfficientNet-Lite0, a head with one hidden layer), text (Shakespeare's roles, a GRU), many clients (Fashion-MNIST, 500
clients with lognormal sizes, 12 per round, which does not divide 500), and CNNs (CIFAR-10, for a GPU). `look-cnn` is
what CPUs can do meanwhile: FedCor's CNN with fewer rounds, seeds, rates and rows.

**Tuning.** The learning rate is tuned for random selection under FedAvg, in each setting, and all strategies use it.
Under FedYogi, the learning rates of clients and server are tuned for random selection. The criterion is the mean
accuracy of the last ten rounds and of the tuning seeds, on tuning examples: a tenth of the training set, which replaces
the test set. The test set is not read. Ties go to the smaller rate. A best rate at an end of the grid is reported.
In `text`, both rates under FedYogi were the largest of a smaller grid, and random selection with them was worse than
under FedAvg; so their grid has larger ones since, and rows under FedYogi use its best.

**Own parameters.** In the settings `OWN`, each strategy also has eight draws of its own parameters and of its learning
rate (a third to three times the tuned rate, by its logarithm), beside its defaults; random selection has eight draws of
the learning rate. A number of candidates below the cohort's size is raised to it (one draw of color, which could not
run). The best draw on tuning seeds and examples then runs on the seeds of the leaderboard.

**Runs.** Twelve seeds (`look-cnn`: six), paired: equal partitions, initial weights and random streams per seed. Each
client keeps a fifth of its examples as its own test; the server keeps a twentieth of the training set, in all rows. In
`text`, a tenth of the roles never train. Three classes of phones (`clock.PHONES`) give each round its seconds; without
a deadline, they change no training.

**Rows.** `ALGOS` under FedAvg; `UNDER_FEDYOGI` under FedYogi, which lead on the earlier leaderboard. In `text`, `full`
is left out (a round of 468 clients), and so are strategies that need one class per example or labels of clients. So is
`greedyfed` since its costs are known: each round, it evaluates 100 models on 1,915 sequences.

**Tests.** The main measure is the test accuracy, mean of the last ten rounds. A family is all comparisons of one
measure in one setting with random selection under the same optimizer, and of random selection under FedYogi with that
under FedAvg. The joint test of `fedjax_sel.statistics.compare` has a family-wise error of 5 %.

**Objections.** A hostile reader of the first tables asked whether a lead outlives a learning rate that falls late in
training, noisy labels, a population with rare classes, clients whose images differ, and mild heterogeneity.
`OBJECTIONS` answers for the strategies that we advise; each is a family of its own. The same reader asked for the
accuracy at each run's best round, chosen on the clients' own tests (every tenth round); it is a measure of all tables.
These were added after the first tables, and committed before their runs. The last objections followed the tables of
uneven sizes, where strategies that prefer large clients lead: `clustered` draws by data share, the baseline uniformly.

**Names.** The first runs were made as `python -m studies tasks`; the commands of the tables have the present name.

**Transfer.** The order of the strategies is compared between settings by Kendall's rank correlation of their mean
gains, with a bootstrap interval over seeds, for the strategies that both settings have.
"""

import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import Config
from fedjax_sel.papers import FEDCOR_CIFAR10, SHAKESPEARE
from studies.boards import measures
from studies.boards.grid import Grid
from studies.boards.series import Setting as Held
from studies.papers_setting import clock, tuning

SEEDS = tuple(range(12))
TUNING_SEEDS = (100, 101, 102)
TUNING_SHARE = 0.1
BASELINE, FEDYOGI = "random", "fedyogi"
ALGOS = (
    BASELINE, "fed_cbs", "clustered", "fl_dp3s", "fedcor", "gpfl", "divfl", "pow_d", "oort", "hics_fl", "greedyfed",
    "e3cs", "full",
)  # fmt: skip
ADVISED = (BASELINE, "fed_cbs", "clustered", "fedcor")
UNDER_FEDYOGI = (BASELINE, "fed_cbs", "clustered", "fl_dp3s", "fedcor", "pow_d")
FEATURES = "runs/cifar10_features.npz"
"""File that `examples/frozen_features.py` writes (PyTorch 2.14.1). All color rows, tuning included, were repeated, as
the features of the first ones seemed lost. Both files proved equal, bit for bit. Rounding differs, as the first runs
used two devices. In `color-2labels`, tuning therefore chose another of two equally good rates; the first runs of the
advised strategies are the objection `color-2labels-first`."""

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
FEDYOGI_RATES = ((0.01, 0.03, 0.1, 0.3), (0.003, 0.01, 0.03))
"""Learning rates of clients, and of the server."""

_COMMON: dict[str, Any] = {
    "client_test": 0.2, "server_validation": 0.05, "target_accuracy": None, "eval_every": 1, "eval_clients_every": 10,
    "seeds": SEEDS, "chunk": 10, "keep": 1, "checkpoint_seconds": 120.0, "aggregation": "samples",
    "timing": "tiers", "timing_args": clock.PHONES,
}  # fmt: skip
_GRAY = Config().replace(
    **_COMMON, dataset="fashion_mnist", model="mlp", num_clients=100, num_selected=10, local_epochs=1, batch_size=32,
    rounds=150,
)  # fmt: skip
_COLOR = _GRAY.replace(dataset=f"npz:{FEATURES}", model_args={"hidden": 128}, rounds=100)
_TEXT_COMMON: dict[str, Any] = {**_COMMON, "client_test": 0.0, "eval_every": 5}
_TEXT = SHAKESPEARE.replace(**_TEXT_COMMON, num_selected=10, rounds=100)
_CNN = FEDCOR_CIFAR10.replace(
    **_COMMON, holdout=0.0, loss_on="train", local_epochs=1, rounds=1000, precision="bfloat16"
)
_LOOK: dict[str, Any] = {"rounds": 200, "seeds": SEEDS[:6], "eval_every": 5, "precision": "float32"}


class Setting(NamedTuple):
    """Configuration that all rows of a table share, without strategy and learning rate."""

    name: str
    title: str
    config: Config
    rates: tuple[float, ...] = RATES
    fedyogi_rates: tuple[tuple[float, ...], tuple[float, ...]] = FEDYOGI_RATES
    without: tuple[str, ...] = ()  # strategies that are left out

    @property
    def task(self) -> str:
        """Name of the task, the first word of the setting's name."""
        return self.name.split("-")[0]


def _dirichlet(alpha: float, **more: Any) -> dict[str, Any]:
    return {"partition": "dirichlet", "alpha": alpha, **more}


_TWO_LABELS: dict[str, Any] = {"partition": "shards", "shards_per_client": 2}
_GRAYS, _COLORS = "Fashion-MNIST, MLP", "CIFAR-10 features, one hidden layer"
_SETTINGS = (
    Setting("gray-2labels", f"{_GRAYS}, two labels per client", _GRAY.replace(**_TWO_LABELS, num_selected=5)),
    Setting("color-2labels", f"{_COLORS}, two labels per client", _COLOR.replace(**_TWO_LABELS)),
    Setting("gray-dir0.1", f"{_GRAYS}, Dirichlet 0.1", _GRAY.replace(**_dirichlet(0.1))),
    Setting("color-dir0.1", f"{_COLORS}, Dirichlet 0.1", _COLOR.replace(**_dirichlet(0.1))),
    Setting(
        "many-dir0.1",
        "Fashion-MNIST, MLP, 500 clients of lognormal sizes with Dirichlet 0.1",
        _GRAY.replace(**_dirichlet(0.1, client_sizes="lognormal:1"), num_clients=500, num_selected=12),
    ),
    Setting("gray-1label", f"{_GRAYS}, one label per client", _GRAY.replace(partition="shards", shards_per_client=1)),
    Setting("gray-dir0.3", f"{_GRAYS}, Dirichlet 0.3", _GRAY.replace(**_dirichlet(0.3))),
    Setting("color-dir0.3", f"{_COLORS}, Dirichlet 0.3", _COLOR.replace(**_dirichlet(0.3))),
    Setting(
        "gray-sizes",
        f"{_GRAYS}, Dirichlet 0.3 with lognormal sizes",
        _GRAY.replace(**_dirichlet(0.3, client_sizes="lognormal:1")),
    ),
    Setting(
        "text-roles", "Shakespeare by role, GRU", _TEXT, (0.3, 1.0, 3.0), ((0.3, 1.0, 3.0), (0.003, 0.01, 0.03, 0.1)),
        without=("fed_cbs", "greedyfed", "full"),
    ),
    Setting(
        "cnn-2labels", "CIFAR-10, FedCor's CNN, two labels per client",
        _CNN.replace(**_TWO_LABELS, num_selected=5), without=("full",),
    ),
    Setting(
        "cnn-dir0.2", "CIFAR-10, FedCor's CNN, Dirichlet 0.2", _CNN.replace(**_dirichlet(0.2)), without=("full",)
    ),
    Setting(
        "resnet-2labels", "CIFAR-10, ResNet-8, two labels per client",
        _CNN.replace(**_TWO_LABELS, model="resnet8", num_selected=5), without=("full",),
    ),
    Setting(
        "resnet-dir0.2", "CIFAR-10, ResNet-8, Dirichlet 0.2", _CNN.replace(**_dirichlet(0.2), model="resnet8"),
        without=("full",),
    ),
    Setting(
        "look-cnn", "CIFAR-10, FedCor's CNN, two labels per client; a look",
        _CNN.replace(**_TWO_LABELS, num_selected=5, **_LOOK), (0.03, 0.1, 0.3), fedyogi_rates=((), ()),
        without=tuple(algo for algo in ALGOS if algo not in ADVISED),
    ),
)  # fmt: skip
SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _SETTINGS}
"""Settings by name, in the order of the pages."""
ON_GPU = ("cnn", "resnet")  # their tasks


class Rates(NamedTuple):
    """Learning rates of an optimizer."""

    client: float
    server: float | None = None  # None: FedAvg

    @property
    def optimizer(self) -> str:
        """Name of the optimizer."""
        return "fedavg" if self.server is None else FEDYOGI

    @property
    def row(self) -> str:
        """Name of the tuning run."""
        at_server = "" if self.server is None else f" + {FEDYOGI} server={self.server:g}"
        return f"{BASELINE} rate={self.client:g}{at_server}"

    def apply(self, config: Config) -> Config:
        """Return a configuration with these rates, under FedAvg or FedYogi."""
        config = config.replace(learning_rate=self.client)
        if self.server is None:
            return config
        return config.replace(optimizer=FEDYOGI, server_learning_rate=self.server)


def tried(setting: Setting) -> list[Rates]:
    """Return the learning rates that are tried for random selection, smallest first."""
    clients, servers = setting.fedyogi_rates
    return [*map(Rates, setting.rates), *(Rates(client, server) for client in clients for server in servers)]


def tuning_runs(setting: Setting) -> dict[str, Config]:
    """Return the tuning runs of random selection, by row."""
    config = setting.config.replace(algo=BASELINE, seeds=TUNING_SEEDS, tuning_share=TUNING_SHARE)
    return {rates.row: rates.apply(config) for rates in tried(setting)}


def best(setting: Setting, held: Held, optimizer: str = "fedavg") -> Rates | None:
    """Return the best rates of random selection under an optimizer; None if all runs diverged."""
    found = {
        rates: float(measures.last_rounds(held.rows[rates.row]).mean())
        for rates in tried(setting)
        if rates.optimizer == optimizer and rates.row in held.rows
    }
    return max(found, key=lambda rates: found[rates], default=None)  # the first of equal ones


def row(algo: str, optimizer: str = "fedavg") -> str:
    """Return the name of a row."""
    return algo if optimizer == "fedavg" else f"{algo} + {optimizer}"


def rows_of_any() -> list[str]:
    """Return the rows of all settings, in order."""
    return [*ALGOS, *(row(algo, FEDYOGI) for algo in UNDER_FEDYOGI)]


def rows(setting: Setting, rates: Mapping[str, Rates | None]) -> dict[str, Config]:
    """Return the runs of a setting by row, with the rates by optimizer."""
    pairs = [(algo, "fedavg") for algo in ALGOS] + [(algo, FEDYOGI) for algo in UNDER_FEDYOGI]
    found = {}
    for algo, optimizer in pairs:
        chosen = rates.get(optimizer)
        if algo not in setting.without and chosen is not None:
            found[row(algo, optimizer)] = chosen.apply(setting.config.replace(algo=algo))
    return found


def chosen(setting: Setting, held: Held) -> dict[str, Config]:
    """Return the runs of a setting with the rates of its tuning runs."""
    return rows(setting, {optimizer: best(setting, held, optimizer) for optimizer in ("fedavg", FEDYOGI)})


OWN = ("gray-2labels", "color-2labels")
FACTOR = 3.0  # largest factor of a draw on the tuned learning rate


def draws(setting: Setting, rates: Rates) -> dict[str, Config]:
    """Return the tuning runs of all strategies under FedAvg, by row; draw 0 has the defaults and the tuned rate."""
    config = setting.config.replace(seeds=TUNING_SEEDS, tuning_share=TUNING_SHARE)
    return {
        f"{algo} draw={number}": _draw(config, algo, number, rates)
        for algo in ALGOS
        if algo not in (*setting.without, "full")
        for number in range(tuning.DRAWS + 1)
    }


def _draw(config: Config, algo: str, number: int, rates: Rates) -> Config:
    factors = FACTOR ** np.random.default_rng(zlib.crc32(f"rate of {algo}".encode())).uniform(-1, 1, tuning.DRAWS)
    drawn = tuning.drawn(algo)
    own = dict(drawn[number - 1]) if 0 < number <= len(drawn) else {}
    if "num_candidates" in own:
        own["num_candidates"] = max(own["num_candidates"], config.selection.num_selected)
    rate = rates.client * (factors[number - 1] if number else 1.0)
    return config.replace(algo=algo, algo_args=own, learning_rate=float(f"{rate:.3g}"))


def chosen_draws(setting: Setting, held: Held) -> dict[str, Config]:
    """Return each strategy's best draw on the seeds of the leaderboard, by strategy."""
    found = {}
    for name, config in draws(setting, best_of(held)).items():
        algo = name.split()[0]
        if name in held.rows:
            value = float(measures.last_rounds(held.rows[name]).mean())
            if algo not in found or value > found[algo][0]:
                found[algo] = value, config
    return {algo: config.replace(seeds=SEEDS, tuning_share=0.0) for algo, (_, config) in found.items()}


def best_of(held: Held) -> Rates:
    """Return the tuned rate from which the draws of a part were made."""
    return Rates(float(held.about["rows"][f"{BASELINE} draw=0"]["learning_rate"]))


OBJECTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gray-2labels-decay": (
        "gray-2labels", "the learning rate falls to 0.3 of itself after rounds 75, 100 and 125",
        {"learning_rate_milestones": (75, 100, 125), "learning_rate_decay": 0.3},
    ),
    "gray-dir0.3-noise": (
        "gray-dir0.3", "80 % of the labels of 30 % of the clients are random",
        {"label_noise": 0.8, "noisy_clients": 0.3},
    ),
    "gray-dir0.3-tail": (
        "gray-dir0.3", "the most frequent class has 100 times the examples of the rarest",
        {"partition": "studies.leaderboard.long_tail:dirichlet"},
    ),
    "gray-dir0.3-turns": (
        "gray-dir0.3", "each client's images are turned by 0, 90, 180 or 270 degrees", {"feature_skew": "turns"},
    ),
    "gray-dir0.3-mild": ("gray-dir0.3", "Dirichlet 1 instead", {"alpha": 1.0}),
    "color-2labels-first": (
        "color-2labels", "the first runs, at the rate of 0.03", {"learning_rate": 0.03},
    ),
    "gray-sizes-md": ("gray-sizes", "random selection draws by data share", {BASELINE: {"variant": "md"}}),
    "many-dir0.1-md": ("many-dir0.1", "random selection draws by data share", {BASELINE: {"variant": "md"}}),
    "text-roles-md": ("text-roles", "random selection draws by data share", {BASELINE: {"variant": "md"}}),
    **{
        f"{setting}-md-fedyogi": (
            setting, "FedYogi, and random selection draws by data share",
            {BASELINE: {"variant": "md"}, "optimizer": FEDYOGI},
        )
        for setting in ("gray-sizes", "many-dir0.1", "text-roles")
    },
}  # fmt: skip
"""Setting, description and changes by part; those of the baseline are parameters of its strategy. Rates are those of
`OBJECTION_RATES`."""
OBJECTION_RATES = {
    "gray-2labels": Rates(0.03), "color-2labels": Rates(0.1), "gray-dir0.3": Rates(0.1), "gray-sizes": Rates(0.1),
    "many-dir0.1": Rates(0.1), "text-roles": Rates(1.0), "gray-sizes + fedyogi": Rates(0.1, 0.003),
    "many-dir0.1 + fedyogi": Rates(0.1, 0.01), "text-roles + fedyogi": Rates(1.0, 0.03),
}  # fmt: skip
"""The tuned rates, and for Dirichlet 0.3 that of Dirichlet 0.1."""
MORE_ROWS = {"color-2labels-first": ("fl_dp3s", "pow_d", "hics_fl")}
"""Strategies beside the advised ones, with which the study of privacy compares."""


def _objection(name: str) -> Grid:
    setting, words, changes = OBJECTIONS[name]
    of_all = {field: value for field, value in changes.items() if field != BASELINE}
    rates = OBJECTION_RATES[row(setting, changes.get("optimizer", "fedavg"))]
    config = rates.apply(SETTINGS[setting].config).replace(**of_all)
    rows = {
        algo: config.replace(algo=algo, algo_args=changes.get(algo, {}))
        for algo in (*ADVISED, *MORE_ROWS.get(name, ()))
        if algo not in SETTINGS[setting].without
    }
    return Grid(name, "objections", f"{SETTINGS[setting].title}; {words}", rows)


TUNING, DRAWS, TUNED = "-rates", "-draws", "-own"


def _own_grids(setting: Setting, usual: Rates) -> tuple[Grid, Grid]:
    title = f"{setting.title}: {tuning.DRAWS} draws of each strategy's parameters"
    drawn = Grid(
        setting.name + DRAWS, setting.task + TUNED, title, draws(setting, usual), own_seeds=True,
        after=setting.name + TUNING, choose=lambda held: draws(setting, _fedavg_rates(setting, held)),
    )  # fmt: skip
    rows = {algo: setting.config.replace(algo=algo) for algo in ALGOS if algo not in (*setting.without, "full")}
    title = f"{setting.title}: the best draw of each strategy"
    return drawn, Grid(
        setting.name + TUNED, setting.task + TUNED, title, rows, after=drawn.name, choose=partial(chosen_draws, setting)
    )


def _fedavg_rates(setting: Setting, held: Held) -> Rates:
    return best(setting, held) or Rates(setting.rates[0])


def _grids() -> dict[str, Grid]:
    found = []
    for setting in SETTINGS.values():
        title = f"{setting.title}: learning rates of random selection"
        found.append(Grid(setting.name + TUNING, setting.task, title, tuning_runs(setting), own_seeds=True))
        usual = {rates.optimizer: rates for rates in reversed(tried(setting))}  # the smallest ones
        found.append(
            Grid(
                setting.name, setting.task, setting.title, rows(setting, usual),
                after=setting.name + TUNING, choose=partial(chosen, setting),
            )
        )  # fmt: skip
        if setting.name in OWN:
            found += _own_grids(setting, usual["fedavg"])
    found += [_objection(name) for name in OBJECTIONS]
    return {grid.name: grid for grid in found}


GRIDS: dict[str, Grid] = _grids()
"""Runs by part: for each setting the tuning runs, then the rows."""
