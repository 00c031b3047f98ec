"""GPFL's FEMNIST as its text describes it, 3,550 writers: LEAF's files where a user has them, and a stand-in.

The stand-in has the writers' number, log-normal sizes of their mean and deviation, and an affine change of the pixels a
writer, on drawn images (`data.builtin.synthetic`).
"""

from typing import Any

from fedjax_sel.config import Config

LEAF, STAND_IN = "femnist", "writers"
COLUMNS = (LEAF, STAND_IN)
CLIENTS, SAMPLES, TEST = 3550, 805263, 5000
DATASETS = {
    LEAF: "leaf:femnist",  # in the folder that --data-dir names
    STAND_IN: f"synthetic:train_size={SAMPLES},test_size={TEST},num_classes=62,image_size=28,num_writers={CLIENTS}",
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {"algo": "random"},
    "pow_d": {"algo": "pow_d"},
    "fedcor": {"algo": "fedcor"},
    "gpfl": {"algo": "gpfl", "algo_args": {"preset": "gpfl-c", "scale": "update", "accuracy_on": "test"}},
}


def configuration(column: str, changes: dict[str, Any]) -> Config:
    """Return a run by writer: section V's numbers for FEMNIST, and the CNN of its CIFAR-10.

    Args:
        column: whose data.
        changes: of these values, by flat name.
    """
    return Config().replace(
        dataset=DATASETS[column], partition="natural", num_clients=CLIENTS, num_selected=5, model="cnn",
        local_epochs=None, local_steps=20, batch_size=64, learning_rate=0.005, momentum=0.1, weight_decay=1e-4,
        aggregation="uniform", rounds=500, seeds=1, **changes,
    )  # fmt: skip


def shortest(column: str) -> Config:
    """Return the shortest run of a data set, for what its page says of the data.

    Args:
        column: whose data.
    """
    return configuration(column, STRATEGIES["random"]).replace(rounds=1, local_steps=1, batch_size=1, num_selected=1)
