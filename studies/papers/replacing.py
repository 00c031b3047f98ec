"""What may replace a page that is there already: nothing that another command found may be lost in silence."""

from pathlib import Path

from fedjax_sel.errors import UserError
from studies.papers import heading
from studies.papers.entry import Entry, Scale
from studies.papers.heading import Told
from studies.papers.runner import Found


def check(before: Told | None, place: Path, runs: Path, entry: Entry, scale: Scale, found: Found) -> None:
    """Refuse to write a page over one of another scale, or of more runs; that of all of the entry may replace a look.

    Args:
        before: what the page that is there says of its runs.
        place: its folder.
        runs: the folder that holds the runs.
        entry: of which table or figure.
        scale: how much of it is asked for.
        found: what is known of its runs.

    Raises:
        UserError: the page would be lost.
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
    """Return whether there is something to write: a page without runs replaces none that has some.

    Args:
        before: what the page that is there says of its runs.
        entry: of which table or figure.
        found: what is known of its runs.
    """
    return before is None or before.finished == 0 or bool(found.results) or not entry.runs


def commands(before: Told | None, scale: Scale, command: str) -> tuple[str, ...]:
    """Return the commands that a page is made by: this one, and those of its other parts.

    Args:
        before: what the page that is there says of its runs.
        scale: how much of the entry is asked for.
        command: that writes the page now.
    """
    same = before is not None and before.scale == scale.in_words()
    return tuple(dict.fromkeys((*(before.commands if same and before else ()), command)))
