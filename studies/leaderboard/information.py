"""What is run for the price of information, beside the leaderboard: rarer probes, clients away, reports lost."""

from collections.abc import Mapping
from typing import Any

from fedjax_sel.config import Config
from studies.leaderboard import settings
from studies.leaderboard.settings import ALGOS, BASELINE, Contender, Setting

SETTINGS = ("fmnist-1spc", "fmnist-2spc")
INTERVALS = (5, 10, 20, 40, 80)  # rounds between two updates of FedCor's model; its paper's is 10
USUAL_INTERVAL = 10
NEVER = 100_000  # longer than any run
AVAILABLE = 0.7
LOST = 0.3
PROBED = "fedcor"
SLOW_ANNEALING = 0.99  # FedCor's where its model is never updated (its Fig. 5), instead of 0.95
LONGER = {"fmnist-1spc": 360, "fmnist-2spc": 570}
"""Setting -> rounds in which random selection sends what FedCor sends on the leaderboard, and a little more."""
LASTING = ("random", "clustered", "fl_dp3s")  # who run so long: they ask nobody, or once


def row_of_interval(interval: int) -> str:
    """Return the name of the row of an interval between probes."""
    return f"{PROBED} interval={'never' if interval == NEVER else interval}"


def probes(setting: Setting) -> Mapping[str, Config]:
    """Return random selection, and FedCor with probes that are more and less frequent, by row.

    Without probes after the warm-up both annealing coefficients are run, FedCor's usual one and the one of its paper's
    own study: what is left then depends on how soon everybody's turn comes again.

    Args:
        setting: what all share.
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
    """Return who asks nobody, or once, with so many rounds that they send what FedCor sends, by row."""
    rounds = LONGER[setting.name]
    return {algo: settings.configuration(setting, Contender(algo)).replace(rounds=rounds) for algo in LASTING}


def absent(setting: Setting) -> Mapping[str, Config]:
    """Return every strategy where a share of the clients, drawn anew each round, can be reached, by row."""
    return _all(setting, available=AVAILABLE)


def lost(setting: Setting) -> Mapping[str, Config]:
    """Return every strategy where a share of the cohort's reports never arrives, by row."""
    return _all(setting, report_failure_rate=LOST)


def _all(setting: Setting, **changes: Any) -> Mapping[str, Config]:
    return {algo: settings.configuration(setting, Contender(algo)).replace(**changes) for algo in ALGOS}
