"""Protection of existing pages: a page never silently replaces one with results that it lacks."""

from pathlib import Path

from fedjax_sel import UserError
from studies.papers import heading
from studies.papers.entry import Entry, Scale
from studies.papers.heading import Told
from studies.papers.runner import Found


def check(before: Told | None, place: Path, runs: Path, entry: Entry, scale: Scale, found: Found) -> None:
    """Reject a page that would replace one with another scale or more runs; a full-scale page may replace any scale.

    Args:
        before: parsed heading of the existing page; None: no page.
        place: folder of the page.
        runs: parent of the folder `runs`.
        entry: the entry.
        scale: requested scale.
        found: outcome of the runs.

    Raises:
        UserError: the existing page has results that the new one lacks.
    """
    if before is None or before.finished == 0:
        return
    now = scale.in_words()
    if now and before.scale != now:
        raise UserError(
            f"--out: {place} holds {entry.name} with {before.scale or 'all of it'}, which a page with {now} would "
            "replace; give another --out, or remove that folder"
        )
    held = len(heading.expected(entry, found)) if before.finished is None else before.finished
    if before.scale == now and len(found.results) < held:
        raise UserError(
            f"--runs: {place} holds {entry.name} with {held} runs, of which {runs / 'runs'} has {len(found.results)}; "
            "give the --runs that it was made of, another --out, or remove that folder"
        )


def is_due(before: Told | None, entry: Entry, found: Found) -> bool:
    """Return whether to write the page; a page without runs never replaces one with runs.

    Args:
        before: parsed heading of the existing page; None: no page.
        entry: the entry.
        found: outcome of the runs.
    """
    return before is None or before.finished == 0 or bool(found.results) or not entry.runs


def commands(before: Told | None, scale: Scale, command: str) -> tuple[str, ...]:
    """Return the commands that produced a page: the current one, and earlier ones of the same scale.

    Args:
        before: parsed heading of the existing page; None: no page.
        scale: requested scale.
        command: current command line.
    """
    same = before is not None and before.scale == scale.in_words()
    return tuple(dict.fromkeys((*(before.commands if same and before else ()), command)))
