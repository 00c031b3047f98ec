"""What made finished runs, in words: commits, seconds and devices, as their folders have them."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedjax_sel.runs import run_files
from fedjax_sel.runs.records import Result

DIGITS = 7  # of a commit


def environment_of(result: Result) -> dict[str, Any]:
    """Return what a run's folder says of where it was run; nothing where it has lost that."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = json.loads((Path(str(result.config.run.out)) / run_files.ENVIRONMENT).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def commit_of(result: Result) -> str:
    """Return the first digits of the commit that began a run or went on with it last; empty where it is not known."""
    return (environment_of(result).get("commit") or "")[:DIGITS]


def duration(seconds: float) -> str:
    """Return seconds in words: as minutes from two on."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def in_words(results: Iterable[Result]) -> str:
    """Return a sentence on runs: their commits, what they took together, and on what.

    Args:
        results: of finished runs; one that stands for several rows counts once.

    Returns:
        Nothing where there are none.
    """
    runs = {str(result.config.run.out): result for result in results}
    if not runs:
        return ""
    places = [environment_of(result) for result in runs.values()]
    commits = ", ".join(dict.fromkeys(filter(None, map(commit_of, runs.values())))) or "not known"
    took = duration(sum(float(result.elapsed_seconds[-1]) for result in runs.values()))
    cores = [f"{one} core{'' if one == 1 else 's'}" for one in (place.get("cores") for place in places) if one]
    devices = [" and ".join(place["devices"]) for place in places if "devices" in place]
    packages = [f"JAX {place['packages']['jax']}" for place in places if "jax" in place.get("packages", ())]
    machine = ", ".join(dict.fromkeys([*cores, *devices, *packages]))
    return f"Commit {commits}; the runs took {took} ({machine or 'on what is not known'})."
