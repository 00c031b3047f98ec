"""Heading of a page: claim, rule, scale, number of finished runs and commands; written and parsed."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel import Result
from fedjax_sel.core import files
from fedjax_sel.runs import run_files
from studies.papers.entry import Cell, Entry, Part, Scale
from studies.papers.runner import Found

ABOUT = "about.json"
_SCALED = "**Other than the entry has it:** "


class Heading(NamedTuple):
    """Summary of a page's runs, stored beside the page."""

    scale: str  # changes of the entry, such as "seed 0; 600 rounds"; empty if there are none
    finished: int | None  # finished runs; None in pages of earlier versions that are complete
    planned: int | None  # runs of the entry
    commands: tuple[str, ...]  # commands that made the page, the oldest first

    @property
    def part(self) -> str:
        """The finished fraction, such as "4 of 36 runs"; empty if all runs are finished."""
        return "" if self.finished == self.planned else f"{self.finished} of {self.planned} runs"


def read(folder: Path) -> Heading | None:
    """Return the summary in a page's folder; None if there is no readable one."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        return Heading(about["scale"], about["finished"], about["planned"], tuple(about["commands"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(folder: Path, entry: Entry, scale: Scale, commands: Sequence[str], found: Found) -> None:
    """Write the summary of a page's runs."""
    planned = len(expected(entry, found))
    about = Heading(scale.in_words(), len(found.results), planned, tuple(commands))
    files.write(folder / ABOUT, (json.dumps(about._asdict(), indent=1) + "\n").encode())


def expected(entry: Entry, found: Found) -> set[Cell]:
    """Return the runs of the whole entry, with on-request runs only if they are finished.

    Args:
        entry: the entry.
        found: outcome of its runs.
    """
    return {*entry.of_part(Part()).runs, *found.results}


def lines(entry: Entry, scale: Scale, commands: Sequence[str], found: Found) -> list[str]:
    """Return the lines of a page's heading.

    Args:
        entry: the entry.
        scale: scale of the runs.
        commands: command lines that produced the page, oldest first.
        found: outcome of its runs.
    """
    paper = entry.published
    text = [f"# {entry.name}: {paper.title}", "", f"**The claim.** {paper.claim}", "", f"**The rule.** {entry.rule}"]
    if paper.reading:
        text += ["", f"**The reading.** {paper.reading}"]
    if changed := scale.in_words():
        text += ["", f"{_SCALED}{changed}."]
    finished, planned = len(found.results), len(expected(entry, found))
    if planned:
        of_all = f"All {planned}" if finished == planned else f"{finished} of {planned}"
        text += ["", f"**{of_all} runs are finished.**"]
    for cell, failure in found.failed.items():
        text += ["", f"Failed: {cell.column}, {cell.row}: {failure.why}"]
    sources = {result.data_source for result in found.results.values()}
    if sources:
        made = provenance(found.results.values())
        text += ["", f"Data: {'; '.join(sorted(sources))}. {made}{_measuring(entry, scale, found)}"]
    return [*text, "", "```", *commands, "```"]


def _measuring(entry: Entry, scale: Scale, found: Found) -> str:
    """Return a sentence on the duration of the entry's measurement; empty without a timed measurement."""
    if entry.measure is None or entry.measure.took is None:
        return ""
    runs = {str(result.config.run.out): result for result in found.results.values()}  # several cells can share a run
    seconds = [entry.measure.took(result, scale) for result in runs.values()]
    known = [one for one in seconds if not math.isnan(one)]
    without = f", {len(seconds) - len(known)} of the runs not counted" if known and len(known) < len(seconds) else ""
    took = f"took {duration(sum(known))} more{without}" if known else "is not counted in"
    return f" What is judged was measured on them afterwards, which {took}."


DIGITS = 7  # length of an abbreviated commit hash


def environment_of(result: Result) -> dict[str, Any]:
    """Return the content of a run's `environment.json`; an empty dict if it is lost or damaged."""
    return run_files.read_json(Path(str(result.config.run.out)) / run_files.ENVIRONMENT)


def commit_of(result: Result) -> str:
    """Return the abbreviated commit from a run's `environment.json`; empty if it is unknown."""
    return (environment_of(result).get("commit") or "")[:DIGITS]


def duration(seconds: float) -> str:
    """Format a duration in seconds, or in minutes from two minutes on."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def provenance(results: Iterable[Result]) -> str:
    """Return a sentence with the commits, total duration and machines of finished runs; empty without runs."""
    runs = {str(result.config.run.out): result for result in results}  # each folder counts once
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
