"""FedCor: the wall-clock time of a seed."""

from studies.papers import published, verdicts
from studies.papers.entries.fedcor import COLUMNS, configuration, task_of
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

RULE = (
    "Times on different machines and with different programs cannot be compared. The table shows the paper's hours, "
    "on hardware of 2016, and ours. Ours are the time of all seeds divided by their number, on a machine that may "
    "have done other work."
)


def _judge(results: Results, scale: Scale) -> Page:
    numbers = published.get("fedcor/hours").numbers
    rows = []
    for cell, result in results.items():
        value = numbers[0].cell(task_of(cell.column), "hours")
        assert value is not None
        hours = float(result.elapsed_seconds[-1]) / len(result.seeds) / 3600
        rows.append(
            Row(cell.column, f"hours of a seed, {result.num_rounds} rounds", f"about {value.value:g}", f"{hours:.2g}",
                len(result.seeds), f"{value.value / hours:.0f} times less" if scale.whole_rounds else "",
                verdicts.NOT_COMPARABLE)
        )  # fmt: skip
    return Page(rows)


_RUNS = {Cell(column, "fedcor"): configuration(column, "fedcor") for column in COLUMNS}

ENTRIES = (Entry("fedcor/hours", RULE, _RUNS, _judge, "none beside fedcor/table1"),)
