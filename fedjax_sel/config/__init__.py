"""Configurations: settings by name, conversion of values, files, and rules between settings."""

import dataclasses
import hashlib
import json
import math
import numbers
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fedjax_sel.config.settings import (
    CONCERNS,
    MODES,
    NOT_OF_THE_TRAJECTORY,
    OPEN,
    PAIRS,
    VALUE,
    VALUES,
    DataConfig,
    ModelConfig,
    OnlyWith,
    PartitionConfig,
    RunConfig,
    SelectionConfig,
    TimingConfig,
    TrainingConfig,
    concern_of,
    concerns,
    fields,
    flat_types,
    is_value,
    only_with,
    ranges,
)
from fedjax_sel.config.typed import NamedSettings
from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import one_of, shown
from fedjax_sel.errors import UserError


def convert(name: str, value: Any) -> Any:
    """Convert user input, a Python or JSON value or a command-line string, to the type of a field, by flat name."""
    flag = "--" + name.replace("_", "-")
    if name == "seeds":
        return parsing.seeds(value)
    if name in PAIRS:
        return parsing.pairs(flag, value)
    if name == "local_epochs":
        return parsing.epochs(value)
    if name == "available" and (value is None or isinstance(value, str | numbers.Real)):
        return parsing.availability(value)
    if name in ("out", "data_dir"):
        if not (value is None or isinstance(value, str | os.PathLike)):
            raise UserError(f"{flag}: {shown(value)} is not a path; give a str or a pathlib.Path")
        if any("\ud800" <= letter <= "\udfff" for letter in str(value)):  # Python's code points for non-UTF-8 bytes
            raise UserError(f"{flag}: {str(value)!a} is not UTF-8, so it cannot be written to a file; rename it")
    kind = flat_types()[name]
    if name in VALUES and not (value is None or isinstance(value, str | numbers.Real)):
        raise UserError(
            f"{flag}: a value of type {type(value).__name__} is not a name; pass it to fedjax_sel.Experiment.of("
            f"{name}=...)"
        )
    if isinstance(kind, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not types.NoneType)
    if typing.get_origin(kind) is Literal:
        if name in OPEN and isinstance(value, str) and ":" in value:
            return value  # a plug-in, or the placeholder of a Python value
        if name == "skewness" and isinstance(value, int | float) and not isinstance(value, bool):
            value = f"{value:g}"
        return one_of(flag, value, typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        items = parsing.as_list(value)
        if items == ["none"]:
            return ()
        return tuple(parsing.scalar(flag, item, typing.get_args(kind)[0]) for item in items)
    return parsing.scalar(flag, value, kind)


if TYPE_CHECKING:
    from fedjax_sel.config.typed import Flat
else:
    Flat = object

__all__ = [
    "NOT_OF_THE_TRAJECTORY", "OPEN", "PAIRS", "VALUE", "VALUES", "Config", "DataConfig", "ModelConfig", "OnlyWith",
    "PartitionConfig", "RunConfig", "SelectionConfig", "TimingConfig", "TrainingConfig", "concern_of", "concerns",
    "convert", "flat_types", "is_value", "only_with",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Config(Flat):
    """The configuration of a whole experiment. The default is the preset `quickstart`.

    Fields can be read by flat name: `config.algo` is `config.selection.algo`. `config.model` and `config.partition` are
    concerns; their fields of the same name are `config.model.model` and `config.partition.partition`.
    """

    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    partition: PartitionConfig = dataclasses.field(default_factory=PartitionConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    timing: TimingConfig = dataclasses.field(default_factory=TimingConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)

    if not TYPE_CHECKING:  # type checkers see the fields of `Flat`

        def __getattr__(self, name: str) -> Any:
            """Return a field by its flat name."""
            if name not in fields():
                raise AttributeError(f"a configuration has no field {name!r}; choose from {', '.join(fields())}")
            return getattr(getattr(self, concern_of(name)), name)

    def replace(self, /, **flat_names: Unpack[NamedSettings]) -> "Config":
        """Return a copy with some fields changed.

        Values are converted to the field's type. Setting `local_steps` unsets `local_epochs`, and vice versa.

        Args:
            **flat_names: new values by flat name, e.g. rounds=20, algo="random", algo_args={"profile": "fc1-relu"}.

        Raises:
            UserError: If a name is unknown or a value has the wrong type.
        """
        kinds = flat_types()
        changes: dict[str, dict[str, Any]] = {}
        for name, value in flat_names.items():
            one_of("configuration", name, kinds)
            changes.setdefault(concern_of(name), {})[name] = convert(name, value)
        training = changes.get("training", {})
        for chosen, displaced in (("local_steps", "local_epochs"), ("local_epochs", "local_steps")):
            if training.get(chosen) is not None and displaced not in training:
                training[displaced] = None
        parts = {key: dataclasses.replace(getattr(self, key), **values) for key, values in changes.items()}
        return dataclasses.replace(self, **parts)

    def flat(self) -> dict[str, Any]:
        """Return all values by flat name."""
        return {
            field.name: getattr(getattr(self, concern), field.name)
            for concern, kind in CONCERNS.items()
            for field in dataclasses.fields(kind)
        }

    def to_json(self) -> dict[str, Any]:
        """Return nested plain values, the content of `config.json`."""
        nested = dataclasses.asdict(self)
        for concern in nested.values():
            concern.update({name: dict(value) for name, value in concern.items() if name in PAIRS})
        return nested

    @classmethod
    def from_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> "Config":
        """Make a configuration from nested plain values, the inverse of `to_json`."""
        return cls().replace(**{name: value for part in nested.values() for name, value in part.items()})

    @property
    def cohort_size(self) -> int:
        """Number of clients that train per round: K, or more with over-selection."""
        factor = self.timing.over_select if self.has_effect("over_select") else 1.0
        return math.ceil(round(self.selection.num_selected * factor, 6))

    def plugins(self) -> tuple[str, ...]:
        """Return all plug-ins `mypackage.module:factory` that the configuration names."""
        named = (
            self.selection.algo, self.training.optimizer, self.model.model, self.model.task, self.partition.partition,
            self.data.dataset,
        )  # fmt: skip
        parts = [(name, *name.partition(":")[::2]) for name in named]
        return tuple(name for name, start, end in parts if end.isidentifier() and start not in _NOT_MODULES)

    def has_effect(self, name: str) -> bool:
        """Return whether a field has an effect, given the other fields' values."""
        needed = only_with(name)
        return needed is None or needed.holds(self)

    def effective(self) -> "Config":
        """Return a copy with every ineffective field at its default, so that equal experiments compare equal."""
        idle: dict[str, Any] = {name: field.default for name, field in fields().items() if not self.has_effect(name)}
        return self.replace(**idle)

    def meant(self) -> dict[str, Any]:
        """Return the effective values by flat name, in a canonical form for comparison."""
        flat = self.effective().flat()
        for name in PAIRS:  # 0.5 in Python equals "0.5" on a command line
            flat[name] = [
                (key, value if isinstance(value, str) else json.dumps(value, default=str)) for key, value in flat[name]
            ]
        return flat

    def fingerprint(self) -> str:
        """Return a 12-digit hexadecimal hash of all values that affect the run's trajectory."""
        values = {name: value for name, value in self.meant().items() if name not in NOT_OF_THE_TRAJECTORY}
        if self.timing.timing == "none":  # a configuration without a clock keeps the hash of earlier versions
            values = {name: value for name, value in values.items() if concern_of(name) != "timing"}
        if self.selection.available not in MODES:  # so does one without a mode of availability
            del values["available_args"]
        return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


_NOT_MODULES = ("synthetic", "leaf", "value")  # prefixes before a colon that are no modules


def read_config_file(path: Path, base: Config) -> Config:
    """Return `base` updated from a .json or .toml file; raise UserError if its content is invalid."""
    from fedjax_sel.core import files  # imports NumPy, which --help does not need

    try:
        content: Any = tomllib.loads(files.read_text(path)) if path.suffix == ".toml" else files.read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--config: cannot read {path} ({error}); give a .json or .toml file") from error
    if not isinstance(content, dict):
        raise UserError(f"--config: {path} contains {shown(content)} instead of settings; give names and values")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat.update(value if name in concerns() and isinstance(value, dict) else {name: value})
    try:
        return base.replace(**flat)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from error


def validate(config: Config) -> None:
    """Reject invalid values before any data are read; a UserError names the flag, the value and a remedy."""
    config = config.replace(**config.flat())  # rejects values of the wrong type
    values = config.flat()

    def need(name: str, allowed: bool, advice: str) -> None:
        if not allowed:
            raise UserError(f"--{name.replace('_', '-')}: {shown(values[name])} {advice}")

    for name, own in ranges().items():
        for reason_of in () if values[name] is None else (*own, parsing.misfit):
            need(name, (reason := reason_of(values[name])) is None, reason or "")
    if values["task"] == "classification" and values["target_accuracy"] is not None:
        need("target_accuracy", values["target_accuracy"] <= 1, "is not a fraction between 0 and 1, such as 0.62")
    n, cohort, rounds = values["num_clients"], config.cohort_size, values["rounds"]
    need("num_selected", values["num_selected"] <= n, f"exceeds the {n} clients of --num-clients; choose at most {n}")
    need("over_select", cohort <= n, f"of {values['num_selected']} selects {cohort}, but there are {n} clients")
    share = config.selection.available_share
    reached = share is None or share * n * rounds >= 1
    need("available", reached, f"of {n} clients leaves none available in {rounds} rounds; give more")
    timed = values["available"] != "speed" or values["timing"] != "none"
    need("available", timed, "needs the speed of the clients' devices; add --timing lognormal, tiers or a file")
    steps, epochs = values["local_steps"], values["local_epochs"]
    if (steps is None) == (epochs is None):
        raise UserError(f"--local-steps {steps} and --local-epochs {epochs}: give exactly one of them")
    if values["aggregation"] == "unbiased" and (values["deadline"] is not None or values["over_select"] > 1):
        raise UserError(
            "--aggregation: 'unbiased' needs the probability that a report arrives, which is unknown with --deadline "
            "or --over-select; remove these flags or choose another rule"
        )
    together, count = values["seeds_at_once"], len(values["seeds"])
    if together is not None and (together < 1 or count % together):
        near = max(size for size in range(1, count + 1) if count % size == 0 and size <= max(together, 1))
        raise UserError(
            f"--seeds-at-once: {together} does not divide the {count} seeds into equal groups; "
            f"give {near}, or remove the flag"
        )
    if values["loss_on"] == "holdout" and values["holdout"] == 0:
        raise UserError("--loss-on: 'holdout' needs held-out data; add --holdout 0.2, or choose --loss-on train")
