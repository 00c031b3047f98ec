"""A comparison of strategies: tables, paired differences, and the verdict in words."""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel import metrics, statistics
from fedjax_sel.core import files, parsing
from fedjax_sel.core.parsing import cell, markdown_table
from fedjax_sel.experiment.checking import server_sees
from fedjax_sel.runs.run_files import Result
from fedjax_sel.runs.sweep import conditions
from fedjax_sel.statistics import BETTER, WORSE, Comparison, least_pairs

BASELINE = "random"
LAST_ROUNDS_MEASURE, RESTRICTED_ROUNDS = f"last_{metrics.LAST_ROUNDS}_rounds", "rounds_to_target_restricted"
EQUAL_SECONDS, RESTRICTED_SECONDS = "at_equal_seconds", "seconds_to_target_restricted"  # only with a clock
LEADERS = f"{LAST_ROUNDS_MEASURE}_of_leaders"  # pairs of strategies that are better than the baseline
DIGITS = {LAST_ROUNDS_MEASURE: 4, LEADERS: 4, RESTRICTED_ROUNDS: 1, EQUAL_SECONDS: 4, RESTRICTED_SECONDS: 1}


class Pair(NamedTuple):
    """A strategy against the baseline, or a leader against another, under the same conditions, in one measure."""

    setting: str
    optimizer: str  # empty if only one is compared
    algo: str
    baseline: str
    measure: str  # a key of `DIGITS`
    words: str  # display name of the measure
    horizon: float | None  # rounds or seconds of a seed that never reaches the target; None for an uncensored measure
    arrived: float | None  # share of the strategy's seeds that reach the target; None for an uncensored measure
    baseline_arrived: float | None
    found: Comparison | None  # strategy minus baseline; None if a seed of either has no value

    @property
    def conditions(self) -> str:
        """The setting and optimizer; pairs under the same conditions follow one table."""
        return conditions(self.setting, self.optimizer)


class Spread(NamedTuple):
    """A summary of one value per seed; the first three fields are NaN if a seed has no value."""

    mean: float
    deviation: float  # sample standard deviation; NaN for a single seed
    median: float
    reached: int  # seeds with a value
    seeds: int


class Row(NamedTuple):
    """A run's row in the table."""

    setting: str  # the preset
    algo: str  # the strategy and its parameters
    optimizer: str  # the federated optimizer and its parameters; empty if only one is compared
    rounds: int
    target_accuracy: float | None  # target value of the measure
    final: Spread
    last_rounds: Spread  # mean over the last 10 rounds
    rounds_to_target: Spread | None  # None without a target
    megabytes_down_to_target: Spread | None
    megabytes_up_to_target: Spread | None
    megabytes_down: Spread
    megabytes_up: Spread
    gemd: Spread | None  # mean over the rounds with at least one report
    clients_seen: Spread | None  # at the end; None if the last cohorts are not saved yet
    rounds_until_all_seen: Spread | None
    seed_rounds_per_second: float  # wall-clock, all seeds together, without compilation; NaN if unknown
    compilation_seconds: float  # over all processes of the run; NaN if unknown
    measure: str = "accuracy"  # display name of the task's measure
    higher_is_better: bool = True
    target_in_words: str = ""  # e.g. "62% test accuracy"; empty without a target
    seconds_to_target: Spread | None = None  # simulated; None without a target or without a clock
    seconds: Spread | None = None  # total; None without a clock
    at_equal_seconds: Spread | None = None  # test measure at `equal_seconds`; see `with_equal_seconds`
    equal_seconds: float | None = None
    gini_of_selections: Spread | None = None  # of the selection counts; None if the last cohorts are not saved yet
    jain_of_selections: Spread | None = None
    participation_gap: Spread | None = None
    worst_decile: Spread | None = None  # of the clients' training measure; None if it is not measured
    gini_of_clients: Spread | None = None
    jain_of_clients: Spread | None = None
    client_tests: Mapping[str, Spread] = MappingProxyType({})  # final values on the clients' own test data, by name
    server_sees: str = ""  # class of disclosure of the strategy; unknown for plug-ins
    largest_epsilon: Spread | None = None  # of any client at the end; None without --privacy
    privacy_unit: str = "example"

    @property
    def conditions(self) -> str:
        """The setting and optimizer; rows under the same conditions share a table."""
        return conditions(self.setting, self.optimizer)


def pairs(rows: Sequence[Row], results: Sequence[Result]) -> list[Pair]:
    """Return each strategy against `random` under the same conditions, else a variant of it, else the first strategy.

    A family of tests is all strategies under the same conditions in one measure; pairs of leaders form another family.
    """
    found = []
    for shared in dict.fromkeys(row.conditions for row in rows):
        found += _pairs([(row, result) for row, result in zip(rows, results) if row.conditions == shared])
    return found


def _pairs(runs: list[tuple[Row, Result]]) -> list[Pair]:
    """Return the pairs of runs under the same conditions."""

    def distance_from_baseline(run: tuple[Row, Result]) -> int:
        chosen = run[1].config.selection
        return 2 if chosen.algo != BASELINE else int(bool(chosen.algo_args))

    first, result = min(runs, key=distance_from_baseline)
    others = [row for row, _ in runs if row is not first]
    results = [result, *(one for row, one in runs if row is not first)]

    def uncensored(measure: str, words: str, values: Sequence[np.ndarray]) -> list[Pair]:
        kind = (first.algo, measure, f"test {result.measure_in_words}{words}", None, None, None)
        compared = _family(values, result.higher_is_better)
        return [Pair(row.setting, row.optimizer, row.algo, *kind, one) for row, one in zip(others, compared)]

    def restricted(measure: str, unit: str, amounts: Sequence[np.ndarray], horizon: float) -> list[Pair]:
        words = f"{unit} to {result.target_in_words}, restricted to {short(horizon)}"
        kind = (first.algo, measure, words, horizon)
        own, *shares = (float(statistics.share_arrived(one, horizon)) for one in amounts)
        compared = _family([statistics.restricted(one, horizon) for one in amounts], higher_is_better=False)
        return [
            Pair(row.setting, row.optimizer, row.algo, *kind, share, own, one)
            for row, share, one in zip(others, shares, compared)
        ]

    target, budget = first.target_accuracy, equal_seconds(results)
    last_rounds = [metrics.mean_of_last_rounds(one.measured[one.test_measure]) for one in results]
    found = uncensored(LAST_ROUNDS_MEASURE, f", mean of the last {metrics.LAST_ROUNDS} rounds", last_rounds)
    better = {
        pair.algo: values for pair, values in zip(found, last_rounds[1:]) if pair.found and pair.found.verdict == BETTER
    }
    found += [
        found[0]._replace(algo=algo, baseline=other, measure=LEADERS, words=f"leaders: {found[0].words}", found=one)
        for (algo, other), one in statistics.head_to_head(better, result.higher_is_better).items()
    ]
    if target is not None:
        rounds = [one.rounds_to_target(target) for one in results]
        lengths = [one.num_rounds for one in results]
        # A callback may have ended some runs early; a run that reached the target has no unknown rounds.
        unreached = [length for length, of_seeds in zip(lengths, rounds) if np.isnan(of_seeds).any()]
        horizon = min(unreached, default=max(lengths))
        found += restricted(RESTRICTED_ROUNDS, "rounds", rounds, horizon)
    if budget is not None:
        at_budget = [_value_at(one, budget) for one in results]
        found += uncensored(EQUAL_SECONDS, f" after {short(budget)} simulated seconds", at_budget)
        if target is not None:
            seconds = [one.seconds_to_target(target) for one in results]
            found += restricted(RESTRICTED_SECONDS, "simulated seconds", seconds, budget)
    return found


def equal_seconds(results: Sequence[Result]) -> float | None:
    """Return the smallest total of simulated seconds of any run and seed; None without a clock or without any time."""
    return min(float(one.seconds_spent[:, -1].min()) if one.has_clock else 0.0 for one in results) or None


def with_equal_seconds(rows: Sequence[Row], results: Sequence[Result]) -> list[Row]:
    """Return the rows with the test measure at the equal seconds of the runs under the same conditions."""
    budgets = {
        shared: equal_seconds([one for row, one in zip(rows, results) if row.conditions == shared])
        for shared in {row.conditions for row in rows}
    }
    return [
        row if (budget := budgets[row.conditions]) is None
        else row._replace(equal_seconds=budget, at_equal_seconds=spread(_value_at(result, budget)))
        for row, result in zip(rows, results)
    ]  # fmt: skip


def _value_at(result: Result, seconds: float) -> np.ndarray:
    return metrics.value_at(result.measured[result.test_measure], result.seconds_spent, seconds)


def _family(values: Sequence[np.ndarray], higher_is_better: bool) -> list[Comparison | None]:
    """Compare all runs with the first one; runs with a NaN for some seed are excluded and give None."""
    differences = [np.asarray(one, np.float64) - values[0] for one in values[1:]]
    measured = [one for one in differences if np.isfinite(one).all()]
    compared = iter(statistics.compare(np.stack(measured), higher_is_better) if measured else [])
    return [next(compared) if np.isfinite(one).all() else None for one in differences]


def pairs_as_csv(pairs: Iterable[Pair]) -> str:
    """Return the pairs as CSV, one line per strategy and measure; "N/A" if a seed has no value."""
    columns = [name for name in Pair._fields if name not in ("words", "found")]
    lines = [[*columns, *Comparison._fields]]
    for pair in pairs:
        cells = [_plain(getattr(pair, name)) for name in columns]
        numbers = [NOT_REACHED] * len(Comparison._fields) if pair.found is None else map(_plain, pair.found)
        lines.append([*cells, *numbers])
    return files.as_csv(lines)


PAIR_HEADINGS = ("difference", "95 % interval", "joint p", "leads in seeds", "verdict")


def cells_of(found: Comparison | None, digits: int) -> list[str]:
    """Return the table cells of a comparison, in the order of `PAIR_HEADINGS`, with these decimals."""
    if found is None:
        return [*[NOT_REACHED] * 4, "not measured"]
    interval = "" if np.isnan(found.low) else f"{found.low:+.{digits}f} to {found.high:+.{digits}f}"
    leads = f"{found.leads} of {found.seeds}"
    return [f"{found.difference:+.{digits}f}", interval, f"{found.p_family:.2g}", leads, found.verdict]


def by_conditions(pairs: Sequence[Pair]) -> dict[str, str]:
    """Return Markdown by conditions, with one table for each measure."""
    found: dict[str, dict[str, list[Pair]]] = {}
    for pair in pairs:
        found.setdefault(pair.conditions, {}).setdefault(pair.measure, []).append(pair)
    return {shared: "\n\n".join(map(_table, measures.values())) for shared, measures in found.items()}


def _table(pairs: Sequence[Pair]) -> str:
    rows = [(f"{pair.algo} minus {pair.baseline}", cells_of(pair.found, DIGITS[pair.measure])) for pair in pairs]
    compared = [pair.found for pair in pairs if pair.found is not None]
    few = too_few(compared[0].seeds) if compared else ""
    return markdown_table(PAIR_HEADINGS, rows, pairs[0].words) + (f"\n\n{few}." if few else "")


NOT_REACHED = "N/A"
NOTES = """± is the sample standard deviation over seeds. N/A: some seeds never reach the value; the number of seeds
that do is in parentheses. Rounds and megabytes (10^6 bytes) to a target count up to the first round that reaches it, up
to float32's rounding and without smoothing, and include queries before the first round. At equal megabytes or seconds,
the measure is the mean over the last third of the rounds that fit, at most ten. GEMD: distance between the label
distributions of the cohort and of all clients (FL-DP3S Eq. 15), over rounds with at least one report. Clients seen:
clients that have trained at least once by the end. Gini index: 0 for equal values, near 1 if one client has all. Jain
index: 1 for equal values, 1 / N if one of N clients has all. Both are over the clients' selection counts, or over the
final model's measure on each client's training data. Participation gap: largest minus smallest fraction of rounds in
which a client trained. Worst tenth: mean of the measure over the worst-served tenth of clients. Seed-rounds/s are
wall-clock for all seeds together, without the first chunk of each process. The extra time of the first chunks is the
compilation time. Runs of one chunk have neither. The server sees: the most that it learns about single clients in
order to select (of a plug-in, `fedjax-sel list NAME` tells it). Largest epsilon: what --privacy guarantees for these
answers, and --private-training for the models."""
NOTES_ON_PAIRS = """Differences are paired by seed. Intervals are BCa bootstrap intervals of each difference alone.
Joint p-values are from a two-sided test that flips the signs of a seed's differences in the whole table at once. Leads
in seeds: the number of seeds in which the first strategy is better. Better or worse: the joint p-value is at most 0.05
and the interval excludes zero. No other verdict implies that the strategies are equal. Restricted: a seed that never
reaches the target counts all rounds. Leaders: strategies that are better than the baseline, at most the four with the
best means."""
NOTES_ON_SECONDS = """Simulated seconds are durations on the simulated devices, and include queries. The seconds that
all runs have in common are the smallest total of any run and seed. N/A: for some seeds, no evaluated round fits. In a
restricted mean, a seed that has not reached the target by then counts these seconds."""

NOTE_ON_CLIENT_TESTS = """The final models on the clients' own test data. Unseen clients never train. A client without
test data, or whose measure is undefined, counts as undefined and is left out of the other columns."""


_MAY_FAIL = (
    "rounds_to_target", "megabytes_down_to_target", "megabytes_up_to_target", "rounds_until_all_seen",
    "seconds_to_target", "at_equal_seconds",
)  # fmt: skip
SELECTION_FAIRNESS = ("gini_of_selections", "jain_of_selections", "participation_gap")
_OVER_CLIENTS = ("worst_decile", "gini_of_clients", "jain_of_clients")
_TIMED = ("seconds_to_target", "seconds", "at_equal_seconds")


def spread(values: Sequence[float] | np.ndarray) -> Spread:
    """Return the summary of one value per seed, [seeds]; NaN if missing."""
    values = np.asarray(values, np.float64)
    reached = int((~np.isnan(values)).sum())
    if reached < len(values):
        return Spread(np.nan, np.nan, np.nan, reached, len(values))
    deviation = float(values.std(ddof=1)) if len(values) > 1 else np.nan
    return Spread(float(values.mean()), deviation, float(np.median(values)), reached, len(values))


def row(setting: str, algo: str, result: Result, optimizer: str = "") -> Row:
    """Return a run's table row; the optimizer is empty if only one is compared."""
    target = result.config.run.target_accuracy
    down, up = result.ledger.bytes_down / 1e6, result.ledger.bytes_up / 1e6
    num_clients = result.config.num_training_clients
    seen = metrics.clients_seen(result.cohorts, num_clients)
    rounds_to_target = None if target is None else result.rounds_to_target(target)
    over_clients = result.final_over_clients().values()

    def until_target(amounts: np.ndarray) -> Spread | None:
        return None if rounds_to_target is None else spread(metrics.amount_at_round(amounts, rounds_to_target))

    return Row(
        setting=setting,
        algo=algo,
        optimizer=optimizer,
        rounds=result.num_rounds,
        target_accuracy=target,
        final=spread(metrics.last_measured(result.measured[result.test_measure])),
        last_rounds=spread(metrics.mean_of_last_rounds(result.measured[result.test_measure])),
        rounds_to_target=None if rounds_to_target is None else spread(rounds_to_target),
        megabytes_down_to_target=until_target(down),
        megabytes_up_to_target=until_target(up),
        megabytes_down=spread(down.sum(axis=1)),
        megabytes_up=spread(up.sum(axis=1)),
        gemd=None if np.isnan(result.gemd).all() else spread(metrics.mean_of_measured(result.gemd, axis=1)),
        clients_seen=spread(seen[:, -1]),
        rounds_until_all_seen=spread(metrics.rounds_until_all_seen(seen, num_clients)),
        seed_rounds_per_second=result.seed_rounds_per_second,
        compilation_seconds=result.compilation_seconds,
        measure=result.measure_in_words,
        higher_is_better=result.higher_is_better,
        target_in_words=result.target_in_words,
        seconds_to_target=until_target(result.seconds) if result.has_clock else None,
        seconds=spread(result.seconds_spent[:, -1]) if result.has_clock else None,
        client_tests={name: spread(one) for name, one in result.final_client_tests().items()},
        largest_epsilon=None if (spent := result.epsilon_spent) is None else spread(spent[0]),
        privacy_unit=result.config.hidden_unit or "example",
        server_sees=server_sees(result.config.selection.algo, result.config.selection.algo_args, result.config.size),
        **dict(zip(SELECTION_FAIRNESS, map(spread, result.selection_fairness().values()))),
        **dict(zip(_OVER_CLIENTS, (spread(one) for one in over_clients if not np.isnan(one).all()))),
    )


def as_csv(rows: Sequence[Row]) -> str:
    """Return the CSV table with one line per run; "N/A" if a seed never reaches a value, empty if not applicable.

    Columns of the task's measure contain its name, or "measure" if the runs have different measures.
    """
    columns = ["setting", "algo", "optimizer", "seeds", "rounds", "target_accuracy"]
    spreads = [name for name in Row._fields if Row.__annotations__[name] in (Spread, Spread | None)]
    clocks = ["seed_rounds_per_second", "compilation_seconds"]
    if has_clock(rows):
        clocks.append("equal_seconds")
    else:
        spreads = [name for name in spreads if name not in _TIMED]
    found = {row.measure for row in rows}
    measure = found.pop().replace(" ", "_") if len(found) == 1 else "measure"
    for field in spreads:
        name = f"{field}_{measure}" if field in ("final", "last_rounds", "at_equal_seconds") else field
        columns += [f"{name}_mean", f"{name}_sd"]
        columns += [f"{name}_median", f"{name}_seeds_reached"] if field in _MAY_FAIL else []
    lines: list[list[Any]] = [columns + clocks]
    for row in rows:
        names = map(_plain, (row.setting, row.algo, row.optimizer))
        head = [*names, row.final.seeds, row.rounds, _plain(row.target_accuracy)]
        cells = [one for name in spreads for one in _cells(getattr(row, name), name in _MAY_FAIL)]
        lines.append(head + cells + [_plain(getattr(row, name)) for name in clocks])
    return files.as_csv(lines)


def _cells(value: Spread | None, may_fail: bool) -> list[str]:
    if value is None:
        return [""] * (4 if may_fail else 2)
    numbers = [NOT_REACHED] * 3 if value.reached < value.seeds else list(map(_plain, value[:3]))
    return [*numbers, str(value.reached)] if may_fail else numbers[:2]


def _plain(value: str | float | None) -> str:
    """Return a CSV cell; an apostrophe before a name keeps spreadsheet programs from reading it as a formula."""
    if value is None or isinstance(value, str):
        return f"'{value}" if value and value[0] in "=+-@" else value or ""
    return "" if np.isnan(value) else f"{value:.7g}"


def document(
    rows: Sequence[Row],
    titles: Mapping[str, str],
    failed: Sequence[str],
    num_runs: int,
    command: str,
    differences: Mapping[str, str] = MappingProxyType({}),
    edited: Sequence[str] = (),
) -> str:
    """Return the comparison as a Markdown page; `titles` and `differences` are by conditions."""
    parts = [f"# Comparison\n\n```\n{command}\n```"]
    missing = num_runs - len(rows) - len(failed)
    if missing:
        parts.append(f"Not finished yet: {missing} of {num_runs} runs.")
    parts.append(tables(rows, titles, differences))
    if failed:
        parts.append("Failed runs, not in the tables:\n\n" + "\n".join(f"* {text}" for text in failed))
    if edited:
        parts.append("Some or all rounds are from earlier code:\n\n" + "\n".join(f"* {text}" for text in edited))
    parts += [NOTES, *([NOTES_ON_SECONDS] if has_clock(rows) else [])]
    parts += [NOTES_ON_PAIRS] if any(differences.values()) else []
    return "\n\n".join(parts) + "\n"


def has_clock(rows: Sequence[Row]) -> bool:
    """Return whether any run simulates time."""
    return any(row.seconds is not None for row in rows)


def tables(rows: Sequence[Row], titles: Mapping[str, str], differences: Mapping[str, str]) -> str:
    """Return Markdown tables by conditions, each with its differences, and by setting one of the optimizers."""
    parts = []
    for setting in dict.fromkeys(row.setting for row in rows):
        here = [row for row in rows if row.setting == setting]
        for shared in dict.fromkeys(row.conditions for row in here):
            own = [row for row in here if row.conditions == shared]
            parts.append(f"## {shared}\n\n{titles[shared]}\n\n{as_markdown(own)}")
            parts += filter(None, [client_tests(own), differences.get(shared)])
        if len({row.optimizer for row in here}) > 1:
            parts.append(f"## {setting}: strategies by optimizers\n\n{by_optimizer(here)}")
    return "\n\n".join(parts)


def client_tests(rows: Sequence[Row]) -> str:
    """Return the Markdown table of the clients' own tests, one line per strategy and kind of client; empty without."""
    kinds = dict.fromkeys(name.split(": ")[0] for row in rows for name in row.client_tests)
    forms = list(dict.fromkeys(name.split(": ")[1] for row in rows for name in row.client_tests))
    if not kinds:
        return ""
    lines = [
        (row.algo, [kind, *(_text("client_tests", row.client_tests.get(f"{kind}: {form}")) for form in forms)])
        for row in rows
        for kind in kinds
    ]
    return f"{NOTE_ON_CLIENT_TESTS}\n\n{markdown_table(['on', *forms], lines)}"


def by_optimizer(rows: Sequence[Row]) -> str:
    """Return Markdown tables of strategies by optimizers, for the measure and for the costs of reaching the target."""
    fields = {f"mean test {rows[0].measure} of the last {metrics.LAST_ROUNDS} rounds": "last_rounds"}
    optimizers = list(dict.fromkeys(row.optimizer for row in rows))
    found = {(row.algo, row.optimizer): row for row in rows}
    parts = []
    for about, field in (fields | _to_target_fields(rows)).items():
        lines = []
        for algo in dict.fromkeys(row.algo for row in rows):
            runs = [found.get((algo, optimizer)) for optimizer in optimizers]
            lines.append((algo, ["" if run is None else _text(field, getattr(run, field)) for run in runs]))
        parts.append(markdown_table(map(cell, optimizers), lines, about))
    return "\n\n".join(parts)


def _to_target_fields(rows: Sequence[Row]) -> dict[str, str]:
    """Return the headings and fields of the costs of reaching the target."""
    if rows[0].target_accuracy is None:
        return {}
    share = rows[0].target_in_words.removesuffix(" test accuracy")  # "62%" for an accuracy
    seconds = {f"seconds to {share}": "seconds_to_target"} if has_clock(rows) else {}
    return {
        f"rounds to {share}": "rounds_to_target",
        f"MB down until {share}": "megabytes_down_to_target",
        f"MB up until {share}": "megabytes_up_to_target",
        **seconds,
    }


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the Markdown table of one setting."""
    found = columns(rows)
    return markdown_table(found, zip((row.algo for row in rows), zip(*found.values())))


def columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the table's columns by heading, one formatted cell per row; columns without any value are omitted."""
    budgets = {row.equal_seconds for row in rows if row.equal_seconds is not None}  # at most one
    fields = {
        f"final test {rows[0].measure}": "final",
        f"mean of the last {metrics.LAST_ROUNDS} rounds": "last_rounds",
        **_to_target_fields(rows),
        "MB down": "megabytes_down",
        "MB up": "megabytes_up",
        "the server sees": "server_sees",
        f"largest epsilon (hides one {rows[0].privacy_unit})": "largest_epsilon",
        "simulated seconds": "seconds",
        **{f"test {rows[0].measure} after {short(budget)} s": "at_equal_seconds" for budget in budgets},
        "mean GEMD": "gemd",
        "clients seen": "clients_seen",
        "rounds until all were": "rounds_until_all_seen",
        "Gini of selections": "gini_of_selections",
        "Jain of selections": "jain_of_selections",
        "participation gap": "participation_gap",
        "worst tenth": "worst_decile",
        "Gini of clients": "gini_of_clients",
        "Jain of clients": "jain_of_clients",
        "seed-rounds/s": "seed_rounds_per_second",
        "s of compilation": "compilation_seconds",
    }
    found = {}
    for heading, field in fields.items():
        found[heading] = [_text(field, getattr(row, field)) for row in rows]
        if field == "rounds_to_target":
            spreads = [row.rounds_to_target for row in rows if row.rounds_to_target is not None]
            found["median"] = [NOT_REACHED if one.reached < one.seeds else f"{one.median:.1f}" for one in spreads]
    for name in dict.fromkeys(name for row in rows for name in row.client_tests if ": mean " in name):
        found[name] = [_text("client_tests", row.client_tests.get(name)) for row in rows]
    return {heading: cells for heading, cells in found.items() if any(cells)}


_DIGITS_OF_CELLS = {
    **dict.fromkeys(("final", "last_rounds", "at_equal_seconds", "gemd"), 4),
    **dict.fromkeys((*SELECTION_FAIRNESS, *_OVER_CLIENTS, "client_tests", "largest_epsilon"), 3),
}


def _text(field: str, value: Spread | float | str | None) -> str:
    """Format a field of a row; see `parsing.digits_of_amount`."""
    if not isinstance(value, Spread):
        return "" if value is None else value if isinstance(value, str) else short(value)
    if value.reached < value.seeds:
        return f"{NOT_REACHED} ({value.reached} of {value.seeds} seeds)"
    digits = _DIGITS_OF_CELLS.get(field, parsing.digits_of_amount(value.mean))
    return f"{value.mean:.{digits}f}" + ("" if np.isnan(value.deviation) else f" ± {value.deviation:.{digits}f}")


def short(value: float) -> str:
    """Format a number with three significant digits, or as an integer from 100 on; empty if unknown."""
    return "" if np.isnan(value) else f"{value:.3g}" if value < 100 else f"{value:.0f}"


RECOMMENDED_SEEDS = 10


class VerdictLine(NamedTuple):
    """One strategy's line, as texts; differences are from the baseline."""

    algo: str
    value: str  # mean of the last rounds
    difference: str
    interval: str
    leads: str  # seeds in which it is better than the baseline, e.g. "9 of 10"
    verdict: str
    megabytes: str
    ratio: str  # megabytes relative to the baseline
    server_sees: str


class Verdict(NamedTuple):
    """The verdict under one set of conditions."""

    headline: str
    measure: str
    lines: list[VerdictLine]  # best first
    seeds: int  # recommended number of seeds if there are too few for any significance, else 0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def too_few(seeds: int) -> str:
    """Return a phrase if no difference can be significant with these seeds, else an empty string."""
    if seeds >= least_pairs():
        return ""
    return f"{_counted(seeds, 'seed')} {'is' if seeds == 1 else 'are'} too few to tell ({least_pairs()} needed)"


def verdict(rows: Sequence[Row], pairs: Sequence[Pair], unfinished: Mapping[str, str]) -> Verdict:
    """Return the verdict on rows under the same conditions, from the numbers of their tables.

    `unfinished` maps the strategies of unfinished rows, which have no pairs, to their rounds so far, e.g. "7 of 20".
    """
    found = {pair.algo: pair for pair in pairs if pair.measure == LAST_ROUNDS_MEASURE}
    baseline = next((row for row in rows if row.algo not in found and row.algo not in unfinished), None)
    sign = -1 if rows[0].higher_is_better else 1
    ordered = sorted(rows, key=lambda row: (math.isnan(row.last_rounds.mean), sign * row.last_rounds.mean))
    lines = [_line(row, found.get(row.algo), baseline if found else None, unfinished.get(row.algo)) for row in ordered]
    compared = {algo: pair.found for algo, pair in found.items() if pair.found is not None}
    few = too_few(rows[0].final.seeds) if compared else ""
    seeds = RECOMMENDED_SEEDS if few else 0
    if few:
        headline = f"No winner yet: {few}"
    elif compared:
        headline = _headline(compared, next(iter(found.values())).baseline)
    elif len(rows) == 1:
        headline = "One strategy: nothing to compare it with"
    else:
        headline = "No verdict yet: it needs two finished runs" if unfinished else "No verdict: a measure is missing"
    return Verdict(headline, rows[0].measure, lines, seeds)


def _line(row: Row, pair: Pair | None, baseline: Row | None, unfinished: str | None) -> VerdictLine:
    moved = _moved(row)
    ratio = f"{moved / _moved(baseline):.3g}x" if baseline is not None and not unfinished else ""
    difference = interval = leads = verdict = ""
    if unfinished:
        verdict = f"{unfinished} rounds"
    elif row is baseline:
        difference = "baseline"
    elif pair is not None:
        difference, interval, _, leads, verdict = cells_of(pair.found, digits=3)
    return VerdictLine(
        row.algo, _value(row.last_rounds), difference, interval, leads, verdict, short(moved), ratio, row.server_sees
    )


def _moved(row: Row) -> float:
    return row.megabytes_down.mean + row.megabytes_up.mean


def _value(value: Spread | None) -> str:
    return NOT_REACHED if value is None or np.isnan(value.mean) else f"{value.mean:.3f}"


def _headline(compared: Mapping[str, Comparison], baseline: str) -> str:
    parts = []
    largest_first = sorted(compared, key=lambda algo: -abs(compared[algo].difference))
    for wanted in (BETTER, WORSE):
        if names := [algo for algo in largest_first if compared[algo].verdict == wanted]:
            parts.append(f"{wanted} than {baseline}: {', '.join(names)}")
    text = "; ".join(parts) or f"no significant difference from {baseline}"
    seeds = next(iter(compared.values())).seeds
    return f"{text[0].upper()}{text[1:]} ({_counted(seeds, 'seed')}, {_counted(len(compared), 'comparison')})"


def at_equal_budgets(rows: Sequence[Row], results: Sequence[Result]) -> list[str]:
    """Return sentences on finished runs: the measure at equal megabytes and seconds, and the costs of the target."""
    if len(rows) < 2:
        return []
    spent = [(one.ledger.bytes_down + one.ledger.bytes_up).cumsum(axis=1) / 1e6 for one in results]
    totals = [float(one[:, -1].min()) for one in spent]
    budget, cheapest = min(totals), rows[totals.index(min(totals))].algo
    values = [
        spread(metrics.value_at(one.measured[one.test_measure], moved, budget)) for one, moved in zip(results, spent)
    ]
    measure = f"test {rows[0].measure} is"
    found = [f"At the {short(budget)} MB of {cheapest}, {measure} {_listed(rows, values)}."]
    if rows[0].equal_seconds is not None:
        timed = _listed(rows, [row.at_equal_seconds for row in rows])
        found.append(f"After {short(rows[0].equal_seconds)} simulated seconds, {measure} {timed}.")
    if rows[0].target_accuracy is not None:
        found.append(f"To reach {rows[0].target_in_words}: {'; '.join(map(_to_target, rows))}.")
    return found


def _listed(rows: Sequence[Row], values: Sequence[Spread | None]) -> str:
    texts = [f"{_value(value)} for {row.algo}" for row, value in zip(rows, values)]
    return ", ".join(texts[:-1]) + f" and {texts[-1]}"


def _to_target(row: Row) -> str:
    rounds, down, up = row.rounds_to_target, row.megabytes_down_to_target, row.megabytes_up_to_target
    if rounds is None or down is None or up is None:
        return ""
    if rounds.reached < rounds.seeds:
        return f"{row.algo} in {rounds.reached} of {_counted(rounds.seeds, 'seed')}"
    return f"{row.algo} after {short(rounds.mean)} rounds and {short(down.mean + up.mean)} MB"
