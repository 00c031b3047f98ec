"""The numbers of FedCor and FedGP in the papers and in their released codes. Symbols: fedcor.py.

Presets; `task` selects the numbers for Fashion-MNIST or CIFAR-10:
* `paper`: the paper's numbers. Adam's steps, which the paper omits, come from the code: 150 in the warm-up, 100 later.
* `code-2022`: the first release. Losses are bought from round 10 on; later fits use the two latest collections.
* `code-2023`: the second release. One fit of 1000 steps ends the warm-up. Later fits use all samples of the last 100
  (500) rounds, minus their discounted mean.
* `closed-form`: the exact optimum for the discounted second moment [N, N] of all samples, which the paper mentions.
* `proxy`: the K clients with the largest sum_i p_i Sigma_ik, the rule of the convergence proof (supplement, Eq. 59-63).
* `gpfl-port`: the second release as run by GPFL's authors: the CIFAR-10 numbers for every data set, p_i = 1 / N, and
  the model restored before a probe's losses are measured, so that every change is zero but billed. Their updates come
  one round earlier, and the last warm-up sample is missing.
"""

from typing import Annotated, Any, Literal, NamedTuple, get_args

from fedjax_sel.core.plugins import Within
from fedjax_sel.errors import UserError

Preset = Literal["paper", "code-2022", "code-2023", "closed-form", "proxy", "gpfl-port"]
Task = Literal["fmnist", "cifar10"]
Mean = Literal["zero", "discounted"]
Importance = Literal["shares", "uniform"]
Noise = Annotated[float, Within(1e-10)]  # float32 divisions overflow below it


class Numbers(NamedTuple):
    """A resolved preset. Static.

    A fit uses samples at equal distances in age, up to `reuse` distances old, with weight discount^age.
    """

    warmup: int  # rounds with random cohorts
    begin: int  # the first round whose loss change is a sample
    interval: int  # rounds between updates of the model of loss changes, Delta t
    update_offset: int  # updates are in rounds t with (t - offset) % interval = 0; a probe is dated to round t - offset
    every_warmup_fit: bool  # False: one fit at the end of the warm-up
    warmup_steps: int  # Adam steps per fit in the warm-up
    steps: int  # Adam steps per later fit
    warmup_reuse: int  # M in the warm-up, at distance 1
    reuse: int  # M after the warm-up, at distance `interval`; with ages="rounds" a number of rounds
    # Age of a sample. spaced: in rounds; positions: number of later collections, times the distance; rounds: in rounds,
    # at distance 1, so that a fit uses all samples of the last `reuse` rounds.
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
        """The first update: the smallest t >= warmup + update_offset with (t - update_offset) % interval = 0."""
        return self.update_offset + self.interval * -(-self.warmup // self.interval)

    @property
    def slots(self) -> int:
        """The number of collections H that later fits can use."""
        updates = self.reuse // self.interval if self.ages == "rounds" else self.reuse
        return self.warmup - self.begin + updates + 1


_PAPER = Numbers(
    warmup=15, begin=0, interval=10, update_offset=0, every_warmup_fit=True, warmup_steps=150, steps=100,
    warmup_reuse=10, reuse=1, ages="spaced", discount=0.9, anneal=0.95, mean="zero", fit="adam",
    select="greedy", importance="shares", dimension=None,
)  # fmt: skip
_PAPER_CIFAR10 = _PAPER._replace(warmup=20, interval=50, discount=0.99, anneal=0.9)
_CODE_2022 = _PAPER._replace(warmup=16, begin=10, update_offset=1, ages="positions", discount=0.8)
_CODE_2022_CIFAR10 = _CODE_2022._replace(warmup=21, interval=50, discount=0.97, anneal=0.9)
_CODE_2023 = _PAPER._replace(
    warmup=16, update_offset=1, every_warmup_fit=False, warmup_steps=1000, ages="rounds", warmup_reuse=100, reuse=100,
    discount=0.95, mean="discounted",
)  # fmt: skip
_CODE_2023_CIFAR10 = _CODE_2023._replace(warmup=21, interval=50, warmup_reuse=500, reuse=500, discount=0.99, anneal=0.9)
# script/test.sh and script/test_fedcor.sh of joapolarbear/PBFL use the same numbers for every data set.
_GPFL_PORT = _CODE_2023_CIFAR10._replace(importance="uniform", restored_probes=True)

PRESETS: dict[str, tuple[Numbers, ...]] = {  # preset -> Fashion-MNIST, CIFAR-10
    "paper": (_PAPER, _PAPER_CIFAR10),
    "code-2022": (_CODE_2022, _CODE_2022_CIFAR10),
    "code-2023": (_CODE_2023, _CODE_2023_CIFAR10),
    "closed-form": tuple(one._replace(fit="closed-form", every_warmup_fit=False) for one in (_PAPER, _PAPER_CIFAR10)),
    "proxy": tuple(one._replace(select="proxy") for one in (_PAPER, _PAPER_CIFAR10)),
    "gpfl-port": (_GPFL_PORT, _GPFL_PORT),
    "fedgp": (_PAPER._replace(warmup_reuse=1), _PAPER_CIFAR10._replace(warmup_reuse=1, warmup=15, anneal=0.97)),
}

_WITHOUT_EFFECT = {  # rule of the fit or of the selection, named like its preset -> parameters that it ignores
    "closed-form": ("warmup_steps", "steps", "learning_rate", "warmup_reuse", "reuse"),
    "proxy": ("anneal",),
}


def resolve(strategy: str, preset: Numbers, **overrides: Any) -> Numbers:
    """Return a preset with a user's overrides of its fields; None keeps the preset's value."""
    chosen = {name: value for name, value in overrides.items() if value is not None}
    for name, value in chosen.items():
        for rule in (preset.fit, preset.select):
            if name in _WITHOUT_EFFECT.get(rule, ()):
                raise UserError(f"{strategy}: {name}={value} has no effect with preset={rule}; leave it out")
    numbers = preset._replace(**chosen)
    return numbers._replace(begin=min(numbers.begin, numbers.warmup - 1))


def look_up(strategy: str, preset: str, task: str) -> Numbers:
    """Return the numbers of a preset for a task; `paper` is the strategy's own paper."""
    return PRESETS["fedgp" if strategy == "fedgp" and preset == "paper" else preset][get_args(Task).index(task)]
