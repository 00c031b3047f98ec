"""Detection of a Flax module's training flag, whose name Flax leaves to the module's author."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_sel.errors import UserError

Flags = Mapping[str, tuple[Any, Any]]
"""(value in training, value in evaluation) of each flag, by name."""

_TRUE_IN_TRAINING = (
    "train", "training", "is_training", "is_train", "train_mode", "training_mode", "enable_dropout", "use_dropout",
    "update_stats",
)  # fmt: skip
_TRUE_IN_EVALUATION = (
    "deterministic", "use_running_average", "inference", "is_inference", "inference_mode", "eval", "is_eval",
    "eval_mode", "evaluate", "evaluation", "is_evaluation", "test", "testing", "is_test", "is_testing", "test_mode",
)  # fmt: skip
KNOWN: Flags = {name: (True, False) for name in _TRUE_IN_TRAINING} | {
    name: (False, True) for name in _TRUE_IN_EVALUATION
}
"""Names of Boolean arguments or attributes that are recognized as training flags."""

_CHOICES = ("enable_dropout", "use_dropout", "update_stats")
"""Known names that as attributes configure the architecture: a module without dropout must not receive it."""


class ModuleFlags(NamedTuple):
    """The training flags of a module."""

    arguments: Flags  # arguments of `__call__`
    attributes: Flags  # attributes that are set before the call


def values(flags: Flags, train: bool) -> dict[str, Any]:
    """Return the values of flags in one mode.

    Args:
        flags: the flags.
        train: True for training, False for evaluation.
    """
    return {name: in_training if train else otherwise for name, (in_training, otherwise) in flags.items()}


def find(call: Callable, attributes: Mapping[str, Any], name: str, named: Flags | None) -> ModuleFlags:
    """Find the flags of a module.

    Args:
        call: bound `__call__` of the module, whose first parameter is the inputs.
        attributes: settable attributes of the module, with their values.
        name: name of the module in messages.
        named: flags that the user names, which must all exist; None: search for those in KNOWN.

    Raises:
        UserError: the module takes no inputs, has a required parameter that is not a flag, or lacks a named flag.
    """
    parameters = list(inspect.signature(call).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise UserError(f"model: {name}.__call__ takes no inputs; give it one positional parameter for a batch of them")
    flags = KNOWN if named is None else _checked(named)
    arguments = {}
    for parameter in parameters[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        is_flag = parameter.name in flags and (named is not None or is_yes_or_no(parameter.default))
        if is_flag and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            arguments[parameter.name] = flags[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            raise UserError(
                f"model: {name}.__call__ requires an argument {parameter.name!r}; give it a default, or, if it is a "
                f"training flag, {_remedy()}"
            )
    if named is None:
        own = {key: KNOWN[key] for key in KNOWN if key not in _CHOICES and is_yes_or_no(attributes.get(key, "none"))}
        return ModuleFlags(arguments, own)
    own = {key: value for key, value in flags.items() if key in attributes and key not in arguments}
    others = {key: value for key, value in flags.items() if key not in own and key not in arguments}
    if others and not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        raise UserError(
            f"training_flags: {name} has no argument of __call__ and no attribute {next(iter(others))!r}; name only "
            "existing ones"
        )
    return ModuleFlags({**arguments, **others}, own)


def check_that_it_trains(name: str, flags: Flags, frozen: list[bool], silent: list[bool]) -> None:
    """Reject a module whose training pass leaves batch statistics or dropout unused, due to an unknown flag.

    Args:
        name: name of the module.
        flags: flags of the module that were found; their meaning may be inverted.
        frozen: per array of batch statistics, True if a training pass leaves it unchanged.
        silent: per Dropout layer with a nonzero rate, True if a training pass draws nothing for it.

    Raises:
        UserError: all batch statistics are frozen, or a Dropout layer is silent.
    """
    if any(silent) or (frozen and all(frozen)):
        problem = "has an inactive Dropout layer" if any(silent) else "has batch statistics that do not change"
        if flags:
            given = " and ".join(f"{key}={value!r}" for key, value in values(flags, True).items())
            inverted = {key: (otherwise, in_training) for key, (in_training, otherwise) in flags.items()}
            raise UserError(
                f"model: {name} {problem} in a training pass with {given}; if the flag is inverted, correct the module "
                f"or pass training_flags={inverted} to models.from_flax(...) or models.from_nnx(...); if this is "
                f"intended, pass training_flags={dict(flags)}, which disables this check"
            )
        raise UserError(
            f"model: {name} {problem} in a training pass; give its __call__ a training flag, and {_remedy()}; if this "
            "is intended, pass training_flags={}, which disables this check"
        )


def _remedy() -> str:
    known = ", ".join(KNOWN)
    return (
        f"use one of the names {known}, or pass training_flags={{'name': (in training, in evaluation)}} to "
        "models.from_flax(...) or models.from_nnx(...)"
    )


def _checked(named: Any) -> Flags:
    are_pairs = isinstance(named, Mapping) and all(isinstance(v, tuple) and len(v) == 2 for v in named.values())
    if not are_pairs or not all(isinstance(key, str) for key in named):
        raise UserError(
            f"training_flags: {named!r} does not map names to pairs (in training, in evaluation); give, for example, "
            "{'mode': ('train', 'eval')}"
        )
    return named


def is_yes_or_no(value: Any) -> bool:
    """Return whether an argument's default or an attribute can be a Boolean flag."""
    return value is None or value is inspect.Parameter.empty or (isinstance(value, int) and value in (0, 1))


def are_alike(held: Any, value: Any) -> bool:
    """Return whether an attribute's current value and a flag's value are of the same kind."""
    return held is None or is_yes_or_no(held) == is_yes_or_no(value)
