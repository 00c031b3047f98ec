#!/usr/bin/env python3
"""Draw what each strategy does: docs/images/strategies/NAME.png, from one run on digits with one label per client.

    python tools/strategy_pictures.py                 all strategies, a few minutes
    python tools/strategy_pictures.py fedcor random   some of them

The left panel shows the labels of each round's cohort by their share of its examples, with a color scale. The right
panel shows how often each client was selected.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import fedjax_sel
from fedjax_sel import strategies
from fedjax_sel.experiment.problem import pose

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "strategies"
ROUNDS = 60
LARGEST = 0.5  # share with the darkest color


def draw(name: str, folder: Path) -> None:
    """Run a strategy and draw its picture into a folder."""
    timing = "tiers" if strategies.make(name).needs_clock else "none"
    config = fedjax_sel.preset("quickstart").replace(algo=name, rounds=ROUNDS, seeds=1, timing=timing)
    problem = pose(config)
    cohorts = fedjax_sel.run(config).cohorts[0]  # [rounds, places], -1 for an empty place
    num_classes = problem.dataset.num_classes
    counts = problem.partitions[0].label_counts(problem.dataset.train_labels, num_classes)  # [N, C]
    order = np.argsort(counts.argmax(axis=1), kind="stable")
    pooled = np.where((cohorts >= 0)[..., None], counts[cohorts], 0).sum(axis=1)  # [rounds, C]
    shares = pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
    selected = np.bincount(cohorts[cohorts >= 0], minlength=len(counts))[order]

    figure, axes = plt.subplots(1, 2, figsize=(7.6, 2.3), width_ratios=(3.3, 2), layout="constrained", dpi=110)
    image = axes[0].imshow(
        shares.T, aspect="auto", cmap="Blues", vmin=0, vmax=LARGEST, origin="lower",
        extent=(0.5, ROUNDS + 0.5, -0.5, num_classes - 0.5),
    )  # fmt: skip
    scale = figure.colorbar(image, ax=axes[0], extend="max" if shares.max() > LARGEST else "neither", pad=0.02)
    scale.set_label("share of examples", fontsize=8)
    scale.set_ticks([0, LARGEST / 2, LARGEST])
    scale.ax.tick_params(labelsize=8)
    axes[0].set(xlabel="round", ylabel="label", yticks=range(0, num_classes, 3), title="labels in the cohort")
    axes[1].bar(range(len(selected)), selected, width=0.9, color="#4c78a8")
    axes[1].axhline(selected.mean(), color="#888888", linewidth=1, linestyle="--")
    axes[1].set(xlabel="client, sorted by label", ylabel="rounds selected", title="participation", ylim=(0, None))
    for axis in axes:
        axis.title.set_fontsize(10)
    figure.savefig(folder / f"{name}.png", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", default=strategies.names(), help="strategies (default: all)"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="DIR", help="where the pictures go (%(default)s)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for chosen in arguments.names:
        draw(chosen, arguments.out)
        print(chosen)
