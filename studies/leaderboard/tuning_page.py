"""Content of the tuning pages: the draws, and the gain from tuning."""

from collections.abc import Mapping

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from fedjax_sel.statistics import Comparison
from studies.leaderboard import measures, standings, tuning
from studies.leaderboard.grids import DRAWS
from studies.leaderboard.series import Series
from studies.leaderboard.series import Setting as Held

PREFIX = "tuned-"
ABOUT = (
    f"Each strategy was tuned with {tuning.DRAWS} random draws of its hyperparameters and its default settings, on "
    f"{len(tuning.TUNING_SEEDS)} other seeds. The best of them then ran on these seeds. The numbers are its accuracy "
    "minus that of the default settings. Strategies whose default settings were best are left out."
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
        algo: measures.last_rounds(series) - measures.last_rounds(usual.rows[row])
        for algo, series in tuned.rows.items()
        if (row := tuning.usual_row(algo)) in usual.rows
        and tuned.about["rows"][algo]["algo_args"]
        != usual.about["rows"][row]["algo_args"]  # equal hyperparameters are the same runs
        and usual.rows[row].seeds == series.seeds
        and usual.rows[row].rounds == series.rounds
    }
    return dict(zip(pairs, statistics.compare(np.stack(list(pairs.values()))))) if pairs else {}


def in_short(name: str, found: Mapping[str, Held]) -> str:
    """Return a sentence on the gains from tuning in a setting; empty without comparisons.

    Args:
        name: name of a part of best draws.
        found: available parts by name.
    """
    by_verdict: dict[str, list[str]] = {}
    for algo, one in gains(name, found).items():
        by_verdict.setdefault(one.verdict, []).append(f"{algo} {one.difference:+.3f}")
    listed = "; ".join(f"{verdict}: {', '.join(algos)}" for verdict, algos in sorted(by_verdict.items()))
    return f"{found[name].about['title']}, minus its default settings: {listed}." if listed else ""


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
        usually = _megabytes(usual.rows[tuning.usual_row(algo)]) if usual is not None and algo in compared else ""
        lines.append(f"| {algo} | {cell(in_words(arguments))} | {before} | {mean} | {against} | {sent} | {usually} |")
    about = (
        f"Each strategy was tuned with its default settings and {tuning.DRAWS} random draws of its hyperparameters, on "
        f"{len(tuning.TUNING_SEEDS)} other seeds (random selection has none). The draw with the highest accuracy, mean "
        "of the last ten rounds, then ran on these seeds. Its accuracy on the tuning seeds is the highest of "
        f"{tuning.DRAWS + 1} and therefore biased upward. Tuning and comparison use the same test images. With three "
        "tuning seeds, chance also decides. The draws cover small spaces (`clustered`) completely and spaces of six "
        "numbers (`fedcor`, `fedgp`) hardly; gains of two strategies are not compared with each other. The choice "
        "ignores traffic: a tuned strategy may send more. If the default settings were best, nothing is compared. "
        "The draws of `gpfl` start from `scale=update`, the default at the time, and are compared with it."
    )
    if drawn is not None and (gone := [algo for algo in tuning.RANGES if algo not in tuned.about["planned"]]):
        about += f" Without a row, because all draws failed or were not run: {', '.join(gone)}."
    return ["## What was drawn", about, "\n".join(lines)]


def _megabytes(series: Series) -> str:
    return f"{series.megabytes[:, -1].mean():.0f}"


def in_words(arguments: Mapping[str, object]) -> str:
    """Return hyperparameters in command-line notation."""
    return ", ".join(f"{name}={value}" for name, value in arguments.items()) or "usual"
