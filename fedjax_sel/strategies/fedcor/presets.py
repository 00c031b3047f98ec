"""The presets of FedGP and FedCor: numbers from the papers and the two code releases, and their validation."""

from typing import Literal, NamedTuple, get_args

from fedjax_sel.errors import UserError

Preset = Literal["paper", "code-2022", "code-2023", "closed-form", "proxy", "gpfl-port"]
Task = Literal["fmnist", "cifar10"]
Mean = Literal["zero", "discounted"]
Importance = Literal["shares", "uniform"]


class Numbers(NamedTuple):
    """A resolved preset. Static.

    A fit uses the samples whose age is a multiple of the spacing, up to `reuse` x spacing, with weight discount^age.
    """

    warmup: int  # rounds with random cohorts
    begin: int  # the first round whose loss change is a sample
    interval: int  # rounds between updates of the model of loss changes, Delta t
    shift: int  # updates are in rounds t with (t - shift) % interval = 0; a probe is dated to round t - shift
    every_warmup_fit: bool  # False: one fit at the end of the warm-up
    warmup_steps: int  # Adam steps per fit in the warm-up
    steps: int  # Adam steps per later fit
    warmup_reuse: int  # M in the warm-up, with spacing 1
    reuse: int  # M after the warm-up, with spacing `interval`; with ages="rounds" a number of rounds
    # Age of a sample. spaced: in rounds; positions: number of later collections, times the spacing; rounds: in rounds,
    # with spacing 1, so that a fit uses all samples of the last `reuse` rounds.
    ages: Literal["spaced", "positions", "rounds"]
    discount: float  # theta, per round
    anneal: float  # beta
    mean: Mean  # mu of the Gaussian in a fit
    fit: Literal["adam", "closed-form"]
    select: Literal["greedy", "proxy"]
    importance: Importance
    dimension: int | None  # d; None: max(15, K)
    restored_probes: bool = False  # restores the model before a probe's losses are measured, so every change is zero
    noise: float = 0.01  # sigma
    probes: int = 1  # S
    learning_rate: float = 0.01

    @property
    def first_update(self) -> int:
        """The first update: the smallest t >= warmup + shift with (t - shift) % interval = 0."""
        return self.shift + self.interval * -(-self.warmup // self.interval)

    @property
    def slots(self) -> int:
        """The number of collections H that later fits can use."""
        updates = self.reuse // self.interval if self.ages == "rounds" else self.reuse
        return self.warmup - self.begin + updates + 1


_PAPER = Numbers(
    warmup=15, begin=0, interval=10, shift=0, every_warmup_fit=True, warmup_steps=150, steps=100,
    warmup_reuse=10, reuse=1, ages="spaced", discount=0.9, anneal=0.95, mean="zero", fit="adam",
    select="greedy", importance="shares", dimension=None,
)  # fmt: skip
_PAPER_CIFAR10 = _PAPER._replace(warmup=20, interval=50, discount=0.99, anneal=0.9)
_CODE_2022 = _PAPER._replace(warmup=16, begin=10, shift=1, ages="positions", discount=0.8)
_CODE_2022_CIFAR10 = _CODE_2022._replace(warmup=21, interval=50, discount=0.97, anneal=0.9)
_CODE_2023 = _PAPER._replace(
    warmup=16, shift=1, every_warmup_fit=False, warmup_steps=1000, ages="rounds", warmup_reuse=100, reuse=100,
    discount=0.95, mean="discounted",
)  # fmt: skip
_CODE_2023_CIFAR10 = _CODE_2023._replace(warmup=21, interval=50, warmup_reuse=500, reuse=500, discount=0.99, anneal=0.9)
# script/test.sh and script/test_fedcor.sh of joapolarbear/PBFL use the same numbers for every data set.
_GPFL_PORT = _CODE_2023_CIFAR10._replace(importance="uniform", restored_probes=True)

_TABLE: dict[tuple[str, str], Numbers] = {
    ("paper", "fmnist"): _PAPER,
    ("paper", "cifar10"): _PAPER_CIFAR10,
    ("code-2022", "fmnist"): _CODE_2022,
    ("code-2022", "cifar10"): _CODE_2022_CIFAR10,
    ("code-2023", "fmnist"): _CODE_2023,
    ("code-2023", "cifar10"): _CODE_2023_CIFAR10,
    ("closed-form", "fmnist"): _PAPER._replace(fit="closed-form", every_warmup_fit=False),
    ("closed-form", "cifar10"): _PAPER_CIFAR10._replace(fit="closed-form", every_warmup_fit=False),
    ("proxy", "fmnist"): _PAPER._replace(select="proxy"),
    ("proxy", "cifar10"): _PAPER_CIFAR10._replace(select="proxy"),
    ("gpfl-port", "fmnist"): _GPFL_PORT,
    ("gpfl-port", "cifar10"): _GPFL_PORT,
    ("fedgp", "fmnist"): _PAPER._replace(warmup_reuse=1),
    ("fedgp", "cifar10"): _PAPER_CIFAR10._replace(warmup_reuse=1, warmup=15, anneal=0.97),
}

_AT_LEAST = {
    "warmup": (1, "the papers use 15"),
    "interval": (1, "the papers use 10"),
    "warmup_steps": (0, "the public code uses 150"),
    "steps": (0, "the public code uses 100"),
    "warmup_reuse": (0, "the papers use 10"),
    "reuse": (0, "the papers use 1"),
    "dimension": (1, "the papers use 15"),
    "probes": (1, "the papers use 1"),
}
_ABOVE_ZERO = {"noise": "the public code uses 0.01", "learning_rate": "the papers use 0.01"}
_LEAST_NOISE = 1e-10
_UP_TO_ONE = {"anneal": "the papers use 0.95", "discount": "the papers use 0.9"}
_WITHOUT_EFFECT = {  # preset -> parameters that it ignores
    "closed-form": ("warmup_steps", "steps", "learning_rate", "warmup_reuse", "reuse"),
    "proxy": ("anneal",),
}
_CHOICES = {"mean": get_args(Mean), "importance": get_args(Importance), "restored_probes": (False, True)}


def resolve(strategy: str, preset: Numbers, **overrides: int | float | str | None) -> Numbers:
    """Return a preset with a user's overrides; None keeps the preset's value.

    Args:
        strategy: name of the strategy, for messages.
        preset: the preset's numbers.
        **overrides: fields of `Numbers`.

    Raises:
        UserError: a parameter is outside its range or has no effect.
    """
    chosen = {name: value for name, value in overrides.items() if value is not None}
    for name, value in chosen.items():
        problem = _problem(name, value)
        if problem:
            raise UserError(f"{strategy}: {name}={value} {problem}")
        for own in (preset.fit, preset.select):
            if name in _WITHOUT_EFFECT.get(own, ()):
                raise UserError(f"{strategy}: {name}={value} has no effect with preset={own}; leave it out")
    numbers = preset._replace(**chosen)
    return numbers._replace(begin=min(numbers.begin, numbers.warmup - 1))


def look_up(strategy: str, preset: str, task: str) -> Numbers:
    """Return a preset by name.

    Args:
        strategy: name of the strategy, for messages.
        preset: one of `Preset`, or fedgp.
        task: one of `Task`.

    Raises:
        UserError: a name is unknown.
    """
    if task not in get_args(Task):
        raise UserError(f"{strategy}: task={task!r} is unknown; choose from {', '.join(get_args(Task))}")
    if (preset, task) not in _TABLE:
        raise UserError(f"{strategy}: preset={preset!r} is unknown; choose from {', '.join(get_args(Preset))}")
    return _TABLE[preset, task]


def _problem(name: str, value: int | float | str) -> str | None:
    if name in _CHOICES:
        return None if value in _CHOICES[name] else f"is unknown; choose from {', '.join(map(str, _CHOICES[name]))}"
    assert not isinstance(value, str)
    if name in _AT_LEAST:
        smallest, usual = _AT_LEAST[name]
        return None if value >= smallest else f"is below {smallest}; {usual}"
    if name == "noise" and 0 < value < _LEAST_NOISE:
        return f"is below {_LEAST_NOISE:g}, where float32 divisions overflow; {_ABOVE_ZERO[name]}"
    if name in _ABOVE_ZERO:
        return None if 0 < value < float("inf") else f"is not a positive number; {_ABOVE_ZERO[name]}"
    return None if 0 < value <= 1 else f"is outside (0, 1]; {_UP_TO_ONE[name]}"
