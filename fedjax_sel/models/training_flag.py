"""How a module is told whether it trains: Flax leaves the name of that argument to its author."""

import inspect
from collections.abc import Callable
from typing import Any

from fedjax_sel.errors import UserError

VALUE_IN_TRAINING = {
    "train": True,
    "training": True,
    "is_training": True,
    "is_train": True,
    "deterministic": False,
    "use_running_average": False,
}
"""Names that say whether a pass trains, and what each says in training."""


def values(names: list[str], train: bool) -> dict[str, Any]:
    """Return what each of some flags says.

    Args:
        names: of VALUE_IN_TRAINING.
        train: whether the pass trains.
    """
    return {name: VALUE_IN_TRAINING[name] == train for name in names}


def of_call(call: Callable, name: str) -> list[str]:
    """Return the flags that a module's `__call__` takes beside its inputs.

    Args:
        call: bound; its first parameter takes the inputs.
        name: of the module, for messages.

    Raises:
        UserError: it takes no inputs, or has another parameter that nobody gives.
    """
    parameters = list(inspect.signature(call).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise UserError(f"model: {name}.__call__ takes no inputs; give it one positional parameter for a batch of them")
    flags = []
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if parameter.name in VALUE_IN_TRAINING and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            flags.append(parameter.name)
        elif parameter.default is inspect.Parameter.empty:
            raise UserError(
                f"model: {name}.__call__ asks for {parameter.name!r}, which nobody gives it; let it have a default, or "
                f"one of the names {', '.join(VALUE_IN_TRAINING)} if it says whether the pass trains"
            )
    return flags
