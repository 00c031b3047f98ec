"""A run's results: arrays in memory, `metrics.csv` and `cohorts.npy` on disk, and the way between them.

`metrics.csv` has one row a replicate and round; rounds count from 1; a cell is empty where nothing was measured. Only
columns that end in `_seconds` may differ between two runs of one configuration.
"""

import csv
import dataclasses
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel import metrics, tasks
from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.models import Model, Weights
from fedjax_sel.simulation.ledger import Ledger, settle
from fedjax_sel.simulation.plan import Records
from fedjax_sel.tasks import Task, measures

CLOCK, STEADY_CLOCK = "elapsed_seconds", "round_seconds"


def columns(measured: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of `metrics.csv` for such measures."""
    return ("seed", "round", *measured, *Ledger._fields, CLOCK, STEADY_CLOCK)


def measured_columns(header: Sequence[str]) -> tuple[str, ...]:
    """Return the measures among the columns of a `metrics.csv`.

    Raises:
        ValueError: they are not the columns of such a table.
    """
    names = tuple(header)
    if names[:2] != ("seed", "round") or Ledger._fields[0] not in names:
        raise ValueError("metrics.csv does not begin with the names of its columns")
    return names[2 : names.index(Ledger._fields[0])]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run found. Arrays have leading axes [seeds, rounds]; NaN where nothing was measured.

    Attributes:
        config: the resolved configuration.
        data_source: where the pixels come from; says so if they are not the official ones.
        seeds: the replicates, in the order of the first axis.
        measured: by column, [seeds, rounds]. The first is the task's measure on the test set, of which targets and
            curves speak: `test_accuracy` of a classification. Then `test_loss` (nats), `train_accuracy` and
            `train_loss` of all clients' training examples, `worst_decile_accuracy` (mean training accuracy of the
            tenth of clients with the lowest), `gemd` (group earth mover's distance of those of the cohort who reported,
            FL-DP3S Eq. 15; NaN where nobody did), and the task's other measures on the test set. Each is an attribute,
            too: `result.test_accuracy`.
        cohorts: client ids, int32 [seeds, rounds, K]; -1 where nobody trained.
        ledger: what was sent and computed.
        elapsed_seconds: wall-clock time since the first round began, [rounds]; what a killed process lost is not in it.
        stopped_by: the number of the signal that ended it before its last round; 0 without.
        round_seconds: wall-clock time of each round, [rounds]; NaN in the first chunk of a process, which compiles, and
            where it is not known.
        higher_is_better: whether a target of the first measure is reached from below.
        weights: of the final models, leading axis [seeds]; None where they are not at hand.
        model: the network, `model.apply(weights of one seed, inputs, None).prediction`; None likewise.
    """

    config: Config
    data_source: str
    seeds: tuple[int, ...]
    measured: dict[str, np.ndarray]
    cohorts: np.ndarray
    ledger: Ledger
    elapsed_seconds: np.ndarray
    stopped_by: int = 0  # the signal that ended it early
    round_seconds: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    higher_is_better: bool = True
    weights: Weights | None = dataclasses.field(default=None, repr=False)
    model: Model | None = dataclasses.field(default=None, repr=False)

    def __getattr__(self, name: str) -> np.ndarray:
        """Return what was measured, by its column."""
        measured = {} if name.startswith("__") else self.__dict__.get("measured", {})
        if name not in measured:
            raise AttributeError(f"a result has no {name!r}; it measured {', '.join(measured)}")
        return measured[name]

    @property
    def params(self) -> Any:
        """The trained weights of the final models, in the pytree of the module, leading axis [seeds].

        Raises:
            UserError: they are not at hand.
        """
        if self.weights is None:
            raise UserError(
                "params: this result has no weights; those of a finished run are in its folder (fedjax_sel.load)"
            )
        return self.weights.trained

    def weights_of(self, seed: int) -> Weights:
        """Return the final weights of one replicate, as `model.apply` takes them.

        Args:
            seed: one of `seeds`.
        """
        if self.weights is None or seed not in self.seeds:
            raise UserError(
                f"weights_of({seed}): there are no such weights; seeds are {', '.join(map(str, self.seeds))}"
            )
        place = self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[place], self.weights)

    @property
    def selection_counts(self) -> np.ndarray:
        """Rounds that each client trained in, int [seeds, N]."""
        return metrics.selection_counts(self.cohorts, self.config.partition.num_clients)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, one row a seed and round: measures, the ledger, and seconds.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise UserError("to_pandas: the package pandas is missing; pip install pandas") from error
        seeds, rounds = len(self.seeds), self.num_rounds
        columns = {
            "seed": np.repeat(self.seeds, rounds),
            "round": np.tile(np.arange(1, rounds + 1), seeds),
            **{name: np.ravel(values) for name, values in self.measured.items()},
            **{name: np.ravel(values) for name, values in self.ledger._asdict().items()},
            CLOCK: np.tile(self.elapsed_seconds, seeds),
        }
        return pandas.DataFrame(columns)

    @property
    def test_measure(self) -> str:
        """The column that targets and curves speak of."""
        return next(iter(self.measured))

    @property
    def measure_in_words(self) -> str:
        """The measure that targets and curves speak of, e.g. "accuracy"."""
        return self.test_measure.removeprefix("test_").replace("_", " ")

    @property
    def target_in_words(self) -> str:
        """The configuration's target, e.g. "62% test accuracy"; empty without one."""
        target = self.config.run.target_accuracy
        if target is None:
            return ""
        share = f"{100 * target:.4g}%" if self.measure_in_words == "accuracy" else f"{target:.4g}"
        return f"{share} test {self.measure_in_words}"

    def rounds_to_target(self, target: float) -> np.ndarray:
        """Return the first round (from 1) whose test measure reaches a target, float [seeds]; NaN where none does."""
        return metrics.rounds_to_target(self.measured[self.test_measure], target, self.higher_is_better)

    @property
    def num_rounds(self) -> int:
        """Rounds that were run."""
        return self.cohorts.shape[1]

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
        """Return what the closing table shows: a name and one value a seed."""
        megabytes = 1e6
        rows = (
            []
            if self.finished
            else [(f"rounds of {self.config.run.rounds}", np.full(len(self.seeds), self.num_rounds))]
        )
        test, _, train, _, worst_decile, *_ = self.measured
        words = self.measure_in_words
        rows += [(f"final test {words}", metrics.last_measured(self.measured[test]))]
        if not np.isnan(self.measured[train]).all():
            rows.append((f"final training {words}", metrics.last_measured(self.measured[train])))
            rows.append((f"final worst-decile {words}", metrics.last_measured(self.measured[worst_decile])))
        target = self.config.run.target_accuracy
        if target is not None:
            rows.append((f"rounds to {self.target_in_words}", self.rounds_to_target(target)))
        if not np.isnan(self.gemd).all() or self.measure_in_words == "accuracy":
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
        num_carried: int = 0,
        task: Task | None = None,
    ):
        """Start the records of a run, whose earlier rounds, if it goes on from a checkpoint, are known.

        A Collector belongs to one process: its first chunk is the one that waits for the compiler.
        """
        self._config = config
        self._data_source = data_source
        self._num_params = num_params
        self._floats_per_answer = tuple(floats_per_answer)
        self._num_carried = num_carried
        self._task = tasks.classification() if task is None else task
        self._parts = [] if earlier is None else [earlier]
        self._before = 0.0 if earlier is None else float(earlier.elapsed_seconds[-1])
        self._compiled = False

    def add(self, records: Records, elapsed_seconds: float) -> Result:
        """Take a chunk (leading axes [rounds, seeds], fetched from the device) and return that chunk as a Result.

        `elapsed_seconds` counts from when this process began with its first round.
        """
        last = self._parts[-1].elapsed_seconds[-1] if self._parts else 0.0
        rounds = records.cohort.shape[0]
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
                ledger=settle(by_seed.events, self._num_params, self._floats_per_answer, self._num_carried),
                elapsed_seconds=seconds,
                round_seconds=steady,
                measured={name: by_seed.measured[name] for name in measures.names(self._task).all},
                higher_is_better=self._task.measure.higher_is_better,
            )
        )
        return self._parts[-1]

    def result(self) -> Result:
        """Return everything so far as a Result."""
        parts = self._parts

        def joined(values_of: Callable[[Result], np.ndarray]) -> np.ndarray:
            return np.concatenate([values_of(part) for part in parts], axis=1)

        ledgers = [part.ledger for part in parts]
        whole = dataclasses.replace(
            parts[-1],
            cohorts=joined(lambda part: part.cohorts),
            ledger=Ledger(*(np.concatenate(columns, axis=1) for columns in zip(*ledgers))),
            elapsed_seconds=np.concatenate([part.elapsed_seconds for part in parts]),
            round_seconds=np.concatenate([part.round_seconds for part in parts]),
            measured={name: joined(lambda part, name=name: part.measured[name]) for name in parts[-1].measured},
        )
        self._parts = [whole]
        return whole


def csv_text(chunk: Result, first_round: int, header: bool, names: Sequence[str] | None = None) -> str:
    """Return a chunk's rows of `metrics.csv`.

    Args:
        chunk: rounds first_round + 1, ...
        first_round: rounds before this chunk.
        header: whether the names of the columns come first.
        names: columns of the table; fewer in one that an earlier version began. None: all.
    """
    text = io.StringIO()
    names = columns(chunk.measured) if names is None else names
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    for index in range(chunk.num_rounds):
        for position, seed in enumerate(chunk.seeds):
            measured = {name: _cell(values[position, index]) for name, values in chunk.measured.items()}
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


def parse(
    config: Config, data_source: str, rows_text: str, cohorts: np.ndarray, higher_is_better: bool = True
) -> Result:
    """Return the Result that a run folder's files hold.

    Args:
        config: the run's configuration.
        data_source: where the pixels come from.
        rows_text: of `metrics.csv`, one row a replicate and round; a last row without its end does not count.
        cohorts: int32 [seeds, rounds, K].
        higher_is_better: whether a target of the task's measure is reached from below.

    Returns:
        The result, without rounds of which some replicate's row is missing.

    Raises:
        ValueError: it is not such a table.
    """
    try:
        return _parse(config, data_source, rows_text, cohorts, higher_is_better)
    except (TypeError, KeyError, IndexError, OverflowError, csv.Error) as error:
        raise ValueError(f"a row of metrics.csv is not as it was written ({type(error).__name__}: {error})") from error


def _parse(config: Config, data_source: str, rows_text: str, cohorts: np.ndarray, higher_is_better: bool) -> Result:
    whole = rows_text[: rows_text.rfind("\n") + 1]
    reader = csv.DictReader(io.StringIO(whole))
    rows = list(reader)
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
    measured = {name: table(name, float) for name in measured_columns(reader.fieldnames or ())}
    return Result(
        config=config,
        data_source=data_source,
        seeds=seeds,
        cohorts=cohorts[:, :num_rounds],
        ledger=Ledger(*(table(name, int) for name in Ledger._fields)),
        elapsed_seconds=np.array([float(row[CLOCK]) for row in once]),
        round_seconds=np.array([float(row.get(STEADY_CLOCK) or np.nan) for row in once]),
        measured=measured,
        higher_is_better=higher_is_better,
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
    """Return a Result as nested dictionaries of plain values and arrays."""
    left_out = ("model", "weights")
    names = [field.name for field in dataclasses.fields(result) if field.name not in left_out]
    plain = {name: getattr(result, name) for name in names}
    return {**plain, "config": result.config.to_json(), "ledger": result.ledger._asdict()}


def from_plain(plain: dict[str, Any]) -> Result:
    """Return the Result that `to_plain` made plain."""
    known = {"config": Config.from_json(plain["config"]), "ledger": Ledger(**plain["ledger"])}
    return Result(**{**plain, **known, "seeds": tuple(plain["seeds"])})
