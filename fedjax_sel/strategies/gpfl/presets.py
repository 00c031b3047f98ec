"""The numbers of GPFL: a coherent reading of the paper and what the released code does, and the checks of them."""

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
    scale: Scale  # of projections
    projection: Projection
    softmax: Softmax
    mean: Mean  # what sums of rewards are divided by
    alpha: Exploration
    outcome: OutcomeRule
    start: Start
    accuracy_on: EvaluatedOn  # the server's own data, or the test set
    n: Counted  # in the logarithm
    first_round: int  # t of the first choice: the rounds that are over, or with the one that is about to begin
    rho: float = 1.0
    smoothing: float = 0.1  # the paper's gamma, of direction="smoothed"
    warm_up_rounds: int = 20  # of start="warm-up-sweep"


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
        UserError: an unknown name.
    """
    if preset not in _TABLE:
        raise UserError(f"gpfl: preset={preset!r} is unknown; it has {', '.join(get_args(Preset))}")
    return _TABLE[preset]


def resolve(preset: Numbers, **overrides: float | str | None) -> Numbers:
    """Return a preset with a user's own numbers; None keeps the preset's.

    Args:
        preset: where to start.
        **overrides: fields of `Numbers`.

    Returns:
        The numbers.

    Raises:
        UserError: a number outside its range, or one that has no effect.
    """
    chosen = {name: value for name, value in overrides.items() if value is not None}
    numbers = preset._replace(**chosen)
    if not 0 <= numbers.rho < float("inf"):
        raise UserError(f"gpfl: rho={numbers.rho} must be a number from 0; the paper uses 1")
    if not 0 <= numbers.smoothing < 1:
        raise UserError(f"gpfl: smoothing={numbers.smoothing} is outside [0, 1); the paper's momentum is 0.1")
    if numbers.warm_up_rounds < 1:
        raise UserError(f"gpfl: warm_up_rounds={numbers.warm_up_rounds} is below 1; the released code uses 20")
    for name, (option, value) in _ONLY_WITH.items():
        if name in chosen and getattr(numbers, option) != value:
            raise UserError(f"gpfl: {name}={chosen[name]} has no effect without {option}={value}; add that")
    return numbers
