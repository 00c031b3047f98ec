"""The best strategy for each communication budget."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from studies.boards import measures
from studies.boards.grid import contender
from studies.boards.series import Setting as Held
from studies.papers_setting.price import wording
from studies.papers_setting.standings import Standings


class Advice(NamedTuple):
    """The best row for a communication budget."""

    best: str  # the row with the highest mean
    accuracy: float
    as_good: list[str]  # rows that are not significantly worse
    seeds_suffice: bool = True  # False: too few seeds for any row to be significantly worse


def advice(held: Held, shared: measures.Common, share: float, rows: Sequence[str]) -> Advice:
    """Return the best row of a setting for a budget, and the rows that are not significantly worse.

    Args:
        held: the setting's results.
        shared: the values common to all its rows.
        share: the budget as a fraction of the equal megabytes.
        rows: names of the candidates, at least one, with equal seeds.
    """
    numbers = {name: measures.accuracy_at(held.rows[name], share * shared.megabytes, shared.guess) for name in rows}
    best = max(numbers, key=lambda name: numbers[name].mean())
    others = [name for name in rows if name != best]
    found = statistics.compare(np.stack([numbers[name] - numbers[best] for name in others])) if others else []
    worse = {name for name, one in zip(others, found) if one.verdict == statistics.WORSE}
    enough = all(one.verdict != statistics.TOO_FEW_SEEDS for one in found)
    return Advice(best, float(numbers[best].mean()), [name for name in others if name not in worse], enough)


def section(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> list[str]:
    """Return the best row for each budget."""
    parts = []
    for optimizers, words in ((("fedavg",), "Under FedAvg"), (None, "Under either optimizer")):
        lines = ["| | equal MB | " + " | ".join(f"{100 * share:g} % of these" for share in wording.BUDGETS) + " |",
                 "|---|---|" + "---|" * len(wording.BUDGETS)]  # fmt: skip
        some = False
        for name, held in boards.items():
            rows = [row for row in held.rows if optimizers is None or contender(row).optimizer in optimizers]
            if len({contender(row).optimizer for row in held.rows}) < 2 and optimizers is None:
                continue
            if len(rows) < 2 or len({held.rows[row].seeds for row in rows}) > 1:
                continue
            some, shared = True, tables[name].shared
            cells = []
            for share in wording.BUDGETS:
                found = advice(held, shared, share, rows)
                also = f"{len(found.as_good)} more" if found.as_good else "alone"
                also = also if found.seeds_suffice else "too few seeds"
                cells.append(f"{cell(found.best)} {found.accuracy:.3f}, {also}")
            lines.append(f"| {cell(held.about['title'])} | {shared.megabytes:.0f} | {' | '.join(cells)} |")
        if some:
            parts += [f"{words}:", "\n".join(lines)]
    if not parts:
        return [wording.NONE]
    words = (
        "Each cell names the row with the highest mean accuracy at the budget, over the last third of the rounds that "
        'the budget pays for, at most ten. "More" counts the rows that are not significantly worse, which does not '
        "prove that they are equal. The best row was chosen on the same seeds, so chance inflates its lead, even where "
        "it is alone. The picture shows the best row."
    )
    return [*parts, words, f"![the best strategy for a budget]({link}/budgets.png)"]
