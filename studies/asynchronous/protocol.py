"""Protocol of the study of asynchronous rounds, committed before the first run.

**Question.** Which is more accurate after equal seconds: rounds that wait for all reports, rounds with a deadline,
over-selection, or buffered asynchronous rounds (FedBuff)? Does the strategy matter more if rounds do not wait?
FedBuff's headline is that it reaches a target several times faster than synchronous rounds, and its known price is that
fast clients train more often.

**Setting.** `gray-2labels` of the leaderboard (Fashion-MNIST, two labels per client, MLP, 100 clients), with its
learning rate of clients and its seeds, for `SECONDS` simulated seconds: about 70 rounds that wait.

**Worlds.** `tiers`: three classes of phones. `labels`: slow phones hold the later labels. `daily`: the classes of
`tiers`, and clients that are available by the hour and their main label; an hour has `HOUR` seconds.

**Modes.** `sync`: K = 5, as on the leaderboard. `sync-20`: K = 20. `deadline`: K = 5, the median of all durations;
late reports are lost. `late`: they are used when they arrive (REFL's rule). `over-select`: 1.3 x 5 clients, the first
five count. `buffer-M`: 20 clients train at any time, a server step after M reports, polynomial staleness.

**Server's rate.** Buffered steps differ in size, so the server's learning rate is tuned per mode, for random selection
in `tiers`, on tuning seeds and examples (`RATES`), also for `sync` and `sync-20`; `deadline`, `late` and `over-select`
use that of `sync`. The criterion is the first measure below; ties go to the smaller rate.

**Strategies.** `random`, `oort` (synchronous: with its term for durations; buffered: with the staleness discount of
Pisces instead), `fed_cbs`, `clustered`, `fedcor` in `sync`, `deadline` and `buffer-10`; `random` and `fed_cbs` in the
other modes.

**Measures.** *Accuracy*: mean of the evaluations in the last tenth of the seconds. *Seconds to the target*: end of the
first tenth of the seconds (a moving window) whose mean evaluation reaches the target, which is the accuracy of
`sync random` in the world, rounded down to a whole percent; a seed that misses it counts all seconds. *Uneven*: Gini
coefficient of the clients' numbers of selections. *Slowest*, *fastest*: share of the selections that go to the slowest
(fastest) class, divided by its share of the clients; added after the first world's runs, from their cohorts, because a
Gini coefficient falls with the number of selections.

**Tests.** Paired by seed with `sync random` of the world. A family is one measure in one world, all rows
(`fedjax_sel.statistics.compare`, family-wise error of 5 %). A further family compares the accuracy of each strategy
with that of random selection in the same mode. It answers the second question, and was added after the first world's
runs.
"""

from typing import Any

import numpy as np

from fedjax_sel import Config
from studies.asynchronous import speeds
from studies.boards.grid import BASELINE, Grid
from studies.boards.series import Series
from studies.boards.series import Setting as Held
from studies.leaderboard import protocol as leaderboard
from studies.papers_setting import clock

SECONDS = 6000.0
HOUR = 85.0
WINDOW = 0.1  # share of the seconds
CONCURRENCY = 20
RATES = (0.1, 0.3, 1.0, 3.0)
"""Learning rates of the server."""
SETTING = "gray-2labels"
RATE = 0.03  # of clients, tuned on the leaderboard

_USUAL = leaderboard.SETTINGS[SETTING].config.replace(
    algo=BASELINE, learning_rate=RATE, max_seconds=SECONDS, eval_clients_every=0, num_selected=5, rounds=1000
)
_TIERS: dict[str, Any] = {"timing": "tiers", "timing_args": clock.PHONES}
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiers": ("three classes of phones", _TIERS),
    "labels": ("slow phones hold the later labels", {**_TIERS, "timing_args": {**clock.PHONES, "by": "label"}}),
    "daily": (
        "three classes of phones, daily availability by label",
        {**_TIERS, "available": "daily", "available_args": {"zones": "label"}, "availability_seconds": HOUR},
    ),
}


def _buffer(num_reports: int) -> dict[str, Any]:
    every = 30 // num_reports
    return {
        "num_selected": num_reports, "concurrency": CONCURRENCY, "eval_every": every, "chunk": 5 * every,
        "rounds": 30_000 // num_reports,
    }  # fmt: skip


MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "sync-20": {"num_selected": 20},
    "deadline": {"deadline": clock.DEADLINE},
    "late": {"deadline": clock.DEADLINE, "late_reports": "use", "staleness": "refl"},
    "over-select": {"over_select": 1.3},
    "buffer-10": _buffer(10),
    "buffer-5": _buffer(5),
    "buffer-1": _buffer(1),
}
ALL, FEW = (BASELINE, "oort", "fed_cbs", "clustered", "fedcor"), (BASELINE, "fed_cbs")
STRATEGIES = {mode: ALL if mode in ("sync", "deadline", "buffer-10") else FEW for mode in MODES}
TUNED: tuple[str, ...] = ("sync", "sync-20", "buffer-10", "buffer-5", "buffer-1")
"""Modes with a server's rate of their own."""
REFERENCE = f"sync {BASELINE}"
TUNING = "tiers-rates"


def accuracy(series: Series, seconds: float = SECONDS) -> np.ndarray:
    """Return the mean of the evaluations in the last tenth of the seconds, [seeds]."""
    inside = (series.time > (1 - WINDOW) * seconds) & (series.time <= seconds)
    return np.nanmean(np.where(inside, series.test_accuracy, np.nan), axis=1)


def seconds_to(series: Series, target: float, seconds: float = SECONDS) -> np.ndarray:
    """Return the end of the first window whose mean evaluation reaches a target, [seeds]; at most all seconds."""
    found = np.full(len(series.seeds), seconds)
    for seed, (time, values) in enumerate(zip(series.time, series.test_accuracy)):
        measured = ~np.isnan(values) & (time <= seconds)
        time, values = time[measured], values[measured]
        for end in time[time >= WINDOW * seconds]:
            if values[(time > end - WINDOW * seconds) & (time <= end)].mean() >= target:
                found[seed] = end
                break
    return found


def target_of(reference: Series) -> float:
    """Return the target: the mean accuracy of `sync random`, rounded down to a whole percent."""
    return float(np.floor(100 * accuracy(reference).mean())) / 100


def _rate_row(mode: str, rate: float) -> str:
    return f"{mode} server={rate:g}"


def tuning_runs() -> dict[str, Config]:
    """Return the tuning runs of random selection by row."""
    tuned = {"seeds": leaderboard.TUNING_SEEDS, "tuning_share": leaderboard.TUNING_SHARE}
    return {
        _rate_row(mode, rate): _USUAL.replace(**_TIERS, **MODES[mode], **tuned, server_learning_rate=rate)
        for mode in TUNED
        for rate in RATES
    }


def best_rates(held: Held) -> dict[str, float]:
    """Return the best server's rate by tuned mode; 1 if all runs of a mode failed."""
    found = {}
    for mode in TUNED:
        means = {
            rate: float(accuracy(held.rows[_rate_row(mode, rate)]).mean())
            for rate in RATES
            if _rate_row(mode, rate) in held.rows
        }
        found[mode] = max(means, key=lambda rate: means[rate], default=1.0)  # the first of equal ones
    return found


def _rows(world: str, rates: dict[str, float]) -> dict[str, Config]:
    found = {}
    for mode, settings in MODES.items():
        for algo in STRATEGIES[mode]:
            own: dict[str, Any] = {}
            if algo == "oort":
                own = {"staleness_discount": 0.5} if mode.startswith("buffer") else {"system": "clock"}
            rate = rates.get(mode, rates["sync"])
            found[f"{mode} {algo}"] = _USUAL.replace(
                **WORLDS[world][1], **settings, algo=algo, algo_args=own, server_learning_rate=rate
            )
    return found


def _grids() -> dict[str, Grid]:
    usual: dict[str, float] = dict.fromkeys(TUNED, 1.0)
    found = [Grid(TUNING, "all", "Learning rates of the server, by mode", tuning_runs(), own_seeds=True)]
    for name, (title, _) in WORLDS.items():
        found.append(
            Grid(
                name, "all", title[0].upper() + title[1:], _rows(name, usual), after=TUNING,
                choose=lambda held, name=name: _rows(name, best_rates(held)), describe=speeds.of_result,
            )
        )  # fmt: skip
    return {grid.name: grid for grid in found}


GRIDS: dict[str, Grid] = _grids()
"""Runs by part: the tuning runs, then the worlds."""
