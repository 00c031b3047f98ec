"""The megabytes from which FL-DP3S's profiles, collected once, pay for themselves."""

from collections.abc import Mapping

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from studies.boards import measures
from studies.boards.grid import BASELINE
from studies.boards.series import Series
from studies.boards.series import Setting as Held
from studies.papers_setting import standings
from studies.papers_setting.price import wording
from studies.papers_setting.standings import Standings

PROFILED = "fl_dp3s"


def section(boards: Mapping[str, Held], tables: Mapping[str, Standings]) -> list[str]:
    """Return FL-DP3S's lead over random selection at shares of the equal megabytes."""
    columns = [f"lead at {100 * share:g} % of the equal MB" for share in wording.BUDGETS]
    lines = ["| | MB to get the profiles | " + " | ".join(columns) + " | stays ahead from (MB) |",
             "|---|---|" + "---|" * (len(wording.BUDGETS) + 1)]  # fmt: skip
    by_verdict: dict[str, list[str]] = {}
    for name, held in boards.items():
        if not {PROFILED, BASELINE} <= set(held.rows) or held.rows[PROFILED].seeds != held.rows[BASELINE].seeds:
            continue
        ours, base, shared = held.rows[PROFILED], held.rows[BASELINE], tables[name].shared
        price = float((ours.megabytes[:, 0] - base.megabytes[:, 0]).mean())
        at = [
            measures.accuracy_at(ours, share * shared.megabytes, shared.guess)
            - measures.accuracy_at(base, share * shared.megabytes, shared.guess)
            for share in wording.BUDGETS
        ]
        compared = statistics.compare(np.stack(at))
        by_verdict.setdefault(compared[-1].verdict, []).append(held.about["title"])
        ahead = ahead_from(ours, base, shared.megabytes, shared.guess)
        cells = [standings.difference(one, 3) for one in compared]
        until = "not by the end" if ahead is None else f"{ahead:.0f} of {shared.megabytes:.0f}"
        if ahead is not None and compared[-1].verdict != statistics.BETTER:
            until += " (not significant)"
        lines.append(f"| {cell(held.about['title'])} | {price:.1f} | {' | '.join(cells)} | {until} |")
    if len(lines) == 2:
        return [wording.NONE]
    said = {statistics.BETTER: "significantly better in", statistics.NOT_SIGNIFICANT: "not significantly different in"}
    if statistics.WORSE in by_verdict:
        said[statistics.WORSE] = "significantly worse in"
    if statistics.TOO_FEW_SEEDS in by_verdict:
        said[statistics.TOO_FEW_SEEDS] = "untested, with too few seeds, in"
    found = [f"{words}: {wording.listed(by_verdict.get(verdict, ()), '; ')}" for verdict, words in said.items()]
    return [
        "\n".join(lines),
        "From the megabytes in the last column up to the equal megabytes, FL-DP3S's mean over seeds stays above random "
        'selection\'s; "not significant" refers to the lead at the end. '
        f"With all megabytes, FL-DP3S is {'; '.join(found)}.",
    ]


def ahead_from(ours: Series, base: Series, megabytes: float, guess: float) -> float | None:
    """Return the megabytes from which a row's mean stays above another's; None if it ends below.

    Args:
        ours: the row.
        base: the other row.
        megabytes: the equal megabytes, where the comparison ends.
        guess: accuracy where the megabytes pay for no round.
    """
    ends = np.unique(np.concatenate([one.megabytes.mean(axis=0) for one in (ours, base)]))
    ends = ends[ends <= megabytes * (1 + 1e-12)]
    above = measures.curve(ours, ends, guess) > measures.curve(base, ends, guess)
    if not len(ends) or not above[-1]:
        return None
    behind = np.flatnonzero(~above)
    return float(ends[behind[-1] + 1]) if len(behind) else float(ends[0])
