"""The HTML page: one self-contained file with its data, scripts and styles."""

import datetime
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from fedjax_sel.reporting import comparison, comparison_pairs
from fedjax_sel.reporting.comparison_pairs import Pair
from fedjax_sel.reporting.html import again, bundle, insides, selections, series, tables
from fedjax_sel.reporting.html.numbers import short
from fedjax_sel.reporting.html.sources import Chapter, Run
from fedjax_sel.reporting.styles import Style, styles_of
from fedjax_sel.version import __version__

MOST_LABELS = 200_000  # label counts of all seeds; above it, the page has only the counts of the first seed

ABOUT_CURVES = """Lines are means over seeds. Choose the band above: plus and minus one sample standard deviation, the
95 % interval of the mean (Student's t), or the range of the seeds. Bands are clipped to the range of the measure.
Smoothed: a running mean over 2 % of the points, for curves with 100 points or more."""


def render(chapters: Sequence[Chapter], refresh: int | None = None) -> str:
    """Return the page as HTML.

    Args:
        chapters: the settings, one chapter each.
        refresh: seconds between reloads in the browser; None without --watch.

    Raises:
        UserError: plotly is not installed.
    """
    styles = styles_of(run.name for chapter in chapters for run in chapter.runs)
    pairs = [_pairs(chapter) for chapter in chapters]
    about = {
        "refresh": refresh,
        "styles": {name: _style(style) for name, style in styles.items()},
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
        f"<title>{escape(title)}</title><style>{bundle.own(bundle.STYLES)}</style></head><body>"
        f"<header><h1>{escape(title)}</h1><p>Created {made} by fedjax_sel {escape(__version__)}"
        f"{_names_of_settings(chapters)}</p></header>"
        f'<nav id="controls" aria-label="Display options"></nav><main>{sections}</main>'
        "<noscript><p>The plots need JavaScript; the tables do not.</p></noscript>"
        f'<script type="application/json" id="report">{_inlined(json.dumps(about, separators=(",", ":")))}</script>'
        f"<script>{bundle.plotly()}</script><script>{bundle.own(bundle.SCRIPTS)}</script></body></html>\n"
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


def _style(style: Style) -> dict[str, str]:
    return {"light": style.color, "dark": style.on_black, "dash": style.dash}


def _chapter_as_json(chapter: Chapter, pairs: list[list[Pair]]) -> dict[str, Any]:
    first = chapter.runs[0].result
    labels = chapter.labels
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
        "block": series.block(run.result.num_rounds),
        "seeds": len(run.result.seeds),
        "at": series.places(run.result),
        "curves": series.curves(run),
        "counts": selections.counts(run),
        "clients": selections.clients(run),
        "cohorts": selections.cohorts(run),
        "inside": [insides.as_json(one) for one in run.insides],
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
    for pair in comparison_pairs.pairs(rows, [run.result for run in done]):
        found.setdefault(pair.measure, []).append(pair)
    return list(found.values())


def _chapter(number: int, chapter: Chapter, pairs: list[list[Pair]], of: int) -> str:
    first = chapter.runs[0].result
    rows = list(map(_row, chapter.runs))
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
            tables.results(rows, unfinished)
            + f'<p class="note">{escape(comparison.NOTES)}</p>'
            + _plots(number, "pairs", "two" if pairs else "")
            + "".join(map(tables.differences, pairs))
            + (f'<p class="note">{escape(comparison.NOTES_ON_PAIRS)}</p>' if pairs else "")
            + _no_pairs(chapter, pairs),
        ),
        ("Client selection", _plots(number, "selection", "two") + _plots(number, "cohorts", "")),
    ]
    if chapter.labels is not None:
        parts.append(("Labels per client", _plots(number, "labels", "")))
    if any(run.clients is not None for run in chapter.runs):
        parts.append(("Performance per client", _plots(number, "served", "")))
    if any(run.insides for run in chapter.runs):
        parts.append(("Strategy state", _plots(number, "inside", "")))
    parts.append(("Reproduction", again.section(chapter)))
    if chapter.left_out:
        parts.append(("Left out", "".join(f"<p>{escape(text)}</p>" for text in chapter.left_out)))
    body = "".join(f"<section><h3>{heading}</h3>{content}</section>" for heading, content in parts)
    heading = f"{number + 1}. {chapter.title}" if of > 1 else chapter.title
    rounds = f"{first.config.run.rounds} rounds"
    return f'<article id="setting-{number}"><h2>{escape(heading)}; {rounds}</h2>{differs}{body}</article>'


def _row(run: Run) -> comparison.Row:
    """Return a run's table row, without the clients seen if its last cohorts are not saved yet."""
    row = comparison.row("", run.name, run.result)
    if run.cohorts_known == run.result.num_rounds:
        return row
    return row._replace(clients_seen=None, rounds_until_all_seen=None)


def _no_pairs(chapter: Chapter, pairs: list[list[Pair]]) -> str:
    if pairs or len(chapter.runs) == 1:
        return ""
    return "<p>Paired differences appear once two runs are finished.</p>"


def _plots(number: int, kind: str, layout: str) -> str:
    """Return an element that the scripts fill with plots of one kind."""
    return f'<div class="plots {layout}" data-setting="{number}" data-plots="{kind}"></div>'
