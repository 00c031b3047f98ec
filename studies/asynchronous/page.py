"""Page, tables and picture of the study of asynchronous rounds, from the curves alone."""

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core import files
from fedjax_sel.statistics import BETTER, WORSE, Comparison
from studies.asynchronous import protocol
from studies.asynchronous.protocol import BASELINE, CONCURRENCY, GRIDS, RATES, REFERENCE, SECONDS, TUNED, TUNING, WORLDS
from studies.asynchronous.speeds import FASTEST, SLOWEST
from studies.boards import check as checks
from studies.boards import series
from studies.boards.series import Series, plain
from studies.boards.series import Setting as Held
from studies.papers.page import png_bytes

PICTURE = "seconds.png"
GINI = "gini_of_selections"
WIDE = f"sync-20 {BASELINE}"
SHOWN = ("sync random", "sync-20 random", "deadline random", "late random", "buffer-10 random", "buffer-10 fed_cbs")
"""Rows of the picture."""


class Table(NamedTuple):
    """Measures and comparisons of a world."""

    target: float
    accuracy: dict[str, np.ndarray]  # by row, [seeds]
    seconds: dict[str, np.ndarray]  # to the target, by row, [seeds]
    megabytes: dict[str, float]  # mean over seeds, by row
    gains: dict[str, Comparison]  # accuracy minus that of the reference
    saved: dict[str, Comparison]  # seconds to the target of the reference minus those of the row
    within: dict[str, Comparison]  # accuracy minus that of random selection in the same mode

    def speedup(self, row: str) -> float:
        """Return how many times as fast a row reaches the target as the reference, by mean seconds."""
        return float(self.seconds[REFERENCE].mean() / self.seconds[row].mean())


def make_table(rows: Mapping[str, Series], seconds: float = SECONDS) -> Table:
    """Return the table of a world's rows, among them the reference."""
    target = protocol.target_of(rows[REFERENCE])
    accuracy = {name: protocol.accuracy(one, seconds) for name, one in rows.items()}
    until = {name: protocol.seconds_to(one, target, seconds) for name, one in rows.items()}
    others = [name for name in rows if name != REFERENCE]
    gains = statistics.compare(np.stack([accuracy[name] - accuracy[REFERENCE] for name in others])) if others else []
    saved = statistics.compare(np.stack([until[REFERENCE] - until[name] for name in others])) if others else []
    pairs = {name: f"{name.split()[0]} {BASELINE}" for name in rows if not name.endswith(BASELINE)}
    pairs = {name: baseline for name, baseline in pairs.items() if baseline in rows}
    differences = [accuracy[name] - accuracy[baseline] for name, baseline in pairs.items()]
    within = dict(zip(pairs, statistics.compare(np.stack(differences)))) if pairs else {}
    megabytes = {
        name: float(np.where(one.time <= seconds, one.megabytes, 0.0).max(axis=1).mean()) for name, one in rows.items()
    }
    return Table(target, accuracy, until, megabytes, dict(zip(others, gains)), dict(zip(others, saved)), within)


def _worlds(out: Path) -> dict[str, Held]:
    found = {name: series.read(out / name) for name in WORLDS}
    return {name: held for name, held in found.items() if held is not None and REFERENCE in held.rows}


def pages(out: Path) -> dict[str, str]:
    """Return the texts of all pages and tables, by path in the results folder."""
    worlds = _worlds(out)
    if not worlds:
        return {}
    tables = {name: make_table(held.rows) for name, held in worlds.items()}
    parts = ["# Rounds that wait and rounds that do not", INTRODUCTION, _headline(worlds, tables)]
    parts.append(f"![accuracy against seconds]({PICTURE})")
    for name, held in worlds.items():
        parts += [f"## {GRIDS[name].title}", _markdown(held, tables[name])]
        missing = [row for row in GRIDS[name].rows if row not in held.rows]
        parts += [f"Not run: {', '.join(missing)}."] if missing else []
        parts.append("```\n" + "\n".join(held.about.get("commands", [])) + "\n```")
    if (tuning := series.read(out / TUNING)) is not None:
        parts += ["## Learning rates of the server", _rates(tuning)]
    if missing := [name for name in WORLDS if name not in worlds]:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    texts = {f"{name}/table.csv": _as_csv(tables[name], worlds[name]) for name in worlds}
    return texts | {"README.md": "\n\n".join(parts) + "\n"}


INTRODUCTION = f"""Fashion-MNIST, two labels per client, 100 clients; {SECONDS:g} simulated seconds, which are about 70
synchronous rounds of five clients. The [protocol](../../studies/asynchronous/protocol.py) was committed before the
runs. `buffer-M`: 20 clients train at any time, a step after M reports. *Gain*: accuracy in the last tenth of the
seconds minus that of synchronous random selection, paired by seed. *Over random*: minus that of random selection in the
same mode. *Times as fast*: mean seconds to synchronous random selection's accuracy, rounded down to a whole percent; a
seed that misses it counts all seconds. Bold: significant (one joint test per column, family-wise error of 5 %). *Gini*:
of the clients' numbers of selections; it falls with the number of selections. *Fastest*, *slowest*: share of the
selections that go to this class of devices, divided by its share of the clients."""


def _headline(worlds: Mapping[str, Held], tables: Mapping[str, Table]) -> str:
    lines = []
    for name, table in tables.items():
        buffered = [row for row in worlds[name].rows if row.startswith("buffer") and row.endswith(BASELINE)]
        if not buffered or WIDE not in worlds[name].rows:
            continue
        fastest = max(buffered, key=table.speedup)
        lines.append(
            f"* **{name}**: `{fastest}` reaches {table.target:.2f} {table.speedup(fastest):.1f} times as fast as "
            f"synchronous rounds of 5 clients ({_verdict(table.saved[fastest])}); gain {_gain(table.gains[fastest])}. "
            f"Synchronous rounds of {CONCURRENCY} are {table.speedup(WIDE):.1f} times as fast. The fastest class has "
            f"{_share(worlds[name], fastest, FASTEST)} times its share of the selections, the slowest "
            f"{_share(worlds[name], fastest, SLOWEST)}."
        )
    return "\n".join(lines)


def _verdict(one: Comparison) -> str:
    return {BETTER: "significant", WORSE: "significantly slower"}.get(one.verdict, "not significant")


def _mean(about: Mapping[str, Any]) -> float:
    return float(np.mean(about["fairness"][GINI])) if GINI in about.get("fairness", {}) else np.nan


def _share(held: Held, row: str, kind: str) -> str:
    found = held.about["rows"][row].get(kind)
    return "" if found is None else f"{np.mean(found):.2f}"


def _gain(one: Comparison | None) -> str:
    if one is None:
        return ""
    return f"**{one.difference:+.3f}**" if one.is_significant else f"{one.difference:+.3f}"


def _markdown(held: Held, table: Table) -> str:
    lines = [
        "| mode | strategy | accuracy | gain | leads in | over random | times as fast | steps | MB | Gini | fastest | "
        "slowest |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in held.rows.items():
        mode, algo = name.split()
        gain = table.gains.get(name)
        faster = f"{table.speedup(name):.1f}"
        if name in table.saved and table.saved[name].is_significant:
            faster = f"**{faster}**"
        steps = (one.time <= SECONDS).sum(axis=1).mean()
        cells = [
            mode, algo, f"{table.accuracy[name].mean():.3f}", _gain(gain),
            "" if gain is None else f"{gain.leads} of {gain.seeds}", _gain(table.within.get(name)), faster,
            f"{steps:.0f}", f"{table.megabytes[name]:.0f}", f"{_mean(held.about['rows'][name]):.2f}",
            _share(held, name, FASTEST), _share(held, name, SLOWEST),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _rates(tuning: Held) -> str:
    best = protocol.best_rates(tuning)
    lines = ["| mode | " + " | ".join(f"{rate:g}" for rate in RATES) + " |", "|---|" + "---|" * len(RATES)]
    for mode in TUNED:
        cells = []
        for rate in RATES:
            held = tuning.rows.get(f"{mode} server={rate:g}")
            shown = "diverged" if held is None else f"{protocol.accuracy(held).mean():.3f}"
            cells.append(f"**{shown}**" if rate == best[mode] else shown)
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    edges = [f"{mode} ({rate:g})" for mode, rate in best.items() if rate in (RATES[0], RATES[-1])]
    note = f"At an end of the grid: {', '.join(edges)}." if edges else "No best rate is at an end of the grid."
    return "\n".join([*lines, "", f"Accuracy on tuning examples. Bold rates are used. {note}"])


def _as_csv(table: Table, held: Held) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    of_pairs = [f"{what}_{field}" for what in ("gain", "saved", "within") for field in Comparison._fields]
    writer.writerow(
        ["row", "mode", "strategy", "accuracy", "seconds_to_target", "times_as_fast", "megabytes", "gini", *of_pairs]
    )
    for name in held.rows:
        numbers = (
            table.accuracy[name].mean(), table.seconds[name].mean(), table.speedup(name), table.megabytes[name],
            _mean(held.about["rows"][name]),
        )  # fmt: skip
        pairs = [
            value for found in (table.gains, table.saved, table.within)
            for value in (found[name] if name in found else [None] * len(Comparison._fields))
        ]  # fmt: skip
        writer.writerow([name, *name.split(), *map(plain, (*numbers, *pairs))])
    return text.getvalue()


def write(out: Path, changed: Collection[str] | None = None) -> list[str]:
    """Write page, tables and picture; return the parts with results. `changed` is unused."""
    del changed
    for name, text in pages(out).items():
        files.write(out / name, text.encode())
    if worlds := _worlds(out):
        files.write(out / PICTURE, picture(worlds))
    return [name for name in GRIDS if series.read(out / name) is not None]


def check(out: Path) -> list[str]:
    """Return a line per file that does not follow from its curves, and per part with a run older than the protocol."""
    return checks.differences(out, pages(out), Path(protocol.__file__), GRIDS)


def picture(worlds: Mapping[str, Held]) -> bytes:
    """Return the picture of accuracy against seconds as PNG: a panel per world, the mean over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(worlds) + 1.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(worlds), sharey=True, squeeze=False)[0]
    grid = np.linspace(0.0, SECONDS, 121)[1:]
    for axes, (name, held) in zip(panels, worlds.items()):
        for color, row in enumerate(row for row in SHOWN if row in held.rows):
            one = held.rows[row]
            held_values = [
                np.interp(grid, time[~np.isnan(values)], values[~np.isnan(values)])
                for time, values in zip(one.time, one.test_accuracy)
            ]
            axes.plot(grid, np.mean(held_values, axis=0), color=f"C{color}", linewidth=1.2, label=row)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("simulated seconds")
    panels[0].set_ylabel("test accuracy, mean over seeds")
    handles = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels())}
    figure.legend(handles.values(), handles, loc="outside right center", fontsize=8)
    return png_bytes(figure)
