"""What a name on the command line makes: strategies, optimizers, tasks; or a factory of anybody's own."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from fedjax_sel.core import hyperparameters as hyper
from fedjax_sel.core import plugins
from fedjax_sel.core.names import one_of

Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class Registry(Generic[Made]):
    """Factories by name, and those that `mypackage.module:factory` points at.

    Attributes:
        flag: that names one of them, e.g. "--algo"; its parameters are those of `--algo-args`.
        kind: what a factory makes.
        factories: those with a name; their keyword arguments are the parameters.
    """

    flag: str
    kind: type[Made]
    factories: Mapping[str, Callable[..., Made]] = dataclasses.field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Return the names that can be made, in the order of the table."""
        return tuple(self.factories)

    def make(self, name: str, **hyperparameters: Any) -> Made:
        """Build what a name stands for.

        Args:
            name: one of `names()`, or `mypackage.module:factory`.
            **hyperparameters: keyword arguments of the factory; values may be strings, as from a command line.

        Raises:
            UserError: unknown name, unknown parameter, a value of the wrong type or out of range, or a plug-in that
                cannot be imported or makes something else.
        """
        factory = self.factory(name)
        values = hyper.convert(f"{self.flag}-args", name, factory, hyperparameters)
        return plugins.build(name, self._wanted, factory, values) if plugins.is_plugin(name) else factory(**values)

    def parameters(self, name: str) -> dict[str, hyper.Parameter]:
        """Return what a factory takes: name -> (type, default).

        Raises:
            UserError: there is no such factory.
        """
        return hyper.of(self.factory(name))[0]

    def factory(self, name: str) -> Callable[..., Made]:
        """Return the factory that a name stands for, not yet called.

        Raises:
            UserError: there is no such factory.
        """
        if plugins.is_plugin(name):
            return plugins.load(name, self._wanted)
        return self.factories[one_of(self.flag, name, self.factories)]

    @property
    def _wanted(self) -> plugins.Wanted:
        return plugins.Wanted(self.flag, self.kind)
