"""FedGP: FedCor's first version (Tang, Ning, Wang, Wang, Chen 2021). Symbols and machinery: fedcor.py.

Information bought: as FedCor's, with 15 rounds of warm-up for both tasks.

What became different in FedCor, as far as the algorithm is concerned:
* Derivation: FedGP derives the Gaussian from two assumptions (a Gaussian aggregate update, linearised losses); FedCor
  shows principal components instead and needs one. The algorithm is the same.
* Samples that a fit uses again: 1 throughout (FedCor: 10 in the warm-up, 1 later).
* Warm-up: 15 rounds for both tasks (FedCor: 20 on CIFAR-10).
* Annealing on CIFAR-10: 0.97 (FedCor's main comparison: 0.9). 0.95 on Fashion-MNIST in both.
* One random cohort an update (FedCor: S, and runs with 1).
* Annealing counts selections since the last update; FedCor counts them from the start and resets them then. The same.
* Local work is given in epochs (3 and 5), the cohort as a share (0.1, 0.05); FedCor gives 20 and 40 steps, 10 and 5
  clients. Those are settings of a run, not of this strategy.
* The target on CIFAR-10 with Dirichlet shares is 53 % (FedCor: 54 %), and the values of beta in the ablations differ.

Differs from the paper: as FedCor does. Alg. 2 can be read as training the global model with an update's random cohort;
here it is a copy that is thrown away, as FedCor says. The paper gives no number of Adam's steps: 150 and 100 here.
"""

from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.fedcor import presets
from fedjax_sel.strategies.fedcor.model import build
from fedjax_sel.strategies.fedcor.presets import Importance, Mean, Preset, Task


def fedgp(
    *,
    preset: Preset = "paper",
    task: Task = "fmnist",
    warmup: int | None = None,
    interval: int | None = None,
    anneal: float | None = None,
    discount: float | None = None,
    dimension: int | None = None,
    noise: float | None = None,
    probes: int | None = None,
    warmup_steps: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    warmup_reuse: int | None = None,
    reuse: int | None = None,
    mean: Mean | None = None,
    importance: Importance | None = None,
    restored_probes: bool | None = None,
) -> Strategy:
    """Make FedGP; everything that is None has the preset's value.

    Args:
        preset: paper: FedGP's own numbers; the others are FedCor's (fedcor.py), whose code is the only public one.
        task: which column of the numbers: fmnist or cifar10.
        warmup: rounds with random cohorts.
        interval: rounds between updates, Dt; longer than the run: none after the warm-up.
        anneal: beta, in (0, 1].
        discount: theta, per round, in (0, 1].
        dimension: d. None: 15, or K where that is larger. Below K the first d picks leave nothing to learn but noise,
            and the others are arbitrary among clients of equal alpha_k p_k.
        noise: standard deviation of what is not correlated.
        probes: random cohorts that an update tries, S.
        warmup_steps: of Adam in a fit of the warm-up.
        steps: of Adam in a fit after it.
        learning_rate: of Adam.
        warmup_reuse: collections that a fit of the warm-up uses again, M.
        reuse: the same after it; in rounds for code-2023 and gpfl-port.
        mean: of the Gaussian in a fit: zero or discounted, that of the samples.
        importance: p_i: shares of the data, or uniform.
        restored_probes: whether the model is restored before a probe's losses are taken, which makes every change zero.

    Returns:
        The strategy.

    Raises:
        UserError: a number outside its range.
    """
    numbers = presets.resolve(
        "fedgp",
        presets.look_up("fedgp", "fedgp" if preset == "paper" else preset, task),
        warmup=warmup, interval=interval, anneal=anneal, discount=discount, dimension=dimension, noise=noise,
        probes=probes, warmup_steps=warmup_steps, steps=steps, learning_rate=learning_rate, warmup_reuse=warmup_reuse,
        reuse=reuse, mean=mean, importance=importance, restored_probes=restored_probes,
    )  # fmt: skip
    return build("fedgp", numbers)
