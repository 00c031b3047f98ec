"""What the same megabytes buy with each strategy: those that the cheapest one sends."""

from collections.abc import Mapping, Sequence

from fedjax_sel import statistics
from fedjax_sel.core.texts import cell
from studies.leaderboard import across, measures
from studies.leaderboard.price import wording
from studies.leaderboard.series import Setting as Held
from studies.leaderboard.settings import BASELINE
from studies.leaderboard.standings import Standings


def section(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> list[str]:
    """Return what the same megabytes buy, all settings of a data set together."""
    parts: list[str] = []
    all_together: list[str] = []
    for title, names in across.groups(boards).items():
        together = across.of_settings({name: tables[name] for name in names})
        if not together:
            continue
        sent = {one.name: wording.times_random(one.name, names, boards) for one in together}
        lines = ["| | times random's MB | lead over random, last 10 rounds | its mean | at equal MB | at equal MB up | "
                 "at equal MB: better / worse |", "|---|---|---|---|---|---|---|"]  # fmt: skip
        measure = "accuracy_at_100_percent_of_megabytes"
        for one in sorted(together, key=lambda one: sent[one.name]):
            leads = [f"{statistics.interquartile_mean(values):+.3f}" for values in one.leads.values()]
            leads.insert(1, f"{next(iter(one.leads.values())).mean():+.3f}")
            shown = across.counted(one.verdicts[measure])
            lines.append(f"| {cell(one.name)} | {sent[one.name]:.2f} | {' | '.join(leads)} | {shown} |")
        parts += [f"{title}, {len(names)} settings: interquartile means, and one mean, over settings and seeds."]
        parts.append("\n".join(lines))
        all_together += [name for name in names if name not in all_together]
    if not parts:
        return [wording.NONE]
    return [across.about_leads(intervals=False), *parts, *_by_setting(all_together, boards, tables),
            f"![accuracy by megabytes]({link}/accuracy_by_megabytes.png)"]  # fmt: skip


SIGNS = {statistics.BETTER: "+", statistics.WORSE: "−"}
WITHIN_CHANCE = "·"


def _by_setting(names: Sequence[str], boards: Mapping[str, Held], tables: Mapping[str, Standings]) -> list[str]:
    """Return who is better and worse in each setting, after the same rounds and at equal megabytes."""
    rounds = ", ".join(map(str, sorted({tables[name].shared.rounds for name in names})))
    sent = {row: wording.times_random(row, names, boards) for row in _everywhere(names, boards)}
    most = max(sent.values())
    most_rows = [row for row, value in sent.items() if value > 0.99 * most]
    of_settings = [f"{wording.times_random(most_rows[0], [name], boards):.2f}" for name in names]
    return [
        f"Significantly better ({SIGNS[statistics.BETTER]}) or worse ({SIGNS[statistics.WORSE]}) than random "
        f"selection, or within chance ({WITHIN_CHANCE}), after the same {rounds} rounds. A sign may be false. "
        f"{across.false_verdicts(len(names))}",
        _matrix("last_rounds_accuracy", names, boards, tables),
        f"The same at equal megabytes. A number is how many of the {rounds} rounds a row gets for them, where it sends "
        f"more than {wording.DEAR:g} times random's:",
        _matrix("accuracy_at_100_percent_of_megabytes", names, boards, tables, with_rounds=True),
        f"Those that send the most are {wording.listed(most_rows)}: {most:.2f} times random's megabytes in the mean "
        f"over settings, which are {wording.listed(of_settings)} one by one.",
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
    rows = list(dict.fromkeys(row for name in names for row in boards[name].rows if row != BASELINE))
    lines = ["| | " + " | ".join(rows) + " |", "|---" * (len(rows) + 1) + "|"]
    for name in names:
        held, shared = boards[name], tables[name].shared
        cells = []
        for row in rows:
            if row not in held.rows:
                cells.append("")
                continue
            sign = SIGNS.get(tables[name].verdict(measure, row), WITHIN_CHANCE)
            if with_rounds and wording.times_random(row, [name], boards) > wording.DEAR:
                sign += f" {measures.paid_rounds(held.rows[row], shared.megabytes).mean():.0f}"
            cells.append(sign)
        megabytes = f" ({shared.megabytes:.0f} MB)" if with_rounds else ""
        lines.append(f"| {cell(held.about['title'])}{megabytes} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
