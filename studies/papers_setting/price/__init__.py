"""The price of information: each strategy's communication cost and the accuracy that it buys.

Two pages: a short one with the conclusions, and one with all tables. Sentences with a number or a strategy's name are
generated from the results. Each module writes one section.
"""

import textwrap
from collections.abc import Collection, Mapping, Sequence

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from studies import aggregates
from studies.boards.grid import BASELINE
from studies.boards.series import Setting as Held
from studies.papers_setting import across, pictures
from studies.papers_setting.price import absence, as_many, budgets, probes, profile, wording
from studies.papers_setting.settings import SETTINGS
from studies.papers_setting.standings import Standings

DETAILS = "price.md"
"""Name of the page with all tables, in the folder of results."""

WORDS = """\
* **Better** and **worse** mean significantly so: a joint sign-flip test and a bootstrap interval agree.
  **Not significant** [does not mean equal]({docs}/statistics.md).
* **At equal MB**, each run stops once it has sent the megabytes of random selection.
* "Minus X" in a heading is the row's accuracy minus that of X.
* A family of tests is one column in one setting. In the last two sections it is one setting's budgets, or one budget's
  strategies. The families of [the settings' pages](README.md) have more rows; there, the same difference can be not
  significant."""

INTRODUCTION = """\
A [query of clients](information_and_cost.md) costs megabytes (MB) and client work. Its answer helps only if the
strategy then selects better. This page covers the
[papers' setting]({link}/README.md), with FedCor's dropout and learning rate. The
[leaderboard](../results/leaderboard/README.md) makes the same comparisons with tuned rates."""

READING = """\
A lead is the accuracy minus random selection's under FedAvg, as an interquartile mean over settings and seeds.
"Better / worse" counts the settings with a [significant](statistics.md) difference to random selection under the same
optimizer (`random + fedyogi`: to `random`). At equal MB, each run stops at the megabytes of random selection. A
row that queries all clients may then still be in its random warm-up."""

MEASURES = ("last_rounds_accuracy", "accuracy_at_100_percent_of_megabytes")

QUESTIONS = {
    "Does random selection catch up with equal traffic?": "at-the-megabytes-of-the-most-expensive-strategies",
    "How much of FedCor's lead remains with rarer probes?": "rarer-probes",
    "What do unavailable clients and lost reports change?": "unavailable-clients-and-lost-reports",
    "When has FL-DP3S's profile paid for itself?": "when-fl-dp3ss-profile-has-paid-for-itself",
    "Which strategy is best for which budget?": "which-strategy-for-which-budget",
}
"""Questions that the page with all tables answers, with its sections."""


def markdown(found: Mapping[str, Held], tables: Mapping[str, Standings]) -> str:
    """Return the page with all tables.

    Args:
        found: the available results, by part.
        tables: the standings of the main settings among them.
    """
    boards = {name: held for name, held in found.items() if name in SETTINGS}
    parts = ["# The price of information: all tables", WORDS.format(docs="../../docs")]
    parts += ["## At the megabytes of the most expensive strategies", *as_many.section(found)]
    parts += ["## Rarer probes", *probes.section(found)]
    parts += ["## Unavailable clients and lost reports", *absence.section(found)]
    parts += ["## When FL-DP3S's profile has paid for itself", *profile.section(boards, tables)]
    parts += ["## Which strategy for which budget", *budgets.section(boards, tables, ".")]
    return "\n\n".join(parts) + "\n"


def conclusions(boards: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> str:
    """Return the short page: conclusions, one picture, one table.

    Args:
        boards: the available results of the main settings.
        tables: their standings.
        link: path from the page to the folder of results.
    """
    parts = ["# The price of information", INTRODUCTION.format(link=link)]
    for title, names in list(across.groups(boards).items())[:1]:
        parts += [
            _conclusions(names, boards, tables),
            f"![lead against cost]({link}/{pictures.LEADS_BY_COST})",
            pictures.LEADS_IN_WORDS,
            f"## {title}, {len(names)} settings",
            table(names, boards, tables),
            READING,
        ]
    if len(parts) == 2:
        parts.append(wording.NONE)
    questions = [f"* [{question}]({link}/{DETAILS}#{section})" for question, section in QUESTIONS.items()]
    parts += ["## More", f"[All tables]({link}/{DETAILS}) answer further questions:", "\n".join(questions)]
    return "\n\n".join(parts) + "\n"


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
    together = across.of_settings({name: tables[name] for name in names})
    sent = {one.name: wording.times_random(one.name, names, boards) for one in together}
    lines = ["| strategy | times random's MB | lead | better / worse | lead at equal MB | better / worse |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for one in sorted(together, key=lambda one: round(sent[one.name], 2)):
        if one.name == BASELINE or (only and one.name not in only):
            continue
        cells = [
            f"{aggregates.interquartile_mean(one.leads[measure]):+.3f} | {across.counted(one.verdicts[measure])}"
            for measure in MEASURES
        ]
        lines.append(f"| {cell(one.name)} | {sent[one.name]:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _conclusions(names: list[str], boards: Mapping[str, Held], tables: Mapping[str, Standings]) -> str:
    together = across.of_settings({name: tables[name] for name in names})
    sent = {one.name: wording.times_random(one.name, names, boards) for one in together}
    rounds, budget = MEASURES

    def better(measure: str, dear: bool) -> list[str]:
        rows = [one for one in together if one.name != BASELINE and (sent[one.name] > wording.DEAR) == dear]
        counts = {one.name: one.verdicts[measure].count(statistics.BETTER) for one in rows}
        ahead = [name for one in rows if 2 * counts[name := one.name] >= len(names)
                 and statistics.WORSE not in one.verdicts[measure]]  # fmt: skip
        best = sorted(ahead, key=lambda name: -counts[name])
        return [f"`{name}` ({counts[name]})" for name in best]

    few = f"{wording.DEAR:g} times random's megabytes"
    lines = [
        f"In at least half of {len(names)} settings, these strategies are significantly better than random selection, "
        "and worse in none. Parentheses give the number of settings.",
        f"* **For at most {few}**, after equal rounds: {wording.listed(better(rounds, False))}.",
        f"* **For more megabytes**, after equal rounds: {wording.listed(better(rounds, True))}.",
        f"* **Expensive, compared at equal megabytes**: {wording.listed(better(budget, True))}.",
    ]
    indents = ["", *["  "] * (len(lines) - 1)]
    wrapped = [textwrap.fill(line, 120, subsequent_indent=indent) for line, indent in zip(lines, indents)]
    return "\n".join([wrapped[0], "", *wrapped[1:]])
