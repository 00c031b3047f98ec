"""The presets of GPFL: a consistent reading of the paper and the released code, and their validation."""

from typing import Literal, NamedTuple, get_args

from fedjax_sel.errors import UserError

Preset = Literal["gpfl-c", "gpfl-ref"]
Direction = Literal["previous", "current", "smoothed"]
Scale = Literal["gradient", "update"]
Projection = Literal["flat", "per-tensor-mean"]
Softmax = Literal["cohort", "all-with-stale"]
Mean = Literal["selections", "rounds", "selections-and-zero"]
Exploration = Literal["linear", "const", "decay", "tent"]
OutcomeRule = Literal["corrected", "printed", "sign"]
Start = Literal["sweep", "all-clients", "warm-up-sweep"]
EvaluatedOn = Literal["validation", "test"]
Counted = Literal["rounds", "total-plays"]


class Numbers(NamedTuple):
    """A resolved preset. Static."""

    direction: Direction  # g
    scale: Scale  # projected vectors: mean gradients or updates
    projection: Projection
    softmax: Softmax
    mean: Mean  # divisor of the sums of rewards
    alpha: Exploration
    outcome: OutcomeRule
    start: Start
    accuracy_on: EvaluatedOn  # the server's own data, or the test set
    n: Counted  # argument of the logarithm
    first_round: int  # t of the first selection: 0 counts completed rounds, 1 includes the current round
    rho: float = 1.0
    smoothing: float = 0.1  # the paper's gamma; used with direction="smoothed"
    warm_up_rounds: int = 20  # used with start="warm-up-sweep"


_TABLE: dict[str, Numbers] = {
    "gpfl-c": Numbers(
        direction="previous", scale="gradient", projection="flat", softmax="cohort", mean="selections", alpha="linear",
        outcome="corrected", start="sweep", accuracy_on="validation", n="rounds", first_round=1,
    ),
    "gpfl-ref": Numbers(
        direction="current", scale="update", projection="per-tensor-mean", softmax="cohort",
        mean="selections-and-zero", alpha="tent", outcome="sign", start="warm-up-sweep", accuracy_on="test",
        n="rounds", first_round=0,
    ),
}  # fmt: skip

_ONLY_WITH = {"smoothing": ("direction", "smoothed"), "warm_up_rounds": ("start", "warm-up-sweep")}


def look_up(preset: str) -> Numbers:
    """Return a preset by name.

    Raises:
        UserError: the name is unknown.
    """
    if preset not in _TABLE:
        raise UserError(f"gpfl: preset={preset!r} is unknown; choose from {', '.join(get_args(Preset))}")
    return _TABLE[preset]


def resolve(preset: Numbers, **overrides: float | str | None) -> Numbers:
    """Return a preset with a user's overrides; None keeps the preset's value.

    Args:
        preset: the preset's numbers.
        **overrides: fields of `Numbers`.

    Raises:
        UserError: a parameter is outside its range or has no effect.
    """
    chosen = {name: value for name, value in overrides.items() if value is not None}
    numbers = preset._replace(**chosen)
    if not 0 <= numbers.rho < float("inf"):
        raise UserError(f"gpfl: rho={numbers.rho} is negative or not finite; the paper uses 1")
    if not 0 <= numbers.smoothing < 1:
        raise UserError(f"gpfl: smoothing={numbers.smoothing} is outside [0, 1); the paper's momentum is 0.1")
    if numbers.warm_up_rounds < 1:
        raise UserError(f"gpfl: warm_up_rounds={numbers.warm_up_rounds} is below 1; the released code uses 20")
    for name, (option, value) in _ONLY_WITH.items():
        if name in chosen and getattr(numbers, option) != value:
            raise UserError(f"gpfl: {name}={chosen[name]} has no effect without {option}={value}; set {option}={value}")
    return numbers
