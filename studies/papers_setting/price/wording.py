"""Phrases and numbers that several sections share."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedjax_sel.statistics import Comparison
from studies.boards.grid import BASELINE
from studies.boards.series import Setting as Held
from studies.papers_setting.settings import SETTINGS

NONE = "*Not run yet.*"
DEAR = 1.2  # a row with more than this multiple of random's megabytes is expensive
BUDGETS = (0.125, 0.25, 0.5, 1.0)  # fractions of the equal megabytes


def listed(names: Iterable[str], separator: str = ", ") -> str:
    """Return the names joined, or "none"."""
    return separator.join(names) or "none"


def with_verdict(compared: Mapping[str, Comparison], verdict: str) -> list[str]:
    """Return the rows with a given verdict."""
    return [name for name, one in compared.items() if one.verdict == verdict]


def missing(names: Sequence[str]) -> list[str]:
    """Return a sentence that names the settings without results; empty if all have results."""
    return [f"*Not run yet: {listed((SETTINGS[name].title for name in names), '; ')}.*"] if names else []


def times_random(name: str, settings: Iterable[str], boards: Mapping[str, Held]) -> float:
    """Return a row's megabytes as a multiple of random selection's, mean over settings and seeds."""
    ratios = [
        boards[one].rows[name].megabytes[:, -1].mean() / boards[one].rows[BASELINE].megabytes[:, -1].mean()
        for one in settings
    ]
    return float(np.mean(ratios))
