"""From which data a run was made: their SHA-256, and what follows where they are others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, checking, dealing, experiment_of
from fedjax_sel.experiment.dealing import Given
from fedjax_sel.runs import checkpoint

Digests = dict[str, Any]
"""`dataset`, `partitions` by seed, and `available` where a trace says who can be reached."""


def digests(data: Given, seeds: Sequence[int]) -> Digests:
    """Return SHA-256 of the data, of every replicate's partition, and of the trace of who can be reached, if any.

    Args:
        data: as they were read and dealt out.
        seeds: of the replicates, in the order of the partitions.
    """
    found: Digests = {
        "dataset": data.dataset.digest(),
        "partitions": {str(seed): part.digest() for seed, part in zip(seeds, data.partitions)},
    }
    if data.reachable is not None:
        found["available"] = checkpoint.digest_of_array(data.reachable)
    return found


def of_experiment(experiment_or_config: Experiment | Config, server_share: float | None) -> Digests:
    """Return digests of the data that an experiment means now.

    Args:
        experiment_or_config: what the run is of.
        server_share: of the training set, which the server keeps; None: as the strategy needs it.

    Raises:
        UserError: they cannot be read.
    """
    experiment = experiment_of(experiment_or_config)
    if server_share is None:
        server_share = checking.server_validation(experiment.config, checking.check(experiment).strategy)
    return digests(dealing.gather(experiment, server_share), experiment.config.run.seeds)


def description(data: Given, seeds: Sequence[int]) -> dict[str, Any]:
    """Return what `data.json` says, for people and for programs that look at runs."""
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
    """Refuse to take a run for one of the data that are given.

    Args:
        out: the run's folder.
        recorded: of the data that it was made from.
        now: of the data that are given.

    Raises:
        UserError: they differ.
    """
    if recorded == now:
        return
    what = "the images and labels"
    if recorded["dataset"] == now["dataset"]:
        parts = now["partitions"]
        changed = [seed for seed in parts if recorded["partitions"].get(seed) != parts[seed]]
        what = f"the partition of seed {changed[0]}" if changed else "the trace of --available"
    raise UserError(
        f"--out: the run in {out} was made from other data than are there now (the SHA-256 of {what} differs); bring "
        "those back, or give another folder"
    )
