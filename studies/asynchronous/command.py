"""`python -m studies asynchronous`: rounds that wait, and rounds that do not, at equal seconds."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from studies.boards import command
from studies.boards.command import Study

if TYPE_CHECKING:
    from studies.boards.grid import Grid

DESCRIPTION = """Runs strategies in synchronous and asynchronous rounds, and compares them at equal simulated seconds.
The protocol is the first part of studies/asynchronous/protocol.py."""
EPILOG = """examples:
  python -m studies asynchronous --list                 all parts
  python -m studies asynchronous tiers                  the server's learning rates, then a world
  python -m studies asynchronous tiers --algos random --seeds 2 --out runs/look
                                                        a quick trial

DIR/PART holds curves.csv.gz and about.json. Finished rows are reused: repeat an interrupted command to resume it.
"""


def _grids() -> "Mapping[str, Grid]":
    from studies.asynchronous.protocol import GRIDS

    return GRIDS


def _write(out: Path, changed: Collection[str] | None) -> list[str]:
    from studies.asynchronous import page

    return page.write(out, changed)


def _check(out: Path) -> list[str]:
    from studies.asynchronous import page

    return page.check(out)


STUDY = Study("asynchronous", DESCRIPTION, EPILOG, _grids, _write, _check)


def main(arguments: Sequence[str]) -> int:
    """Run the command; see `boards.command.main`."""
    return command.main(STUDY, arguments)
