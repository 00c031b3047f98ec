"""The numbers that the four papers print, as data: one entry for each table and figure that an experiment produced."""

from fedjax_sel.core.parsing import one_of
from studies.papers.published import fedcor, fedgp, fl_dp3s, gpfl
from studies.papers.published.entry import LONGEST_QUOTE, PICTURE, Cell, Numbers, Published, Row, Stated

__all__ = [
    "ENTRIES",
    "LONGEST_QUOTE",
    "PICTURE",
    "Cell",
    "Numbers",
    "Published",
    "Row",
    "Stated",
    "get",
]

ENTRIES: dict[str, Published] = {entry.id: entry for paper in (fedgp, fedcor, gpfl, fl_dp3s) for entry in paper.ENTRIES}
"""Every entry by its id, paper by paper."""


def get(name: str) -> Published:
    """Return the entry of a table or figure.

    Args:
        name: its id, e.g. "fedcor/table1".

    Raises:
        UserError: no such entry; the nearest is offered.
    """
    return ENTRIES[one_of("published result", name, ENTRIES)]
