"""FL-DP3S Fig. 4 and 5: profiles and kernels of 20 clients under four initializations."""

import itertools
from typing import Any

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.papers import preset
from studies.papers import state, tables, verdicts
from studies.papers.entries.fl_dp3s import INITIALIZERS
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

CLIENTS, SEEDS = 20, 10
COLUMN = "mnist-xi1"
PROFILES, SIMILARITIES = ".info[<flat index 0>].value", ".strategy.similarity"  # paths in the final state
ALIKE = 0.9
STRONGLY = 0.5
APART = (
    "The distance of two initializations is the mean distance of a client's two profiles, divided by the mean "
    'distance of different clients\' profiles. The paper says "significantly affected", without a number. The claim '
    f"is reproduced for a pair if the 95 % interval of the mean over seeds lies above {STRONGLY}, and contradicted if "
    "it lies below. This rule replaces the rule of a first run, a ratio above 1, which the paper does not claim. In "
    "that run, the initializations shared their random numbers."
)
SAME = (
    "The number is the correlation of the kernels' off-diagonal entries under two initializations (S of Eq. 14). "
    f"Reproduced for a pair if the 95 % interval of its mean over seeds lies above {ALIKE}; contradicted if it lies "
    "below."
)


def _profiles(results: Results) -> dict[str, np.ndarray]:
    """Return profiles by initialization, [seeds, N, Q]."""
    return {cell.row: state.after(result)[PROFILES] for cell, result in results.items()}


def _kernels(results: Results) -> dict[str, np.ndarray]:
    """Return similarities by initialization, [seeds, N, N]."""
    return {cell.row: state.after(result)[SIMILARITIES] for cell, result in results.items()}


def _judge_profiles(results: Results, scale: Scale) -> Page:
    profiles = _profiles(results)
    pairs = list(itertools.combinations(profiles, 2))
    if not pairs:
        return Page(())
    within = {name: _between_clients(values) for name, values in profiles.items()}
    rows = []
    for one, two in pairs:
        apart = np.linalg.norm(profiles[one] - profiles[two], axis=2).mean(axis=1)
        share = apart / ((within[one] + within[two]) / 2)
        low, high = map(float, statistics.mean_interval(share))
        words = f"{tables.mean_and_sd(share, 2)} ({low:.2f} to {high:.2f})"
        words += f" times the mean distance between clients, {apart.mean():.2f}"
        rows.append(
            Row(COLUMN, f"how much a client's profile differs between {one} and {two}", "significantly", words,
                len(share), "", verdicts.of_bound(low, high, len(share), STRONGLY))
        )  # fmt: skip
    note = "The picture's panels share one scale of colors: where a panel is pale, profiles are small."
    return Page(rows, [note], {"profiles.png": _figure(profiles, "unit of the layer", "output, seed 0")})


def _between_clients(profiles: np.ndarray) -> np.ndarray:
    """Return the mean distance of two different clients' profiles, [seeds]."""
    distances = np.linalg.norm(profiles[:, :, None] - profiles[:, None], axis=3)
    clients = profiles.shape[1]
    return distances.sum(axis=(1, 2)) / (clients * (clients - 1))


def _judge_kernels(results: Results, scale: Scale) -> Page:
    kernels = _kernels(results)
    rows: list[Row] = []
    for one, two in itertools.combinations(kernels, 2):
        found = np.array([_correlation(*pair) for pair in zip(kernels[one], kernels[two])])
        low, high = map(float, statistics.mean_interval(found))
        rows.append(
            Row(COLUMN, f"correlation of the kernels under {one} and {two}", "alike (picture)",
                f"{tables.mean_and_sd(found, 3)} ({low:.3f} to {high:.3f})", len(found), "",
                verdicts.of_bound(low, high, len(found), ALIKE))
        )  # fmt: skip
    pictures = {"kernels.png": _figure(kernels, "client", "similarity, seed 0")} if kernels else {}
    return Page(rows, ["The pictures show the first seed."] if kernels else (), pictures)


def _correlation(one: np.ndarray, two: np.ndarray) -> float:
    above = np.triu_indices(len(one), 1)
    return float(np.corrcoef(one[above], two[above])[0, 1])


def _figure(matrices: dict[str, np.ndarray], across: str, color: str) -> Any:
    """Draw the first seed's matrix of each initialization, with a common color scale."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(3.6 * len(matrices) + 1.0, 3.6), layout="constrained")
    axes = figure.subplots(1, len(matrices), squeeze=False, sharey=True)[0]
    first = {name: values[0] for name, values in matrices.items()}
    scale = {"vmin": min(values.min() for values in first.values()), "vmax": max(map(np.max, first.values()))}
    for axis, (name, values) in zip(axes, first.items()):
        axis.imshow(values, aspect="auto", cmap="viridis", interpolation="nearest", **scale)
        axis.set_title(name)
        axis.set_xlabel(across)
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("client")
    figure.colorbar(axes[-1].images[0], ax=axes, label=color)
    return figure


_RUNS = {
    Cell(COLUMN, initializer): preset(f"fl_dp3s/{COLUMN}").replace(
        algo="fl_dp3s", initializer=initializer, num_clients=CLIENTS, local_epochs=None, local_steps=1, rounds=1,
        train_metrics_every=0, seeds=SEEDS,
    )
    for initializer in INITIALIZERS
}  # fmt: skip

ENTRIES = (
    Entry("fl_dp3s/fig4", APART, _RUNS, _judge_profiles, "3 minutes", state.keeping(PROFILES)),
    Entry("fl_dp3s/fig5", SAME, _RUNS, _judge_kernels, "none beside fl_dp3s/fig4", state.keeping(SIMILARITIES)),
)
