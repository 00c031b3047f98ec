"""Data and settings of the Flower example; the partition equals the simulator's under the same seed."""

import functools
from typing import Any, NamedTuple

import numpy as np

import fedjax_sel
from fedjax_sel.experiment.problem import Problem, pose

STRATEGIES = {
    "fedcor": "fedcor[warmup=6,interval=6,warmup_steps=100,steps=100]",  # default: warm-up in most of twenty rounds
    "fl_dp3s": "fl_dp3s",
    "pow_d": "pow_d[num_candidates=10]",
    "gpfl": "gpfl",
}
"""Strategies by their --strategies name."""


class Setting(NamedTuple):
    """Settings of a run, sent to every node."""

    dataset: str = "digits"
    data_dir: str | None = None
    num_clients: int = 20
    num_selected: int = 5
    rounds: int = 20
    seed: int = 0

    def config(self, strategy: str = "random") -> fedjax_sel.Config:
        """Return the simulator's configuration of the same experiment."""
        from fedjax_sel.core import parsing

        name, parameters = parsing.name_and_parameters("strategy", strategy, "a strategy")
        return fedjax_sel.preset("quickstart").replace(
            dataset=self.dataset, data_dir=self.data_dir, num_clients=self.num_clients, shards_per_client=2,
            num_selected=self.num_selected, rounds=self.rounds, seeds=[self.seed], aggregation="samples",
            server_validation=0.05, local_epochs=2, mesh="seeds=1,clients=1", algo=name,
            algo_args=tuple(parameters.items()),
        )  # fmt: skip


class Examples(NamedTuple):
    """Normalized inputs, float32 [n, H, W, channels], and labels, int32 [n]."""

    inputs: np.ndarray
    labels: np.ndarray


@functools.cache
def problem(setting: Setting) -> Problem:
    """Return the partitioned data; each Ray actor builds it once."""
    return pose(setting.config())


def of_client(setting: Setting, number: int) -> Examples:
    """Return the examples of a client."""
    posed = problem(setting)
    positions = np.asarray(posed.partitions[0].indices[number])
    data: Any = posed.dataset
    return Examples(_normalized(setting, data.train_images[positions]), np.asarray(data.train_labels[positions]))


def of_server(setting: Setting) -> Examples:
    """Return the server's own examples."""
    data: Any = problem(setting).dataset
    return Examples(_normalized(setting, data.server_images), np.asarray(data.server_labels))


def for_tests(setting: Setting) -> Examples:
    """Return the test set."""
    data: Any = problem(setting).dataset
    return Examples(_normalized(setting, data.test_images), np.asarray(data.test_labels))


def measures(losses: np.ndarray, predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the metrics that strategies read: `correct`, `accuracy`, and the mean `loss` in nats."""
    correct = int((predicted == labels).sum())
    return {"correct": correct, "accuracy": correct / len(labels), "loss": float(np.mean(losses))}


def _normalized(setting: Setting, images: np.ndarray) -> np.ndarray:
    data = problem(setting).dataset
    return ((np.asarray(images, np.float32) / 255 - np.float32(data.mean)) / np.float32(data.std)).astype(np.float32)
