"""What the same megabytes buy with each strategy: those that the cheapest one sends."""

from collections.abc import Mapping, Sequence

from fedjax_sel import statistics
from fedjax_sel.core.texts import cell
from fedjax_sel.leaderboard import across, measures
from fedjax_sel.leaderboard.price import wording
from fedjax_sel.leaderboard.series import Setting as Held
from fedjax_sel.leaderboard.standings import Standings


def section(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> list[str]:
    """Return what the same megabytes buy, all settings of a data set together."""
    parts: list[str] = []
    all_together: list[str] = []
    for title, names in across.groups(boards).items():
        together = across.of_settings({name: tables[name] for name in names})
        if not together:
            continue
        dear = {one.name: wording.times_random(one.name, names, boards) for one in together}
        lines = ["| | times random's MB | lead over random, last 10 rounds | its mean | at equal MB | at equal MB up | "
                 "at equal MB: better / worse |", "|---|---|---|---|---|---|---|"]  # fmt: skip
        measure = "accuracy_at_100_percent_of_megabytes"
        for one in sorted(together, key=lambda one: dear[one.name]):
            leads = [f"{statistics.interquartile_mean(values):+.3f}" for values in one.leads.values()]
            leads.insert(1, f"{next(iter(one.leads.values())).mean():+.3f}")
            shown = across.counted(one.verdicts[measure])
            lines.append(f"| {cell(one.name)} | {dear[one.name]:.2f} | {' | '.join(leads)} | {shown} |")
        parts += [f"{title}, {len(names)} settings: interquartile means, and one mean, over settings and seeds."]
        parts.append("\n".join(lines))
        all_together += [name for name in names if name not in all_together]
    if not parts:
        return [wording.NONE]
    return [across.about_leads(intervals=False), *parts, _in_words(all_together, boards, tables),
            f"![accuracy by megabytes]({link}/accuracy_by_megabytes.png)"]  # fmt: skip


def _in_words(names: Sequence[str], boards: Mapping[str, Held], tables: Mapping[str, Standings]) -> str:
    lines = []
    for name in names:
        told = {
            (measure, kind): [row for row in boards[name].rows if tables[name].verdict(measure, row) == kind]
            for measure in ("last_rounds_accuracy", "accuracy_at_100_percent_of_megabytes")
            for kind in (statistics.BETTER, statistics.WORSE)
        }
        after, at = ([wording.listed(told[measure, kind]) for kind in (statistics.BETTER, statistics.WORSE)]
                     for measure in ("last_rounds_accuracy", "accuracy_at_100_percent_of_megabytes"))  # fmt: skip
        megabytes = tables[name].shared.megabytes
        paid = [
            f"{row} {measures.paid_rounds(boards[name].rows[row], megabytes).mean():.0f}"
            for row in boards[name].rows
            if wording.times_random(row, [name], boards) > wording.DEAR
        ]
        lines.append(
            f"* {boards[name].about['title']}: after the same rounds better {after[0]}; worse {after[1]}. At equal "
            f"megabytes ({megabytes:.0f}) better {at[0]}; worse {at[1]}. Rounds that these pay for, of "
            f"{tables[name].shared.rounds}: {wording.listed(paid)}."
        )
    everywhere = [row for row in boards[names[0]].rows if all(row in boards[name].rows for name in names)]
    dear = {row: wording.times_random(row, names, boards) for row in everywhere}
    most = max(dear.values())
    dearest = [row for row, value in dear.items() if value > 0.99 * most]
    of_settings = [f"{wording.times_random(dearest[0], [name], boards):.2f}" for name in names]
    lines.append(
        f"* Those that send the most are {wording.listed(dearest)}: {most:.2f} times random's megabytes in the mean "
        f"over settings, which are {wording.listed(of_settings)} one by one."
    )
    return "\n".join(lines)
