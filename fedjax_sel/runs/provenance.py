"""Provenance of a run: package versions, machine, and data digests."""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment, checking, dealing, experiment_of
from fedjax_sel.experiment.dealing import Given
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.run_files import Digests

DIGITS = 7  # length of an abbreviated commit hash


def environment_of(result: Result) -> dict[str, Any]:
    """Return the content of a run's `environment.json`; an empty dict if it is lost or damaged."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = json.loads((Path(str(result.config.run.out)) / run_files.ENVIRONMENT).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def commit_of(result: Result) -> str:
    """Return the abbreviated commit from a run's `environment.json`; empty if it is unknown."""
    return (environment_of(result).get("commit") or "")[:DIGITS]


def duration(seconds: float) -> str:
    """Format a duration in seconds, or in minutes from two minutes on."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def in_words(results: Iterable[Result]) -> str:
    """Return a sentence with the runs' commits, total duration, and machines.

    Args:
        results: results of finished runs; each folder counts once.

    Returns:
        The sentence; empty without results.
    """
    runs = {str(result.config.run.out): result for result in results}
    if not runs:
        return ""
    places = [environment_of(result) for result in runs.values()]
    commits = ", ".join(dict.fromkeys(filter(None, map(commit_of, runs.values())))) or "unknown"
    took = duration(sum(float(result.elapsed_seconds[-1]) for result in runs.values()))
    cores = [f"{one} core{'' if one == 1 else 's'}" for one in (place.get("cores") for place in places) if one]
    devices = [" and ".join(place["devices"]) for place in places if "devices" in place]
    packages = [f"JAX {place['packages']['jax']}" for place in places if "jax" in place.get("packages", ())]
    machine = ", ".join(dict.fromkeys([*cores, *devices, *packages]))
    return f"Commit {commits}; the runs took {took} ({machine or 'unknown machine'})."


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
