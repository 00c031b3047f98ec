"""The self-contained HTML page of one or several runs: its content, which `templates/page.html` lays out."""

import base64
import dataclasses
import datetime
import functools
import itertools
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

from fedjax_sel import metrics
from fedjax_sel.config import NOT_OF_THE_TRAJECTORY, is_value
from fedjax_sel.core import plugins
from fedjax_sel.errors import UserError
from fedjax_sel.reporting import comparison, plots
from fedjax_sel.reporting.comparison import Pair
from fedjax_sel.reporting.plots import styles_of
from fedjax_sel.runs import folder, reading, run_files, sweep
from fedjax_sel.runs.run_files import Result
from fedjax_sel.version import __version__

DIGITS = 5


def short(values: Any) -> list[float | None]:
    """Return numbers [...], flattened, with five significant digits; None for non-finite values."""
    return [_short(value) for value in np.asarray(values, np.float64).ravel().tolist()]


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


# Fields that runs of one setting may differ in. `eval_every` is not among them: the rounds to a target depend on it.
NOT_OF_THE_SETTING = (NOT_OF_THE_TRAJECTORY - {"max_seconds", "rounds"}) | {
    "algo", "algo_args", "chunk", "cohort_batch", "train_metrics_every",
}  # fmt: skip
DATA_AND_PARTITION = "data or partition"


class Run(NamedTuple):
    """One run of a chapter."""

    name: str
    path: Path
    result: Result


class Chapter(NamedTuple):
    """The runs of one setting, under one heading."""

    title: str
    differs: str  # difference from the first setting; empty for the first one
    runs: list[Run]

    @property
    def results(self) -> dict[str, Result]:
        """The results by the runs' names."""
        return {run.name: run.result for run in self.runs}


def chapters_of(folders: Sequence[Path], target: float | None = None) -> list[Chapter]:
    """Read runs, and group them by setting in the given order; `target` replaces the targets of the runs.

    Raises UserError if a folder has no readable run, or a run has no rounds.
    """
    found: list[tuple[dict[str, Any], dict[Path, Result]]] = []
    read = {}
    for path in folders:
        if folder.has_no_round(path):
            raise UserError(f"{path}: the run has no complete round yet; wait for one, or leave it out")
        read[path] = reading.load(path)
    settings = {path: _setting_of(path, result) for path, result in read.items()}
    for path, result in read.items():
        own = {read[other].config.run.target_accuracy for other, one in settings.items() if one == settings[path]}
        targets = {target} if target is not None else own - {None}
        if len(targets) == 1:  # a comparison may have had none at first
            result = dataclasses.replace(result, config=result.config.replace(target_accuracy=min(targets)))
        conditions = settings[path] | {"target_accuracy": result.config.run.target_accuracy}
        same = next((results for earlier, results in found if earlier == conditions), None)
        if same is None:
            found.append((conditions, same := {}))
        same[path] = result
    chapters = []
    for conditions, results in found:
        runs = named(results)
        title = plots.title(runs[0].result.config, runs[0].result.data_source)
        chapters.append(Chapter(title, _difference(found[0][0], conditions), runs))
    return chapters


def _setting_of(path: Path, result: Result) -> dict[str, Any]:
    """Return what runs of one setting share, without the target."""
    setting = {name: value for name, value in result.config.meant().items() if name not in NOT_OF_THE_SETTING}
    # The configuration does not determine the data: the server's share may depend on the strategy, and one data set
    # name may have several sources.
    digests = json.dumps(folder.made_from(path), sort_keys=True)
    return setting | {"data source": result.data_source, DATA_AND_PARTITION: digests}


def named(results: Mapping[Path, Result]) -> list[Run]:
    """Return runs, given by folder, named by strategy and parameters, or by folder where such names are equal."""
    names = [name_of(result) for result in results.values()]
    return [
        Run(name if names.count(name) == 1 else str(path), path, result)
        for name, (path, result) in zip(names, results.items())
    ]


def name_of(result: Result) -> str:
    """Return a run's strategy with its parameters in brackets."""
    chosen = result.config.selection
    return sweep.label(chosen.algo, dict(chosen.algo_args))


def runs_in(path: Path) -> list[Path]:
    """Return the run folders at a path: the path itself, or the run folders in it, ordered by name."""
    if not path.is_dir() or folder.holds_run(path):
        return [path]
    deeper = [found for depth in ("*", "*/*", "*/*/*") for found in sorted(path.glob(depth)) if found.is_dir()]
    current = (found for found in deeper if not folder.is_aside(found.relative_to(path)))
    return [found for found in current if folder.holds_run(found)] or [path]


def _difference(first: dict[str, Any], here: dict[str, Any]) -> str:
    changed = [name for name, value in here.items() if value != first[name]]
    if changed == [DATA_AND_PARTITION]:
        return f"{DATA_AND_PARTITION} (the SHA-256 differs)"
    return "; ".join(f"{name} {here[name]!r}, not {first[name]!r}" for name in changed if name != DATA_AND_PARTITION)


MOST_PLACES = 1000


def block(rounds: int) -> int:
    """Return the number of rounds per point of a curve."""
    return -(-rounds // MOST_PLACES)


def places(result: Result) -> dict[str, Any]:
    """Return the horizontal coordinates of the points, each at the end of its last round.

    Megabytes are means over seeds for both directions, including queries before the first round. Seconds exclude
    compilation: rounds of a chunk with compilation count as the mean of the other rounds. Simulated seconds are means
    over seeds.
    """
    width = block(result.num_rounds)
    ends = np.minimum(np.arange(width, result.num_rounds + width, width), result.num_rounds)
    each = np.asarray(result.round_seconds, np.float64)
    known = ~np.isnan(each)
    steady = len(each) == result.num_rounds and bool(known.any())
    seconds = np.where(known, each, each[known].mean()).cumsum() if steady else result.elapsed_seconds
    timed = {"simulated seconds": short(plots.x_of(result, "seconds")[ends - 1])} if result.has_clock else {}
    return {
        "round": ends.tolist(),
        "megabytes": short(plots.x_of(result, "megabytes")[ends - 1]),
        "seconds": short(seconds[ends - 1]),
        "steady": steady,
        **timed,
    }


def curves(run: Run) -> dict[str, Any]:
    """Return the run's curves by column, see `over_seeds`; a point without a measurement is None."""
    found = {name: summary(values) for name, values in run.result.measured.items() if not np.isnan(values).all()}
    seen = metrics.clients_seen(run.result.cohorts, run.result.config.num_training_clients).astype(np.float64)
    return found | {"clients_seen": summary(seen)}


def summary(values: np.ndarray) -> dict[str, Any]:
    """Return the curve of a measure [seeds, rounds]; a point for several rounds is the mean of its measured rounds."""
    width = block(values.shape[1])
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, -values.shape[1] % width)), constant_values=np.nan)
    return over_seeds(metrics.mean_of_measured(padded.reshape(len(values), -1, width), axis=2))


def over_seeds(points: np.ndarray) -> dict[str, Any]:
    """Return mean, deviation, minimum and maximum over seeds of values [seeds, points]; NaN if missing."""
    mean, deviation = plots.mean_and_deviation(points)
    low, high = np.fmin.reduce(points, axis=0), np.fmax.reduce(points, axis=0)  # which ignore NaN
    return {"mean": short(mean), "sd": short(deviation), "low": short(low), "high": short(high)}


MOST_RANKS = 400
MOST_IDS = 150_000
"""The maximum per run; longer runs have fewer seeds on the page, and a single seed fewer rounds."""
NO_CLIENT = 65_535


def cohorts(run: Run) -> dict[str, Any] | None:
    """Return the client IDs of the cohorts; None if the IDs exceed two bytes."""
    ids = run.result.cohorts
    if run.result.config.num_training_clients >= NO_CLIENT:
        return None
    seeds = max(1, min(len(ids), MOST_IDS // max(ids[0].size, 1)))
    every = -(-ids[0].size // MOST_IDS)
    kept = ids[:seeds, ::every]
    return {
        "seeds": list(run.result.seeds[:seeds]),
        "of": len(ids),
        "rounds": kept.shape[1],
        "every": every,
        "selected": kept.shape[2],
        "ids": base64.b64encode(kept.astype("<u2").tobytes()).decode(),  # -1 becomes 65535
    }


def counts(run: Run) -> dict[str, Any]:
    """Return the training rounds per client in descending order, for at most `MOST_RANKS` evenly spaced ranks."""
    values = -np.sort(-run.result.selection_counts.astype(np.float64), axis=1)
    ranks = np.unique(np.linspace(0, values.shape[1] - 1, min(values.shape[1], MOST_RANKS)).round().astype(int))
    return {"rank": (ranks + 1).tolist(), **over_seeds(values[:, ranks])}


# The HTML of the page.

SCRIPTS = ("state.js", "theme.js", "plots.js", "curves.js", "pairs.js", "clients.js", "controls.js")
"""The scripts in execution order."""


def plotly() -> str:
    """Return the full plotly.js, since the package has no smaller bundle."""
    return plugins.optional("plotly.offline", "--html", "run pip install 'fedjax-sel[html]'").get_plotlyjs()


def own_file(*names: str) -> str:
    """Return the concatenated files from this package's `static` folder."""
    place = resources.files("fedjax_sel.reporting.html") / "static"
    return "\n".join((place / name).read_text(encoding="utf-8") for name in names)


def _reproduction(chapter: Chapter) -> dict[str, Any]:
    """Return the configuration of a setting, the command that repeats its runs, and the provenance of each run."""
    config = chapter.runs[0].result.config.to_json()
    config["selection"].pop("algo")
    config["selection"].pop("algo_args")
    for field in ("out", "resume", "seeds_at_once", "mesh"):  # of the folder, the number of seeds and the machine
        config["run"].pop(field)
    text = json.dumps(config, indent=2)
    return {
        "config": text,
        "link": "data:application/json;base64," + base64.b64encode((text + "\n").encode()).decode(),
        "command": _command(chapter),
        "origins": {run.name: _origin(run) for run in chapter.runs},
    }


def _command(chapter: Chapter, more: str = "--out runs/again") -> str:
    names = list(dict.fromkeys(name_of(run.result) for run in chapter.runs))
    if any(
        isinstance(text, str) and is_value(text) for text in (*names, *chapter.runs[0].result.config.flat().values())
    ):
        return ""  # Python values have no command
    algos = shlex.join(names)
    return f"fedjax-sel compare --config config.json --algos {algos} {more}"


def _origin(run: Run) -> dict[str, str]:
    """Return a run's folder, command, versions, devices and commit."""
    environment = run_files.read_json(run.path / run_files.ENVIRONMENT)
    versions = {"fedjax_sel": environment.get("fedjax_sel"), "Python": environment.get("python")}
    versions |= environment.get("packages", {})
    lines = {
        "folder": str(run.path),
        "command": shlex.join(environment.get("command", [])),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "devices": ", ".join(environment.get("devices", [])),
        "commit": environment.get("commit"),
    }
    return {name: text for name, text in lines.items() if text}


def render(chapters: Sequence[Chapter]) -> str:
    """Return the page as HTML."""
    styles = styles_of(run.name for chapter in chapters for run in chapter.runs)
    pairs = [_pairs(chapter) for chapter in chapters]
    about = {
        "styles": {
            name: {"light": style.color, "dark": style.on_black, "dash": style.dash} for name, style in styles.items()
        },
        "settings": [_chapter_as_json(chapter, own) for chapter, own in zip(chapters, pairs)],
    }
    return _template().render(
        title="Comparison of client selection" if len(styles) > 1 else f"Client selection: {next(iter(styles))}",
        made=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        chapters=[_in_template(one, own) for one, own in zip(chapters, pairs)],
        notes=comparison,
        style=own_file("page.css"),
        report=about,
        scripts=[plotly(), own_file(*SCRIPTS)],
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedjax_sel.reporting.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template("page.html")


def _chapter_as_json(chapter: Chapter, pairs: list[list[Pair]]) -> dict[str, Any]:
    first = chapter.runs[0].result
    return {
        "target": first.config.run.target_accuracy,
        "measure": first.test_measure,
        "words": first.measure_in_words,
        "clients": first.config.num_training_clients,
        "runs": [_run_as_json(run) for run in chapter.runs],
        "pairs": [
            {"words": own[0].words, "baseline": own[0].baseline, "pairs": [_pair(pair) for pair in own]}
            for own in pairs
            if own[0].measure != comparison.LEADERS
        ],
    }


def _run_as_json(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "rounds": run.result.num_rounds,
        "block": block(run.result.num_rounds),
        "seeds": len(run.result.seeds),
        "at": places(run.result),
        "curves": curves(run),
        "counts": counts(run),
        "cohorts": cohorts(run),
    }


def _pair(pair: Pair) -> dict[str, Any]:
    found = pair.found
    numbers = [None] * 3 if found is None else short([found.difference, found.low, found.high])
    return {"name": pair.algo, "numbers": numbers, "verdict": "" if found is None else found.verdict}


def _line_of_pair(pair: Pair) -> tuple[str, list[str]]:
    return pair.algo, [pair.baseline, *comparison.cells_of(pair.found, comparison.DIGITS[pair.measure])]


def _pairs(chapter: Chapter) -> list[list[Pair]]:
    """Return the paired differences of finished runs, by measure."""
    done = [run for run in chapter.runs if run.result.finished]
    if len(done) < 2:
        return []
    rows = [comparison.row("", run.name, run.result) for run in done]
    pairs = comparison.pairs(rows, [run.result for run in done])
    return [list(own) for _, own in itertools.groupby(pairs, lambda pair: pair.measure)]


def _in_template(chapter: Chapter, pairs: list[list[Pair]]) -> dict[str, Any]:
    """Return the content of one setting for the template."""
    rows, done = _rows(chapter), [run for run in chapter.runs if run.result.finished]
    unfinished = {
        run.name: f"{run.result.num_rounds} of {run.result.config.run.rounds}"
        for run in chapter.runs
        if not run.result.finished
    }
    columns, results = comparison.columns(rows), chapter.results.values()
    if unfinished:
        columns = {"rounds so far": [unfinished.get(row.algo, "all") for row in rows]} | columns
    verdict = comparison.verdict(rows, list(itertools.chain(*pairs)), unfinished)
    again = _command(chapter, f"--seeds {verdict.seeds} --out runs/more") if verdict.seeds else ""
    finished = [row for row in rows if row.algo not in unfinished]
    return {
        "title": chapter.title,
        "rounds": metrics.range_of(one.num_rounds if one.finished else one.config.run.rounds for one in results),
        "last": metrics.range_of(min(metrics.LAST_ROUNDS, one.num_rounds) for one in results),
        "differs": chapter.differs,
        "verdict": verdict,
        "next": again,
        "budgets": comparison.at_equal_budgets(finished, [run.result for run in done]),
        "heads": list(columns),
        "lines": [(row.algo, cells) for row, cells in zip(rows, zip(*columns.values()))],
        "pairs": [(own[0].words, list(map(_line_of_pair, own))) for own in pairs],
        "pair_heads": ["strategy", "minus", *comparison.PAIR_HEADINGS],
        "has_clock": comparison.has_clock(rows),
        "parts": _parts(chapter),
        "reproduction": _reproduction(chapter),
    }


def _parts(chapter: Chapter) -> dict[str, str]:
    """Return the headings of a setting's folded sections, by the kind of their plots."""
    pairs = {"pairs": "Paired differences"} if len(chapter.runs) > 1 else {}
    return {"results": "Results and costs", **pairs, "selection": "Client selection", "reproduction": "Reproduction"}


def _rows(chapter: Chapter) -> list[comparison.Row]:
    """Return the table rows, with the measure at equal seconds for finished runs."""
    rows = {run.name: comparison.row("", run.name, run.result) for run in chapter.runs}
    done = [run for run in chapter.runs if run.result.finished]
    timed = comparison.with_equal_seconds([rows[run.name] for run in done], [run.result for run in done])
    return list((rows | {row.algo: row for row in timed}).values())
