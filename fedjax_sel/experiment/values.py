"""Experiments with Python values in place of the names of a configuration.

A configuration fits on a command line and in a file; a user's own data, models, losses and strategies do not. For such
a value, the configuration holds `value:NAME`, so that a run folder records which values it used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_sel.config import PAIRS, VALUE, Config, is_value, only_with
from fedjax_sel.core import plugins
from fedjax_sel.core.parsing import shown
from fedjax_sel.data import Dataset, Partition
from fedjax_sel.errors import UserError
from fedjax_sel.models import Blueprint, blueprint_of
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.tasks import Task
from fedjax_sel.timing import Timing, from_values
from fedjax_sel.training.optimizers import FederatedOptimizer

Deal = Callable[[Dataset, int, int], Any]
"""Function (data set, number of clients, seed) -> a Partition, or a list of example positions per client."""


@dataclasses.dataclass(frozen=True, eq=False)
class ByHand:
    """A partition given as example positions per client, for a training set of any size."""

    positions: list[np.ndarray]

    def __call__(self, dataset: Dataset, num_clients: int, seed: int) -> Partition:
        """Return the partition, the same for all seeds."""
        return Partition.from_indices(self.positions, dataset.num_train_examples)


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """A configuration with Python values in place of some of its names. See `of`.

    Attributes:
        config: all settings; `value:NAME` for a part that is given as a value.
        dataset: the data.
        partition: assignment of examples to clients: a Partition for all seeds, or a function that makes one per seed.
        model: blueprint that builds the model for the shape of the inputs.
        task: the loss and the measures.
        strategy: the client selection strategy.
        optimizer: the federated optimizer.
        available: mask of available clients per round, bool [rounds or more, N].
        timing: speed of each client's device.
    """

    config: Config = dataclasses.field(default_factory=Config)
    dataset: Dataset | None = None
    partition: Partition | Deal | None = None
    model: Blueprint | None = None
    task: Task | None = None
    strategy: Strategy | None = None
    optimizer: FederatedOptimizer | None = None
    available: np.ndarray | None = None
    timing: Timing | None = None

    @classmethod
    def of(cls, config: Config | None = None, *, names: Mapping[str, str] | None = None, **choices: Any) -> Experiment:
        """Build an experiment from a configuration, settings by their flat names, and Python values.

        Args:
            config: base configuration; None: the quickstart.
            names: names that identify values in a run folder, e.g. {"model": "resnet-1"}. Use a new name whenever the
                value changes, so that two values do not share a folder. The default for a strategy or an optimizer is
                its own name and a digest of its parameters.
            **choices: settings, e.g. rounds=50. These take a name or a value: `dataset` (a Dataset), `partition` (a
                Partition, a list of example positions per client, or a function of data set, number of clients and
                seed), `model` (a flax.linen or NNX module, a Blueprint or a Model), `task`, `algo` (a Strategy),
                `optimizer`, `available` (bool [rounds, clients]), and `timing` (a Timing).

        Raises:
            UserError: a value has the wrong type, a name does not exist, a value has no name for its run folder, or a
                setting has no effect beside the others.
        """
        if config is not None and not isinstance(config, Config):
            raise _not_a_config(config)
        made = cls(config or Config()).replace(names=names, **choices)
        usual = Config().flat()
        for name, value in made.config.flat().items():
            needed = only_with(name)
            if name in choices and value != usual[name] and needed is not None and not needed.holds(made.config):
                raise UserError(
                    f"{name}: {shown(choices[name])} has no effect without {needed.words}; add that, or omit {name}"
                )
        return made

    def replace(self, *, names: Mapping[str, str] | None = None, **choices: Any) -> Experiment:
        """Return a copy of the experiment with other settings and values, as in `of`.

        Args:
            names: names of values, as in `of`, also of values that this call keeps.
            **choices: settings and values, as in `of`. A name replaces an earlier value; a value replaces an earlier
                name and its parameters.
        """
        names = dict(names or {})
        values: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for field, value in choices.items():
            if field in _PARTS and value is not None and not isinstance(value, str | int | float):
                part = _PARTS[field]
                values[part.attribute], own_name = part.take(value)
                settings[field] = f"{VALUE}{names.pop(field, own_name or '')}"
                if (parameters := f"{field}_args") in PAIRS:  # parameters of the earlier name no longer apply
                    settings.setdefault(parameters, {})
            else:
                settings[field] = value
                if field in _PARTS and not (isinstance(value, str) and is_value(value)):
                    values[_PARTS[field].attribute] = None
        own: Any = choices.get("partition")
        if values.get("partition") is not None and not callable(own):
            settings.setdefault("num_clients", own.num_clients if isinstance(own, Partition) else len(own))
        if values.get("available") is not None:
            settings.setdefault("num_clients", values["available"].shape[1])
        for field in names:
            if field in choices or field not in _PARTS or getattr(self, _PARTS[field].attribute) is None:
                raise UserError(f"names: {field!r} is not given as a value; name only parts that are")
            settings[field] = f"{VALUE}{names[field]}"
        made = dataclasses.replace(self, config=self.config.replace(**settings), **values)
        made._check()
        return made

    def _check(self) -> None:
        """Reject settings that have no effect on a part given as a value, and values without a name for a folder."""
        given, usual, out = self.config.flat(), Config().flat(), self.config.run.out
        for field, part in _PARTS.items():
            if getattr(self, part.attribute) is None:
                continue
            for name in (f"{field}_args", *(BUILTIN_MODEL_SETTINGS if field == "model" else ())):
                if name in given and given[name] != usual[name]:
                    setting = dict(given[name]) if name in PAIRS else given[name]
                    raise UserError(
                        f"{name}: {shown(setting)} has no effect, since {field} is given as a value; set it in that "
                        f"value, and give {name}={usual[name]!r}"
                    )
            if out is not None and given[field] == VALUE:
                raise UserError(
                    f"{field}: the value has no name, which the run folder {out} needs to identify it; add "
                    f'names={{"{field}": "mine-1"}} with a new name whenever the value changes, or omit out='
                )


BUILTIN_MODEL_SETTINGS = ("model_dropout", "initializer", "precision")
"""Settings of models that are built from this package's layers: see `models.make`."""


def experiment_of(experiment_or_config: Experiment | Config) -> Experiment:
    """Return an experiment unchanged, or wrap a configuration in one."""
    if isinstance(experiment_or_config, Experiment):
        return experiment_or_config
    if not isinstance(experiment_or_config, Config):
        raise _not_a_config(experiment_or_config)
    for field, text in experiment_or_config.flat().items():
        if field in _PARTS and isinstance(text, str) and is_value(text):
            raise UserError(
                f"--{field}: {shown(text)} refers to a value given in Python; build the experiment in Python with "
                "fedjax_sel.Experiment.of"
            )
    return Experiment(experiment_or_config)


@dataclasses.dataclass(frozen=True)
class _Part:
    attribute: str
    take: Callable[[Any], tuple[Any, str | None]]  # value -> (the stored value, its default name or None)


def _part(field: str, attribute: str, kind: type, wanted: str, name_of: Callable[[Any], str | None]) -> _Part:
    def take(value: Any) -> tuple[Any, str | None]:
        if not isinstance(value, kind):
            raise UserError(f"{field}: {_type_of(value)} is neither a name nor {wanted}")
        return value, name_of(value)

    return _Part(attribute, take)


def _with_digest(value: Any) -> str:
    return f"{value.name}-{plugins.parameter_digest(value)}"  # the name alone does not identify the parameters


def _of_timing(value: Timing) -> str:
    from_values(value)  # rejects invalid values
    return f"devices-{plugins.parameter_digest(tuple(map(np.asarray, value)))}"


def _take_partition(value: Any) -> tuple[Any, str | None]:
    if isinstance(value, Partition):
        return value, value.scheme
    if callable(value):
        return value, None
    if isinstance(value, Sequence | np.ndarray) and len(value):
        return ByHand([np.asarray(own) for own in value]), "by-hand"
    raise UserError(
        f"partition: {_type_of(value)} is not a Partition, a list of example positions per client, or a function of "
        "data set, number of clients and seed; give one of these"
    )


def _take_model(value: Any) -> tuple[Any, str | None]:
    made = blueprint_of(value)
    if made is None:
        raise UserError(
            f"model: {_type_of(value)} is not a flax.linen or NNX module; give one, or two functions with "
            "models.from_functions(init, apply)"
        )
    return made, None


def _take_available(value: Any) -> tuple[Any, str | None]:
    table = np.asarray(value)
    if table.ndim != 2 or not np.isin(table, (0, 1)).all():
        raise UserError(
            f"available: {shown(value)} is not a table of 0 and 1, rounds by clients; give bool [rounds, clients]"
        )
    return table.astype(bool), "trace"


def _not_a_config(value: Any) -> UserError:
    name = value if isinstance(value, str) else "quickstart"
    return UserError(f"config: {shown(value)} is not a configuration; give one, such as fedjax_sel.preset({name!r})")


def _type_of(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


_PARTS: dict[str, _Part] = {
    "dataset": _part(
        "dataset", "dataset", Dataset, "a fedjax_sel.data.Dataset, as from_arrays makes it", lambda one: one.name
    ),
    "partition": _Part("partition", _take_partition),
    "model": _Part("model", _take_model),
    "task": _part("task", "task", Task, "a fedjax_sel.tasks.Task", lambda one: None),
    "algo": _part("algo", "strategy", Strategy, "a fedjax_sel.strategies.contract.Strategy", _with_digest),
    "optimizer": _part("optimizer", "optimizer", FederatedOptimizer, "a FederatedOptimizer", _with_digest),
    "available": _Part("available", _take_available),
    "timing": _part("timing", "timing", Timing, "a fedjax_sel.timing.Timing", _of_timing),
}
