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
from fedjax_sel.core import files
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from fedjax_sel.data.dataset import Dataset
    from fedjax_sel.data.partition import Partition


_SHADES = " ░▒▓█"
_MAX_BARS = 120
_MAX_LEGEND = 20
_GEMD_COHORTS = 2000


def _about_labels(label_counts: np.ndarray, num_selected: int, seed: int, population: np.ndarray) -> dict[str, str]:
    """Return the table rows about labels, from counts per client and label, [N, C], and in all data, [C].

    The expected GEMD (FL-DP3S Eq. 15) is a mean over 2,000 random cohorts.
    """
    import numpy as np  # imported here, because --help must stay fast

    sizes, num_labels = label_counts.sum(axis=1), (label_counts > 0).sum(axis=1)
    reference = population / population.sum()
    shares = label_counts / np.maximum(sizes, 1)[:, None]
    total_variation = np.abs(shares - reference).sum(axis=1).mean() / 2
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    distances = []
    for _ in range(_GEMD_COHORTS):
        cohort = label_counts[rng.choice(len(sizes), num_selected, replace=False, shuffle=False)].sum(axis=0)
        distances.append(np.abs(cohort / max(cohort.sum(), 1) - reference).sum())
    return {
        "labels per client": f"{num_labels.min()} to {num_labels.max()}, mean {num_labels.mean():.2f}",
        "distance to all data": f"{total_variation:.3f} (mean total variation; 0: identical, 1: disjoint)",
        f"GEMD of {num_selected} at random": f"{np.mean(distances):.3f} (expected; 0 to 2, low is diverse)",
    }


def text_heat_map(label_counts: np.ndarray) -> str:
    """Draw label counts [N, C] as a text heat map for at most 20 evenly spaced clients; darker is a larger share."""
    import numpy as np  # imported here, because --help must stay fast

    num_clients, num_classes = label_counts.shape
    shown = np.unique(np.linspace(0, num_clients - 1, min(num_clients, 20)).astype(int))
    width = max(1, min(3, 62 // num_classes))
    heading = "share of each label (columns) in each client (rows): blank 0 % to █ 100 %"
    if len(shown) < num_clients:
        heading += f"; {len(shown)} of {num_clients} clients"
    margin = max(6, len(str(num_clients - 1)))
    # The last digit of each label suffices to count columns.
    lines = [heading, " " * margin + " " + "".join(f"{label % 10:>{width}}" for label in range(num_classes))]
    for client in shown:
        size = label_counts[client].sum()
        shares = label_counts[client] / max(size, 1)
        # Round up, so that a blank always means a share of zero.
        shades = np.minimum(np.ceil(shares * (len(_SHADES) - 1) - 1e-12).astype(int), len(_SHADES) - 1)
        lines.append(f"{client:>{margin}} " + "".join(_SHADES[shade] * width for shade in shades) + f" {size}")
    return "\n".join(lines)


def figure(label_counts: np.ndarray, title: str) -> Figure:
    """Draw label counts [N, C], as stacked bars or (for many clients) a heat map, and the client sizes."""
    drawing = _drawing((11, 4.5), title)
    left, right = drawing.subplots(1, 2, width_ratios=(3.2, 1))
    if len(label_counts) <= _MAX_BARS and label_counts.shape[1] <= _MAX_LEGEND:
        _draw_bars(left, label_counts)
    else:
        _draw_heat_map(drawing, left, label_counts)
    _draw_sizes(right, label_counts.sum(axis=1))
    return drawing


def _drawing(size: tuple[float, float], title: str) -> Figure:
    from matplotlib.figure import Figure

    drawing = Figure(figsize=size, layout="constrained")
    drawing.suptitle(title)
    return drawing


def _draw_sizes(axes: Any, sizes: np.ndarray) -> None:
    import numpy as np  # imported here, because --help must stay fast

    axes.hist(sizes, bins=min(30, max(5, int(np.ptp(sizes)) + 1)), color="0.45")
    axes.set(xlabel="examples per client", ylabel="clients", title="client sizes")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(axes: Any, label_counts: np.ndarray) -> None:
    import matplotlib  # imported here, because --help must stay fast
    import numpy as np

    num_clients, num_classes = label_counts.shape
    bottoms = np.zeros(num_clients)
    colors = matplotlib.colormaps["tab10" if num_classes <= 10 else "tab20"].colors  # pyright: ignore[reportAttributeAccessIssue]
    for label, color in enumerate(colors[:num_classes]):
        axes.bar(np.arange(num_clients), label_counts[:, label], 0.9, bottoms, color=color, label=str(label))
        bottoms += label_counts[:, label]
    axes.set(xlabel="client", ylabel="examples", title="examples of each label", xlim=(-0.6, num_clients - 0.4))
    # By default the axis ends at the tallest bar, which then looks cut off.
    axes.set_ylim(0, 1.03 * max(bottoms.max(), 1))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(title="label", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8, reverse=True)


def _draw_heat_map(drawing: Any, axes: Any, label_counts: np.ndarray) -> None:
    import numpy as np  # imported here, because --help must stay fast

    shares = label_counts / np.maximum(label_counts.sum(axis=1, keepdims=True), 1)
    # Sort clients by main label: in ID order, thousands of clients look like noise.
    order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
    image = axes.imshow(shares[order].T, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1)
    axes.set(xlabel="client, sorted by main label", ylabel="label", title="share of each label in each client")
    if label_counts.shape[1] <= _MAX_LEGEND:
        axes.set_yticks(range(label_counts.shape[1]))
    drawing.colorbar(image, ax=axes, label="share of the client's examples")


DESCRIPTION = (
    "Shows each client's examples and labels under a partition: a table, a text heat map and a plot. With --available, "
    "also shows and saves the clients that are available in each round."
)
EPILOG = """examples:
  fedjax-sel data --partition dirichlet_qp --num-clients 60 --alpha 2
  fedjax-sel data --preset fedcor/fmnist-2spc --out partition-2spc.png
  fedjax-sel data --available markov --available-args share=0.5 \\
      --rounds 200 --save-availability who.csv
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config, flags = command_line.parse(make_parser(), arguments)
    if "num_selected" not in vars(flags) and config.selection.num_selected > config.partition.num_clients:
        config = config.replace(num_selected=config.partition.num_clients)
    validate(config)
    command_line.reject_ineffective(flags, [config])
    _preview(config, flags)
    return 0


def make_parser() -> Parser:
    """Make the command's parser."""
    names = {field.name for part in (DataConfig, PartitionConfig) for field in dataclasses.fields(part)}
    names = names - {"loss_on"} | {"num_selected", "data_seed"}
    names |= {"available", "available_args", "timing", "timing_args", "rounds"}
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
    own.add_argument(
        "--save-availability",
        metavar="FILE",
        type=_trace_file,
        help="file to write for --available: the first seed's available clients, 0 and 1, clients x rounds (default: "
        "none)",
    )
    return parser


def _trace_file(text: str) -> Path:
    chosen = command_line.path(text)
    if chosen.suffix not in (".csv", ".txt"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a .csv or .txt file; name one, such as who.csv")
    return chosen


def _preview(config: Config, flags: argparse.Namespace) -> None:
    import numpy as np  # imported here, because --help must stay fast

    from fedjax_sel import availability_table, strategies
    from fedjax_sel.data import partition
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.experiment.checking import server_validation
    from fedjax_sel.experiment.problem import deal, load_data  # the partition of a run with this seed
    from fedjax_sel.reporting import plots

    seed = config.run.seeds[0] if config.run.data_seed is None else config.run.data_seed
    strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    experiment = experiment_of(config)
    dataset = load_data(experiment, server_validation(config, strategy))
    parts = deal(experiment, dataset, seed)
    held_out = sum(len(kept) for _, kept in partition.split_holdout(parts, config.data.holdout, seed))
    counts = parts.label_counts(dataset.train_labels, dataset.num_classes)
    title = f"{dataset.name}, {parts.scheme}, {parts.num_clients} clients, seed {seed}"
    more: dict[str, str] = {}
    if dataset.has_classes:
        drawing = figure(counts, title)
        population = np.bincount(dataset.train_labels, minlength=dataset.num_classes)
        more = _about_labels(counts, config.selection.num_selected, seed, population)
    else:
        drawing = _drawing((5, 4.5), title)
        _draw_sizes(drawing.subplots(), parts.sizes)
    if config.selection.available != "1" or flags.save_availability:
        table = availability_table(experiment, config.run.seeds[0])
        counts_by_round = table.sum(axis=1)
        more["available per round"] = (
            f"{counts_by_round.min():,} to {counts_by_round.max():,} clients in {len(table):,} rounds, mean "
            f"{counts_by_round.mean():,.4g}"
        )
        if flags.save_availability:
            lines = "".join(",".join(str(int(there)) for there in row) + "\n" for row in table.T)  # one line per client
            try:
                files.write(flags.save_availability, lines.encode())
            except OSError as error:
                given = f"--save-availability: cannot write {flags.save_availability} ({error})"
                raise UserError(f"{given}; give another file") from error
    plots.save(drawing, flags.picture, plots.SCREEN._replace(dpi=150))
    _print(dataset, parts, seed, more, held_out)
    if dataset.has_classes:
        print(f"\n{text_heat_map(counts)}")
    print(f"\npicture: {flags.picture}", flush=True)
    if flags.save_availability:
        print(f"availability: {flags.save_availability}", flush=True)


def _print(dataset: Dataset, parts: Partition, seed: int, more: dict[str, str], held_out: int) -> None:
    import numpy as np  # imported here, because --help must stay fast
    from rich.console import Console

    sizes = parts.sizes
    labels = f"{dataset.num_classes} labels" if dataset.has_classes else "targets without classes"
    rows = {
        "data set": f"{dataset.name} ({dataset.source}), {dataset.num_train_examples:,} training examples, {labels}",
        "partition": f"{parts.scheme}, {parts.num_clients:,} clients, seed {seed}",
        "examples per client": f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
        **more,
        "server-side examples": f"{dataset.num_server_examples:,} examples",
        "held out": f"{held_out:,} examples",
        "left over": f"{len(parts.remainder):,} examples",
        "digest": parts.digest(),
    }
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for name, value in rows.items():
        console.print(f"{name:<22}{value}")
