"""Content of the tuning pages: the draws, and the gain from tuning."""

from collections.abc import Mapping

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from fedjax_sel.statistics import Comparison
from studies.boards import measures
from studies.boards.series import Series
from studies.boards.series import Setting as Held
from studies.papers_setting import standings, tuning
from studies.papers_setting.grids import BEST, DRAWS

PREFIX = "tuned-"
ABOUT = (
    f"Each strategy was tuned with {tuning.DRAWS} random draws of its hyperparameters and its default settings, on "
    f"{len(tuning.TUNING_SEEDS)} other seeds. The best of them then ran on these seeds. The table shows its accuracy "
    "minus that of today's default settings; bold is significant. An empty cell means that the default settings were "
    "best. `gpfl` was tuned from `scale=update`, its default at the time; part of its gain is that difference."
)


def is_draws(name: str) -> bool:
    """Return whether a part consists of draws."""
    return name.startswith(PREFIX) and name.endswith(DRAWS)


def of_draws(held: Held) -> list[str]:
    """Return the tables of a part of draws: the final accuracy of each draw, and the ranges.

    Args:
        held: results of the part.
    """
    lines = ["| strategy | draw | hyperparameters | accuracy, last 10 rounds, tuning seeds |", "|---|---|---|---|"]
    for algo in tuning.RANGES:
        found = tuning.accuracy(held, algo)
        highest = max(found.values(), default=0.0)
        for number, value in found.items():
            shown = f"**{value:.3f}**" if value == highest else f"{value:.3f}"
            name = "usual" if number == tuning.USUAL else str(number)
            arguments = held.about["rows"][tuning.row_of_draw(algo, number)]["algo_args"]
            lines.append(f"| {algo} | {name} | {cell(in_words(arguments))} | {shown} |")
    ranges = ["| strategy | alternative | parameter | drawn from |", "|---|---|---|---|"]
    ranges += [
        f"| {algo} | {place} | {name} | {cell(str(one))} |"
        for algo in tuning.RANGES
        for place, alternative in enumerate(tuning.RANGES[algo], 1)
        for name, one in alternative.items()
    ]
    about = (
        "An alternative is drawn first, then its parameters. Repetitions and the default settings are drawn again. "
        "Random selection has no draws, because its variants are other strategies."
    )
    return ["\n".join(lines), "## The ranges", about, "\n".join(ranges)]


def gains(name: str, found: Mapping[str, Held]) -> dict[str, Comparison]:
    """Return the accuracy gain of each strategy's best draw over its default settings, if the two differ.

    Args:
        name: name of a part of best draws.
        found: available parts by name.
    """
    tuned, usual = found[name], found.get(name.removeprefix(PREFIX))
    if usual is None:
        return {}
    pairs = {
        algo: measures.last_rounds(series) - measures.last_rounds(usual.rows[algo])
        for algo, series in tuned.rows.items()
        if algo in usual.rows
        and tuned.about["rows"][algo]["algo_args"]
        != usual.about["rows"][algo]["algo_args"]  # equal hyperparameters are the same runs
        and usual.rows[algo].seeds == series.seeds
        and usual.rows[algo].rounds == series.rounds
    }
    return dict(zip(pairs, statistics.compare(np.stack(list(pairs.values()))))) if pairs else {}


def in_short(found: Mapping[str, Held]) -> str:
    """Return a table of the gains from tuning, one column per setting; empty without comparisons.

    Args:
        found: available parts by name.
    """
    columns = {
        found[name].about["title"].removesuffix(BEST): compared
        for name in found
        if name.startswith(PREFIX) and not is_draws(name) and (compared := gains(name, found))
    }
    lines = ["| strategy | " + " | ".join(map(cell, columns)) + " |", "|---|" + "---|" * len(columns)]
    for algo in tuning.RANGES:
        if any(algo in compared for compared in columns.values()):
            cells = [_gain(compared.get(algo)) for compared in columns.values()]
            lines.append(f"| {algo} | " + " | ".join(cells) + " |")
    return "\n".join(lines) if columns else ""


def _gain(found: Comparison | None) -> str:
    if found is None:
        return ""
    words = f"{found.difference:+.3f}"
    return f"**{words} {found.verdict}**" if found.is_significant else words


def of_best(name: str, found: Mapping[str, Held]) -> list[str]:
    """Return the table of a part of best draws: their hyperparameters, and their gains over the default settings.

    Args:
        name: name of the part.
        found: available parts by name.
    """
    tuned, drawn = found[name], found.get(name + DRAWS)
    usual, compared = found.get(name.removeprefix(PREFIX)), gains(name, found)
    rows = {algo: tuned.rows[algo] for algo in tuning.RANGES if algo in tuned.rows}
    lines = ["| strategy | hyperparameters | tuning seeds | these seeds | minus default | MB | MB default |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for algo, series in rows.items():
        arguments = tuned.about["rows"][algo]["algo_args"]
        tried = tuning.accuracy(drawn, algo) if drawn is not None else {}
        before = f"{np.nanmax(list(tried.values())):.3f}" if tried else ""
        mean = f"{measures.last_rounds(series).mean():.3f}"
        against = standings.difference(compared[algo], 3) if algo in compared else ""
        sent = _megabytes(series)
        usually = _megabytes(usual.rows[algo]) if usual is not None and algo in compared else ""
        lines.append(f"| {algo} | {cell(in_words(arguments))} | {before} | {mean} | {against} | {sent} | {usually} |")
    about = (
        f"Each strategy was tuned with its default settings and {tuning.DRAWS} random draws of its hyperparameters, on "
        f"{len(tuning.TUNING_SEEDS)} other seeds (random selection has none). The draw with the highest accuracy, mean "
        "of the last ten rounds, then ran on these seeds. Its accuracy on the tuning seeds is the highest of "
        f"{tuning.DRAWS + 1} and therefore biased upward. Tuning and comparison use the same test images. With three "
        "tuning seeds, chance also decides. The draws cover small spaces (`clustered`) completely and spaces of six "
        "numbers (`fedcor`, `fedgp`) hardly; gains of two strategies are not compared with each other. The choice "
        "ignores traffic: a tuned strategy may send more. If the default settings were best, nothing is compared. "
        "The draws of `gpfl` start from `scale=update`, the default at the time; the comparison is with today's."
    )
    if drawn is not None and (gone := [algo for algo in tuning.RANGES if algo not in tuned.about["planned"]]):
        about += f" Without a row, because all draws failed or were not run: {', '.join(gone)}."
    return ["## What was drawn", about, "\n".join(lines)]


def _megabytes(series: Series) -> str:
    return f"{series.megabytes[:, -1].mean():.0f}"


def in_words(arguments: Mapping[str, object]) -> str:
    """Return hyperparameters in command-line notation."""
    return ", ".join(f"{name}={value}" for name, value in arguments.items()) or "usual"
