"""Which strategy leads in simulated seconds, and whose lead survives slow devices, deadlines and absence?

Settled before the runs:

* A strategy *leads in seconds* in a world if its accuracy at equal seconds is better than that of random selection
  there: paired by seed, all rows of the world as one family of tests.
* A lead *survives* a world if the strategy is better than random selection without a clock (accuracy of the last ten
  rounds in `papers-setting`) and leads in seconds in the world.

Equal seconds are the smallest total of any row and seed. Strategies that end a world's rounds early thus set the end.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_sel import Config, statistics
from studies.boards.grid import BASELINE, Contender
from studies.boards.series import Setting as Held
from studies.papers_setting import settings
from studies.papers_setting.settings import CORE, Setting
from studies.papers_setting.standings import Standings

SETTINGS = ("fmnist-2spc", "fmnist-dir")
PREFIX = "clock-"

PHONES: dict[str, Any] = {"jitter": 0.2, "spread": 0.0}  # the others are the defaults of `tiers`: phones of FLASH
_TIERS: dict[str, Any] = {"timing": "tiers", "timing_args": PHONES}
DEADLINE = "q0.5"
WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiers": ("three classes of phones", _TIERS),
    "labels": ("slow phones hold the later labels", _TIERS | {"timing_args": PHONES | {"by": "label"}}),
    "daily": (
        "three classes of phones, daily availability by label",
        _TIERS | {"available": "daily", "available_args": {"zones": "label"}},
    ),
}
"""Worlds by name: description and settings. Each runs with and without a deadline, the median of all durations."""

FEDCS_SECONDS = {"fmnist-2spc": 150.0, "fmnist-dir": 140.0}
"""Deadline of FedCS: the mean over seeds of the median duration, rounded."""

OVER_SELECTED = f"{BASELINE} over-select=1.3"
TIMED_OORT = "oort system=clock"


def worlds(setting: Setting) -> dict[str, tuple[str, dict[str, Config]]]:
    """Return the title and the rows of each world of a setting, by the name of its part."""
    found: dict[str, tuple[str, dict[str, Config]]] = {}
    for name, (words, changes) in WORLDS.items():
        for suffix, title, deadline in (("", words, None), ("-deadline", f"{words}, deadline", DEADLINE)):
            rows = {row: config.replace(**changes, deadline=deadline) for row, config in _rows(setting).items()}
            found[f"{PREFIX}{name}{suffix}-{setting.name}"] = f"{setting.title}: {title}", rows
    return found


def _rows(setting: Setting) -> dict[str, Config]:
    random = settings.configuration(setting, Contender(BASELINE))
    rows = {BASELINE: random, OVER_SELECTED: random.replace(over_select=1.3)}
    rows["fedcs"] = random.replace(algo="fedcs", algo_args={"round_seconds": FEDCS_SECONDS[setting.name]})
    rows["tifl"] = random.replace(algo="tifl")
    rows[TIMED_OORT] = random.replace(algo="oort", algo_args={"system": "clock"})
    return rows | {algo: settings.configuration(setting, Contender(algo)) for algo in reversed(CORE)}


def has_results(tables: Mapping[str, Standings]) -> bool:
    """Return whether there are results of any world."""
    return any(name.startswith(PREFIX) for name in tables)


def markdown(found: Mapping[str, Held], tables: Mapping[str, Standings]) -> str:
    """Return the page: the sentences that the rules above decide, and one table per setting."""
    page = ["# Which leads survive slow devices?", _ABOUT, "![leads in seconds](leads_in_seconds.png)"]
    for name in SETTINGS:
        parts = [part for part in tables if part.startswith(PREFIX) and part.endswith(name)]
        if not parts:
            continue
        rows = list(dict.fromkeys(row.name for part in parts for row in tables[part].rows if row.name != BASELINE))
        page += [f"## {settings.SETTINGS[name].title}", *_sentences(name, parts, tables)]
        headings = [f"[{_world(part, name)}](../{part}/README.md)" for part in parts]
        lines = ["| | no clock | " + " | ".join(headings) + " |", "|---|---|" + "---|" * len(parts)]
        for row in rows:
            cells = [_lead(tables.get(name), "last_rounds_accuracy", row)]
            cells += [_lead(tables[part], "accuracy_at_equal_seconds", row) for part in parts]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        page.append("\n".join(lines))
        seconds = (f"{_world(part, name)} {tables[part].shared.seconds:,.0f}" for part in parts)
        page.append(f"Equal seconds: {'; '.join(seconds)}.")
        missing = [part for part in worlds(settings.SETTINGS[name]) if part not in parts]
        for row in dict.fromkeys(row for part in parts for row in found[part].about["planned"]):
            without = [_world(part, name) for part in parts
                       if row in found[part].about["planned"] and row not in found[part].about["rows"]]  # fmt: skip
            missing += [row if len(without) == len(parts) else f"{row} ({'; '.join(without)})"] if without else []
        if missing:
            page.append(f"**Not run yet:** {', '.join(missing)}.")
    return "\n\n".join([*page, _LEGEND]) + "\n"


def leads(tables: Mapping[str, Standings]) -> dict[str, dict[str, dict[str, tuple[float, float, float]]]]:
    """Return lead and interval by setting, world and row, for the picture."""
    return {
        settings.SETTINGS[name].title: {
            _world(part, name): {
                pair.row: (pair.found.difference, pair.found.low, pair.found.high)
                for pair in tables[part].pairs
                if pair.measure == "accuracy_at_equal_seconds"
            }
            for part in tables
            if part.startswith(PREFIX) and part.endswith(name)
        }
        for name in SETTINGS
        if any(part.startswith(PREFIX) and part.endswith(name) for part in tables)
    }


_ABOUT = f"""Each client has a phone of one of three classes: 6 % are fast, 44 % need 3.3 times as long, and 50 % need
9.2 times as long. Shares, speeds and links are those of FLASH, with its FEMNIST model. The jitter's sigma is
{PHONES["jitter"]}. Model, data and seeds are those of the [papers' setting](../README.md). Its MLP is smaller than
FLASH's model, so only ratios of seconds have a meaning.

The rules were written before the runs. A strategy **leads in seconds** if its accuracy at equal seconds is better than
that of random selection in the same world. A lead **survives** if it is also better without a clock."""
_LEGEND = f"""Cells are differences to random selection with the same seed: without a clock, of the accuracy of the last
ten rounds; in a world, of the accuracy at equal seconds. Bold: better or worse; the rows of a world are one family
of tests. Equal seconds are the smallest total of any row and seed. The deadline is the clients' median duration.
FedCS's own deadline is {" and ".join(f"{one:g} s" for one in FEDCS_SECONDS.values())}, close to that median.
*labels*: the clients with the later labels are slow. *daily*: half of the clients are available on average, by the hour
and their main label."""


def _world(part: str, setting: str) -> str:
    return part.removeprefix(PREFIX).removesuffix(f"-{setting}").replace("-", ", ")


def _lead(table: Standings | None, measure: str, row: str) -> str:
    found = [pair.found for pair in table.pairs if (pair.measure, pair.row) == (measure, row)] if table else []
    if not found:
        return ""
    words = f"{found[0].difference:+.3f}"
    return f"**{words}**" if found[0].is_significant else words


def _sentences(name: str, parts: list[str], tables: Mapping[str, Standings]) -> list[str]:
    """Return the sentences decided by the rules, as a list item per world."""
    board, lines = tables.get(name), []
    before = {
        row.name for row in board.rows if board.verdict("last_rounds_accuracy", row.name) == statistics.BETTER
    } if board else set()  # fmt: skip
    for part in parts:
        table = tables[part]
        means = {row.name: float(np.mean(row.numbers["accuracy_at_equal_seconds"])) for row in table.rows}
        ahead = [row for row in means if table.verdict("accuracy_at_equal_seconds", row) == statistics.BETTER]
        ahead.sort(key=means.__getitem__, reverse=True)
        survive = [row for row in means if row in before and row in ahead]
        lost = [row for row in means if row in before and row not in ahead]
        words = f"ahead of random selection: {', '.join(ahead) or 'none'}"
        if board:
            words += f"; leads that survive: {', '.join(survive) or 'none'}; that do not: {', '.join(lost) or 'none'}"
        lines.append(f"* **{_world(part, name)}**: {words}.")
    return ["\n".join(lines)]
