"""FedCor: cohorts chosen by correlations between the clients' loss changes (Tang et al., CVPR 2022).

The loss changes of all clients over a round with a random cohort are modeled as a draw of a Gaussian vector. Its
covariance is learned from a few such vectors through embeddings of the clients. A cohort is selected greedily: assume
that selecting client k lowers its own loss by alpha_k standard deviations, and predict the weighted sum of all losses.
Select the client with the best prediction, condition the Gaussian on it, and repeat.

    symbol    here                       shape     meaning
    X         State.embeddings           [d, N]    covariance Sigma = X^T X + noise^2 I                    (Eq. 14)
    dl^t      Samples.values             [H, S, N] losses of all clients after a random cohort - before    (Alg. 2, 7)
    alpha_k   exp(State.log_scale)       [N]       beta^(times k was selected since the last update)       (Eq. 9)
    beta      anneal                     scalar    annealing factor                                        (Eq. 9)
    p_i       State.importance           [N]       n_i / sum n
    mu        `mean`                     [N]       mean of the Gaussian; does not affect the selection     (Eq. 12)
    theta     discount                             weight of a sample, theta^age                           (Eq. 17)
    M         reuse, warmup_reuse                  earlier collections that a fit reuses                   (Eq. 17)
    Dt, S     interval, probes                     rounds between updates, random cohorts per update

Rounds count from 0. The first `warmup` rounds have random cohorts. Each yields a sample, completed by the losses at the
opening of the next round, and X is fitted by Adam from the previous X (`code-2023`, `gpfl-port`, `closed-form`: once,
in round `warmup`). From round `warmup` on, every round t with t % interval = 0 is an update (released codes:
(t - 1) % interval = 0). An update opens with a probe: S random cohorts train, their models are measured, and they are
discarded. It then fits X again, resets alpha, and selects. In round `warmup`, the last warm-up fit precedes an update.

Information bought: the losses of all clients at the opening of rounds 0 to `warmup` (N models down, N floats up each).
Each update costs (1 + S) N models down, S K models up and (1 + S) N floats up. Queried clients already have the round's
model when they train. An update in round `warmup` buys the losses of w^t twice.

Presets (`task` selects the numbers for Fashion-MNIST or CIFAR-10):
* `paper`: the paper's numbers. Adam's steps, which the paper omits, come from the code: 150 in the warm-up, 100 later.
* `code-2022`: the first release. Warm-up samples count from round 10 on, so only the losses from round 10 on are
  bought. Later fits use the two latest collections.
* `code-2023`: the second release. One fit of 1000 steps ends the warm-up. Later fits use all samples of the last 100
  (500) rounds, minus their discounted mean.
* `closed-form`: the exact optimum for the discounted second moment [N, N] of all samples. The paper mentions it but
  does not use it, because with one or two samples the optimum ignores the past.
* `proxy`: the K clients with the largest sum_i p_i Sigma_ik, the rule of the convergence proof (supplement, Eq. 59-63).
* `gpfl-port`: the second release as run by GPFL's authors. It uses the CIFAR-10 numbers on every data set (20 rounds of
  warm-up, Dt = 50, theta = 0.99, beta = 0.9, samples of 500 rounds), p_i = 1 / N, and `restored_probes`, off elsewhere.
  Their `try_federated_learning` restores the model before the probe's losses are measured, so every change after the
  warm-up is zero. The probe's traffic is billed nevertheless. Their fit counts epochs from 1. Its updates therefore
  come one round before ours, which follow the release, and it lacks the last warm-up sample.

Differs from the paper:
* Sigma as printed, X^T X, is singular. noise^2 I is added in the likelihood and in the selection, as in the code.
* d = max(15, K), because picks beyond d depend on noise only.
* The code measures losses at the end of a round; here the next round opens with the measurement. Cohorts and samples
  are the same, and an update in the code's round t comes in round t + 1.
* If a loss is not finite, the round's collection (all S samples) is dropped. An unavailable client counts as having an
  unchanged loss.
* Unavailable clients are not selected, but remain part of the Gaussian. Ties are broken at random.
* Warm-up samples and probes use the run's own aggregation and server optimizer. Reports can be lost in both.
* A client whose report is lost is not annealed: the server does not know that it trained, and can select it again.
"""

from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.fedcor_model import Importance, Mean, Preset, Task, build_with


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
    """Make FedCor. A parameter that is None takes the preset's value.

    Args:
        preset: source of the default numbers: paper, code-2022, code-2023, closed-form, proxy or gpfl-port.
        task: task of the preset's numbers: fmnist or cifar10.
        warmup: number of rounds with random cohorts.
        interval: rounds between updates, Dt; above the number of rounds: no update after the warm-up.
        anneal: annealing factor beta, in (0, 1].
        discount: discount theta per round, in (0, 1].
        dimension: embedding dimension d. None: max(15, K). With d < K, the first d picks leave only noise, and the
            remaining picks are arbitrary among clients with equal alpha_k p_k.
        noise: standard deviation of the uncorrelated noise.
        probes: random cohorts per update, S.
        warmup_steps: Adam steps per fit in the warm-up.
        steps: Adam steps per fit after the warm-up.
        learning_rate: Adam's learning rate.
        warmup_reuse: earlier collections that a fit in the warm-up reuses, M.
        reuse: the same after the warm-up; in rounds for code-2023 and gpfl-port.
        mean: mean of the Gaussian in a fit: zero, or the samples' discounted mean.
        importance: client weights p_i: shares of the data, or uniform.
        restored_probes: whether the model is restored before a probe's losses are measured, so that every change is 0.
    """
    return build_with("fedcor", **locals())
