"""What every runner shares: the work to do, read from its first argument, and the line that it prints at the end.

NumPy only, for it runs in each rival's own environment. Shapes: N clients of n examples, T rounds, K a cohort,
E local steps, B a batch.
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
    """One setting to run: numbers, data, cohorts and first weights.

    Attributes:
        model: mlp, cnn, pfl_cnn or resnet8.
        dropout, local_steps, batch_size, learning_rate, weight_decay: of the local training.
        warm_rounds, rounds: rounds before the clock starts, and rounds that it measures.
        seed: of the shuffles and the dropout.
        backend: an option of a rival, or None.
        launched: when the process was started, seconds of time.time().
        cohorts: int [T, K], who trains when.
        layers: kernel and bias of each layer: convolutions [k, k, in, out], dense ones [in, out], normalisations [out];
            [0] where there is no bias.
        clients: int [N, n], positions in the training set.
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
        """T, untimed and timed."""
        return self.warm_rounds + self.rounds

    def client(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a client's images, normalised, float32 [n, H, W, channels], and labels, int64 [n]."""
        own = self.clients[number]
        return self._normalise(self._images[own]), self._labels[own]

    def everyone(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """`client` of all that are ever selected: what a simulation loads before it starts."""
        return {int(number): self.client(number) for number in np.unique(self.cohorts)}

    def test_blocks(self, size: int = 1000) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """The test set, normalised, in blocks."""
        images, labels = self._test
        for start in range(0, len(labels), size):
            yield self._normalise(images[start : start + size]), labels[start : start + size]

    def order(self, generator: np.random.Generator) -> np.ndarray:
        """Positions of a client's batches, int [E, B]: shuffled passes one after another, cut into batches."""
        needed, size = self.local_steps * self.batch_size, self.clients.shape[1]
        passes = [generator.permutation(size) for _ in range(-(-needed // size))]
        return np.concatenate(passes)[:needed].reshape(self.local_steps, self.batch_size)

    def generator(self, *numbers: int) -> np.random.Generator:
        """Return a generator of the work's seed and some numbers."""
        return np.random.default_rng([self.seed, *numbers])

    def _normalise(self, images: np.ndarray) -> np.ndarray:
        return images.astype(np.float32) * self._scale + self._shift


def read() -> Work:
    """Return the work that the first argument (JSON) describes."""
    return Work(json.loads(sys.argv[1]))


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Clock:
    """Call it after every round; it knows when the untimed ones are over."""

    def __init__(self, work: Work):
        self.work = work
        self.done = 0
        self.startup_seconds = self.seconds = self.opened = 0.0

    def __call__(self) -> None:
        """Count a round that is over."""
        self.done += 1
        if self.done == self.work.warm_rounds:
            self.startup_seconds = time.time() - self.work.launched
            self.opened = time.perf_counter()
        if self.done == self.work.total_rounds:
            self.seconds = time.perf_counter() - self.opened


def report(clock: Clock, accuracy: float, loss: float, packages: Iterable[str], **more: Any) -> None:
    """Print the runner's line.

    Args:
        clock: after the last round.
        accuracy: on the test set, at the end.
        loss: likewise, nats.
        packages: whose versions matter.
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
