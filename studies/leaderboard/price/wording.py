"""Words that several parts of the page share."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedjax_sel.statistics import Comparison
from studies.leaderboard.series import Setting as Held
from studies.leaderboard.settings import BASELINE, SETTINGS

NONE = "*Not run yet.*"
DEAR = 1.2  # times random's megabytes, from which on a row's paid rounds are counted
BUDGETS = (0.125, 0.25, 0.5, 1.0)  # of the equal megabytes


def listed(names: Iterable[str], separator: str = ", ") -> str:
    """Return names in a sentence."""
    return separator.join(names) or "none"


def with_verdict(compared: Mapping[str, Comparison], verdict: str) -> list[str]:
    """Return the rows that have a verdict."""
    return [name for name, one in compared.items() if one.verdict == verdict]


def missing(names: Sequence[str]) -> list[str]:
    """Say which settings have not been run, of a study of which some have."""
    return [f"*Not run yet: {listed((SETTINGS[name].title for name in names), '; ')}.*"] if names else []


def times_random(name: str, settings: Iterable[str], boards: Mapping[str, Held]) -> float:
    """Return what a row sends over what random selection sends, mean over settings and seeds."""
    ratios = [
        boards[one].rows[name].megabytes[:, -1].mean() / boards[one].rows[BASELINE].megabytes[:, -1].mean()
        for one in settings
    ]
    return float(np.mean(ratios))
