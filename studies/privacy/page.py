"""Page, table and picture of the study of privacy, from the curves alone."""

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core import files
from fedjax_sel.statistics import BETTER, Comparison
from studies.boards import check as checks
from studies.boards import measures, series
from studies.boards.series import Series, plain
from studies.papers.page import png_bytes
from studies.privacy import protocol
from studies.privacy.protocol import ALGOS, BASELINE, CLIENT, EPSILONS, GRIDS, row

PICTURE = "gains.png"
NO_NOISE = np.inf


class Table(NamedTuple):
    """Comparisons with random selection in one part."""

    baseline: float  # accuracy of random selection
    found: dict[tuple[str, float], Comparison]  # (strategy, epsilon); infinite without noise


def make_table(without: Mapping[str, Series], noisy: Mapping[str, Series]) -> Table:
    """Return the table of a part.

    Args:
        without: rows without noise, among them random selection.
        noisy: rows with noise.
    """
    base = measures.last_rounds(without[BASELINE])
    rows = {(algo, NO_NOISE): without[algo] for algo in ALGOS if algo in without}
    rows |= {(algo, one): noisy[row(algo, one)] for algo in ALGOS for one in EPSILONS if row(algo, one) in noisy}
    rows = {name: one for name, one in rows.items() if (name[0], NO_NOISE) in rows and _has_noisy(name[0], noisy)}
    gains = np.stack([measures.last_rounds(one) - base for one in rows.values()])
    return Table(float(base.mean()), dict(zip(rows, statistics.compare(gains))))


def _has_noisy(algo: str, noisy: Mapping[str, Series]) -> bool:
    return any(row(algo, epsilon) in noisy for epsilon in EPSILONS)


def keeps_lead_to(table: Table, algo: str) -> float | None:
    """Return the smallest epsilon to which a strategy keeps its lead; None without a lead, infinite without noise."""
    kept = None
    for epsilon in (NO_NOISE, *reversed(EPSILONS)):
        one = table.found.get((algo, epsilon))
        if one is None or one.verdict != BETTER:
            break
        kept = epsilon
    return kept


def _tables(out: Path) -> dict[str, Table]:
    tables = {}
    for name in GRIDS:
        setting = name.removesuffix(CLIENT)
        plain_rows = series.read(protocol.LEADERBOARD / protocol.PLAIN.get(setting, setting))
        held = series.read(out / name)
        if held is not None and plain_rows is not None and BASELINE in plain_rows.rows:
            usual = len(next(iter(held.rows.values())).seeds) == len(plain_rows.rows[BASELINE].seeds)
            if usual:  # a trial with fewer seeds has no partner
                tables[name] = make_table(plain_rows.rows, held.rows)
    return tables


def pages(out: Path) -> dict[str, str]:
    """Return the texts of all pages and tables, by path in the results folder."""
    tables = _tables(out)
    if not tables:
        return {}
    parts = ["# What noise for privacy leaves of the gains", INTRODUCTION, f"![gain against epsilon]({PICTURE})"]
    for name, table in tables.items():
        held = series.read(out / name)
        assert held is not None
        parts += [f"## {GRIDS[name].title}", _sentence(table), _markdown(table)]
        missing = [one for one in GRIDS[name].rows if one not in held.rows]
        parts += [f"Not run: {', '.join(missing)}."] if missing else []
        parts.append("```\n" + "\n".join(held.about.get("commands", [])) + "\n```")
    if missing := [name for name in GRIDS if name not in tables]:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    texts = {f"{name}/table.csv": _as_csv(table) for name, table in tables.items()}
    return texts | {"README.md": "\n\n".join(parts) + "\n"}


INTRODUCTION = """Each client has a budget epsilon for all its answers of a run (delta 1e-5); smaller is more private. A
cell has the gain in test accuracy over random selection, mean of the last ten rounds and of the leaderboard's seeds;
bold if significant (one joint test per table, family-wise error of 5 %). `fed_cbs`, `fl_dp3s`, `fedcor` and `pow_d`
hide one example of a client, `clustered` and `hics_fl` all of them, unless the heading says otherwise. The settings are
those of the [leaderboard](../leaderboard/README.md) (color: its first runs), CIFAR-10 is a lossy copy of the images,
and the [protocol](../../studies/privacy/protocol.py) was committed before the runs. The model's training has no
noise."""


def _sentence(table: Table) -> str:
    """Return which strategies keep their lead, and down to which epsilon."""
    by_epsilon: dict[float, list[str]] = {}
    for algo in dict.fromkeys(algo for algo, _ in table.found):
        if (kept := keeps_lead_to(table, algo)) is not None:
            by_epsilon.setdefault(kept, []).append(f"`{algo}`")
    words = [
        f"{', '.join(names)} {'lead' if len(names) > 1 else 'leads'} only without noise"
        if kept == NO_NOISE
        else f"{', '.join(names)} down to epsilon {kept:g}"
        for kept, names in sorted(by_epsilon.items())
    ]
    return f"**Leads that noise leaves: {'; '.join(words) or 'none'}.** Random selection: {table.baseline:.3f}."


def _markdown(table: Table) -> str:
    columns = (NO_NOISE, *reversed(EPSILONS))
    heads = " | ".join("no noise" if one == NO_NOISE else f"{one:g}" for one in columns)
    lines = [f"| epsilon | {heads} |", "|---|" + "---|" * len(columns)]
    for algo in dict.fromkeys(algo for algo, _ in table.found):
        lines.append(f"| {algo} | {' | '.join(_cell(table.found.get((algo, one))) for one in columns)} |")
    return "\n".join(lines)


def _cell(one: Comparison | None) -> str:
    if one is None:
        return ""
    return f"**{one.difference:+.3f}**" if one.is_significant else f"{one.difference:+.3f}"


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["algo", "epsilon", *Comparison._fields])
    for (algo, epsilon), one in table.found.items():
        writer.writerow([algo, plain(epsilon), *map(plain, one)])
    return text.getvalue()


def write(out: Path, changed: Collection[str] | None = None) -> list[str]:
    """Write page, tables and picture; return the parts with results. `changed` is unused."""
    del changed
    texts = pages(out)
    for name, text in texts.items():
        files.write(out / name, text.encode())
    tables = _tables(out)
    if tables:
        files.write(out / PICTURE, picture(tables))
    return [name for name in GRIDS if series.read(out / name) is not None]


def check(out: Path) -> list[str]:
    """Return a line per file that does not follow from its curves, and per part with a run older than the protocol."""
    return checks.differences(out, pages(out), Path(protocol.__file__), GRIDS)


def picture(tables: Mapping[str, Table]) -> bytes:
    """Return the picture of gain against epsilon as PNG: a panel per part, a line per strategy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(tables) + 1.2, 3.4), layout="constrained")
    panels = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    places = {epsilon: place for place, epsilon in enumerate((*EPSILONS, NO_NOISE))}
    for axes, (name, table) in zip(panels, tables.items()):
        for color, algo in enumerate(ALGOS):
            points = {places[one]: found for (who, one), found in table.found.items() if who == algo}
            if not points:
                continue
            at = sorted(points)
            axes.plot(at, [points[one].difference for one in at], color=f"C{color}", linewidth=1, label=algo)
            for one in at:
                filled = points[one].is_significant
                axes.plot(one, points[one].difference, "o", color=f"C{color}", mfc=f"C{color}" if filled else "white")
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_title(name, fontsize=9)
        axes.set_xticks(list(places.values()), [f"{one:g}" for one in EPSILONS] + ["no noise"])
        axes.set_xlabel("epsilon")
    panels[0].set_ylabel("gain in test accuracy (filled: significant)")
    handles = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles, loc="outside right center", fontsize=8)
    return png_bytes(figure)
