"""A run's results: arrays in memory, `metrics.csv` and `cohorts.npy` on disk, and the way between them.

`metrics.csv` has one row a replicate and round; rounds count from 1; a cell is empty where nothing was measured. Only
columns that end in `_seconds` may differ between two runs of one configuration.
"""

import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel import metrics
from fedjax_sel.config import Config
from fedjax_sel.simulation.ledger import Ledger, settle
from fedjax_sel.simulation.plan import Records

MEASURES = ("test_accuracy", "test_loss", "train_accuracy", "train_loss", "worst_decile_accuracy", "gemd")
CLOCK, STEADY_CLOCK = "elapsed_seconds", "round_seconds"
COLUMNS = ("seed", "round", *MEASURES, *Ledger._fields, CLOCK, STEADY_CLOCK)


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
        gemd: group earth mover's distance of those of the cohort who reported (FL-DP3S Eq. 15); NaN where nobody did.
        cohorts: client ids, int32 [seeds, rounds, K]; -1 where nobody trained.
        ledger: what was sent and computed.
        elapsed_seconds: wall-clock time since the first round began, [rounds]; what a killed process lost is not in it.
        stopped_by: the number of the signal that ended it before its last round; 0 without.
        round_seconds: wall-clock time of each round, [rounds]; NaN in the first chunk of a process, which compiles, and
            where it is not known.
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
    stopped_by: int = 0  # the signal that ended it early
    round_seconds: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))

    @property
    def num_rounds(self) -> int:
        """Rounds that were run."""
        return self.gemd.shape[1]

    @property
    def finished(self) -> bool:
        """Whether all rounds of the configuration were run."""
        return self.num_rounds == self.config.run.rounds

    @property
    def seed_rounds_per_second(self) -> float:
        """Return the speed without compilation; NaN where no chunk of a process came after its first one.

        All that lies between two chunks counts, evaluations and checkpoints among it.
        """
        known = ~np.isnan(self.round_seconds)
        return len(self.seeds) * int(known.sum()) / float(self.round_seconds[known].sum()) if known.any() else np.nan

    @property
    def compilation_seconds(self) -> float:
        """Return what the first chunks of the run's processes took beyond the speed of the others, in seconds.

        It is what compiling the rounds takes; NaN where that speed is not known.
        """
        known = ~np.isnan(self.round_seconds)
        at_full_speed = len(self.seeds) * self.num_rounds / self.seed_rounds_per_second
        return max(float(self.elapsed_seconds[-1]) - at_full_speed, 0.0) if known.any() else np.nan

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
        rows.append(("mean GEMD of the cohorts", metrics.mean_of_measured(self.gemd, axis=1)))
        rows.append(("megabytes down", self.ledger.bytes_down.sum(axis=1) / megabytes))
        rows.append(("megabytes up", self.ledger.bytes_up.sum(axis=1) / megabytes))
        return rows


class Collector:
    """Gathers the chunks of a run into a Result."""

    def __init__(
        self,
        config: Config,
        data_source: str,
        num_params: int,
        floats_per_answer: Sequence[int],
        earlier: Result | None = None,
    ):
        """Of a run whose earlier rounds, if it goes on from a checkpoint, are known.

        A Collector belongs to one process: its first chunk is the one that waits for the compiler.
        """
        self._config = config
        self._data_source = data_source
        self._num_params = num_params
        self._floats_per_answer = tuple(floats_per_answer)
        self._parts = [] if earlier is None else [earlier]
        self._before = 0.0 if earlier is None else float(earlier.elapsed_seconds[-1])
        self._compiled = False

    def add(self, records: Records, elapsed_seconds: float) -> Result:
        """Takes a chunk (leading axes [rounds, seeds], fetched from the device) and returns that chunk as a Result.

        `elapsed_seconds` counts from when this process began with its first round.
        """
        last = self._parts[-1].elapsed_seconds[-1] if self._parts else 0.0
        rounds = records.gemd.shape[0]
        # the host sees only chunks: within one, time is spread evenly
        taken = self._before + elapsed_seconds - last
        seconds = last + taken * np.arange(1, rounds + 1) / rounds
        steady = np.full(rounds, taken / max(rounds, 1) if self._compiled else np.nan)
        self._compiled = True
        by_seed = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records)
        self._parts.append(
            Result(
                config=self._config,
                data_source=self._data_source,
                seeds=self._config.run.seeds,
                cohorts=by_seed.cohort,
                ledger=settle(by_seed.events, self._num_params, self._floats_per_answer),
                elapsed_seconds=seconds,
                round_seconds=steady,
                **{name: getattr(by_seed, name) for name in MEASURES},
            )
        )
        return self._parts[-1]

    def result(self) -> Result:
        """Everything so far."""
        parts = self._parts

        def joined(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts], axis=1)

        ledgers = [part.ledger for part in parts]
        whole = dataclasses.replace(
            parts[-1],
            cohorts=joined("cohorts"),
            ledger=Ledger(*(np.concatenate(columns, axis=1) for columns in zip(*ledgers))),
            elapsed_seconds=np.concatenate([part.elapsed_seconds for part in parts]),
            round_seconds=np.concatenate([part.round_seconds for part in parts]),
            **{name: joined(name) for name in MEASURES},
        )
        self._parts = [whole]
        return whole


def csv_text(chunk: Result, first_round: int, header: bool, columns: Sequence[str] = COLUMNS) -> str:
    """A chunk's rows of `metrics.csv`.

    Args:
        chunk: rounds first_round + 1, ...
        first_round: rounds before this chunk.
        header: whether the names of the columns come first.
        columns: of the table; fewer in one that an earlier version began.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    for index in range(chunk.num_rounds):
        for position, seed in enumerate(chunk.seeds):
            measured = {name: _cell(getattr(chunk, name)[position, index]) for name in MEASURES}
            counted = {name: int(column[position, index]) for name, column in chunk.ledger._asdict().items()}
            steady = chunk.round_seconds[index]
            clocks = {
                CLOCK: f"{chunk.elapsed_seconds[index]:.3f}",
                STEADY_CLOCK: "" if np.isnan(steady) else f"{steady:.6g}",
            }
            writer.writerow({"seed": seed, "round": first_round + index + 1, **measured, **counted, **clocks})
    return text.getvalue()


def _cell(value: float) -> str:
    return "" if np.isnan(value) else str(np.float32(value))  # the shortest text that reads back to the same number


def parse(config: Config, data_source: str, rows_text: str, cohorts: np.ndarray) -> Result:
    """A Result from what a run folder's files hold.

    Args:
        config: the run's configuration.
        data_source: where the pixels come from.
        rows_text: of `metrics.csv`, one row a replicate and round; a last row without its end does not count.
        cohorts: int32 [seeds, rounds, K].

    Returns:
        The result, without rounds of which some replicate's row is missing.

    Raises:
        ValueError: it is not such a table.
    """
    try:
        return _parse(config, data_source, rows_text, cohorts)
    except (TypeError, KeyError, IndexError, OverflowError, csv.Error) as error:
        raise ValueError(f"a row of metrics.csv is not as it was written ({type(error).__name__}: {error})") from error


def _parse(config: Config, data_source: str, rows_text: str, cohorts: np.ndarray) -> Result:
    whole = rows_text[: rows_text.rfind("\n") + 1]
    rows = list(csv.DictReader(io.StringIO(whole)))
    seeds = config.run.seeds
    if not seeds:
        raise ValueError("its configuration names no seeds")
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

    once = [row for row in kept if int(row["seed"]) == seeds[0]]
    measures: dict[str, Any] = {name: table(name, float) for name in MEASURES}
    return Result(
        config=config,
        data_source=data_source,
        seeds=seeds,
        cohorts=cohorts[:, :num_rounds],
        ledger=Ledger(*(table(name, int) for name in Ledger._fields)),
        elapsed_seconds=np.array([float(row[CLOCK]) for row in once]),
        round_seconds=np.array([float(row.get(STEADY_CLOCK) or np.nan) for row in once]),
        **measures,
    )


def seconds_of(rows_text: str) -> float:
    """Return the seconds that the rounds of `metrics.csv` took.

    Raises:
        ValueError: it is not such a table.
    """
    rows = list(csv.DictReader(io.StringIO(rows_text[: rows_text.rfind("\n") + 1])))
    if rows and rows[-1].get(CLOCK) is None:
        raise ValueError(f"it has no column {CLOCK}")
    return float(rows[-1][CLOCK]) if rows else 0.0


def to_plain(result: Result) -> dict[str, Any]:
    """A Result as nested dictionaries of plain values and arrays."""
    return {**dataclasses.asdict(result), "config": result.config.to_json(), "ledger": result.ledger._asdict()}


def from_plain(plain: dict[str, Any]) -> Result:
    """The inverse of `to_plain`."""
    known = {"config": Config.from_json(plain["config"]), "ledger": Ledger(**plain["ledger"])}
    return Result(**{**plain, **known, "seeds": tuple(plain["seeds"])})
