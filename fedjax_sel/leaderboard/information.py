"""What is run for the price of information, beside the leaderboard: rarer probes, clients away, reports lost."""

from collections.abc import Mapping

from fedjax_sel.config import Config
from fedjax_sel.leaderboard import settings
from fedjax_sel.leaderboard.settings import ALGOS, BASELINE, Contender, Setting

SETTINGS = ("fmnist-1spc", "fmnist-2spc")
INTERVALS = (5, 10, 20, 40, 80)  # rounds between two updates of FedCor's model; its paper's is 10
USUAL_INTERVAL = 10
NEVER = 100_000  # longer than any run
AVAILABLE = 0.7
LOST = 0.1
PROBED = "fedcor"


def row_of_interval(interval: int) -> str:
    """Return the name of the row of an interval between probes."""
    return f"{PROBED} interval={'never' if interval == NEVER else interval}"


def probes(setting: Setting) -> Mapping[str, Config]:
    """Return random selection, and FedCor with probes that are more and less frequent, by row.

    Args:
        setting: what all share.
    """
    rows = {BASELINE: settings.configuration(setting, Contender(BASELINE))}
    for interval in (*INTERVALS, NEVER):
        given = {} if interval == USUAL_INTERVAL else {"interval": interval}
        rows[row_of_interval(interval)] = settings.configuration(setting, Contender(PROBED), **given)
    return rows


def absent(setting: Setting) -> Mapping[str, Config]:
    """Return every strategy where a share of the clients, drawn anew each round, can be reached, by row."""
    return _all(setting, available=AVAILABLE)


def lost(setting: Setting) -> Mapping[str, Config]:
    """Return every strategy where a share of the cohort's reports never arrives, by row."""
    return _all(setting, report_failure_rate=LOST)


def _all(setting: Setting, **changes: float) -> Mapping[str, Config]:
    return {algo: settings.configuration(setting, Contender(algo)).replace(**changes) for algo in ALGOS}
