"""Additional runs for the price of information: rarer probes, unavailable clients, lost reports."""

from collections.abc import Mapping
from typing import Any

from fedjax_sel import Config
from studies.boards.grid import BASELINE, Contender
from studies.papers_setting import settings
from studies.papers_setting.settings import CORE, Setting

SETTINGS = ("fmnist-1spc", "fmnist-2spc")
INTERVALS = (5, 10, 20, 40, 80)  # rounds between two updates of FedCor's model; 10 in its paper
USUAL_INTERVAL = 10
NEVER = 100_000  # longer than any run
AVAILABLE = 0.7
LOST = 0.3
PROBED = "fedcor"
SLOW_ANNEALING = 0.99  # FedCor's coefficient without model updates (its Fig. 5), instead of 0.95
LONGER = {"fmnist-1spc": 360, "fmnist-2spc": 570}
"""Rounds, by setting, after which random selection has sent slightly more than FedCor sends in the main tables."""
LASTING = ("random", "clustered", "fl_dp3s")  # strategies of the longer runs: they query clients never or once


def row_of_interval(interval: int) -> str:
    """Return the row name of an interval between probes."""
    return f"{PROBED} interval={'never' if interval == NEVER else interval}"


def probes(setting: Setting) -> Mapping[str, Config]:
    """Return random selection, and FedCor with different probe intervals, by row.

    Without probes after the warm-up, only the annealing coefficient decides how soon a client is selected again.
    FedCor then runs with both its default coefficient and the one of its paper's study.

    Args:
        setting: the setting.
    """
    rows = {BASELINE: settings.configuration(setting, Contender(BASELINE))}
    for interval in (*INTERVALS, NEVER):
        given = {} if interval == USUAL_INTERVAL else {"interval": interval}
        rows[row_of_interval(interval)] = settings.configuration(setting, Contender(PROBED), **given)
    slowly = {"interval": NEVER, "anneal": SLOW_ANNEALING}
    rows[f"{row_of_interval(NEVER)}, anneal={SLOW_ANNEALING}"] = settings.configuration(
        setting, Contender(PROBED), **slowly
    )
    return rows


def longer(setting: Setting) -> Mapping[str, Config]:
    """Return query-free strategies with enough rounds to match FedCor's communication, by row."""
    rounds = LONGER[setting.name]
    return {algo: settings.configuration(setting, Contender(algo)).replace(rounds=rounds) for algo in LASTING}


def absent(setting: Setting) -> Mapping[str, Config]:
    """Return the core strategies with partial availability, redrawn in each round, by row."""
    return _all(setting, available=AVAILABLE)


def lost(setting: Setting) -> Mapping[str, Config]:
    """Return the core strategies with lost reports, by row."""
    return _all(setting, report_failure_rate=LOST)


def _all(setting: Setting, **changes: Any) -> Mapping[str, Config]:
    return {algo: settings.configuration(setting, Contender(algo)).replace(**changes) for algo in CORE}
