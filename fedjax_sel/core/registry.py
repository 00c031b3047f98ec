"""Registries of named factories: strategies, optimizers, tasks, and plug-ins."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from fedjax_sel.core import hyperparameters as hyper
from fedjax_sel.core import plugins
from fedjax_sel.core.names import one_of

Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class Registry(Generic[Made]):
    """Factories by name, including plug-ins `mypackage.module:factory`.

    Attributes:
        flag: the flag that takes the name, e.g. "--algo"; `--algo-args` takes the parameters.
        kind: the type that factories return.
        factories: name -> factory; a factory's keyword arguments are its parameters.
    """

    flag: str
    kind: type[Made]
    factories: Mapping[str, Callable[..., Made]] = dataclasses.field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Return the registered names, in the registry's order."""
        return tuple(self.factories)

    def make(self, name: str, **hyperparameters: Any) -> Made:
        """Build an object by name.

        Args:
            name: one of `names()`, or `mypackage.module:factory`.
            **hyperparameters: keyword arguments of the factory; values may be strings from a command line.

        Raises:
            UserError: If a name or parameter is unknown, a value has the wrong type or is out of range, or a plug-in
                cannot be imported or returns another type.
        """
        factory = self.factory(name)
        values = hyper.convert(f"{self.flag}-args", name, factory, hyperparameters)
        return plugins.build(name, self._wanted, factory, values) if plugins.is_plugin(name) else factory(**values)

    def parameters(self, name: str) -> dict[str, hyper.Parameter]:
        """Return a factory's parameters: name -> (type, default).

        Raises:
            UserError: If the factory does not exist.
        """
        return hyper.of(self.factory(name))[0]

    def factory(self, name: str) -> Callable[..., Made]:
        """Return the factory of a name.

        Raises:
            UserError: If the factory does not exist.
        """
        if plugins.is_plugin(name):
            return plugins.load(name, self._wanted)
        return self.factories[one_of(self.flag, name, self.factories)]

    @property
    def _wanted(self) -> plugins.Wanted:
        return plugins.Wanted(self.flag, self.kind)
