"""``python -m fedjax_sel.data``: look at a partition before training on it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.data import partition, preview, sources
from fedjax_sel.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Prints what a partition looks like and draws it.

    Args:
        arguments: command-line arguments; None for those of the process.

    Returns:
        Exit code: 0, or 2 after bad input.
    """
    flags = _parser().parse_args(arguments)
    try:
        _preview(flags)
    except UserError as problem:
        if flags.debug:
            raise
        print(f"error: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fedjax_sel.data", description="Show who holds what under a partition, before training on it."
    )
    add = parser.add_argument
    add("--dataset", default="digits", help=f"{', '.join(sources.names())}, or any TFDS name (default: %(default)s)")
    add("--data-dir", help="folder prepared by tensorflow-datasets (default: TFDS_DATA_DIR, then the usual places)")
    add("--partition", default="shards", help=f"{', '.join(partition.SCHEMES)} (default: %(default)s)")
    add("--num-clients", type=int, default=50, help="number of clients (default: %(default)s)")
    add("--shards-per-client", type=int, help="shards: how many a client gets (default: 1)")
    add(
        "--alpha", type=float, help="dirichlet_qp, dirichlet: concentration; smaller is more skewed (default: 0.2, 0.5)"
    )
    add("--skewness", help="skewness: share of the main label in (0, 1], or H for two halves (default: 1)")
    add(
        "--partition-args",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="other options of the scheme, such as min_size=20, form=yurochkin, main=random, rounding=scatter",
    )
    add("--holdout", type=float, default=0.0, help="share of each client's examples to hold out (default: %(default)s)")
    add("--data-seed", type=int, default=0, help="seed of the partition (default: %(default)s)")
    add("--num-selected", type=int, help="cohort size that the expected GEMD is for (default: 10, or all)")
    add("--out", type=Path, default=Path("partition.png"), help="file for the figure (default: %(default)s)")
    add("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _preview(flags: argparse.Namespace) -> None:
    num_selected = min(10, flags.num_clients) if flags.num_selected is None else flags.num_selected
    if not 1 <= num_selected <= max(flags.num_clients, 1):
        raise UserError(f"--num-selected must be between 1 and --num-clients {flags.num_clients}, not {num_selected}")
    options = _options(flags)
    # What can be refused without the data is refused before minutes are spent on loading it.
    partition.check_options(flags.partition, options)
    dataset = sources.load(flags.dataset, flags.data_dir)
    if flags.partition == "natural":
        options["client_ids"] = dataset.client_ids
    labels, num_classes = dataset.train_labels, dataset.num_classes
    parts = partition.make(flags.partition, labels, flags.num_clients, flags.data_seed, **options)
    held_out = [len(kept) for _, kept in partition.split_holdout(parts, flags.holdout, flags.data_seed)]
    counts = parts.label_counts(labels, num_classes)
    population = np.bincount(labels, minlength=num_classes)
    summary = preview.summarise(counts, population, num_selected, flags.data_seed)
    title = f"{dataset.name}, {parts.scheme}, {parts.num_clients} clients, seed {flags.data_seed}"
    preview.save(preview.figure(counts, title), flags.out)
    _print(flags, dataset, parts, counts, summary, sum(held_out))
    print(f"\nfigure: {flags.out}", flush=True)


def _options(flags: argparse.Namespace) -> dict[str, Any]:
    options = {
        name: getattr(flags, name)
        for name in ("shards_per_client", "alpha", "skewness")
        if getattr(flags, name) is not None
    }
    for item in flags.partition_args:
        name, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"--partition-args takes NAME=VALUE, not {item!r}")
        options[name.replace("-", "_")] = _number(value)
    return options


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _print(
    flags: argparse.Namespace, dataset: Any, parts: Any, counts: np.ndarray, summary: preview.Summary, held_out: int
) -> None:
    from rich.console import Console

    least, middle, most = summary.sizes
    fewest, mean, largest = summary.labels_per_client
    rows = {
        "data set": f"{dataset.name} ({dataset.source}), {len(dataset.train_labels):,} training examples, "
        f"{dataset.num_classes} labels",
        "partition": f"{parts.scheme}, {parts.num_clients:,} clients, seed {flags.data_seed}",
        "examples a client": f"{least:,} to {most:,}, median {middle:,.0f}",
        "labels a client": f"{fewest} to {largest}, mean {mean:.2f}",
        "distance to all data": f"{summary.total_variation:.3f} (mean total variation, 0 is alike, 1 is disjoint)",
        f"GEMD of {summary.num_selected} at random": f"{summary.random_gemd:.3f} (expected; 0 to 2, low is diverse)",
        "held out": f"{held_out:,} examples",
        "left over": f"{len(parts.remainder):,} examples",
        "digest": parts.digest(),
    }
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for name, value in rows.items():
        console.print(f"{name:<22}{value}")
    console.print()
    console.print(preview.text_heat_map(counts))


if __name__ == "__main__":
    sys.exit(main())
