"""Expensive strategies against longer runs of cheap ones, at equal megabytes."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from fedjax_sel.papers import FEDCOR_FASHION_MNIST
from fedjax_sel.statistics import Comparison
from studies.boards import measures
from studies.boards.grid import BASELINE, contender
from studies.boards.series import Series
from studies.boards.series import Setting as Held
from studies.papers_setting import information, standings
from studies.papers_setting.price import wording
from studies.papers_setting.settings import SETTINGS

ABOUT = (
    f"Each row here sends more than {wording.DEAR:g} times random's megabytes. It is compared with longer runs of "
    f"strategies that query no client, or only once ({', '.join(information.LASTING)}). A longer run stops at the "
    "row's megabytes, after the rounds in the first table: \"minus random\" is the row's accuracy minus that of the "
    "longer run."
)
_HALVED_AFTER = FEDCOR_FASHION_MNIST.training.learning_rate_milestones
SHORTER_STEPS = (
    f"Clients' step sizes halve after {' and after '.join(map(str, _HALVED_AFTER))} rounds, as in FedCor's paper. A "
    f"longer run therefore ends with smaller steps than one of {_HALVED_AFTER[0]} rounds."
)


def section(found: Mapping[str, Held]) -> list[str]:
    """Return the comparison with longer runs of cheap strategies, at the megabytes of each expensive row."""
    tables = {setting: _table(found.get(setting), found.get(longer_of(setting))) for setting in information.SETTINGS}
    parts = [part for setting, table in tables.items() if table for part in (f"{SETTINGS[setting].title}:", *table)]
    missing = [setting for setting in tables if not {setting, longer_of(setting)} <= set(found)]
    return [ABOUT, *parts, SHORTER_STEPS, *wording.missing(missing)] if parts else [wording.NONE]


def longer_of(setting: str) -> str:
    """Return the name of the part that holds a setting's longer runs."""
    return f"information-longer-{setting}"


def _table(board: Held | None, longer: Held | None) -> list[str]:
    if board is None or longer is None or BASELINE not in board.rows:
        return []
    sent = {name: _sent(one) for name, one in board.rows.items()}
    rows = [name for name in board.rows
            if contender(name).optimizer == "fedavg" and sent[name] > wording.DEAR * sent[BASELINE]]  # fmt: skip
    columns = {base: less(board, rows, one) for base, one in longer.rows.items()}
    columns = {base: column for base, column in columns.items() if column}
    if not rows or not columns:
        return [f"No row sends more than {wording.DEAR:g} times random's megabytes and less than a longer run."]
    rounds_of = " | ".join(f"rounds of {base}" for base in columns)
    sizes = [f"| | MB | accuracy after {board.rows[BASELINE].rounds} rounds | {rounds_of} |"]
    sizes.append("|---" * (3 + len(columns)) + "|")
    lines = ["| | " + " | ".join(f"minus {base}" for base in columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for name in rows:
        paid = {base: measures.paid_rounds(longer.rows[base], sent[name]).mean() for base in columns}
        rounds = [f"{paid[base]:.0f}" if name in column else "" for base, column in columns.items()]
        cells = [standings.difference(column[name], 3) if name in column else "" for column in columns.values()]
        mean = measures.last_rounds(board.rows[name]).mean()
        sizes.append(f"| {cell(name)} | {sent[name]:.0f} | {mean:.3f} | {' | '.join(rounds)} |")
        lines.append(f"| {cell(name)} | {' | '.join(cells)} |")
    words = [
        f"better than {base}: {wording.listed(wording.with_verdict(column, statistics.BETTER))}, worse: "
        f"{wording.listed(wording.with_verdict(column, statistics.WORSE))}"
        for base, column in columns.items()
    ]
    return ["\n".join(sizes), "\n".join(lines), f"At the row's megabytes: {'; '.join(words)}."]


def less(held: Held, rows: Sequence[str], base: Series) -> dict[str, Comparison]:
    """Compare each row's final accuracy with a longer run's, at the row's megabytes.

    Args:
        held: the part with the rows.
        rows: names of the rows, one family of tests.
        base: the longer run.

    Returns:
        The comparisons by row. Rows with other seeds are left out, and rows that send more than the longer run.
    """
    guess = 1.0 / held.about["num_classes"]
    same = [name for name in rows if held.rows[name].seeds == base.seeds and _sent(held.rows[name]) <= _sent(base)]
    differences = [
        measures.last_rounds(held.rows[name]) - measures.accuracy_at(base, _sent(held.rows[name]), guess)
        for name in same
    ]
    return dict(zip(same, statistics.compare(np.stack(differences)))) if same else {}


def _sent(series: Series) -> float:
    """Return the total megabytes, mean over seeds."""
    return float(series.megabytes[:, -1].mean())
