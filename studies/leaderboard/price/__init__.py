"""The page on the price of information: each strategy's communication cost and the accuracy that it buys.

Sentences with a number or a strategy's name are generated from the results. Each module writes one section.
"""

from collections.abc import Mapping

from studies.leaderboard.price import absence, as_many, budgets, by_bytes, probes, profile
from studies.leaderboard.series import Setting as Held
from studies.leaderboard.settings import SETTINGS
from studies.leaderboard.standings import Standings

INTRODUCTION = """\
Some strategies query clients before they select, and each query sends models or numbers. The first table shows how many
megabytes (MB) each strategy sends and how much accuracy it gains, in the settings of the
[leaderboard]({link}/README.md).

* **Better** and **worse** mean significantly so: a sign-flip test after Holm's correction and a bootstrap interval
  agree. **Not significant** [does not mean equal](statistics.md).
* **At equal MB**, each run stops once it has sent the megabytes of the row that sends the least.
* "Minus X" in a heading is the row's accuracy minus that of X.
* Holm's correction covers one column in one setting. In the last two sections it covers one setting's budgets, or one
  budget's strategies. The leaderboard corrects over more rows, so the same difference can be not significant there."""


def markdown(found: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> str:
    """Return the page.

    Args:
        found: the available results, by part.
        tables: the standings of the leaderboard's settings among them.
        link: path from the page to the folder of results.
    """
    boards = {name: held for name, held in found.items() if name in SETTINGS}
    parts = ["# The price of information", INTRODUCTION.format(link=link)]
    parts += ["## Accuracy against bytes", *by_bytes.section(boards, tables, link)]
    parts += ["## At the megabytes of the most expensive strategies", *as_many.section(found)]
    parts += ["## Rarer probes", *probes.section(found)]
    parts += ["## Unavailable clients and lost reports", *absence.section(found)]
    parts += ["## When FL-DP3S's profile has paid for itself", *profile.section(boards, tables)]
    parts += ["## Which strategy for which budget", *budgets.section(boards, tables, link)]
    return "\n\n".join(parts) + "\n"
