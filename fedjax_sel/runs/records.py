"""A run's results: arrays in memory, `metrics.csv` and `cohorts.npy` on disk, and the way between them.

`metrics.csv` has one row a replicate and round; rounds count from 1; a cell is empty where nothing was measured. Only
columns that end in `_seconds` may differ between two runs of one configuration.
"""

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from fedjax_sel import metrics
from fedjax_sel.config import Config
from fedjax_sel.simulation.ledger import Ledger, settle
from fedjax_sel.simulation.plan import Records

MEASURES = ("test_accuracy", "test_loss", "train_accuracy", "train_loss", "worst_decile_accuracy", "gemd")
CLOCK = "elapsed_seconds"
COLUMNS = ("seed", "round", *MEASURES, *Ledger._fields, CLOCK)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run found. Arrays have leading axes [seeds, rounds]; NaN where nothing was measured.

    Attributes:
        config: the resolved configuration.
        data_source: where the pixels come from; says so if they are not the official ones.
        seeds: the replicates, in the order of the first axis.
        test_accuracy: share of the test set.
        test_loss: nats.
        train_accuracy: share of all clients' training examples.
        train_loss: nats.
        worst_decile_accuracy: mean training accuracy of the tenth of clients with the lowest.
        gemd: group earth mover's distance of the cohort (FL-DP3S Eq. 15).
        cohorts: client ids, int32 [seeds, rounds, K]; -1 where nobody trained.
        ledger: what was sent and computed.
        elapsed_seconds: wall-clock time since the first round began, [rounds].
    """

    config: Config
    data_source: str
    seeds: tuple[int, ...]
    test_accuracy: np.ndarray
    test_loss: np.ndarray
    train_accuracy: np.ndarray
    train_loss: np.ndarray
    worst_decile_accuracy: np.ndarray
    gemd: np.ndarray
    cohorts: np.ndarray
    ledger: Ledger
    elapsed_seconds: np.ndarray

    @property
    def num_rounds(self) -> int:
        """Rounds that were run."""
        return self.gemd.shape[1]

    @property
    def finished(self) -> bool:
        """Whether all rounds of the configuration were run."""
        return self.num_rounds == self.config.run.rounds

    def summary(self) -> list[tuple[str, np.ndarray]]:
        """What the closing table shows: a name and one value a seed."""
        megabytes = 1e6
        rows = (
            []
            if self.finished
            else [(f"rounds of {self.config.run.rounds}", np.full(len(self.seeds), self.num_rounds))]
        )
        rows += [("final test accuracy", metrics.last_measured(self.test_accuracy))]
        if not np.isnan(self.train_accuracy).all():
            rows.append(("final training accuracy", metrics.last_measured(self.train_accuracy)))
            rows.append(("final worst-decile accuracy", metrics.last_measured(self.worst_decile_accuracy)))
        target = self.config.run.target_accuracy
        if target is not None:
            rows.append((f"rounds to {target:.0%} test accuracy", metrics.rounds_to_target(self.test_accuracy, target)))
        rows.append(("mean GEMD of the cohorts", self.gemd.mean(axis=1)))
        rows.append(("megabytes down", self.ledger.bytes_down.sum(axis=1) / megabytes))
        rows.append(("megabytes up", self.ledger.bytes_up.sum(axis=1) / megabytes))
        return rows


class Collector:
    """Gathers the chunks of a run into a Result."""

    def __init__(self, config: Config, data_source: str, num_params: int, floats_per_answer: Sequence[int]):
        self._config = config
        self._data_source = data_source
        self._num_params = num_params
        self._floats_per_answer = tuple(floats_per_answer)
        self._chunks: list[Records] = []
        self._seconds: list[np.ndarray] = []

    def add(self, records: Records, elapsed_seconds: float) -> Result:
        """Takes a chunk (leading axes [rounds, seeds], fetched from the device) and returns that chunk as a Result."""
        before = self._seconds[-1][-1] if self._seconds else 0.0
        rounds = records.gemd.shape[0]
        # the host sees only chunks: within one, time is spread evenly
        self._seconds.append(before + (elapsed_seconds - before) * np.arange(1, rounds + 1) / rounds)
        self._chunks.append(records)
        return self._result([records], self._seconds[-1:])

    def result(self) -> Result:
        """Everything so far."""
        return self._result(self._chunks, self._seconds)

    def _result(self, chunks: list[Records], seconds: list[np.ndarray]) -> Result:
        joined = jax.tree.map(lambda *leaves: np.moveaxis(np.concatenate(leaves), 0, 1), *chunks)
        return Result(
            config=self._config,
            data_source=self._data_source,
            seeds=self._config.run.seeds,
            cohorts=joined.cohort,
            ledger=settle(joined.events, self._num_params, self._floats_per_answer),
            elapsed_seconds=np.concatenate(seconds),
            **{name: getattr(joined, name) for name in MEASURES},
        )


def append_csv(path: Path, chunk: Result, first_round: int) -> None:
    """Appends a chunk's rows to `metrics.csv`, with the header if the file is new.

    Args:
        path: the file.
        chunk: rounds first_round + 1, ...
        first_round: rounds before this chunk.
    """
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(COLUMNS)
        for index in range(chunk.num_rounds):
            for position, seed in enumerate(chunk.seeds):
                measured = [_cell(getattr(chunk, name)[position, index]) for name in MEASURES]
                counted = [int(column[position, index]) for column in chunk.ledger]
                clock = f"{chunk.elapsed_seconds[index]:.3f}"
                writer.writerow([seed, first_round + index + 1, *measured, *counted, clock])


def _cell(value: float) -> str:
    return "" if np.isnan(value) else str(np.float32(value))  # the shortest text that reads back to the same number


def read(config: Config, data_source: str, metrics_csv: Path, cohorts_npy: Path) -> Result:
    """A Result from a run folder's files.

    Args:
        config: the run's configuration.
        data_source: where the pixels come from.
        metrics_csv: one row a replicate and round.
        cohorts_npy: int32 [seeds, rounds, K].

    Returns:
        The result, without rounds of which some replicate's row is missing.
    """
    with metrics_csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    seeds = config.run.seeds
    cohorts = np.load(cohorts_npy, allow_pickle=False)
    # a run that was killed may have written more metrics than cohorts
    num_rounds = min(len(rows) // len(seeds), cohorts.shape[1])
    order = {seed: position for position, seed in enumerate(seeds)}
    kept = [row for row in rows if int(row["round"]) <= num_rounds]

    def table(name: str, kind: type) -> np.ndarray:
        values = np.zeros((len(seeds), num_rounds), np.float32 if kind is float else np.int64)
        for row in kept:
            value = kind(row[name]) if row[name] else np.nan
            values[order[int(row["seed"])], int(row["round"]) - 1] = value
        return values

    seconds = np.array([float(row[CLOCK]) for row in kept if int(row["seed"]) == seeds[0]])
    return Result(
        config=config,
        data_source=data_source,
        seeds=seeds,
        cohorts=cohorts[:, :num_rounds],
        ledger=Ledger(*(table(name, int) for name in Ledger._fields)),
        elapsed_seconds=seconds,
        **{name: table(name, float) for name in MEASURES},
    )
