"""FL-DP3S: rounds to 90 % training accuracy, the cohorts' diversity, profiles, and initial models."""

import itertools
from typing import Any

import numpy as np
from scipy import stats

from fedjax_sel import metrics, statistics
from fedjax_sel.config import Config
from fedjax_sel.papers import preset, published
from fedjax_sel.papers.published import Numbers
from fedjax_sel.papers.published import Row as PaperRow
from fedjax_sel.reproduction import curves, tables, verdicts
from fedjax_sel.reproduction.entries.fedcor import about
from fedjax_sel.reproduction.entry import Cell, Entry, Results, Scale
from fedjax_sel.reproduction.page import Page, Row
from fedjax_sel.runs.records import Result

SEEDS = 10  # the paper has 50
ROUNDS = 260  # FedSAE's 259 and one more
TARGET = 0.9
SKEWNESSES = ("1", "h", "0.8", "0.5")  # in the order of FL-DP3S's advantage, the paper says
COLUMNS = tuple(f"{data}-xi{skewness}" for data in ("mnist", "fmnist") for skewness in SKEWNESSES)
STRATEGIES: dict[str, dict[str, Any]] = {
    "fl_dp3s": {"algo": "fl_dp3s"},
    "clustered": {"algo": "clustered"},
    "random": {"algo": "random"},
    "fedsae": {"algo": "fedsae"},
    "fedsae greedy": {"algo": "fedsae", "algo_args": {"variant": "greedy"}},
}
INITIALIZERS = ("kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal")
ORDER = (
    "An order is reproduced if paired differences over seeds are told from chance by the sign-flip test after Holm's "
    "correction (a family is a setting) and by the bootstrap interval, and contradicted if they are the other way."
)
EARLY = "A run ends as soon as every seed is at 90 % training accuracy. "
ROUNDS_TO = (
    f"{EARLY}The paper gives means of 50 seeds without a deviation: one agrees if it lies in the 95 % prediction "
    "interval of a run of ours, and differs if some seed does not arrive. The orders are those of rounds to 90 %, "
    "FL-DP3S before each other, where a seed that does not arrive counts all rounds; and FL-DP3S's lead before random "
    f"under each skewness against the next lower one. {ORDER}"
)
LOWER = (
    f"{EARLY}The orders are those of the mean distance of the rounds that were run, FL-DP3S below each other. That "
    "lower distance goes with faster training is reproduced for a setting if the 95 % interval over seeds of the rank "
    "correlation over strategies, of that distance and of the rounds to 90 % training accuracy, lies above zero, and "
    f"contradicted if it lies below. {ORDER}"
)
PROFILES = f"{EARLY}The orders are those of rounds to 90 % training accuracy, FC-1 before each other profile. {ORDER}"
INITIAL = (
    f"{EARLY}The spread of a strategy is its slowest initialisation less its fastest, in rounds to 90 %, where a seed "
    "that does not arrive counts all rounds. Reproduced if FL-DP3S's spread is below that of random, as an order. "
    f"{ORDER}"
)


def _config(column: str, changes: dict[str, Any]) -> Config:
    return preset(f"fl_dp3s/{column}").replace(seeds=SEEDS, rounds=ROUNDS, **changes)


def _train_accuracy(result: Result) -> np.ndarray:
    return result.measured["train_accuracy"]


def _rounds(result: Result) -> np.ndarray:
    return tables.restricted_rounds(result, TARGET, "train")


def _arrived(result: Result) -> bool:
    return bool(np.isfinite(tables.rounds_to(result, TARGET, "train")).all())


def _curves(results: Results) -> dict[str, Any]:
    if not results:
        return {}
    return {"training_accuracy.png": curves.by_round(results, _train_accuracy, "accuracy on all training data")}


def _judge_rounds(results: Results, scale: Scale) -> Page:
    numbers = published.get("fl_dp3s/fig1").numbers
    assert numbers is not None
    # The paper's row, of one setting, as a table of strategies by settings.
    paper = Numbers(
        numbers[0].what, numbers[0].unit, ("strategy", "setting"), ("mnist-xi1",),
        {name: PaperRow((numbers[0].cell("rounds", name),), ()) for name in numbers[0].columns},
    )  # fmt: skip
    targets = dict.fromkeys(COLUMNS, TARGET)
    rows = tables.rounds_rows(results, paper, 1, targets, "train", scale.whole_rounds)
    rows += tables.order_rows(results, "fl_dp3s", targets, "train")
    return Page(rows + _lead_rows(results), about(results), _curves(results))


def _lead_rows(results: Results) -> list[Row]:
    """Judge "the lead grows with skewness"; a family is a data set."""
    rows: list[Row] = []
    for data in ("mnist", "fmnist"):
        lead: dict[str, np.ndarray] = {}
        for skewness in SKEWNESSES:
            column = f"{data}-xi{skewness}"
            ours, random = results.get(Cell(column, "fl_dp3s")), results.get(Cell(column, "random"))
            if ours is not None and random is not None:
                lead[column] = _rounds(random) - _rounds(ours)
        pairs = list(itertools.pairwise(lead))
        if not pairs:
            continue
        found = statistics.compare(np.stack([lead[more] - lead[less] for more, less in pairs]))
        rows += [
            Row(data, f"the lead before random is greater under {more} than under {less}", "yes",
                f"{lead[more].mean():.1f} against {lead[less].mean():.1f} rounds (p = {one.p_holm:.2g})", one.seeds,
                tables.interval(one.difference, one.low, one.high, 1), verdicts.of_order(one))
            for (more, less), one in zip(pairs, found)
        ]  # fmt: skip
    return rows


def _judge_distance(results: Results, scale: Scale) -> Page:
    rows = tables.contest_rows(results, "fl_dp3s", _distance, "has a lower GEMD than", 3, higher_is_better=False)
    rows += _together_rows(results, scale)
    if not results:
        return Page(rows)
    pictures = {"gemd.png": curves.by_round(results, lambda result: result.measured["gemd"], "GEMD of the cohort")}
    return Page(rows, about(results), pictures)


def _together_rows(results: Results, scale: Scale) -> list[Row]:
    """Judge "lower distance goes with faster training"."""
    rows: list[Row] = []
    for column in dict.fromkeys(cell.column for cell in results):
        runs = [result for cell, result in results.items() if cell.column == column]
        if len(runs) < 3:
            continue
        both = np.stack([[_distance(run) for run in runs], [_rounds(run) for run in runs]])  # [2, strategies, seeds]
        found = np.array([rank_correlation(*both[:, :, seed]) for seed in range(both.shape[2])])
        low, high = map(float, statistics.mean_interval(found))
        verdict = verdicts.REPRODUCED if low > 0 else verdicts.CONTRADICTED if high < 0 else verdicts.UNDECIDED
        rows.append(
            Row(column, f"rank correlation of distance and rounds over {len(runs)} strategies", "above zero",
                f"{tables.mean_and_sd(found, 2)} ({low:.2f} to {high:.2f})", len(found), "",
                verdict if scale.whole_rounds and not np.isnan(low) else verdicts.NOT_COMPARABLE)
        )  # fmt: skip
    return rows


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation; zero where either does not vary.

    Args:
        one: [n].
        other: [n].
    """
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(stats.rankdata(one), stats.rankdata(other))[0, 1])


def _distance(result: Result) -> np.ndarray:
    return metrics.mean_of_measured(result.measured["gemd"], axis=1)


def _judge_profiles(results: Results, scale: Scale) -> Page:
    rows = tables.order_rows(results, "fc1", dict.fromkeys(COLUMNS, TARGET), "train")
    return Page(rows, about(results), _curves(results))


def _judge_initializers(results: Results, scale: Scale) -> Page:
    rounds = {cell: _rounds(result) for cell, result in results.items()}
    rows = [
        Row(cell.column, f"{cell.row}: rounds to {100 * TARGET:.4g} %", "", tables.mean_and_sd(values, 1), len(values),
            "", "")
        for cell, values in rounds.items()
    ]  # fmt: skip
    every = {algo: [values for cell, values in rounds.items() if cell.row == algo] for algo in ("fl_dp3s", "random")}
    if all(len(values) == len(INITIALIZERS) for values in every.values()):
        ours, random = (np.ptp(np.stack(every[algo]), axis=0) for algo in ("fl_dp3s", "random"))
        [one] = statistics.compare((ours - random)[None], higher_is_better=False)
        rows.append(
            Row("mnist-xi1", "the spread over initialisations is smaller with fl_dp3s than with random", "yes",
                f"{ours.mean():.1f} against {random.mean():.1f} rounds (p = {one.p_holm:.2g})", one.seeds,
                tables.interval(one.difference, one.low, one.high, 1), verdicts.of_order(one))
        )  # fmt: skip
    return Page(rows, about(results), _curves(results))


_FIG1 = {Cell(column, row): _config(column, changes) for column in COLUMNS for row, changes in STRATEGIES.items()}
_FIG3 = {
    Cell("mnist-xi1", profile): _config("mnist-xi1", {"algo": "fl_dp3s", "algo_args": numbers})
    for profile, numbers in {
        "fc1": {},
        "gradient": {"profile": "gradient"},
        "representative-gradient": {"profile": "representative-gradient"},
    }.items()
}
_FIG6 = {
    Cell(f"mnist-xi1 {initializer}", algo): _config("mnist-xi1", {"algo": algo, "initializer": initializer})
    for initializer in INITIALIZERS
    for algo in ("fl_dp3s", "random")
}

ENTRIES = (
    Entry("fl_dp3s/fig1", ROUNDS_TO, _FIG1, _judge_rounds, "an hour a seed and column on a CPU", enough=_arrived),
    Entry("fl_dp3s/fig2", LOWER, _FIG1, _judge_distance, "none beside fl_dp3s/fig1", enough=_arrived),
    Entry("fl_dp3s/fig3", PROFILES, _FIG3, _judge_profiles, "hours on a CPU", enough=_arrived),
    Entry("fl_dp3s/fig6", INITIAL, _FIG6, _judge_initializers, "hours on a CPU", enough=_arrived),
)
