"""The configuration of an experiment: frozen dataclasses, one per concern.

Each field's flat name is a command-line flag and a keyword of `Config.replace`. `settings.py` defines fields and help.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from fedjax_sel.config import other_names
from fedjax_sel.config.conversion import convert
from fedjax_sel.config.settings import (
    CONCERNS,
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
    TrainingConfig,
    concern_of,
    concerns,
    fields,
    flat_types,
    is_value,
    only_with,
)
from fedjax_sel.config.typed import NamedSettings
from fedjax_sel.core.parsing import one_of
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.config.typed import Flat
else:
    Flat = object

__all__ = [
    "NOT_OF_THE_TRAJECTORY",
    "OPEN",
    "PAIRS",
    "VALUE",
    "VALUES",
    "Config",
    "DataConfig",
    "ModelConfig",
    "OnlyWith",
    "PartitionConfig",
    "RunConfig",
    "SelectionConfig",
    "TrainingConfig",
    "concern_of",
    "concerns",
    "convert",
    "flat_types",
    "is_value",
    "only_with",
]


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

        Returns:
            The new configuration.

        Raises:
            UserError: If a name is unknown or a value has the wrong type.
        """
        kinds = flat_types()
        changes: dict[str, dict[str, Any]] = {}
        for name, value in flat_names.items():
            _check_name(name, kinds)
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

    def plugins(self) -> tuple[str, ...]:
        """Return all plug-ins `mypackage.module:factory` that the configuration names."""
        named = (
            self.selection.algo, self.training.optimizer, self.model.model, self.model.task, self.partition.partition,
            self.data.dataset,
        )  # fmt: skip
        return tuple(name for name in named if _is_plugin(name))

    def has_effect(self, name: str) -> bool:
        """Return whether a field has an effect, given the other fields' values.

        Args:
            name: the field's flat name.
        """
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
        return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _check_name(name: str, kinds: Mapping[str, Any]) -> None:
    """Reject an unknown field name, and suggest the right one."""
    found = None if name in kinds else other_names.ours(name, kinds)
    if found is not None:
        raise UserError(f"configuration: unknown {name!r}; did you mean {found!r}?")
    if name not in kinds and (advice := other_names.advice(name)) is not None:
        raise UserError(f"configuration: unknown {name!r}; {advice}")
    one_of("configuration", name, kinds)


def _is_plugin(name: str) -> bool:
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and module not in _NOT_MODULES


_NOT_MODULES = ("synthetic", "leaf", "value")  # prefixes before a colon that are no modules
