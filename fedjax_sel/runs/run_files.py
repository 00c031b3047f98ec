"""Results of a run, and the files of its folder: names, manifests, and the rows of metrics.csv."""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fedjax_sel import metrics, tasks
from fedjax_sel.config import Config
from fedjax_sel.core import files
from fedjax_sel.errors import UserError
from fedjax_sel.models import Model, Weights
from fedjax_sel.simulation.ledger import Ledger

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]


CLOCK, STEADY_CLOCK = "elapsed_seconds", "round_seconds"


@dataclasses.dataclass(frozen=True)
class Result:
    """A run's results. Arrays have leading axes [seeds, rounds]; NaN marks missing measurements.

    Attributes:
        config: the resolved configuration.
        data_source: the origin of the data, with a note if they are not the official ones.
        seeds: the replicates, in the order of the first axis.
        measured: arrays [seeds, rounds] by column. The first is the task's measure on the test set, which targets and
            curves use, e.g. `test_accuracy` for classification. Next are `test_loss` (nats), and `train_accuracy` and
            `train_loss` on all clients' training examples. `worst_decile_accuracy` is the mean training accuracy of the
            worst tenth of clients. `gini_accuracy` and `jain_accuracy` are the Gini and Jain indices of the clients'
            training accuracies. These three leave out the `undefined_clients`, whose accuracy (or other measure) is NaN
            or infinite. `gemd` is the group earth mover's distance of the reporting cohort members (FL-DP3S Eq.
            15), NaN without reports. The task's other test measures follow. With `--timing`, there is a column
            `seconds`, the simulated duration of the round. With `--privacy` or `--private-training`,
            `largest_epsilon` and `mean_epsilon` are over all clients, at the end of the round. Each column is also an
            attribute, e.g. `result.test_accuracy`.
        cohorts: client IDs, int32 [seeds, rounds, K]; -1 for slots without training. A strategy whose cohort size is
            random has more than K slots.
        epsilons: epsilon that each client has spent by the end of each round, float32 [seeds, rounds, N]; None without
            noise.
        ledger: communication and computation counts.
        elapsed_seconds: wall-clock seconds since the first round, [rounds], without the rounds a killed process lost.
        stopped_by: the number of the signal that stopped the run; 0 if none did. A run whose signal arrived during
            its last chunk is still finished.
        round_seconds: wall-clock seconds of each round, [rounds]; NaN if unknown, and in the first chunk of a process,
            which includes compilation.
        higher_is_better: whether larger values of the first measure are better.
        weights: weights of the final models, leading axis [seeds]; None if they are not loaded.
        model: the network, for `model.apply(weights of one seed, inputs, None).prediction`; None if it is not loaded,
            or if the result comes from another process.
    """

    config: Config
    data_source: str
    seeds: tuple[int, ...]
    measured: dict[str, np.ndarray]
    cohorts: np.ndarray
    ledger: Ledger
    elapsed_seconds: np.ndarray
    stopped_by: int = 0
    round_seconds: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    higher_is_better: bool = True
    weights: Weights | None = dataclasses.field(default=None, repr=False)
    model: Model | None = dataclasses.field(default=None, repr=False)
    epsilons: np.ndarray | None = dataclasses.field(default=None, repr=False)

    def __getattr__(self, name: str) -> np.ndarray:
        """Return the column of this name from `measured`."""
        measured = {} if name.startswith("__") else self.__dict__.get("measured", {})
        if name not in measured:
            raise AttributeError(f"a result has no {name!r}; its measures are {', '.join(measured)}")
        return measured[name]

    def __getstate__(self) -> dict[str, Any]:
        """Omit the network, whose functions cannot be pickled or copied."""
        return {**self.__dict__, "model": None}

    @property
    def params(self) -> Mapping[str, Any]:
        """The trained weights of the final models, in the module's pytree, leading axis [seeds].

        A model from `models.from_functions` has the pytree of its `init`.
        """
        if self.weights is None:
            raise UserError(
                "params: this result has no weights; fedjax_sel.load(folder) loads them for a run that has ended"
            )
        return self.weights.trained

    def weights_of(self, seed: int) -> Weights:
        """Return the final weights of one of the `seeds`, in the form that `model.apply` expects."""
        if self.params is not None and seed not in self.seeds:
            raise UserError(f"weights_of({seed}): choose from the seeds {', '.join(map(str, self.seeds))}")
        place = self.seeds.index(seed)
        return jax.tree.map(lambda leaf: leaf[place], self.weights)

    @property
    def selection_counts(self) -> np.ndarray:
        """Number of rounds in which each client trained, int [seeds, N]."""
        return metrics.selection_counts(self.cohorts, self.config.num_training_clients)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas DataFrame with the rows and columns of `metrics.csv`, one row per round and seed."""
        return files.pandas().DataFrame(_table(self))

    @property
    def test_measure(self) -> str:
        """The column that targets and curves use."""
        return next(iter(self.measured))

    @property
    def measure_in_words(self) -> str:
        """The name of the measure that targets and curves use, e.g. "accuracy"."""
        return self.test_measure.removeprefix("test_").replace("_", " ")

    @property
    def target_in_words(self) -> str:
        """The configuration's target, e.g. "62% test accuracy"; empty without one."""
        target = self.config.run.target_accuracy
        if target is None:
            return ""
        share = f"{100 * target:.4g}%" if self.measure_in_words == "accuracy" else f"{target:.4g}"
        return f"{share} test {self.measure_in_words}"

    @property
    def epsilon_spent(self) -> tuple[np.ndarray, ...] | None:
        """Largest and mean epsilon over the clients at the end, [seeds]; None without privacy."""
        if self.config.hidden_unit is None:
            return None
        none = np.zeros((len(self.seeds), 1), np.float32)
        return tuple(self.measured.get(column, none)[:, -1] for column in tasks.EPSILONS)

    def rounds_to_target(self, target: float) -> np.ndarray:
        """Return the first round (from 1) whose test measure reaches a target, float [seeds]; NaN if none does."""
        return metrics.rounds_to_target(self.measured[self.test_measure], target, self.higher_is_better)

    @property
    def has_clock(self) -> bool:
        """Whether the run simulates time, so that `seconds` is one of the measures."""
        return tasks.SECONDS in self.measured

    @property
    def seconds_spent(self) -> np.ndarray:
        """Simulated seconds from the start to the end of each round, float64 [seeds, rounds]."""
        return np.cumsum(self.measured[tasks.SECONDS], axis=1, dtype=np.float64)

    def seconds_to_target(self, target: float) -> np.ndarray:
        """Return the simulated seconds until a target is reached, float [seeds]; NaN if no round reaches it."""
        return metrics.amount_at_round(self.measured[tasks.SECONDS], self.rounds_to_target(target))

    @property
    def num_rounds(self) -> int:
        """Number of completed rounds."""
        return self.cohorts.shape[1]

    @property
    def finished(self) -> bool:
        """Whether all rounds of the configuration were run, or all seconds of `max_seconds` in every seed."""
        return self.num_rounds == self.config.run.rounds or (self.has_clock and self._seconds_are_over())

    def _seconds_are_over(self) -> bool:
        limit = self.config.seconds_limit
        return limit is not None and self.num_rounds > 0 and bool((self.seconds_spent[:, -1] >= limit).all())

    @property
    def seed_rounds_per_second(self) -> float:
        """The speed without compilation, but with evaluations and checkpoints; NaN if each process ran one chunk."""
        timed = ~np.isnan(self.round_seconds)
        return len(self.seeds) * int(timed.sum()) / float(self.round_seconds[timed].sum()) if timed.any() else np.nan

    @property
    def compilation_seconds(self) -> float:
        """The compilation time in seconds: the total time minus that of all rounds at `seed_rounds_per_second`.

        NaN if the speed is unknown.
        """
        timed = ~np.isnan(self.round_seconds)
        at_full_speed = len(self.seeds) * self.num_rounds / self.seed_rounds_per_second
        return max(float(self.elapsed_seconds[-1]) - at_full_speed, 0.0) if timed.any() else np.nan

    def final_over_clients(self) -> dict[str, np.ndarray]:
        """Return the last measured worst decile, Gini and Jain index of the clients, [seeds], by name in words."""
        name, words = self.test_measure.removeprefix("test_"), self.measure_in_words
        columns = {f"worst-decile {words}": f"worst_decile_{name}"}
        columns |= {f"Gini index of client {words}": f"gini_{name}", f"Jain index of client {words}": f"jain_{name}"}
        found = {text: self.measured[column] for text, column in columns.items() if column in self.measured}
        return {text: metrics.last_measured(values) for text, values in found.items()}

    def final_client_tests(self) -> dict[str, np.ndarray]:
        """Return the last measured values on the clients' own test data, [seeds], by name in words; empty without any.

        Unseen clients never train. Each value leaves out the clients for which the measure is undefined, or that have
        no test data.
        """
        name, words, found = self.test_measure.removeprefix("test_"), self.measure_in_words, {}
        for kind, whose in (("client", "clients' tests"), ("unseen", "unseen clients")):
            forms = (f"mean {words}", f"worst-decile {words}", f"Gini index of {words}", f"Jain index of {words}")
            for column, form in zip(tasks.client_columns(kind, name), (*forms, "undefined")):
                if column in self.measured:
                    found[f"{whose}: {form}"] = metrics.last_measured(self.measured[column])
        return found

    def selection_fairness(self) -> dict[str, np.ndarray]:
        """Return the Gini index and Jain index of the selection counts, and the participation gap, [seeds], by name."""
        counts = self.selection_counts
        return {
            "Gini index of selections": np.asarray(metrics.gini_index(counts)),
            "Jain index of selections": np.asarray(metrics.jain_index(counts)),
            "participation gap": metrics.participation_gap(counts, self.num_rounds),
        }

    def summary(self) -> list[tuple[str, np.ndarray]]:
        """Return the rows of the summary table: a name and one value per seed."""
        rows = []
        if not self.finished:
            rows.append((f"rounds of {self.config.run.rounds}", np.full(len(self.seeds), self.num_rounds)))
        test, _, train, *_ = self.measured
        words = self.measure_in_words
        rows.append((f"final test {words}", metrics.last_measured(self.measured[test])))
        if not np.isnan(self.measured[train]).all():
            rows.append((f"final training {words}", metrics.last_measured(self.measured[train])))
            rows += [(f"final {name}", value) for name, value in self.final_over_clients().items()]
            undefined = metrics.last_measured(self.measured.get(tasks.UNDEFINED_CLIENTS, [[0.0]]))
            if undefined.any():
                rows.append((f"clients left out ({words} undefined)", undefined))
        rows += [(name, value) for name, value in self.final_client_tests().items() if not np.isnan(value).all()]
        if (target := self.config.run.target_accuracy) is not None:
            rows.append((f"rounds to {self.target_in_words}", self.rounds_to_target(target)))
            if self.has_clock:
                rows.append((f"seconds to {self.target_in_words}", self.seconds_to_target(target)))
        if not np.isnan(self.gemd).all():
            rows.append(("mean GEMD of the cohorts", metrics.mean_of_measured(self.gemd, axis=1)))
        rows += self.selection_fairness().items()
        rows.append(("megabytes down", self.ledger.bytes_down.sum(axis=1) / 1e6))
        rows.append(("megabytes up", self.ledger.bytes_up.sum(axis=1) / 1e6))
        if self.has_clock:
            rows.append(("simulated seconds", self.seconds_spent[:, -1]))
        for column, spent in zip(tasks.EPSILONS, self.epsilon_spent or ()):
            rows.append((f"{column.replace('_', ' ')} (hides one {self.config.hidden_unit})", spent))
        return rows


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Create a folder if it is missing, and turn write errors inside the block into a UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except FileExistsError as error:  # `mkdir` was given a name that leads to no folder
        why = f"{error.filename} is a file, or a symbolic link that is circular or whose target is missing"
        raise UserError(f"--out: {why}; remove it or give another folder") from error
    except OSError as error:
        why = f"cannot write to {folder} ({error.strerror or error})"
        raise UserError(f"--out: {why}; free disk space or give another folder") from error


CONFIG, ENVIRONMENT = "config.json", "environment.json"
METRICS, COHORTS, RESULT, CURVES = "metrics.csv", "cohorts.npy", "result.json", "curves.png"
PARAMS, EPSILONS = "params.npz", "epsilons.npy"
CHECKPOINTS = "checkpoints"


def write_json(path: Path, value: Any) -> None:
    """Write plain values to a JSON file atomically."""
    files.write(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read an optional JSON object from a file; empty if it is lost or damaged."""
    with contextlib.suppress(OSError, ValueError):
        found = files.read_json(path)
        return found if isinstance(found, dict) else {}
    return {}


FORMAT = 1
ENTRIES = {
    "fingerprint", "config", "data", "source", "server_validation", "higher_is_better", "made_with", "plugins",
    "metrics", "cohorts", "rounds",
}  # fmt: skip
"""The entries that each manifest has."""

Manifest = dict[str, Any]


class DamagedError(Exception):
    """An error in a manifest or in the files that it describes."""


def write(path: Path, about: Manifest) -> None:
    """Write a manifest of plain values atomically."""
    content = {**about, "format": FORMAT}
    text = json.dumps({**content, "digest": _digest(content)}, indent=1) + "\n"
    files.write(path, text.encode(), sync=True)


def read(path: Path) -> Manifest:
    """Return the entries of a manifest.

    Raises DamagedError if the file is missing, changed or unreadable, or from another version of fedjax_sel.
    """
    try:
        content = files.read_json(path)
        if content.pop("digest") != _digest(content):
            raise DamagedError(f"{path.name} was changed")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise DamagedError(f"{path.name} cannot be read ({message})") from error
    if content["format"] != FORMAT or not content.keys() >= ENTRIES:
        raise DamagedError(f"{path.name} was written by another version of fedjax_sel; install that version to read it")
    return content


def _digest(content: Manifest) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# `metrics.csv` has one row per replicate and round; rounds count from 1; an empty cell marks a missing measurement. Two
# runs of one configuration may differ only in columns that end in `_seconds`.
def columns(measured: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of `metrics.csv` for the given measures."""
    return ("seed", "round", *measured, *Ledger._fields, CLOCK, STEADY_CLOCK)


def csv_text(chunk: Result, first_round: int, header: bool) -> str:
    """Return the rows of `metrics.csv` for a chunk that starts with round first_round + 1; `header` adds the names."""
    table, formats = _table(chunk, first_round), {CLOCK: "{:.3f}".format, STEADY_CLOCK: "{:.6g}".format}
    rows = [[*table]] if header else []
    for row in zip(*table.values()):
        # `str` of a float32 is the shortest text that parses to the same float32.
        rows.append(["" if np.isnan(x) else formats.get(name, str)(x) for name, x in zip(table, row)])
    return files.as_csv(rows)


def _table(result: Result, first_round: int = 0) -> dict[str, np.ndarray]:
    """Return the columns of `metrics.csv`, one row per round and seed."""
    seeds, rounds = len(result.seeds), result.num_rounds
    return {
        "seed": np.tile(result.seeds, rounds),
        "round": np.repeat(np.arange(first_round, first_round + rounds) + 1, seeds),
        **{name: np.ravel(values.T) for name, values in {**result.measured, **result.ledger._asdict()}.items()},
        CLOCK: np.repeat(result.elapsed_seconds, seeds),
        STEADY_CLOCK: np.repeat(result.round_seconds, seeds),
    }


def parse(
    config: Config, data_source: str, rows_text: str, cohorts: np.ndarray, higher_is_better: bool = True
) -> Result:
    """Return the Result from the content of a run folder's files, without rounds that lack a replicate's row.

    An incomplete last row is ignored. Cohorts are int32 [seeds, rounds, K]. An invalid `metrics.csv` raises ValueError.
    """
    names, rows = _names_and_rows(rows_text)
    seeds = config.run.seeds
    measures = names[2 : names.index(Ledger._fields[0])] if Ledger._fields[0] in names else []
    if rows_text and names != list(columns(measures)):
        raise ValueError(f"{METRICS} does not start with the column names of this version of fedjax_sel")
    # A killed run may have written more metrics than cohorts.
    num_rounds = min(len(rows) // len(seeds), cohorts.shape[1])
    rows = rows[: num_rounds * len(seeds)]
    places = [[str(seed), str(round + 1)] for round in range(num_rounds) for seed in seeds]
    if [row[:2] for row in rows] != places or any(len(row) != len(names) for row in rows):
        raise ValueError(f"{METRICS} has an invalid row")

    def column(name: str, kind: type) -> np.ndarray:
        """Return a column as [seeds, rounds]."""
        texts = [row[names.index(name)] or "nan" for row in rows]
        return np.array(texts, kind).reshape(num_rounds, len(seeds)).T

    return Result(
        config=config,
        data_source=data_source,
        seeds=seeds,
        cohorts=cohorts[:, :num_rounds],
        ledger=Ledger(*(column(name, np.int64) for name in Ledger._fields)),
        elapsed_seconds=column(CLOCK, np.float64)[0],
        round_seconds=column(STEADY_CLOCK, np.float64)[0],
        measured={name: _on_schedule(config, name, column(name, np.float32)) for name in measures},
        higher_is_better=higher_is_better,
    )


def _on_schedule(config: Config, name: str, values: np.ndarray) -> np.ndarray:
    """Leave out the evaluation of a round that was the last one before the run was extended: values [seeds, rounds]."""
    run, rounds = config.run, 1 + np.arange(values.shape[1])
    if name.startswith("test_"):
        every = run.eval_every
    elif name.startswith(("client_test_", "unseen_test_")):
        every = run.eval_clients_every or config.last_every
    elif name.startswith(("train_", "worst_decile_", "gini_", "jain_")) or name == tasks.UNDEFINED_CLIENTS:
        every = run.train_metrics_every or config.last_every
    else:
        return values
    can_be_last = (rounds % config.last_every == 0) | (rounds == run.rounds)
    return np.where((rounds % every == 0) | can_be_last, values, np.nan)


def _names_and_rows(rows_text: str) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the complete rows in the text of a `metrics.csv`."""
    lines = list(csv.reader(io.StringIO(rows_text[: rows_text.rfind("\n") + 1])))
    return (lines[0], lines[1:]) if lines else ([], [])


def seconds_of(rows_text: str) -> float:
    """Return the total seconds of the rounds in the text of a `metrics.csv`; ValueError if it has no clock."""
    names, rows = _names_and_rows(rows_text)
    return float(rows[-1][names.index(CLOCK)]) if rows else 0.0


Digests = dict[str, Any]
