"""Search for good settings with Optuna: the space, and the trials, which are ordinary runs in their own folders."""

import math
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel import metrics, strategies
from fedjax_sel.config import PAIRS, Config, ModelConfig, TrainingConfig, flat_types
from fedjax_sel.core import plugins
from fedjax_sel.core.parsing import one_of
from fedjax_sel.errors import NonFiniteUpdateError, UserError
from fedjax_sel.experiment import Experiment, experiment_of
from fedjax_sel.experiment.checking import check
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs.experiment import run_experiment
from fedjax_sel.runs.run_files import RESULT
from fedjax_sel.simulation import layout
from fedjax_sel.training import optimizers

EDGE = 0.05  # fraction of a range
FIELDS = {*vars(TrainingConfig()), *vars(ModelConfig()), "num_selected", "over_select", "deadline"} - {*PAIRS, "task"}


def optuna() -> Any:
    """Import Optuna, or raise UserError if it is not installed."""
    optuna = plugins.optional("optuna", "tune", 'run pip install "fedjax-sel[tune]"')
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Dimension(NamedTuple):
    """A tuned setting: a field of the configuration, or a parameter in a field of parameters."""

    name: str
    field: str
    parameter: str | None
    default: Any
    kind: Any  # type
    values: Any = None  # Optuna's distribution of the numbers in a range, or of the texts in a list

    @property
    def ends(self) -> tuple[Any, ...]:
        """The ends of a range, or all values of a list."""
        return getattr(self.values, "choices", None) or (self.values.low, self.values.high)

    def rounded(self, value: Any) -> Any:
        """Return a number with three digits, but within the range; an integer or a text unchanged."""
        return min(max(float(f"{value:.3g}"), self.ends[0]), self.ends[1]) if isinstance(value, float) else value

    def edge(self, value: Any) -> str:
        """Return a warning if a number is within 5 % of an end of its range, or beyond it; else an empty text."""
        if hasattr(self.values, "choices") or not isinstance(value, int | float):
            return ""
        scale = math.log if self.values.log else float
        low, high, at = (scale(max(one, self.values.low)) for one in (*self.ends, value))
        share = (at - low) / (high - low)
        if EDGE < share < 1 - EDGE or self.ends[share > 0.5] in _limits(self.kind):
            return ""
        return f"The best {self.name}, {value:g}, is at or near an end of its range: widen the range."


def parse_space(given: Iterable[str], base: Config) -> list[Dimension]:
    """Parse the items NAME=VALUES of --space.

    A name is a field, or a parameter of the strategy or the optimizer; `algo.NAME` if a field has the same name.
    """
    values, kinds = base.flat(), flat_types(include_extras=True)
    known = {name: Dimension(name, name, None, values[name], kinds[name]) for name in FIELDS}
    for part, registry in {"algo": strategies.REGISTRY, "optimizer": optimizers.REGISTRY}.items():
        chosen = dict(values[f"{part}_args"])
        for name, (kind, default) in registry.parameters(values[part]).items():
            called = f"{part}.{name}" if name in known else name
            known[called] = Dimension(called, f"{part}_args", name, chosen.get(name, default), kind)
    space: list[Dimension] = []
    for item in given:
        name, _, text = item.partition("=")
        one = known[one_of("--space", name.lstrip("-").replace("-", "_"), known)]
        if one.name in [other.name for other in space]:
            raise UserError(f"--space {item}: {one.name} is given twice; give it once")
        space.append(one._replace(values=_distribution(item, text, one.kind)))
    return space


def at_ends(space: Sequence[Dimension], base: Config) -> list[Config]:
    """Return the checked configurations with one setting at an end of its range, and the others as in `base`."""
    found = []
    for one in space:
        for end in one.ends:
            try:
                found.append(base.replace(**changes([one], {one.name: end}, base)))
                check(experiment_of(found[-1]))
            except UserError as error:
                raise UserError(f"--space {one.name}, at {end}: {error}") from error
    return found


def _distribution(item: str, text: str, kind: Any) -> Any:
    """Return Optuna's distribution of the values of an item of --space, for a setting of a type."""
    of = optuna().distributions
    if "," in text:
        return of.CategoricalDistribution(list(dict.fromkeys(map(str.strip, text.split(",")))))
    match = re.fullmatch(r"(?:(log|int):)?([-+.\deE]+):([-+.\deE]+)", text)
    try:
        form, low, high = match[1], float(match[2]), float(match[3])  # pyright: ignore[reportOptionalSubscript]
    except (TypeError, ValueError) as error:
        forms = "NAME=LOW:HIGH, NAME=log:LOW:HIGH, NAME=int:LOW:HIGH or NAME=A,B,C"
        raise UserError(f"--space {item}: is not of the form {forms}") from error
    log, whole = form == "log", form == "int" or _types(kind) & {int, float} == {int}
    if low >= high or (log and low <= 0) or (whole and not (low.is_integer() and high.is_integer())):
        needs = f"{'whole ' if whole else ''}numbers{' above 0' if log else ''}"
        raise UserError(f"--space {item}: LOW and HIGH must be {needs}, with LOW below HIGH")
    return of.IntDistribution(int(low), int(high), log) if whole else of.FloatDistribution(low, high, log)


def _types(kind: Any) -> set[Any]:
    """Return the types in a union or an annotated type."""
    parts = typing.get_args(kind)
    return set().union(*map(_types, parts)) if parts else {kind}


def _limits(kind: Any) -> set[float]:
    """Return the limits of an annotated type or of those in a union; values beyond them are invalid."""
    parts = [set(part) if isinstance(part, plugins.Within) else _limits(part) for part in typing.get_args(kind)]
    return set().union(*parts)


def changes(space: Sequence[Dimension], values: Mapping[str, Any], base: Config) -> dict[str, Any]:
    """Return the changed fields of a configuration, from the values by name."""
    found: dict[str, Any] = {}
    for one in space:
        if one.parameter is None:
            found[one.field] = values[one.name]
        else:
            others = found.get(one.field) or dict(base.flat()[one.field])
            found[one.field] = {**others, one.parameter: values[one.name]}
    return found


class Trial(NamedTuple):
    """A run with one choice of values."""

    number: int  # from 1, which has the default values
    values: dict[str, Any]  # by name
    config: Config
    value: float = math.nan  # mean of the measure over seeds and the last rounds; NaN if the trial failed
    error: str = ""  # reason of a failure


def search(base: Config, space: Sequence[Dimension], trials: int, higher_is_better: bool) -> Iterator[Trial]:
    """Run the trials in order, each in its own folder in that of `base`, and yield each outcome.

    The sampler's seed is the trial's number, so a repeated search proposes the same values, and reads finished trials.

    Raises:
        KeyboardInterrupt: a signal stopped the search; its argument is the signal's number.
    """
    study = optuna().create_study(direction="maximize" if higher_is_better else "minimize")
    for number in range(1, trials + 1):
        values, config = {one.name: one.default for one in space}, base
        if number > 1:
            study.sampler = optuna().samplers.TPESampler(seed=number)
            asked = study.ask({one.name: one.values for one in space})
            values = {one.name: one.rounded(asked.params[one.name]) for one in space}
            config = base.replace(**changes(space, values, base))
        config = config.replace(out=f"{base.run.out}/trial-{number:03d}")
        yield (trial := _run(Trial(number, values, config), trials))
        if number > 1:
            states = optuna().trial.TrialState
            study.tell(asked, *((None, states.FAIL) if trial.error else (trial.value, states.COMPLETE)))


def _check(experiment: Experiment) -> None:
    """Reject values that are valid alone, but not together or not with the data."""
    check(experiment)
    if not (Path(str(experiment.config.run.out)) / RESULT).exists():
        layout.lay_out(pose(experiment), 1)


def _run(trial: Trial, trials: int) -> Trial:
    """Run a trial, or read its finished run, and return it with its outcome."""
    run, experiment = trial.config.run, experiment_of(trial.config)
    try:
        _check(experiment)
    except UserError as error:
        return trial._replace(error=str(error))
    try:
        result = run_experiment(trial.config, True, further=[run.rounds * len(run.seeds)] * (trials - trial.number))
    except NonFiniteUpdateError as error:
        return trial._replace(error=str(error).partition(";")[0])  # the rest is advice for a single run
    if result.stopped_by and (not result.finished or trial.number < trials):
        raise KeyboardInterrupt(result.stopped_by)
    value = float(metrics.mean_of_last_rounds(result.measured[result.test_measure]).mean())
    return trial._replace(value=value, error="" if math.isfinite(value) else "the measure is not finite")
