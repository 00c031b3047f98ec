"""Accuracy of all strategies at the megabytes of random selection."""

from collections.abc import Collection, Mapping, Sequence

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from studies import aggregates
from studies.boards import measures
from studies.boards.grid import BASELINE
from studies.boards.series import Setting as Held
from studies.papers_setting import across
from studies.papers_setting.price import wording
from studies.papers_setting.settings import SETTINGS
from studies.papers_setting.standings import Standings

MEASURES = ("last_rounds_accuracy", "accuracy_at_100_percent_of_megabytes")


def table(
    names: Sequence[str], boards: Mapping[str, Held], tables: Mapping[str, Standings], only: Collection[str] = ()
) -> str:
    """Return cost, leads and verdicts of each row over some settings, as Markdown; cheapest first, then by lead.

    Args:
        names: names of the settings.
        boards: the settings' results.
        tables: the settings' standings.
        only: the rows, all if empty.
    """
    sent = {row: wording.times_random(row, names, boards) for row in _everywhere(names, boards)}
    lines = ["| strategy | times random's MB | lead | better / worse | lead at equal MB | better / worse |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for one in sorted(
        across.of_settings({name: tables[name] for name in names}), key=lambda one: round(sent[one.name], 2)
    ):
        if one.name == BASELINE or (only and one.name not in only):
            continue
        cells = [
            f"{aggregates.interquartile_mean(one.leads[measure]):+.3f} | {across.counted(one.verdicts[measure], '')}"
            for measure in MEASURES
        ]
        lines.append(f"| {cell(one.name)} | {sent[one.name]:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def section(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> list[str]:
    """Return the leads at equal rounds and at equal megabytes, over all settings of a data set."""
    parts: list[str] = []
    all_together: list[str] = []
    for title, names in across.groups(boards).items():
        together = across.of_settings({name: tables[name] for name in names})
        if not together:
            continue
        sent = {one.name: wording.times_random(one.name, names, boards) for one in together}
        lines = ["| | times random's MB | lead over random, last 10 rounds | mean lead | at equal MB | "
                 "at equal MB up | at equal MB: better / worse |", "|---|---|---|---|---|---|---|"]  # fmt: skip
        for one in sorted(together, key=lambda one: sent[one.name]):
            leads = [f"{aggregates.interquartile_mean(values):+.3f}" for values in one.leads.values()]
            leads.insert(1, f"{next(iter(one.leads.values())).mean():+.3f}")
            shown = across.counted(one.verdicts[MEASURES[1]])
            lines.append(f"| {cell(one.name)} | {sent[one.name]:.2f} | {' | '.join(leads)} | {shown} |")
        parts += [
            f"{title}, {len(names)} settings (interquartile means over settings and seeds, except the mean lead):"
        ]
        parts.append("\n".join(lines))
        all_together += [name for name in names if name not in all_together]
    if not parts:
        return [wording.NONE]
    return [across.about_leads(intervals=False), *parts, *_by_setting(all_together, boards, tables),
            f"![accuracy by megabytes]({link}/accuracy_by_megabytes.png)"]  # fmt: skip


SIGNS = {statistics.BETTER: "+", statistics.WORSE: "−"}
NOT_SIGNIFICANT = "·"


def _by_setting(names: Sequence[str], boards: Mapping[str, Held], tables: Mapping[str, Standings]) -> list[str]:
    """Return the verdicts in each setting, after equal rounds and at equal megabytes."""
    rounds = ", ".join(map(str, sorted({tables[name].shared.rounds for name in names})))
    sent = {row: wording.times_random(row, names, boards) for row in _everywhere(names, boards)}
    most = max(sent.values())
    most_rows = [row for row, value in sent.items() if value > 0.99 * most]
    of_settings = [f"{wording.times_random(most_rows[0], [name], boards):.2f}" for name in names]
    return [
        f"Verdicts after {rounds} rounds: significantly better ({SIGNS[statistics.BETTER]}) or worse "
        f"({SIGNS[statistics.WORSE]}) than random selection, or not significant ({NOT_SIGNIFICANT}). A sign may be "
        f"false. {across.false_verdicts({name: tables[name] for name in names})}",
        _matrix("last_rounds_accuracy", names, boards, tables),
        f"Verdicts at equal megabytes. Where a row sends more than {wording.DEAR:g} times random's megabytes, a number "
        f"shows how many of the {rounds} rounds these pay for:",
        _matrix("accuracy_at_100_percent_of_megabytes", names, boards, tables, with_rounds=True),
        f"The most expensive rows are {wording.listed(most_rows)}, with {most:.2f} times random's megabytes in the "
        f"mean over settings, and {wording.listed(of_settings)} in the single settings.",
    ]


def _everywhere(names: Sequence[str], boards: Mapping[str, Held]) -> list[str]:
    return [row for row in boards[names[0]].rows if all(row in boards[name].rows for name in names)]


def _matrix(
    measure: str,
    names: Sequence[str],
    boards: Mapping[str, Held],
    tables: Mapping[str, Standings],
    with_rounds: bool = False,
) -> str:
    """Return a table of verdicts per data set: one line per row, one column per setting."""
    by_data: dict[str, list[str]] = {}
    for name in names:
        by_data.setdefault(SETTINGS[name].title.split(",")[0], []).append(name)
    return "\n\n".join(_verdicts(data, measure, some, boards, tables, with_rounds) for data, some in by_data.items())


def _verdicts(
    data: str,
    measure: str,
    names: Sequence[str],
    boards: Mapping[str, Held],
    tables: Mapping[str, Standings],
    with_rounds: bool,
) -> str:
    rows = list(dict.fromkeys(row for name in names for row in boards[name].rows if row != BASELINE))
    heads = [boards[name].about["title"].split(", ")[-1] for name in names]
    if with_rounds:
        heads = [f"{head} ({tables[name].shared.megabytes:.0f} MB)" for head, name in zip(heads, names)]
    lines = [f"| {data} | " + " | ".join(map(cell, heads)) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        cells = []
        for name in names:
            held = boards[name]
            if row not in held.rows:
                cells.append("")
                continue
            sign = SIGNS.get(tables[name].verdict(measure, row), NOT_SIGNIFICANT)
            if with_rounds and wording.times_random(row, [name], boards) > wording.DEAR:
                paid = measures.paid_rounds(held.rows[row], tables[name].shared.megabytes)
                sign += f" {paid.mean():.0f}"
            cells.append(sign)
        lines.append(f"| {cell(row)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
