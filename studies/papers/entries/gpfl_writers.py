"""GPFL's FEMNIST with 3,550 writers as in its text: LEAF's files if the user has them, or a synthetic replacement.

The replacement has the same number of writers, log-normal sizes with the same mean and deviation, and synthetic images
(`data.builtin.synthetic`) with one affine transform of the pixels per writer.
"""

from typing import Any

from fedjax_sel import Config

LEAF, STAND_IN = "femnist", "writers"
COLUMNS = (LEAF, STAND_IN)
CLIENTS, SAMPLES, TEST = 3550, 805263, 5000
DATASETS = {
    LEAF: "leaf:femnist",  # in the folder of --data-dir
    STAND_IN: f"synthetic:train_size={SAMPLES},test_size={TEST},num_classes=62,image_size=28,num_writers={CLIENTS}",
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {"algo": "random"},
    "pow_d": {"algo": "pow_d"},
    "fedcor": {"algo": "fedcor"},
    "gpfl": {"algo": "gpfl", "algo_args": {"preset": "gpfl-c", "scale": "update", "accuracy_on": "test"}},
}


def configuration(column: str, changes: dict[str, Any]) -> Config:
    """Return a run partitioned by writer, with section V's numbers for FEMNIST and the CNN for CIFAR-10.

    Args:
        column: the data set.
        changes: changes of these values, by flat name.
    """
    return Config().replace(
        dataset=DATASETS[column], partition="natural", num_clients=CLIENTS, num_selected=5, model="cnn",
        local_epochs=None, local_steps=20, batch_size=64, learning_rate=0.005, momentum=0.1, weight_decay=1e-4,
        aggregation="uniform", rounds=500, seeds=1, **changes,
    )  # fmt: skip


def shortest(column: str) -> Config:
    """Return the shortest run of a data set, for the data statistics on its page.

    Args:
        column: the data set.
    """
    return configuration(column, STRATEGIES["random"]).replace(rounds=1, local_steps=1, batch_size=1, num_selected=1)
