"""The command `fedjax-sel data`: statistics and a picture of a partition, and a table of availability."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.config import Config, DataConfig, PartitionConfig, validate

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from fedjax_sel.data.partition import ClientTests


_MAX_BARS = 120  # clients in the picture
_MAX_LEGEND = 20  # labels with a color of their own
_SAMPLES = 10  # clients with an image in the picture of --feature-skew


def _about_tests(tests: ClientTests, num_clients: int) -> str:
    import numpy as np

    sizes = np.array([len(own) for own in tests.positions])
    without = np.flatnonzero(sizes == 0)
    text = f"{sizes.sum():,} examples, {sizes.min():,} to {sizes.max():,} per client"
    text += f"; {len(sizes) - num_clients} clients never train" if len(sizes) > num_clients else ""
    return text + (f"; without any: clients {', '.join(map(str, without))}" if without.size else "")


def _about_labels(label_counts: np.ndarray, population: np.ndarray) -> dict[str, str]:
    """Return the table rows about labels, from counts per client and label, [N, C], and in all data, [C]."""
    from fedjax_sel.data.partition import heterogeneity

    num_labels = (label_counts > 0).sum(axis=1)
    differ = heterogeneity(label_counts, population)
    return {
        "labels per client": f"{num_labels.min()} to {num_labels.max()}, mean {num_labels.mean():.2f}",
        "effective classes": f"{differ.effective_classes:.2f} of {len(population)} (mean exp(entropy))",
        "distance to all data": f"{differ.total_variation:.3f} (mean total variation; 0: identical, 1: disjoint)",
        "Hellinger distance": f"{differ.hellinger:.3f} (mean; 0 to 1)",
        "Jensen-Shannon": f"{differ.jensen_shannon:.3f} (mean distance, base 2; 0 to 1)",
        "earth mover's": f"{differ.earth_mover:.3f} (mean distance, summed over labels as in GEMD; 0 to 2)",
    }


def _figure(
    sizes: np.ndarray, label_counts: np.ndarray | None, title: str, samples: dict[int, np.ndarray] | None = None
) -> Figure:
    """Draw the client sizes, [N], and label counts [N, C] of the first clients as stacked bars.

    `samples` are images of some clients, [H, W, channels] each, in a row below.
    """
    import numpy as np  # imported here, because --help must stay fast
    from matplotlib.figure import Figure

    whole = Figure(figsize=(5 if label_counts is None else 11, 6 if samples else 4.5), layout="constrained")
    whole.suptitle(title)
    figure: Any = whole
    if samples:
        halves: Any = whole.subfigures(2, 1, height_ratios=(4.5, 1.5))
        figure, below = halves
        for axes, (client, image) in zip(below.subplots(1, len(samples)), samples.items()):
            axes.imshow(image if image.shape[-1] == 3 else image[..., 0], cmap="gray", vmin=0, vmax=255)
            axes.set(xticks=(), yticks=(), xlabel=f"client {client}")
    right: Any
    if label_counts is None:
        right = figure.subplots()
    else:
        left, right = figure.subplots(1, 2, width_ratios=(3.2, 1))
        _draw_bars(left, label_counts[:_MAX_BARS])
    right.hist(sizes, bins=min(30, max(5, int(np.ptp(sizes)) + 1)), color="0.45")
    right.set(xlabel="examples per client", ylabel="clients", title="client sizes")
    for axis in (right.xaxis, right.yaxis):
        axis.get_major_locator().set_params(integer=True)
    right.spines[["top", "right"]].set_visible(False)
    return whole


def _draw_bars(axes: Any, label_counts: np.ndarray) -> None:
    import matplotlib  # imported here, because --help must stay fast
    import numpy as np

    num_clients, num_classes = label_counts.shape
    bottoms = np.zeros(num_clients)
    many = num_classes > _MAX_LEGEND
    colors = matplotlib.colormaps["turbo" if many else "tab10" if num_classes <= 10 else "tab20"]
    for label in range(num_classes):
        color = colors(label / num_classes) if many else colors(label)
        axes.bar(np.arange(num_clients), label_counts[:, label], 0.9, bottoms, color=color, label=str(label))
        bottoms += label_counts[:, label]
    axes.set(xlabel="client", ylabel="examples", title="examples of each label", xlim=(-0.6, num_clients - 0.4))
    # By default the axis ends at the tallest bar, which then looks cut off.
    axes.set_ylim(0, 1.03 * max(bottoms.max(), 1))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    if not many:
        axes.legend(title="label", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, reverse=True)


DESCRIPTION = (
    "Shows the clients' examples and labels under a partition: a table and a plot. With --available, also counts "
    "the available clients of each round."
)
EPILOG = """examples:
  fedjax-sel data --partition dirichlet_qp --num-clients 60 --alpha 2
  fedjax-sel data --preset fedcor/fmnist-2spc --out partition-2spc.png
  fedjax-sel data --available markov --available-args share=0.5 --rounds 200
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config, flags = command_line.parse(make_parser(), arguments)
    config = config.replace(num_selected=1)  # which no number of clients is too small for
    validate(config)
    command_line.reject_ineffective(flags, [config])
    _preview(config, flags)
    return 0


def make_parser() -> Parser:
    """Make the command's parser."""
    names = {field.name for part in (DataConfig, PartitionConfig) for field in dataclasses.fields(part)}
    names = names - {"loss_on"} | {"data_seed"}
    names |= {"available", "available_args", "timing", "timing_args", "rounds"}
    names |= {"model", "model_args", "task", "task_args"}  # --available builds the whole problem
    parser = command_line.make_parser("fedjax-sel data", DESCRIPTION, EPILOG, names)
    own = parser.add_argument_group("this command")
    own.add_argument(
        "--out",
        dest="picture",
        metavar="FILE",
        type=command_line.picture,
        default=Path("partition.png"),
        help="image file to write (default: partition.png)",
    )
    return parser


def _preview(config: Config, flags: argparse.Namespace) -> None:
    import numpy as np  # imported here, because --help must stay fast
    from rich.console import Console

    from fedjax_sel import availability_table, metrics, strategies
    from fedjax_sel.data import partition
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.experiment.checking import server_validation
    from fedjax_sel.experiment.problem import load_data, partitioned
    from fedjax_sel.reporting import plots

    seed = config.run.seeds[0] if config.run.data_seed is None else config.run.data_seed
    strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    experiment = experiment_of(config)
    dataset = load_data(experiment, server_validation(config, strategy))
    num_examples = dataset.num_train_examples
    # One seed has at most one copy of the examples.
    dataset, (parts,), tests = partitioned(experiment.replace(seeds=[seed]), dataset)
    held_out = sum(len(kept) for _, kept in partition.split_holdout(parts, config.data.holdout, seed))
    sizes, counts = parts.sizes, None
    labels = f"{dataset.num_classes} labels" if dataset.has_classes else "targets without classes"
    rows = {
        "data set": f"{dataset.name} ({dataset.source}), {num_examples:,} training examples, {labels}",
        "partition": f"{parts.scheme}, {parts.num_clients:,} clients, seed {seed}",
        "examples per client": f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
        "Gini of sizes": f"{metrics.gini_index(sizes):.3f} (0: equal sizes)",
    }
    if dataset.has_classes:
        counts = parts.label_counts(dataset.train_labels, dataset.num_classes)
        population = np.bincount(dataset.train_labels, minlength=dataset.num_classes)
        rows |= _about_labels(counts, population)
    if config.selection.available != "1":
        table = availability_table(experiment.replace(full_batch=True), config.run.seeds[0])
        available = table.sum(axis=1)
        rows["available per round"] = (
            f"{available.min():,} to {available.max():,} clients in {len(table):,} rounds, mean {available.mean():,.4g}"
        )
    left = parts.remainder  # clients can share examples
    if tests is not None and tests[0].in_training_set:
        left = np.setdiff1d(left, np.concatenate(tests[0].positions))
    rows |= {
        "server-side examples": f"{dataset.num_server_examples:,} examples",
        "held out": f"{held_out:,} examples",
        **({} if tests is None else {"clients' tests": _about_tests(tests[0], parts.num_clients)}),
        "left over": f"{len(left):,} examples",
        "digest": parts.digest(),
    }
    changed = config.partition.feature_skew != "none"
    title = f"{dataset.name}, {parts.scheme}, {parts.num_clients} clients, seed {seed}"
    title += f", {config.partition.feature_skew}" if changed else ""
    shown = np.unique(np.linspace(0, parts.num_clients - 1, _SAMPLES).astype(int)) if changed else []
    samples = {int(client): dataset.train_images[parts.indices[client][0]] for client in shown}
    plots.save(_figure(sizes, counts, title, samples), flags.picture, plots.SCREEN._replace(dpi=150))
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for name, value in rows.items():
        console.print(f"{name:<22}{value}")
    print(f"\npicture: {flags.picture}", flush=True)
