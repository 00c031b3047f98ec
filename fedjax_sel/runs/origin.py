"""The provenance of finished runs in a sentence: commits, durations and devices, from their folders."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedjax_sel.runs import run_files
from fedjax_sel.runs.records import Result

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
