"""The data of a run: their SHA-256 digests, and the error if they differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, checking, dealing, experiment_of
from fedjax_sel.experiment.dealing import Given
from fedjax_sel.runs import checkpoint

Digests = dict[str, Any]
"""Digests: `dataset`, `partitions` by seed, and `available` if a trace gives the availability of clients."""


def digests(data: Given, seeds: Sequence[int]) -> Digests:
    """Return the SHA-256 of the data, of each replicate's partition, and of the availability trace, if any.

    Args:
        data: the data and their partitions.
        seeds: the replicates' seeds, in the order of the partitions.
    """
    found: Digests = {
        "dataset": data.dataset.digest(),
        "partitions": {str(seed): part.digest() for seed, part in zip(seeds, data.partitions)},
    }
    if data.reachable is not None:
        found["available"] = checkpoint.digest_of_array(data.reachable)
    return found


def of_experiment(experiment_or_config: Experiment | Config, server_share: float | None) -> Digests:
    """Return digests of an experiment's current data.

    Args:
        experiment_or_config: the experiment.
        server_share: fraction of the training set that the server keeps; None for the strategy's default.

    Raises:
        UserError: the data cannot be read.
    """
    experiment = experiment_of(experiment_or_config)
    if server_share is None:
        server_share = checking.server_validation(experiment.config, checking.check(experiment).strategy)
    return digests(dealing.gather(experiment, server_share), experiment.config.run.seeds)


def description(data: Given, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the content of `data.json`."""
    known, dataset = digests(data, seeds), data.dataset
    table = {
        seed: {
            "sha256": known["partitions"][seed],
            "examples": int(part.sizes.sum()),
            "remainder": len(part.remainder),
            "smallest_client": int(part.sizes.min()),
            "largest_client": int(part.sizes.max()),
        }
        for seed, part in zip(known["partitions"], data.partitions)
    }
    about = {"dataset": dataset.name, "source": dataset.source, "sha256": known["dataset"], "partitions": table}
    return about | ({"available": known["available"]} if "available" in known else {})


def refuse_others(out: Path, recorded: Digests, now: Digests) -> None:
    """Reject a run whose data differ from the current data.

    Args:
        out: the run's folder.
        recorded: digests of the run's data.
        now: digests of the current data.

    Raises:
        UserError: the digests differ.
    """
    if recorded == now:
        return
    what = "the images and labels"
    if recorded["dataset"] == now["dataset"]:
        parts = now["partitions"]
        changed = [seed for seed in parts if recorded["partitions"].get(seed) != parts[seed]]
        what = f"the partition of seed {changed[0]}" if changed else "the trace of --available"
    raise UserError(
        f"--out: the run in {out} used different data (the SHA-256 of {what} differs); restore the original data, or "
        "give another folder"
    )
