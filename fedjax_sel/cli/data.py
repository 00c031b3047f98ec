"""`fedjax-sel data`: a preview of a partition, before training on it."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.config import Config, DataConfig, PartitionConfig
from fedjax_sel.config.validation import validate

if TYPE_CHECKING:
    from fedjax_sel.data.dataset import Dataset
    from fedjax_sel.data.partition import Partition
    from fedjax_sel.data.preview import Summary

DESCRIPTION = "Shows each client's examples and labels under a partition: a table, a text heat map and a plot."
EPILOG = """examples:
  fedjax-sel data --partition dirichlet_qp --num-clients 60 --alpha 2
  fedjax-sel data --preset fedcor/fmnist-2spc --out partition-2spc.png
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command-line arguments, without the program name.

    Returns:
        The exit code.
    """
    config, flags = command_line.parse(make_parser(), arguments)
    if "num_selected" not in vars(flags) and config.selection.num_selected > config.partition.num_clients:
        config = config.replace(num_selected=config.partition.num_clients)
    validate(config)
    command_line.refuse_idle(flags, [config])
    _preview(config, flags)
    return 0


def make_parser() -> Parser:
    """Make the command's parser."""
    names = {field.name for part in (DataConfig, PartitionConfig) for field in dataclasses.fields(part)}
    names = names - {"loss_on"} | {"num_selected", "data_seed"}
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
    import numpy as np

    from fedjax_sel import strategies
    from fedjax_sel.data import partition, preview
    from fedjax_sel.experiment.checking import server_validation
    from fedjax_sel.experiment.dealing import deal, load_data  # the partition of a run with this seed

    seed = config.run.seeds[0] if config.run.data_seed is None else config.run.data_seed
    strategy = strategies.make(config.selection.algo, **dict(config.selection.algo_args))
    dataset = load_data(config, server_validation(config, strategy))
    parts = deal(config, dataset, seed)
    held_out = sum(len(kept) for _, kept in partition.split_holdout(parts, config.data.holdout, seed))
    counts = parts.label_counts(dataset.train_labels, dataset.num_classes)
    title = f"{dataset.name}, {parts.scheme}, {parts.num_clients} clients, seed {seed}"
    if dataset.has_classes:
        preview.save(preview.figure(counts, title), flags.picture)
        population = np.bincount(dataset.train_labels, minlength=dataset.num_classes)
        about_labels = _about_labels(preview.summarise(counts, population, config.selection.num_selected, seed))
    else:
        preview.save(preview.figure_of_sizes(parts.sizes, title), flags.picture)
        about_labels = {}
    _print(dataset, parts, seed, about_labels, held_out)
    if dataset.has_classes:
        print(f"\n{preview.text_heat_map(counts)}")
    print(f"\npicture: {flags.picture}", flush=True)


def _about_labels(summary: "Summary") -> dict[str, str]:
    """Return the table rows that require class targets."""
    fewest, mean, largest = summary.labels_per_client
    return {
        "labels per client": f"{fewest} to {largest}, mean {mean:.2f}",
        "distance to all data": f"{summary.total_variation:.3f} (mean total variation; 0: identical, 1: disjoint)",
        f"GEMD of {summary.num_selected} at random": f"{summary.random_gemd:.3f} (expected; 0 to 2, low is diverse)",
    }


def _print(dataset: "Dataset", parts: "Partition", seed: int, about_labels: dict[str, str], held_out: int) -> None:
    import numpy as np
    from rich.console import Console

    sizes = parts.sizes
    labels = f"{dataset.num_classes} labels" if dataset.has_classes else "targets without classes"
    rows = {
        "data set": f"{dataset.name} ({dataset.source}), {dataset.num_train_examples:,} training examples, {labels}",
        "partition": f"{parts.scheme}, {parts.num_clients:,} clients, seed {seed}",
        "examples per client": f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}",
        **about_labels,
        "server-side examples": f"{dataset.num_server_examples:,} examples",
        "held out": f"{held_out:,} examples",
        "left over": f"{len(parts.remainder):,} examples",
        "digest": parts.digest(),
    }
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for name, value in rows.items():
        console.print(f"{name:<22}{value}")


def entry_point() -> int:
    """Run the command, for `python -m`."""
    return command_line.guarded(main)
