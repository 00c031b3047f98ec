"""A run's results as arrays in memory; `collector.py` gathers them, `rows.py` makes `metrics.csv` of them."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fedjax_sel import metrics
from fedjax_sel.config import Config
from fedjax_sel.core import frames
from fedjax_sel.errors import UserError
from fedjax_sel.models import Model, Weights
from fedjax_sel.simulation.ledger import Ledger

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

CLOCK, STEADY_CLOCK = "elapsed_seconds", "round_seconds"


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
        stopped_by: the number of the signal that asked it to end; 0 without. One that came while the last rounds were
            computed leaves it finished.
        round_seconds: wall-clock time of each round, [rounds]; NaN in the first chunk of a process, which compiles, and
            where it is not known.
        higher_is_better: whether a target of the first measure is reached from below.
        weights: of the final models, leading axis [seeds]; None where they are not at hand.
        model: the network, `model.apply(weights of one seed, inputs, None).prediction`; None likewise, and
            where another process sent the result.
    """

    config: Config
    data_source: str
    seeds: tuple[int, ...]
    measured: dict[str, np.ndarray]
    cohorts: np.ndarray
    ledger: Ledger
    elapsed_seconds: np.ndarray
    stopped_by: int = 0  # the signal that asked it to end
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

    def __getstate__(self) -> dict[str, Any]:
        """Leave the network out of a pickle: it is functions, which have none."""
        return {**self.__dict__, "model": None}

    def __copy__(self) -> "Result":
        """Copy it with its network, which stays here."""
        return dataclasses.replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Result":
        """Copy its arrays, too; the network is no state."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name != "model"}
        return dataclasses.replace(self, **copy.deepcopy(fields, memo))

    @property
    def params(self) -> Mapping[str, Any]:
        """The trained weights of the final models, in the pytree of the module, leading axis [seeds].

        Of `models.from_functions` they are in whatever pytree its `init` gives.

        Raises:
            UserError: they are not at hand.
        """
        if self.weights is None:
            raise UserError(
                "params: this result has no weights; fedjax_sel.load(folder) reads them if the run has ended, and with "
                'weights="latest" its newest checkpoint'
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

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas DataFrame with the rows and columns of `metrics.csv`, in its order: a row a round and seed.

        Raises:
            UserError: pandas is not installed.
        """
        seeds, rounds = len(self.seeds), self.num_rounds
        columns = {
            "seed": np.tile(self.seeds, rounds),
            "round": np.repeat(np.arange(1, rounds + 1), seeds),
            **{name: np.ravel(values.T) for name, values in self.measured.items()},
            **{name: np.ravel(values.T) for name, values in self.ledger._asdict().items()},
            CLOCK: np.repeat(self.elapsed_seconds, seeds),
            STEADY_CLOCK: np.repeat(self.round_seconds, seeds),
        }
        return frames.pandas().DataFrame(columns)

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
