"""Settings and contenders, as configurations without folders."""

from typing import Any, NamedTuple

from fedjax_sel import Config
from fedjax_sel.papers import FEDCOR_CIFAR10, FEDCOR_FASHION_MNIST, PARTITIONS
from studies.boards.grid import Contender

SEEDS = 10
ROUNDS = 150
SERVER_OPTIMIZER = "fedyogi"
SERVER_VALIDATION = 0.05
CLIENT_METRICS_EVERY = 15
UPPER_REFERENCE = "full"
CORE = (
    "random", "fedgp", "fedcor", "gpfl", "fl_dp3s", "afl", "pow_d", "fedsae", "clustered", "divfl", "oort", "fed_cbs",
)  # fmt: skip
"""Strategies of all studies; the others run in the main settings only."""
ALGOS = (
    *CORE, "hics_fl", "fedlecc", "greedyfed", "e3cs", "cyclic", "ocs", "kvib", "osmd", "delta", "full",
)  # fmt: skip
"""All strategies without a clock."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {"gpfl scale=update": ("gpfl", {"scale": "update"})}
"""Additional rows with non-default strategy arguments: name -> strategy and arguments."""
WITHOUT_DROPOUT = ("random", "clustered", "fl_dp3s", "fedcor", "pow_d", "divfl", "fed_cbs")
UNDER_SERVER_OPTIMIZER = ("random", "fedcor", "fl_dp3s", "pow_d", "clustered", "fed_cbs")

WHY_NOT_ALL = (
    f"All strategies run under FedAvg, and {', '.join(UNDER_SERVER_OPTIMIZER)} also under {SERVER_OPTIMIZER} with its "
    "default learning rate. These rows answer whether selection still matters with a better server optimizer. "
    f"{SERVER_OPTIMIZER} was the best of five optimizers for FedCor (results/optimizers, on the same test images)."
)
"""Reason why only some strategies run under the second optimizer."""

STRATEGY_SETTINGS = {
    "random": "uniform, without replacement",
    "fedgp": "its paper's numbers: 15 rounds of warm-up, a probe every 10 rounds (CIFAR-10: every 50)",
    "fedcor": "its paper's numbers: 15 rounds of warm-up, a probe every 10 rounds (CIFAR-10: 20, every 50)",
    "gpfl": "`gpfl-c`, the coherent reading of the paper; accuracy on the server's own 5 % of the images. "
    "`gpfl scale=update` leaves out the division by learning rate times steps: its clients take turns",
    "fl_dp3s": "profiles from the first fully-connected layer, once",
    "afl": "alpha 0.75, 0.01, 0.1, as in its paper",
    "pow_d": "d = 2 K candidates, their exact losses",
    "fedsae": "temperature 0.01, active in all rounds",
    "clustered": "Algorithm 2, angles between updates, Ward's linkage",
    "divfl": "without overhead (`lazy`), exact greedy steps",
    "oort": "the public code's numbers, statistical utility alone",
    "hics_fl": "temperature 0.0025 and gamma 4, as in its paper for Fashion-MNIST",
    "fedlecc": "our reading of its abstract: one cluster per label, the largest losses",
    "fed_cbs": "lambda 10, exact label counts",
    "greedyfed": "100 averages of subsets per round on the server's own 5 % of the images",
    "e3cs": "quota 0.5; without absence it is close to random",
    "cyclic": "five groups",
    "ocs": "polls all clients; independent draws, unbiased weights",
    "kvib": "bound measured in the first round; independent draws, unbiased weights",
    "osmd": "draws with replacement, unbiased weights",
    "delta": "the practical form, without variances; draws with replacement, unbiased weights",
    "full": "all clients in each round: the upper reference, for 10 to 20 times the cost",
}
"""Description of each strategy's own settings."""

_COMMON: dict[str, Any] = {
    "server_validation": SERVER_VALIDATION,
    "target_accuracy": None,
    "train_metrics_every": CLIENT_METRICS_EVERY,
    "eval_every": 1,
    "chunk": 10,
    "seeds": SEEDS,
    "rounds": ROUNDS,
    "keep": 1,
    "checkpoint_seconds": 120.0,
}
_PARTITIONS = {**PARTITIONS, "xi0.8": {"partition": "skewness", "skewness": "0.8", "num_selected": 10}}


class Setting(NamedTuple):
    """Configuration that all contenders of a table share."""

    name: str
    title: str  # readable name
    config: Config  # without strategy and folder
    num_classes: int

    @property
    def task(self) -> str:
        """Task whose hyperparameters FedCor and FedGP use for this data set."""
        return "cifar10" if self.name.startswith("cifar10") else "fmnist"


def _title(data: str, partition: str) -> str:
    dealt = {
        "1spc": "one label per client",
        "2spc": "two labels per client",
        "dir": "Dirichlet 0.2",
        "xi0.8": "skewness 0.8",
    }[partition]
    return f"{data}, {dealt}"


def _settings() -> dict[str, Setting]:
    found = []
    for short, title, dataset in (("fmnist", "Fashion-MNIST", "fashion_mnist"), ("mnist", "MNIST", "mnist")):
        for name, partition in _PARTITIONS.items():
            config = FEDCOR_FASHION_MNIST.replace(**_COMMON, dataset=dataset, **partition)
            found.append(Setting(f"{short}-{name}", _title(title, name), config, 10))
    for name in ("2spc", "dir"):
        config = FEDCOR_CIFAR10.replace(**{**_COMMON, "seeds": 3, "rounds": 100, "chunk": 5}, **_PARTITIONS[name])
        found.append(Setting(f"cifar10-{name}", _title("CIFAR-10", name), config, 10))
    return {setting.name: setting for setting in found}


SETTINGS: dict[str, Setting] = _settings()
"""Settings by name. Data, partition, model and local training follow FedCor's Fashion-MNIST setting (also for MNIST)
and its CIFAR-10 setting. The skewness partition follows FL-DP3S, with its ten clients per round."""


def contenders(setting: Setting) -> tuple[Contender, ...]:
    """Return the contenders of a setting; on CIFAR-10, only under FedAvg to limit the run time."""
    again = () if setting.task == "cifar10" else UNDER_SERVER_OPTIMIZER
    return (*map(Contender, (*ALGOS, *VARIANTS)), *(Contender(algo, SERVER_OPTIMIZER) for algo in again))


def configuration(setting: Setting, who: Contender, **arguments: Any) -> Config:
    """Return the configuration of a run.

    Args:
        setting: the setting.
        who: strategy and optimizer.
        **arguments: strategy arguments that replace the default ones.
    """
    usual = {"task": "cifar10"} if who.algo in ("fedcor", "fedgp") and setting.task == "cifar10" else {}
    algo, own = VARIANTS.get(who.algo, (who.algo, {}))
    config = setting.config.replace(algo=algo, algo_args={**usual, **own, **arguments})
    return config if who.optimizer == "fedavg" else config.replace(optimizer=who.optimizer)
