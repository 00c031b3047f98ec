"""FedCor: cohorts chosen by correlations between the clients' loss changes (Tang et al., CVPR 2022).

The changes of all clients' losses over one round, as a function of a uniformly random cohort, are taken as one draw of
a Gaussian vector. Its covariance is learned from a few such vectors through embeddings of the clients. A cohort is
picked greedily: suppose that choosing client k lowers its own loss by alpha_k standard deviations, look at what that
implies for the weighted sum of all losses, take the best client, condition the Gaussian on it, repeat.

    symbol    here                       shape     meaning
    X         State.embeddings           [d, N]    covariance Sigma = X^T X + noise^2 I                    (Eq. 14)
    dl^t      Samples.values             [H, S, N] losses of all after a random cohort less before         (Alg. 2, 7)
    alpha_k   exp(State.log_scale)       [N]       beta^(times k was selected since the last update)       (Eq. 9)
    beta      anneal
    p_i       State.importance           [N]       n_i / sum n
    mu        `mean`                     [N]       of the Gaussian; it drops out of the choice             (Eq. 12)
    theta     discount                             weight of a sample, theta^age                           (Eq. 17)
    M         reuse, warmup_reuse                  earlier collections that a fit uses again               (Eq. 17)
    Dt, S     interval, probes                     rounds between updates, random cohorts an update tries

Rounds count from 0. The first `warmup` rounds have random cohorts; each is a sample, known once all losses are measured
at the opening of the next round. From round `warmup` on, every round t with t % interval = 0 is an update: it opens
with a probe (S random cohorts train, are measured and thrown away), fits X by Adam from where it was, resets alpha, and
then selects. Where round `warmup` is one, X is fitted to the last sample of the warm-up first.

Information bought: losses of all clients at the opening of rounds 0 to `warmup` (N models down, N floats up each), and
in every update (1 + S) N models down, S K models up, (1 + S) N floats up. A cohort that was asked has its model. An
update in round `warmup` asks for the losses of w^t a second time.

Presets (`task` picks the column of Fashion-MNIST or of CIFAR-10):
* `paper`: what the paper says; steps of Adam, which it does not give, from the code: 150 in the warm-up, 100 later.
* `code-2022`: the first release. Samples of the warm-up count from its round 10 on, and a fit after it takes the two
  latest collections. Only the losses from round 10 on are bought.
* `code-2023`: the second release. One fit of 1000 steps ends the warm-up; later fits use all samples of the last 100
  (500) rounds, less their discounted mean.
* `closed-form`: the exact optimum from a discounted second moment [N, N] of all samples. The paper mentions it and does
  not use it: from one or two samples it forgets the past.
* `proxy`: the K clients with the largest sum_i p_i Sigma_ik, for which convergence is proved (supplement, Eq. 59-63).
* `gpfl-port`: the second release as GPFL's authors ran it: on every data set the numbers for CIFAR-10 (W = 20, Dt = 50,
  theta = 0.99, beta = 0.9, samples of 500 rounds), p_i = 1 / N, and `restored_probes`, which is off in all others.
  Their `try_federated_learning` restores the model before a probe's losses are taken, so that every change after the
  warm-up is zero; what such a probe sends is sent and billed all the same. Their fit counts epochs from 1: its updates
  come a round before ours, which are the release's, and it lacks the last sample of the warm-up.

Differs from the paper:
* Sigma as printed, X^T X, is singular; noise^2 I is added in the likelihood and in the selection, as in the code.
* d = 15, or K where that is larger: picks beyond d see noise alone.
* The code measures at the end of a round; here measuring opens the next one. Cohorts and samples are the same, and an
  update comes in round t + 1 where the code has it in round t.
* Where a loss is not finite, the collection of that round (all S samples) is dropped. A client that was not there
  counts as one whose loss stayed.
* Unavailable clients are not picked and stay part of the Gaussian. Ties are broken at random.
* A loss change in the warm-up is that of a round of training itself, with the run's own aggregation and server
  optimizer; so is a probe's. Reports may be lost in both.
* A client whose report is lost is not annealed: the server does not know that it trained, and asks it again.
"""

from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.fedcor import presets
from fedjax_sel.strategies.fedcor.model import build
from fedjax_sel.strategies.fedcor.presets import Importance, Mean, Preset, Task


def fedcor(
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
    """Make FedCor; everything that is None has the preset's value.

    Args:
        preset: whose numbers: paper, code-2022, code-2023, closed-form, proxy or gpfl-port.
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
        "fedcor",
        presets.look_up("fedcor", preset, task),
        warmup=warmup, interval=interval, anneal=anneal, discount=discount, dimension=dimension, noise=noise,
        probes=probes, warmup_steps=warmup_steps, steps=steps, learning_rate=learning_rate, warmup_reuse=warmup_reuse,
        reuse=reuse, mean=mean, importance=importance, restored_probes=restored_probes,
    )  # fmt: skip
    return build("fedcor", numbers)
