"""The price of information: what strategies pay for what they know, and when it comes back.

Every sentence with a number or a name in it is made of the results; what stands between them only says what a table
shows. A module a section.
"""

from collections.abc import Mapping

from studies.leaderboard.price import absence, as_many, budgets, by_bytes, probes, profile
from studies.leaderboard.series import Setting as Held
from studies.leaderboard.settings import SETTINGS
from studies.leaderboard.standings import Standings

INTRODUCTION = """A strategy that asks clients before it selects sends models and floats for it. This page counts them:
what the same megabytes buy with each strategy, few of them and as many as FedCor sends, what is left of FedCor's lead
as its probes get rarer, what absent clients and lost reports do, when FL-DP3S's profile has paid for itself, and which
strategy to take for which budget.
The settings, the strategies' numbers and the rules are those of the [leaderboard]({link}/README.md). Everything below
is made of its results by `python tools/price_of_information.py`. *Better* and *worse* mean significantly so: a
sign-flip test after Holm's correction and a bootstrap interval agree; otherwise a difference is *within chance*. A
family of that correction is what one column compares in one setting, and in the tables by budget what one setting's
budgets or one budget's strategies compare: a comparison that the leaderboard makes among more rows can have a greater
p there, and be within chance. "Minus" in a heading is the row's number minus that of what follows."""


def markdown(found: Mapping[str, Held], tables: Mapping[str, Standings], link: str) -> str:
    """Return the page.

    Args:
        found: parts that are there.
        tables: theirs.
        link: from the page to the folder of results.
    """
    boards = {name: held for name, held in found.items() if name in SETTINGS}
    parts = ["# The price of information", INTRODUCTION.format(link=link)]
    parts += ["## Accuracy against bytes", *by_bytes.section(boards, tables, link)]
    parts += ["## At the megabytes of the most expensive strategies", *as_many.section(found)]
    parts += ["## Rarer probes", *probes.section(found)]
    parts += ["## Clients away, reports lost", *absence.section(found)]
    parts += ["## When FL-DP3S's profile has paid for itself", *profile.section(boards, tables)]
    parts += ["## Which strategy for which budget", *budgets.section(boards, tables, link)]
    return "\n\n".join(parts) + "\n"
