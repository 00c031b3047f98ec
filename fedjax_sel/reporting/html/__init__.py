"""The self-contained HTML page of one or several runs."""

import base64
import datetime
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from fedjax_sel.errors import UserError
from fedjax_sel.reporting import comparison
from fedjax_sel.reporting.comparison import Pair
from fedjax_sel.reporting.html import content
from fedjax_sel.reporting.html.content import Chapter, Run, short
from fedjax_sel.reporting.plots import styles_of
from fedjax_sel.runs import run_files
from fedjax_sel.version import __version__

STYLES = ("page.css",)
SCRIPTS = ("state.js", "theme.js", "plots.js", "curves.js", "pairs.js", "clients.js", "inside.js", "controls.js")
"""The scripts in execution order."""


def plotly() -> str:
    """Return the full plotly.js, since the package has no smaller bundle."""
    try:
        from plotly.offline import get_plotlyjs  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError("--html: the package plotly is missing; run pip install 'fedjax-sel[html]'") from error
    return get_plotlyjs()


def own_file(names: tuple[str, ...]) -> str:
    """Return the concatenated files from this package's `static` folder."""
    place = resources.files("fedjax_sel.reporting.html") / "static"
    return "\n".join((place / name).read_text(encoding="utf-8") for name in names)


def table(head: Sequence[str], lines: Iterable[tuple[str, Sequence[str]]], caption: str) -> str:
    """Return a table with one strategy per line, so that the page can hide a strategy's lines."""
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        f'<tr data-run="{escape(run)}"><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in others)
        + "</tr>"
        for run, (first, *others) in lines
    )
    heading = f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
    return f'<div class="wide"><table>{heading}<tbody>{body}</tbody></table></div>'


def results(rows: Sequence[comparison.Row], unfinished: Mapping[str, str]) -> str:
    """Return the table of results and costs of one setting, without empty columns."""
    columns = {head: cells for head, cells in comparison.columns(rows).items() if any(cells)}
    if unfinished:
        columns = {"rounds so far": [unfinished.get(row.algo, "all") for row in rows]} | columns
    lines = [(row.algo, [row.algo, *cells]) for row, cells in zip(rows, zip(*columns.values()))]
    return table(["strategy", *columns], lines, "Results and costs per strategy: mean ± standard deviation over seeds")


def differences(pairs: Sequence[Pair]) -> str:
    """Return the table of paired differences in one measure."""
    head = [f"strategy minus {pairs[0].baseline}", "difference", "interval", "p after Holm", "verdict"]
    lines = [(pair.algo, [pair.algo, *comparison.texts_of(pair)]) for pair in pairs]
    few = comparison.too_few_seeds(pairs)
    return table(head, lines, pairs[0].words) + (f"<p>{escape(few)}</p>" if few else "")


def section(chapter: Chapter) -> str:
    """Return the HTML of the section for one setting."""
    config = chapter.runs[0].result.config.to_json()
    config["selection"].pop("algo")
    config["selection"].pop("algo_args")
    config["run"].pop("out")
    text = json.dumps(config, indent=2)
    link = "data:application/json;base64," + base64.b64encode((text + "\n").encode()).decode()
    algos = shlex.join(content.name_of(run.result) for run in chapter.runs)
    command = f"fedjax-sel compare --config config.json --algos {algos} --out runs/again"
    return (
        "<p>To repeat these runs, save the configuration as <code>config.json</code> "
        f'(<a download="config.json" href="{link}">download</a>), and run:</p>'
        f'<pre class="command">{escape(command)}</pre>'
        f"<details><summary>config.json</summary><pre>{escape(text)}</pre></details>" + _origins(chapter)
    )


def _origins(chapter: Chapter) -> str:
    """Return each run's folder, command, versions, devices and commit as HTML."""
    parts = []
    for run in chapter.runs:
        environment = run_files.read_json(run.path / run_files.ENVIRONMENT)
        environment = environment if isinstance(environment, dict) else {}
        command, devices = environment.get("command"), environment.get("devices")
        lines = {
            "folder": str(run.path),
            "command": shlex.join(map(str, command)) if isinstance(command, list) else "",
            "versions": _versions(environment),
            "devices": ", ".join(map(str, devices)) if isinstance(devices, list) else "",
            "commit": str(environment.get("commit") or ""),
        }
        listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in lines.items() if text)
        parts.append(
            f'<details data-run="{escape(run.name)}"><summary>{escape(run.name)}</summary><dl>{listed}</dl></details>'
        )
    return "<h4>Provenance of each run</h4>" + "".join(parts)


def _versions(environment: dict[str, Any]) -> str:
    packages = environment.get("packages")
    versions = {"fedjax_sel": environment.get("fedjax_sel"), "Python": environment.get("python")}
    versions |= packages if isinstance(packages, dict) else {}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


MOST_LABELS = 200_000  # label counts of all seeds; above it, the page has only the counts of the first seed

ABOUT_CURVES = """Lines are means over seeds. Choose the band above: plus and minus one sample standard deviation, the
95 % interval of the mean (Student's t), or the range of the seeds. Bands are clipped to the range of the measure.
Smoothed: a running mean over 2 % of the points, for curves with 100 points or more."""


def render(chapters: Sequence[Chapter], refresh: int | None = None) -> str:
    """Return the page as HTML, which reloads every `refresh` seconds."""
    styles = styles_of(run.name for chapter in chapters for run in chapter.runs)
    pairs = [_pairs(chapter) for chapter in chapters]
    about = {
        "refresh": refresh,
        "styles": {
            name: {"light": style.color, "dark": style.on_black, "dash": style.dash} for name, style in styles.items()
        },
        "settings": [_chapter_as_json(chapter, own) for chapter, own in zip(chapters, pairs)],
    }
    sections = "".join(
        _chapter(number, chapter, pairs[number], len(chapters)) for number, chapter in enumerate(chapters)
    )
    made = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    title = "Comparison of client selection" if len(styles) > 1 else f"Client selection: {next(iter(styles))}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{own_file(STYLES)}</style></head><body>"
        f"<header><h1>{escape(title)}</h1><p>Created {made} by fedjax_sel {escape(__version__)}"
        f"{_names_of_settings(chapters)}</p></header>"
        f'<nav id="controls" aria-label="Display options"></nav><main>{sections}</main>'
        "<noscript><p>The plots need JavaScript; the tables do not.</p></noscript>"
        f'<script type="application/json" id="report">{_inlined(json.dumps(about, separators=(",", ":")))}</script>'
        f"<script>{plotly()}</script><script>{own_file(SCRIPTS)}</script></body></html>\n"
    )


def _inlined(text: str) -> str:
    """Return JSON with escaped characters that could end the surrounding script element."""
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _names_of_settings(chapters: Sequence[Chapter]) -> str:
    if len(chapters) == 1:
        return ""
    links = "".join(f'<li><a href="#setting-{i}">{escape(one.title)}</a></li>' for i, one in enumerate(chapters))
    return f" from runs in {len(chapters)} settings, which are not comparable:</p><ol>{links}</ol><p>"


def _chapter_as_json(chapter: Chapter, pairs: list[list[Pair]]) -> dict[str, Any]:
    first, labels = chapter.runs[0].result, chapter.labels
    if labels is not None and labels.size > MOST_LABELS:
        labels = labels[:1]
    return {
        "target": first.config.run.target_accuracy,
        "measure": first.test_measure,
        "words": first.measure_in_words,
        "clients": first.config.partition.num_clients,
        "seeds": list(first.seeds),
        "labels": None if labels is None else [short(one) for one in labels],
        "classes": 0 if labels is None else labels.shape[2],
        "runs": [_run_as_json(run) for run in chapter.runs],
        "pairs": [
            {"words": own[0].words, "baseline": own[0].baseline, "pairs": [_pair(pair) for pair in own]}
            for own in pairs
        ],
    }


def _run_as_json(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "rounds": run.result.num_rounds,
        "block": content.block(run.result.num_rounds),
        "seeds": len(run.result.seeds),
        "at": content.places(run.result),
        "curves": content.curves(run),
        "counts": content.counts(run),
        "clients": content.clients(run),
        "cohorts": content.cohorts(run),
        "inside": [content.as_json(one) for one in run.insides],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    found = pair.found
    numbers = [None] * 3 if found is None else short([found.difference, found.low, found.high])
    return {"name": pair.algo, "numbers": numbers, "verdict": "" if found is None else found.verdict}


def _pairs(chapter: Chapter) -> list[list[Pair]]:
    """Return the paired differences of finished runs, by measure."""
    done = [run for run in chapter.runs if run.result.finished]
    if len(done) < 2:
        return []
    rows = [comparison.row("", run.name, run.result) for run in done]
    found: dict[str, list[Pair]] = {}
    for pair in comparison.pairs(rows, [run.result for run in done]):
        found.setdefault(pair.measure, []).append(pair)
    return list(found.values())


def _chapter(number: int, chapter: Chapter, pairs: list[list[Pair]], of: int) -> str:
    rows = _rows(chapter)
    unfinished = {
        run.name: f"{run.result.num_rounds} of {run.result.config.run.rounds}"
        for run in chapter.runs
        if not run.result.finished
    }
    differs = f"<p>Differences from the first setting: {escape(chapter.differs)}.</p>" if chapter.differs else ""
    parts = [
        ("Curves", f"<p>{escape(ABOUT_CURVES)}</p>" + _plots(number, "curves", "curves")),
        (
            "Results and costs",
            results(rows, unfinished)
            + f'<p class="note">{escape(comparison.NOTES)}</p>'
            + (f'<p class="note">{escape(comparison.NOTES_ON_SECONDS)}</p>' if comparison.has_clock(rows) else "")
            + _plots(number, "pairs", "two" if pairs else "")
            + "".join(map(differences, pairs))
            + (f'<p class="note">{escape(comparison.NOTES_ON_PAIRS)}</p>' if pairs else "")
            + ("<p>Paired differences appear once two runs are finished.</p>" if not pairs and len(rows) > 1 else ""),
        ),
        ("Client selection", _plots(number, "selection", "two") + _plots(number, "cohorts", "")),
    ]
    if chapter.labels is not None:
        parts.append(("Labels per client", _plots(number, "labels", "")))
    if any(run.clients is not None for run in chapter.runs):
        parts.append(("Performance per client", _plots(number, "served", "")))
    if any(run.insides for run in chapter.runs):
        parts.append(("Strategy state", _plots(number, "inside", "")))
    parts.append(("Reproduction", section(chapter)))
    if chapter.left_out:
        parts.append(("Left out", "".join(f"<p>{escape(text)}</p>" for text in chapter.left_out)))
    body = "".join(f"<section><h3>{heading}</h3>{text}</section>" for heading, text in parts)
    heading = f"{number + 1}. {chapter.title}" if of > 1 else chapter.title
    rounds = f"{chapter.runs[0].result.config.run.rounds} rounds"
    return f'<article id="setting-{number}"><h2>{escape(heading)}; {rounds}</h2>{differs}{body}</article>'


def _rows(chapter: Chapter) -> list[comparison.Row]:
    """Return the table rows, with the measure at equal seconds for finished runs."""
    done = [run for run in chapter.runs if run.result.finished]
    timed = comparison.with_equal_seconds([_row(run) for run in done], [run.result for run in done])
    found = {row.algo: row for row in timed}
    return [found.get(run.name) or _row(run) for run in chapter.runs]


def _row(run: Run) -> comparison.Row:
    """Return a run's table row, without the clients seen if its last cohorts are not saved yet."""
    row, complete = comparison.row("", run.name, run.result), run.cohorts_known == run.result.num_rounds
    return row if complete else row._replace(clients_seen=None, rounds_until_all_seen=None)


def _plots(number: int, kind: str, layout: str) -> str:
    """Return an element that the scripts fill with plots of one kind."""
    return f'<div class="plots {layout}" data-setting="{number}" data-plots="{kind}"></div>'
