"""FedCor Fig. 2, 12 and 13, FedGP's Assumption 3.2: normality and linearity of loss changes under random cohorts."""

from functools import partial
from typing import Any

import numpy as np

from fedjax_sel import Config, statistics
from fedjax_sel.strategies.fedcor_presets import look_up
from studies.papers import loss_changes, normality, tables, verdicts
from studies.papers.entries.fedcor import PAPER_SEEDS, configuration, task_of
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

NON_IID, FASHION_MNIST, CIFAR10 = (
    ("fmnist-2spc", "cifar10-2spc"),
    ("fmnist-2spc", "fmnist-1spc", "fmnist-dir"),
    ("cifar10-2spc", "cifar10-1spc", "cifar10-dir"),
)
COMPONENTS = 5
FITS = 0.05


def rule(components: int) -> str:
    """Return the rule of the verdicts.

    Args:
        components: number of principal components in the figure.
    """
    which = "first principal component" if components == 1 else f"first {components} principal components"
    stand = "stands" if components == 1 else "stand"
    return (
        f"In the last round of the warm-up, {loss_changes.COHORTS} random cohorts are drawn. Each client trains once, "
        f"and a cohort's model is the mean of its clients' models. For the clients' loss changes, the {which} {stand} "
        "against the Gaussian with the same mean and deviation. The fit is good if no probability is wrong by much. "
        "The number is the largest difference of the distribution functions: reproduced if its 95 % interval over "
        f"seeds lies below {FITS}, contradicted if it lies above. Exact normality is a stricter claim, tested by "
        "Anderson-Darling with a simulated null distribution. It is contradicted if the test rejects any component "
        "after Holm's correction over the components and seeds of a setting. Otherwise it is reproduced, within the "
        "power of this number of cohorts."
    )


def _judge(components: int, results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    pictures: dict[str, Any] = {}
    lines = ["setting,seed,component,share_of_variance,distance,anderson_darling,p"]
    for cell, result in results.items():
        [changes] = loss_changes.read(result, scale).values() or [None]
        if changes is None:
            continue
        found = [normality.principal_components(one, min(components, *one.shape)) for one in changes]
        scores = np.stack([one for one, _ in found])  # [seeds, components, cohorts]
        shares = np.stack([share for _, share in found])
        apart, squared = normality.distance(scores), normality.anderson_darling(scores)
        p = normality.anderson_darling_test(scores)
        for place in range(scores.shape[1]):
            rows.append(_fit(cell.column, place + 1, apart[:, place], shares[:, place], scale))
        rows.append(_test(cell.column, p, scale))
        lines += [
            f"{cell.column},{seed},{place + 1},"
            + ",".join(f"{x[number, place]:.5g}" for x in (shares, apart, squared, p))
            for number, seed in enumerate(result.seeds)
            for place in range(scores.shape[1])
        ]
        pictures[f"{cell.column}.png"] = _figure(scores[0], shares[0])
    if not rows:
        return Page(rows)
    by_chance = _by_chance(loss_changes.cohorts(scale))
    notes = [
        "The pictures show the first seed; the red line is the Gaussian. With the same number of exactly Gaussian "
        f"samples, the greatest difference is {by_chance:.3f} on average."
    ]
    return Page(rows, notes, pictures, {"components.csv": "\n".join(lines) + "\n"})


def _fit(column: str, number: int, apart: np.ndarray, shares: np.ndarray, scale: Scale) -> Row:
    low, high = map(float, statistics.mean_interval(apart))
    verdict = verdicts.of_bound(low, high, len(apart), FITS, above=False, whole=scale.whole_rounds)
    what = f"component {number} ({100 * shares.mean():.0f} % of the variance): greatest difference to the Gaussian"
    ours = tables.mean_and_sd(apart, 3) + ("" if np.isnan(low) else f" ({low:.3f} to {high:.3f})")
    return Row(column, what, "fits well (picture)", ours, len(apart), "", verdict)


def _test(column: str, p: np.ndarray, scale: Scale) -> Row:
    ordered = np.sort(p, axis=None)
    adjusted = np.minimum(np.maximum.accumulate(ordered * np.arange(p.size, 0, -1)), 1.0)  # Holm: m p, (m - 1) p, ...
    rejected = int((adjusted <= statistics.ALPHA).sum())
    verdict = verdicts.CONTRADICTED if rejected else verdicts.REPRODUCED
    ours = f"{rejected} of {adjusted.size} rejected (least p = {adjusted.min():.2g})"
    return Row(column, "the components are Gaussian", "to first order (Lemma 1)", ours, len(p), "",
               verdict if scale.whole_rounds else verdicts.NOT_COMPARABLE)  # fmt: skip


def _by_chance(cohorts: int) -> float:
    return float(normality.distance(np.random.default_rng(0).standard_normal((200, cohorts))).mean())


def _figure(scores: np.ndarray, shares: np.ndarray) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(scores), 3.5), layout="constrained")
    axes = figure.subplots(1, len(scores), squeeze=False)[0]
    for number, (axis, values, share) in enumerate(zip(axes, scores, shares), start=1):
        deviation = values.std(ddof=1)
        axis.hist(values, bins=40, density=True, color="#56B4E9", label="random cohorts")
        across = np.linspace(values.min(), values.max(), 200)
        gaussian = np.exp(-((across / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))
        axis.plot(across, gaussian, color="#D55E00", linewidth=1.2, label="Gaussian")
        axis.set_title(f"component {number}: {100 * share:.0f} %")
        axis.set_xlabel("loss change along it (nats)")
    axes[0].set_ylabel("density")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _run(column: str) -> Config:
    warmup = look_up("fedcor", "paper", task_of(column)).warmup
    return configuration(column, "random").replace(rounds=warmup - 1, seeds=PAPER_SEEDS)


def _entry(name: str, columns: tuple[str, ...], components: int, cost: str) -> Entry:
    runs = {Cell(column, "random"): _run(column) for column in columns}
    return Entry(name, rule(components), runs, partial(_judge, components), cost, loss_changes.MEASURE)


LINEAR = 0.9
LINEARITY = (
    f"In the last round of the warm-up, {loss_changes.COHORTS} random cohorts are drawn, as for fedcor/fig12. On half "
    "of them, each client's loss change is fitted by least squares as a linear function of the cohort's members. The "
    "number is the share of the variance of all clients' loss changes on the other half that the fit explains. "
    f"Reproduced if its 95 % interval over seeds lies above {LINEAR:g}; contradicted if it lies below."
)


def explained(changes: np.ndarray, cohorts: np.ndarray) -> float:
    """Return the fraction of the variance of held-out loss changes that a linear function of the cohort explains.

    Args:
        changes: loss changes, [M, N], with M well above 2 N.
        cohorts: cohorts of the loss changes, int [M, K].
    """
    taking_part = (cohorts[:, :, None] == np.arange(changes.shape[1])).any(axis=1).astype(np.float64)  # [M, N]
    half, exact = len(changes) // 2, changes.astype(np.float64)
    slopes, *_ = np.linalg.lstsq(taking_part[:half], exact[:half], rcond=None)
    rest = exact[half:]
    missed = ((rest - taking_part[half:] @ slopes) ** 2).sum()
    return float(1 - missed / ((rest - rest.mean(axis=0)) ** 2).sum())


def _judge_linearity(results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    for cell, result in results.items():
        [changes] = loss_changes.read(result, scale).values() or [None]
        [cohorts] = loss_changes.drawn(result, scale).values() or [None]
        if changes is None or cohorts is None:
            continue
        found = np.array([explained(*one) for one in zip(changes, cohorts)])
        low, high = map(float, statistics.mean_interval(found))
        rows.append(
            Row(cell.column, "share of the variance of loss changes that is linear in the update", "nearly all",
                tables.mean_and_sd(found, 3) + f" ({low:.3f} to {high:.3f})", len(found), "",
                verdicts.of_bound(low, high, len(found), LINEAR, whole=scale.whole_rounds))
        )  # fmt: skip
    return Page(rows)


ENTRIES = (
    Entry("fedgp/linearity", LINEARITY, {Cell(column, "random"): _run(column) for column in FASHION_MNIST},
          _judge_linearity, "none beside fedcor/fig12", loss_changes.MEASURE),
    _entry("fedcor/fig2", NON_IID, 1, "none beside fedcor/fig12 and fedcor/fig13"),
    _entry("fedcor/fig12", FASHION_MNIST, COMPONENTS, "4 minutes"),
    _entry("fedcor/fig13", CIFAR10, COMPONENTS, "hours a column on a CPU"),
)  # fmt: skip
