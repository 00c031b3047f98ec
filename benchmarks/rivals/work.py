"""The runners' shared code: the work, read from the first argument, and the report, printed as the last line.

It needs only NumPy, because it runs in each rival's environment. Shapes: N clients with n examples, T rounds,
cohorts of K, E local steps, batches of B.
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import numpy as np


class Work:
    """One setting: numbers, data, cohorts and initial weights.

    Attributes:
        model: mlp, cnn, pfl_cnn or resnet8.
        dropout, local_steps, batch_size, learning_rate, weight_decay: settings of local training.
        warm_rounds, rounds: number of untimed and of timed rounds.
        seed: seed of the shuffles and the dropout.
        backend: a rival's backend, or None.
        launched: start time of the process, seconds of time.time().
        cohorts: selected clients, int [T, K].
        layers: kernel and bias of each layer; kernels are [k, k, in, out] (convolution), [in, out] (dense) or [out]
            (normalization); a missing bias is [0].
        clients: positions of each client's examples in the training set, int [N, n].
    """

    def __init__(self, spec: dict[str, Any]):
        self.model: str = spec["model"]
        self.dropout: float = spec["dropout"]
        self.local_steps: int = spec["local_steps"]
        self.batch_size: int = spec["batch_size"]
        self.learning_rate: float = spec["learning_rate"]
        self.weight_decay: float = spec["weight_decay"]
        self.warm_rounds: int = spec["warm_rounds"]
        self.rounds: int = spec["rounds"]
        self.seed: int = spec["seed"]
        self.backend: str | None = spec.get("backend")
        self.launched: float = spec["launched"]
        with np.load(spec["data"]) as data:
            self.cohorts = data["cohorts"][: self.total_rounds, : spec["num_selected"]]
            self.clients = data["clients"]
            self.layers = [(data[f"kernel{i}"], data[f"bias{i}"]) for i in range(int(data["num_layers"]))]
            self._images, self._labels = data["train_images"], data["train_labels"].astype(np.int64)
            self._test = data["test_images"], data["test_labels"].astype(np.int64)
            self._scale, self._shift = data["scale"], data["shift"]

    @property
    def total_rounds(self) -> int:
        """T, the number of untimed and timed rounds."""
        return self.warm_rounds + self.rounds

    def client(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a client's normalized images, float32 [n, H, W, channels], and labels, int64 [n]."""
        own = self.clients[number]
        return self._normalize(self._images[own]), self._labels[own]

    def selected_clients(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return the data of all clients in any cohort: client -> (images, labels)."""
        return {int(number): self.client(number) for number in np.unique(self.cohorts)}

    def test_blocks(self, size: int = 1000) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Yield the normalized test set in blocks."""
        images, labels = self._test
        for start in range(0, len(labels), size):
            yield self._normalize(images[start : start + size]), labels[start : start + size]

    def order(self, generator: np.random.Generator) -> np.ndarray:
        """Return the positions of a client's batches, int [E, B], cut from successive shuffled epochs."""
        needed, size = self.local_steps * self.batch_size, self.clients.shape[1]
        passes = [generator.permutation(size) for _ in range(-(-needed // size))]
        return np.concatenate(passes)[:needed].reshape(self.local_steps, self.batch_size)

    def generator(self, *numbers: int) -> np.random.Generator:
        """Return a generator seeded with the work's seed and the numbers."""
        return np.random.default_rng([self.seed, *numbers])

    def _normalize(self, images: np.ndarray) -> np.ndarray:
        return images.astype(np.float32) * self._scale + self._shift


def read() -> Work:
    """Return the work that the first argument (JSON) describes."""
    return Work(json.loads(sys.argv[1]))


def num_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Clock:
    """A clock of the timed rounds, called after every round."""

    def __init__(self, work: Work):
        self.work = work
        self.done = 0
        self.startup_seconds = self.seconds = self.opened = 0.0

    def __call__(self) -> None:
        """Count a finished round."""
        self.done += 1
        if self.done == self.work.warm_rounds:
            self.startup_seconds = time.time() - self.work.launched
            self.opened = time.perf_counter()
        if self.done == self.work.total_rounds:
            self.seconds = time.perf_counter() - self.opened


def report(clock: Clock, accuracy: float, loss: float, packages: Iterable[str], **more: Any) -> None:
    """Print the runner's report as one line of JSON.

    Args:
        clock: the clock, after the last round.
        accuracy: final accuracy on the test set.
        loss: final mean loss on the test set, nats.
        packages: packages whose versions are reported.
        **more: further entries.
    """
    line = {
        "startup_seconds": round(clock.startup_seconds, 3),
        "seconds": round(clock.seconds, 4),
        "accuracy": float(accuracy),
        "loss": float(loss),
        "versions": {"python": sys.version.split()[0]} | {name: version(name) for name in packages},
    }
    print("\n" + json.dumps(line | more), flush=True)
