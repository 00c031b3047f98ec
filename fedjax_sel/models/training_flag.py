"""How a module is told whether it trains: Flax leaves the name of that argument to its author."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_sel.errors import UserError

Flags = Mapping[str, tuple[Any, Any]]
"""By name, what a flag says in training and in evaluation."""

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
"""Names that say whether a pass trains, where they are arguments or attributes that are true or false."""

_CHOICES = ("enable_dropout", "use_dropout", "update_stats")
"""Those that as an attribute say how a module is made: one without dropout is not to get it."""


class Told(NamedTuple):
    """How a module is told whether it trains."""

    arguments: Flags  # of its `__call__`
    attributes: Flags  # set before it


def values(flags: Flags, train: bool) -> dict[str, Any]:
    """Return what each of some flags says.

    Args:
        flags: what they say.
        train: whether the pass trains.
    """
    return {name: in_training if train else otherwise for name, (in_training, otherwise) in flags.items()}


def find(call: Callable, attributes: Mapping[str, Any], name: str, named: Flags | None) -> Told:
    """Find the flags of a module.

    Args:
        call: its `__call__`, bound; the first parameter takes the inputs.
        attributes: that can be set, and what they are.
        name: of the module, for messages.
        named: the flags that somebody names, of which each has to be found; None: those of KNOWN.

    Raises:
        UserError: it takes no inputs, has another parameter that nobody gives, or lacks a flag that is named.
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
                f"model: {name}.__call__ asks for {parameter.name!r}, which nobody gives it; let it have a default, or "
                f"{_way_out()} if it says whether the pass trains"
            )
    if named is None:
        own = {key: KNOWN[key] for key in KNOWN if key not in _CHOICES and is_yes_or_no(attributes.get(key, "none"))}
        return Told(arguments, own)
    own = {key: value for key, value in flags.items() if key in attributes and key not in arguments}
    others = {key: value for key, value in flags.items() if key not in own and key not in arguments}
    if others and not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        raise UserError(
            f"training_flags: {name} has no argument of __call__ and no attribute {next(iter(others))!r}; name those "
            "that it has"
        )
    return Told({**arguments, **others}, own)


def check_that_it_trains(name: str, flags: Flags, frozen: list[bool], silent: list[bool]) -> None:
    """Refuse a module whose training pass leaves alone what it is there to change: its flag has a name of its own.

    Args:
        name: of the module.
        flags: that were found, which may mean the opposite of their names.
        frozen: of each array of batch statistics, whether a training pass leaves it as it is.
        silent: of each Dropout with a rate, whether no training pass draws for it.

    Raises:
        UserError: all batch statistics are frozen, or a Dropout is silent.
    """
    if any(silent) or (frozen and all(frozen)):
        what = "has a Dropout that drops nothing" if any(silent) else "has batch statistics that nothing changes"
        if flags:
            given = " and ".join(f"{key}={value!r}" for key, value in values(flags, True).items())
            inverted = {key: (otherwise, in_training) for key, (in_training, otherwise) in flags.items()}
            raise UserError(
                f"model: {name} {what} in a training pass, where {given}; if it means the opposite there, correct the "
                f"module, or give training_flags={inverted} of models.from_flax(...) or models.from_nnx(...): a module "
                f"whose flags are named, as {dict(flags)} or so, is taken as it is"
            )
        raise UserError(
            f"model: {name} {what} in a training pass; let its __call__ take a flag that says whether it trains by "
            f"{_way_out()}: a module whose flags are named, or that is said to have none by {{}}, is taken as it is"
        )


def _way_out() -> str:
    known = ", ".join(KNOWN)
    return (
        f"one of the names {known}, or name it with training_flags={{'name': (in training, in evaluation)}} of "
        "models.from_flax(...) or models.from_nnx(...)"
    )


def _checked(named: Any) -> Flags:
    are_pairs = isinstance(named, Mapping) and all(isinstance(v, tuple) and len(v) == 2 for v in named.values())
    if not are_pairs or not all(isinstance(key, str) for key in named):
        raise UserError(
            f"training_flags: {named!r} does not say of names what they are in training and in evaluation; give, for "
            "example, {'mode': ('train', 'eval')}"
        )
    return named


def is_yes_or_no(value: Any) -> bool:
    """Return whether an argument's default or an attribute can be a flag that is true or false."""
    return value is None or value is inspect.Parameter.empty or (isinstance(value, int) and value in (0, 1))


def are_alike(held: Any, value: Any) -> bool:
    """Return whether an attribute that holds something can be the flag that is to hold a value."""
    return held is None or is_yes_or_no(held) == is_yes_or_no(value)
