"""Heading of a page: claim, rule, scale, number of finished runs and commands; written and parsed."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedjax_sel.runs import folder as provenance
from studies.papers.entry import Cell, Entry, Part, Scale
from studies.papers.page import PAGE
from studies.papers.runner import Found

_SCALED = "**Other than the entry has it:** "
_FINISHED = re.compile(r"^\*\*(All )?(\d+)( of \d+)? runs are finished\.\*\*$", re.MULTILINE)
_COMMANDS = re.compile(r"^```\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


class Told(NamedTuple):
    """Parsed heading of a page.

    Attributes:
        scale: differences from the entry's scale, such as "seed 0; 600 rounds"; empty at full scale.
        finished: number of finished runs; None on complete pages of earlier versions, which do not state it.
        part: finished runs as text, such as "4 of 36 runs"; empty if complete.
        commands: command lines that produced the page, oldest first.
    """

    scale: str
    finished: int | None
    part: str
    commands: tuple[str, ...]


def told(folder: Path) -> Told | None:
    """Parse the heading of the page in a folder; return None without a readable page.

    Args:
        folder: folder of the entry's page.
    """
    try:
        text = (folder / PAGE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    scaled = next((line for line in text.splitlines() if line.startswith(_SCALED)), "")
    finished, commands = _FINISHED.search(text), _COMMANDS.search(text)
    return Told(
        scaled.removeprefix(_SCALED).removesuffix("."),
        int(finished[2]) if finished else None,
        f"{finished[2]}{finished[3]} runs" if finished and finished[3] else "",
        tuple(commands[1].splitlines()) if commands else (),
    )


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
        made = provenance.in_words(found.results.values())
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
    took = f"took {provenance.duration(sum(known))} more{without}" if known else "is not counted in"
    return f" What is judged was measured on them afterwards, which {took}."
