"""Leads over random selection across settings: interquartile means and performance profiles.

A lead is the difference between a row and random selection under FedAvg, with the same seed and setting. Leads of
settings with different difficulty share one scale.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from studies import aggregates
from studies.boards.grid import BASELINE
from studies.boards.series import plain
from studies.papers_setting.settings import SERVER_OPTIMIZER, SETTINGS
from studies.papers_setting.standings import TESTED, Standings

SCORES = {
    "last_rounds_accuracy": "lead in accuracy, last 10 rounds",
    "accuracy_at_100_percent_of_megabytes": "lead in accuracy at equal MB",
    "accuracy_at_equal_megabytes_up": "lead in accuracy at equal MB up",
}


def false_verdicts(tables: Mapping[str, Standings]) -> str:
    """Return a paragraph on the families of tests of some settings."""
    settings = len(tables)
    families = settings * len(TESTED)
    return (
        "Better and worse are corrected within a family (all comparisons of one measure in one setting), and not over "
        f"the {families} families ({settings} settings x {len(TESTED)} measures). A family holds a false verdict with "
        f"a probability of at most {100 * statistics.ALPHA:g} %, so up to {families} x {statistics.ALPHA:g} = "
        f"{families * statistics.ALPHA:.1f} families are expected to hold one."
    )


ABOUT_LEADS = f"""\
Leads are over random selection under FedAvg. Better and worse compare a row with random selection under its own
optimizer, and {BASELINE} + {SERVER_OPTIMIZER} with {BASELINE}. IQM is the interquartile mean, the mean of the middle
half of all settings' seeds. Its 95 % interval resamples seeds and is not corrected. It holds for other seeds, not for
other settings. The IQM excludes the quarter of the runs with the largest leads, which can be all runs of a setting; the
plain mean includes them."""
"""Explanation above a table of leads."""


class Together(NamedTuple):
    """Results of a row in all settings."""

    name: str
    leads: dict[str, np.ndarray]  # by metric, [settings, seeds]
    verdicts: dict[str, list[str]]  # by tested metric, one verdict per setting


def groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the groups of settings that are analyzed together: per data set, and Fashion-MNIST with MNIST.

    Args:
        names: names of the settings with results.
    """
    by_data: dict[str, list[str]] = {}
    for name in names:
        by_data.setdefault(SETTINGS[name].title.split(",")[0], []).append(name)
    small = [name for data in ("Fashion-MNIST", "MNIST") for name in by_data.get(data, [])]
    if len({SETTINGS[name].config.data.dataset for name in small}) > 1:
        by_data = {"Fashion-MNIST and MNIST": small, **by_data}
    return {title: found for title, found in by_data.items() if len(found) > 1}


def of_settings(tables: Mapping[str, Standings]) -> list[Together]:
    """Return the rows that all settings have, best first; empty without random selection or with unequal seeds.

    Args:
        tables: standings by setting.
    """
    by_name = [{row.name: row for row in table.rows} for table in tables.values()]
    if not all(BASELINE in rows for rows in by_name) or len({rows[BASELINE].seeds for rows in by_name}) > 1:
        return []
    common = [name for name in by_name[0] if all(name in rows for rows in by_name)]
    found = []
    for name in common:
        leads = {
            score: np.stack([rows[name].numbers[score] - rows[BASELINE].numbers[score] for rows in by_name])
            for score in SCORES
        }
        verdicts = {measure: [table.verdict(measure, name) for table in tables.values()] for measure in TESTED}
        found.append(Together(name, leads, verdicts))
    first = next(iter(SCORES))
    return sorted(found, key=lambda one: -aggregates.interquartile_mean(one.leads[first]))


def _numbers(one: Together) -> dict[str, float]:
    found = {}
    for score, leads in one.leads.items():
        low, high = map(float, aggregates.interquartile_mean_interval(leads))
        middle = aggregates.interquartile_mean(leads)
        found |= {f"{score}_iqm": middle, f"{score}_low": low, f"{score}_high": high}
        found[f"{score}_mean"] = float(leads.mean())
    return found


def as_csv(together: list[Together]) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = (statistics.BETTER, statistics.WORSE)
    names = [f"{score}_{end}" for score in SCORES for end in ("iqm", "low", "high", "mean")]
    writer.writerow(["row", "settings", *names, *(f"{measure}_{kind}" for measure in TESTED for kind in kinds)])
    for one in together:
        numbers = _numbers(one)
        counts = [one.verdicts[measure].count(kind) for measure in TESTED for kind in kinds]
        settings = len(one.leads[next(iter(SCORES))])
        writer.writerow([one.name, settings, *(plain(numbers[name]) for name in names), *counts])
    return text.getvalue()


def ahead(one: Together) -> bool:
    """Return whether a row is better than its baseline in at least half of the settings, and worse in none."""
    verdicts = one.verdicts[next(iter(SCORES))]
    return 2 * verdicts.count(statistics.BETTER) >= len(verdicts) and statistics.WORSE not in verdicts


def counted(verdicts: list[str]) -> str:
    """Return the numbers of better and worse verdicts, one per setting, as text; empty if the row has no baseline."""
    if not any(verdicts):
        return ""
    if set(verdicts) == {statistics.TOO_FEW_SEEDS}:
        return statistics.TOO_FEW_SEEDS
    return f"{verdicts.count(statistics.BETTER)} / {verdicts.count(statistics.WORSE)}"


def as_markdown(together: list[Together]) -> str:
    """Return the leads and the verdicts as two Markdown tables."""
    headings = [f"{words}: IQM" for words in SCORES.values()]
    first = next(iter(SCORES))
    headings.insert(1, f"{SCORES[first]}: mean")
    leads = ["| | " + " | ".join(headings) + " |", "|---|" + "---|" * len(headings)]
    of = f"better / worse, of {len(together[0].leads[first])} settings"
    verdicts = [f"| {of} | " + " | ".join(words for words, _ in TESTED.values()) + " |",
                "|---|" + "---|" * len(TESTED)]  # fmt: skip
    for one in together:
        numbers = _numbers(one)
        cells = []
        for score in SCORES:
            value, low, high = (numbers[f"{score}_{end}"] for end in ("iqm", "low", "high"))
            ends = "" if np.isnan(low) or one.name == BASELINE else f" ({low:+.3f} to {high:+.3f})"
            cells.append(f"{value:+.3f}{ends}")
            if score == first:
                cells.append(f"{numbers[f'{score}_mean']:+.3f}")
        leads.append(f"| {cell(one.name)} | " + " | ".join(cells) + " |")
        if one.name != BASELINE:
            verdicts.append(
                f"| {cell(one.name)} | " + " | ".join(counted(one.verdicts[measure]) for measure in TESTED) + " |"
            )
    return "\n".join([*leads, "", *verdicts])
