"""An experiment of values: whatever a configuration names may be given as a value instead.

A configuration can be written on a command line and in a file; data, models, losses and strategies of one's own cannot.
Where one is given, its place in the configuration says `value:NAME`, so that a run folder knows what it was made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from fedjax_sel.config import PAIRS, VALUE, Config, is_value
from fedjax_sel.config.typed import Settings
from fedjax_sel.core import hyperparameters
from fedjax_sel.core.names import shown
from fedjax_sel.data import Dataset, Partition
from fedjax_sel.errors import UserError
from fedjax_sel.models import blueprint
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task
from fedjax_sel.training.optimizers.base import FederatedOptimizer

Deal = Callable[[Dataset, int, int], Any]
"""(data set, number of clients, seed) -> a Partition, or for each client the positions of its examples."""


class Choices(Settings, total=False):
    """What `Experiment.of` takes: all fields of a configuration, and values in the place of names."""

    dataset: str | Dataset
    partition: str | Partition | Deal | Sequence[Any]
    model: Any
    task: str | Task
    algo: str | Strategy
    optimizer: str | FederatedOptimizer
    available: float | str | np.ndarray | Sequence[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class ByHand:
    """For each client the positions of its examples, in a training set of whatever size."""

    positions: list[np.ndarray]

    def __call__(self, dataset: Dataset, num_clients: int, seed: int) -> Partition:
        """Deal them, of every seed the same."""
        del num_clients, seed
        return Partition.from_indices(self.positions, dataset.num_train_examples)


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """A configuration, and the values that stand in for what it names. See `of`.

    Attributes:
        config: everything that is a number or a name.
        dataset: the data.
        partition: who holds what: of every seed the same, or dealt for each.
        model: what makes one of inputs.
        task: what is trained.
        strategy: which clients train.
        optimizer: what they step on, and what the server makes of it.
        reachable: who can be reached in each round, bool [rounds or more, N].
    """

    config: Config = dataclasses.field(default_factory=Config)
    dataset: Dataset | None = None
    partition: Partition | Deal | None = None
    model: blueprint.Blueprint | None = None
    task: Task | None = None
    strategy: Strategy | None = None
    optimizer: FederatedOptimizer | None = None
    reachable: np.ndarray | None = None

    @classmethod
    def of(
        cls, config: Config | None = None, *, names: Mapping[str, str] | None = None, **choices: Unpack[Choices]
    ) -> Experiment:
        """Make an experiment of a configuration, settings by their flat names, and values in the place of names.

        Args:
            config: to start from; None: the quickstart.
            names: what a run folder calls values that have no name of their own, e.g. {"model": "resnet-1"}. Give
                another name when the value changes: the folder of one is not taken for the other. A strategy or an
                optimizer without one is called by its own name and digits that follow from its parameters.
            **choices: settings, e.g. rounds=50; of these, names or values: `dataset` (a Dataset), `partition` (a
                Partition, a list of positions for each client, or a function of data set, number of clients and seed),
                `model` (a module of flax.linen or NNX, a Blueprint or a Model), `task`, `algo` (a Strategy),
                `optimizer`, and `available` (bool [rounds, clients]).

        Returns:
            The experiment, for `fedjax_sel.run`.

        Raises:
            UserError: a value of another kind, a name that does not exist, a model without a name for its folder, or
                settings that a value in their part's place does not look at.
        """
        if config is not None and not isinstance(config, Config):
            raise _no_config(config)
        return cls(config or Config()).replace(names=names, **choices)

    def replace(self, *, names: Mapping[str, str] | None = None, **choices: Unpack[Choices]) -> Experiment:
        """Return the experiment with other settings, and other values in the place of names, as in `of`.

        Args:
            names: see `of`; also of values that stay.
            **choices: see `of`. A name takes the place of a value that was there, and a value that of a name and its
                parameters.

        Raises:
            UserError: see `of`.
        """
        if not isinstance(names, Mapping | None):
            raise UserError(f'names: {_a(names)} is no dict; give e.g. {{"model": "resnet-1"}}')
        names = dict(names or {})
        values: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for field, value in choices.items():
            if field in _PARTS and value is not None and not isinstance(value, str | int | float):
                part = _PARTS[field]
                values[part.attribute], own_name = part.take(value)
                settings[field] = f"{VALUE}{names.pop(field, own_name or '')}"
                if (parameters := f"{field}_args") in PAIRS:  # those of a name that was there go with it
                    settings.setdefault(parameters, {})
            else:
                settings[field] = value
                if field in _PARTS and not (isinstance(value, str) and is_value(value)):
                    values[_PARTS[field].attribute] = None
        own: Any = choices.get("partition")
        if values.get("partition") is not None and not callable(own):
            settings.setdefault("num_clients", own.num_clients if isinstance(own, Partition) else len(own))
        if values.get("reachable") is not None:
            settings.setdefault("num_clients", values["reachable"].shape[1])
        for field in names:
            if field in choices or field not in _PARTS or getattr(self, _PARTS[field].attribute) is None:
                raise UserError(f"names: {field!r} is not given as a value; name only what is")
            settings[field] = f"{VALUE}{names[field]}"
        made = dataclasses.replace(self, config=self.config.replace(**settings), **values)
        made._check_settings()
        made._check_names()
        return made

    def _check_settings(self) -> None:
        """Refuse what only a name looks at where its part is a value."""
        given, usual = self.config.flat(), Config().flat()
        for field, part in _PARTS.items():
            if getattr(self, part.attribute) is None:
                continue
            for name in (f"{field}_args", *(OF_OUR_MODELS if field == "model" else ())):
                if name in given and given[name] != usual[name]:
                    told = dict(given[name]) if name in PAIRS else given[name]
                    raise UserError(
                        f"{name}: {shown(told)} is for what a name stands for, and {field} is given as a value; make "
                        f"the value so, and give {name}={usual[name]!r}"
                    )

    def _check_names(self) -> None:
        if self.config.run.out is None:
            return
        for field in _PARTS:
            if self.config.flat()[field] == VALUE:
                raise UserError(
                    f"{field}: it is a value without a name, and the folder {self.config.run.out} has to know it "
                    f'again; add names={{"{field}": "mine-1"}}, another name when it changes, or leave out= away'
                )


OF_OUR_MODELS = ("model_dropout", "initializer", "precision")
"""What only those of our own layers have: see `models.make`."""


def experiment_of(experiment_or_config: Experiment | Config) -> Experiment:
    """Return an experiment of what may be a configuration alone.

    Raises:
        UserError: it is neither, or a part of it was a value, which only Python has.
    """
    if isinstance(experiment_or_config, Experiment):
        return experiment_or_config
    if not isinstance(experiment_or_config, Config):
        raise _no_config(experiment_or_config)
    for field, text in experiment_or_config.flat().items():
        if field in _PARTS and isinstance(text, str) and is_value(text):
            raise UserError(
                f"--{field}: {shown(text)} stands for a value that was given in Python; make the experiment there "
                "again with fedjax_sel.Experiment.of"
            )
    return Experiment(experiment_or_config)


@dataclasses.dataclass(frozen=True)
class _Part:
    attribute: str
    take: Callable[[Any], tuple[Any, str | None]]  # value -> (as it is kept, its own name where it has one)


def _taken(field: str, kind: type, wanted: str) -> Callable[[Any], tuple[Any, str | None]]:
    def take(value: Any) -> tuple[Any, str | None]:
        if not isinstance(value, kind):
            raise UserError(f"{field}: {_a(value)} is neither a name nor {wanted}")
        return value, value.name  # pyright: ignore[reportAttributeAccessIssue]

    return take


def _made_of_functions(field: str, kind: type, wanted: str) -> Callable[[Any], tuple[Any, str | None]]:
    def take(value: Any) -> tuple[Any, str | None]:
        taken, name = _taken(field, kind, wanted)(value)
        return taken, f"{name}-{hyperparameters.digest(taken)}"  # pow_d is one of 8 candidates, or of 40

    return take


def _take_partition(value: Any) -> tuple[Any, str | None]:
    if isinstance(value, Partition):
        return value, value.scheme
    if callable(value):
        return value, None
    if isinstance(value, Sequence | np.ndarray) and len(value):
        return ByHand([np.asarray(own) for own in value]), "by-hand"
    raise UserError(
        f"partition: {_a(value)} is no Partition, list of positions for each client, or function of data set, number "
        "of clients and seed"
    )


def _take_model(value: Any) -> tuple[Any, str | None]:
    made = blueprint.of(value)
    if made is None:
        raise UserError(
            f"model: {_a(value)} is no module of flax.linen or NNX; give one, or two functions by "
            "models.from_functions(init, apply)"
        )
    return made, None


def _take_reachable(value: Any) -> tuple[Any, str | None]:
    table = np.asarray(value)
    if table.ndim != 2 or np.ma.is_masked(value) or not np.isin(table, (0, 1)).all():
        raise UserError(f"available: {shown(value)} is no table of 0 and 1, rounds by clients")
    return table.astype(bool), "trace"


def _no_config(value: Any) -> UserError:
    name = value if isinstance(value, str) else "quickstart"
    return UserError(f"config: {shown(value)} is no configuration; give one, such as fedjax_sel.preset({name!r})")


def _a(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


_PARTS: dict[str, _Part] = {
    "dataset": _Part(
        "dataset", _taken("dataset", Dataset, "a fedjax_sel.data.Dataset, such as Dataset.from_arrays gives")
    ),
    "partition": _Part("partition", _take_partition),
    "model": _Part("model", _take_model),
    "task": _Part("task", lambda value: (_taken("task", Task, "a fedjax_sel.tasks.Task")(value)[0], None)),
    "algo": _Part("strategy", _made_of_functions("algo", Strategy, "a fedjax_sel.strategies.base.Strategy")),
    "optimizer": _Part("optimizer", _made_of_functions("optimizer", FederatedOptimizer, "a FederatedOptimizer")),
    "available": _Part("reachable", _take_reachable),
}
