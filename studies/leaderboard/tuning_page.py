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
from studies.leaderboard.settings import CORE

PREFIX = "tuned-"
ABOUT = (
    f"Every strategy had {tuning.DRAWS} random draws of its hyperparameters beside its usual settings, on "
    f"{len(tuning.TUNING_SEEDS)} other seeds; what was best there, run on these, and its accuracy minus that of its "
    "usual settings. A strategy whose usual settings were the best is not named."
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
    for algo in CORE:
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
        for algo in CORE
        for place, alternative in enumerate(tuning.RANGES[algo], 1)
        for name, one in alternative.items()
    ]
    about = (
        "An alternative is drawn first, then its parameters; equal draws, and the usual settings, are drawn again. "
        "Random selection has no hyperparameters: its variants are other strategies."
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
    return f"{found[name].about['title']}, minus its usual settings: {listed}." if listed else ""


def of_best(name: str, found: Mapping[str, Held]) -> list[str]:
    """Return the table of a part of best draws: their hyperparameters, and their gains over the default settings.

    Args:
        name: name of the part.
        found: available parts by name.
    """
    tuned, drawn = found[name], found.get(name + DRAWS)
    usual, compared = found.get(name.removeprefix(PREFIX)), gains(name, found)
    rows = {algo: tuned.rows[algo] for algo in CORE if algo in tuned.rows}
    lines = ["| strategy | hyperparameters | tuning seeds | these seeds | minus the usual settings | MB | MB usual |",
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
        f"Every strategy had its usual settings and {tuning.DRAWS} random draws of its hyperparameters on "
        f"{len(tuning.TUNING_SEEDS)} seeds that are not these (random selection has none); what had the highest mean "
        "accuracy of the last ten rounds there was then run here. All accuracies are that mean. That on the tuning "
        f"seeds is the highest of {tuning.DRAWS + 1}, which flatters it; and the test images are the same there and "
        "here, as users' are when they tune on them. What is compared is what this procedure yields: three seeds "
        "choose by chance as well, equal draws search small spaces (`clustered`) whole and those of six numbers "
        "(`fedcor`, `fedgp`) hardly, and gains of two strategies are not compared with each other. Bytes "
        "are not looked at where the best draw is chosen: a tuned strategy may send more. Where the usual settings "
        "were the best, nothing is compared."
    )
    if drawn is not None and (gone := [algo for algo in CORE if algo not in tuned.about["planned"]]):
        about += f" All draws failed, and there is no row, of {', '.join(gone)}."
    return ["## What was drawn", about, "\n".join(lines)]


def _megabytes(series: Series) -> str:
    return f"{series.megabytes[:, -1].mean():.0f}"


def in_words(arguments: Mapping[str, object]) -> str:
    """Return hyperparameters in command-line notation."""
    return ", ".join(f"{name}={value}" for name, value in arguments.items()) or "usual"
