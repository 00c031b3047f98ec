"""Pages of the leaderboard, from the curves alone: a table per setting, and the summary of all settings."""

import csv
import functools
import io
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from fedjax_sel import metrics, statistics, strategies
from fedjax_sel.core import files
from fedjax_sel.core.parsing import cell
from fedjax_sel.reporting.plots import COLORS
from fedjax_sel.statistics import BETTER, WORSE, Comparison
from fedjax_sel.strategies import privacy
from studies.boards import check as checks
from studies.boards import measures, series
from studies.boards.grid import contender
from studies.boards.series import CLIENTS, Series, plain
from studies.boards.series import Setting as Held
from studies.leaderboard import protocol
from studies.leaderboard.protocol import BASELINE, SETTINGS, TUNED, TUNING, Setting
from studies.papers.page import png_bytes
from studies.papers_setting.tuning import DRAWS

SHARE_OF_FULL = 0.95
"""Second target: this share of the accuracy of `full`."""
MAIN, BEST, BEST_TEST = "accuracy", "accuracy_at_best_round", "accuracy_at_best_test_round"
IN_SECONDS = "accuracy_at_equal_seconds"
TESTED = {
    MAIN: "test accuracy, last ten rounds",
    BEST: "at the best round on the clients' own tests",
    BEST_TEST: "at the best round on the test set",
    "accuracy_at_equal_megabytes": "at equal MB",
    IN_SECONDS: "at equal seconds",
    "clients": "clients' own tests",
    "worst_decile": "worst tenth of clients on their own tests",
}
"""Measures with verdicts; each is a family in each setting. The first is the main one."""
NUM_CLASSES = 10
LARGEST = 0.1
"""Limit of the picture's axes."""

COMMON = """Gains are over random selection under the same optimizer, paired by seed; those of random + fedyogi are over
random. Bold gains are significant: the joint test of all comparisons of a column has a family-wise error of 5 %
([statistics](DOCS/statistics.md)). The best round of a run is chosen on the clients' own tests, among every tenth, so
that a gain which only damps oscillations is smaller there. Clients' own tests have the mix of labels of the client;
they are measured in the last fifth of the rounds. The verdicts at best rounds and on clients' own tests were added
after the first tables. Text and the CNN are tested in every fifth round, so that their last ten rounds have two
tests."""
NOTES = f"""{COMMON} "Leads in" counts the seeds with a gain. The worst tenth of clients is that on their own tests.
Equal MB is the smallest traffic of a seed of random selection, equal seconds the smallest total time of any row and
seed; a row that is not tested before has an empty cell. Targets: the accuracy of random selection, rounded down to a
whole percent, and {100 * SHARE_OF_FULL:g} % of that of full; ≥ marks a mean in which some seed never arrives and
counts all rounds."""


class Table(NamedTuple):
    """Table of a setting."""

    values: dict[str, dict[str, np.ndarray]]  # row -> measure -> [seeds]
    times_random: dict[str, float]  # traffic as a multiple of random selection's
    found: dict[tuple[str, str], Comparison]  # (measure, row) -> comparison with its baseline
    rows: Mapping[str, Series]  # row -> its curves

    def gain(self, row: str, measure: str = MAIN) -> str:
        """Return the gain over the baseline as text; bold if significant."""
        one = self.found.get((measure, row))
        if one is None:
            return ""
        return _bold(f"{one.difference:+.3f}", one)

    def leads(self, row: str, measure: str = MAIN) -> str:
        """Return the number of seeds in which the row is better than its baseline, as text."""
        one = self.found.get((measure, row))
        return "" if one is None else f"{one.leads} of {one.seeds}"


def _bold(text: str, one: Comparison) -> str:
    return f"**{text}**" if one.is_significant else text


def make_table(rows: Mapping[str, Series]) -> Table:
    """Return the table of a setting's rows."""
    shared = measures.common(rows, NUM_CLASSES)
    values = {name: _values(rows, name, measures.of_row(series, shared)) for name, series in rows.items()}
    megabytes = {name: float(series.megabytes[:, -1].mean()) for name, series in rows.items()}
    pairs = {name: base for name in rows if (base := contender(name).baseline.name) in rows and base != name}
    found = {}
    for measure in (name for name in TESTED if pairs and name in values[BASELINE]):
        gains = {row: values[row][measure] - values[base][measure] for row, base in pairs.items()}
        gains = {row: one for row, one in gains.items() if np.isfinite(one).all()}
        found |= {(measure, row): one for row, one in zip(gains, statistics.compare(np.stack([*gains.values()])))}
    return Table(values, {name: one / megabytes[BASELINE] for name, one in megabytes.items()}, found, rows)


def _values(rows: Mapping[str, Series], name: str, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    one = rows[name]
    values = {
        MAIN: found["last_rounds_accuracy"],
        BEST_TEST: np.nanmax(one.test_accuracy, axis=1),
        "accuracy_at_equal_megabytes": found["accuracy_at_100_percent_of_megabytes"],
        IN_SECONDS: found["accuracy_at_equal_seconds"],
        "rounds_to_random": found["rounds_to_target"],
        "arrived_at_random": found["arrived"],
        "seconds": found["seconds"],
    }
    if (own := one.clients.get(CLIENTS[0])) is not None:
        best = np.nanargmax(own, axis=1)[:, None]
        values[BEST] = np.take_along_axis(one.test_accuracy, best, axis=1)[:, 0]
    last = max(1, round(measures.LAST_SHARE * one.rounds))
    for column, key in zip(CLIENTS, ("clients", "worst_decile", "unseen", "worst_decile_of_unseen")):
        if column in one.clients:
            values[key] = metrics.mean_of_last_rounds(one.clients[column], last)
    if "full" in rows:
        target = SHARE_OF_FULL * float(measures.last_rounds(rows["full"]).mean())
        rounds = measures.rounds_to_target(one, target)
        values["rounds_to_full"] = statistics.restricted(rounds, one.rounds)
        values["arrived_at_full"] = np.isfinite(rounds).astype(float)
    return values


def pages(out: Path) -> dict[str, str]:
    """Return the texts of all pages and tables, by path in the results folder."""
    found = {name: held for name in SETTINGS if (held := series.read(out / name)) is not None and BASELINE in held.rows}
    tables = {name: make_table(held.rows) for name, held in found.items()}
    texts = {}
    answers = _objections(out)
    own = {name: held for name in protocol.OWN if (held := series.read(out / (name + TUNED))) is not None}
    for name, table in tables.items():
        tuning = series.read(out / (name + TUNING))
        texts[f"{name}/README.md"] = _page(SETTINGS[name], found[name], table, tuning, own.get(name))
        texts[f"{name}/table.csv"] = _as_csv(table)
    of_own = {name + TUNED: make_table(held.rows) for name, held in own.items() if BASELINE in held.rows}
    for name, table in (answers | of_own).items():
        texts[f"{name}/table.csv"] = _as_csv(table)
    if tables:
        texts["README.md"] = _summary(tables, answers, of_own)
    return texts


def _page(setting: Setting, held: Held, table: Table, tuning: Held | None, own: Held | None) -> str:
    config = setting.config
    parts = [f"# {setting.title}", _facts(setting, held), _main_table(table), *_absent(setting, held)]
    parts += [NOTES.replace("DOCS", "../../../docs"), _limits(held.rows)]
    parts += ["## Targets and time", _targets(table), "## The leaders, compared with each other", _duels(table)]
    if any("unseen" in one for one in table.values.values()):
        parts += ["## Roles that never train", _unseen(table)]
    if tuning is not None:
        parts += ["## The learning rates of random selection", _rates(setting, tuning)]
    if own is not None and BASELINE in own.rows:
        parts += [f"## {OWN_TITLE}", OWN, _own(setting, make_table(own.rows), own)]
    commands = "\n".join(held.about.get("commands", []))
    parts += [f"Commands:\n\n```\n{commands}\n```", f"Data: {held.about.get('data_source', config.data.dataset)}."]
    return "\n\n".join(parts) + "\n"


def _absent(setting: Setting, held: Held) -> list[str]:
    """Return the sentences on rows that are not in the table."""
    why = held.about.get("failed", {})
    missing = [name for name in protocol.GRIDS[setting.name].rows if name not in held.rows]
    shown = "; ".join(f"{name} ({why[name]})" if name in why else name for name in missing)
    found = [f"Not run yet: {shown}."] if missing else []
    return found + ([f"Left out by the protocol: {', '.join(setting.without)}."] if setting.without else [])


def _facts(setting: Setting, held: Held) -> str:
    config, first = setting.config, next(iter(held.rows.values()))
    work = config.training
    own = "" if config.data.client_test else TESTS_OF_TEST_SET
    return (
        f"{config.partition.num_clients} clients, {config.selection.num_selected} per round, {first.rounds} rounds, "
        f"{len(first.seeds)} seeds; {work.local_epochs} local epoch, batches of {work.batch_size}. The learning rates "
        "are tuned for random selection on other seeds and on training examples "
        f"([protocol](../../../studies/leaderboard/protocol.py)).{own}"
    )


TESTS_OF_TEST_SET = """ The clients' own tests are parts of the test set, so that best rounds are chosen on test data.
All seeds have the same clients."""


def _limits(rows: Mapping[str, Series]) -> str:
    """Return sentences on the convergence of random selection, and on FedCor's rounds at equal MB."""
    baseline = rows[BASELINE]
    before = baseline.test_accuracy[:, : round((1 - measures.LAST_SHARE) * baseline.rounds)]
    later = (measures.last_rounds(baseline) - metrics.mean_of_last_rounds(before)).mean()
    text = f"In the last fifth of the rounds, random selection improves by {later:.3f}. "
    text += f"There, the mean change between tests is {_oscillations(rows)}."
    if "fedcor" in rows:
        warmup = strategies.make("fedcor").requests[0].when.rules[0].last  # losses of all are bought until then
        paid = measures.paid_rounds(rows["fedcor"], measures.common(rows, NUM_CLASSES).megabytes).mean()
        text += f" At equal MB, `fedcor` has run {paid:.0f} rounds; its first {warmup} select at random."
    return text


def _oscillations(rows: Mapping[str, Series]) -> str:
    """Return the mean absolute change between tests of the rows that we advise, in the last fifth of the rounds."""
    found = {}
    for name in (name for algo in protocol.ADVISED for name in (algo, protocol.row(algo, protocol.FEDYOGI))):
        if name in rows:
            last = rows[name].test_accuracy[:, -round(measures.LAST_SHARE * rows[name].rounds) :]
            tested = last[:, ~np.isnan(last).any(axis=0)]
            found[name] = float(np.abs(np.diff(tested, axis=1)).mean())
    return ", ".join(f"{value:.3f} ({name})" for name, value in found.items())


def _main_table(table: Table) -> str:
    lines = [
        "| | accuracy | gain | leads in | gain at the best round | gain at the best test round | gain at equal MB "
        "| gain at equal seconds | gain on clients' own tests | gain of the worst tenth | times random's MB "
        "| the server sees of single clients |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in _ordered(table):
        value = table.values[row][MAIN]
        gains = (table.gain(row, measure) for measure in list(TESTED)[1:])
        lines.append(
            f"| {cell(row)} | {value.mean():.3f} ± {value.std(ddof=1):.3f} | {table.gain(row)} | {table.leads(row)} | "
            f"{' | '.join(gains)} | {table.times_random[row]:.2f} | {_seen(contender(row).algo)} |"
        )
    return "\n".join(lines)


@functools.cache
def _seen(algo: str) -> str:
    return privacy.CLASSES[privacy.level(privacy.disclosed(strategies.make(algo)))]


def _ordered(table: Table) -> list[str]:
    return sorted(table.values, key=lambda row: -float(table.values[row][MAIN].mean()))


def _targets(table: Table) -> str:
    lines = [
        f"| | rounds to random's accuracy | rounds to {100 * SHARE_OF_FULL:g} % of full's | seconds "
        "| clients' own tests | their worst tenth |",
        "|---|---|---|---|---|---|",
    ]
    for row in _ordered(table):
        one = table.values[row]
        rounds = (_rounds(one, f"rounds_to_{target}", f"arrived_at_{target}") for target in ("random", "full"))
        clients = (f"{one[key].mean():.3f}" if key in one else "" for key in ("clients", "worst_decile"))
        lines.append(f"| {cell(row)} | {' | '.join(rounds)} | {one['seconds'].mean():.0f} | {' | '.join(clients)} |")
    return "\n".join(lines)


def _rounds(one: Mapping[str, np.ndarray], rounds: str, arrived: str) -> str:
    if rounds not in one:
        return ""
    return f"{'≥ ' if one[arrived].min() < 1 else ''}{one[rounds].mean():.1f}"


def leaders(table: Table) -> list[str]:
    """Return the rows that are better than their baseline in the main measure, without `full`."""
    return [
        row
        for (measure, row), one in table.found.items()
        if measure == MAIN and one.verdict == BETTER and row != "full"
    ]


def _duels(table: Table) -> str:
    duels = statistics.head_to_head({row: table.values[row][MAIN] for row in leaders(table)})
    if not duels:
        return "Fewer than two strategies are significantly better than random selection."
    lines = ["| | difference | p (family) | leads in |", "|---|---|---|---|"]
    for (first, second), one in duels.items():
        shown = _bold(f"{one.difference:+.3f} ({one.low:+.3f} to {one.high:+.3f})", one)
        lines.append(f"| {first} minus {second} | {shown} | {one.p_family:.2g} | {one.leads} of {one.seeds} |")
    return "\n".join(lines)


def _unseen(table: Table) -> str:
    lines = ["| | mean accuracy | worst tenth |", "|---|---|---|"]
    for row in _ordered(table):
        one = table.values[row]
        lines.append(f"| {cell(row)} | {one['unseen'].mean():.3f} | {one['worst_decile_of_unseen'].mean():.3f} |")
    return "\n".join(lines)


def _rates(setting: Setting, tuning: Held) -> str:
    lines = ["| | clients' rate | server's rate | accuracy on tuning examples |", "|---|---|---|---|"]
    best = {protocol.best(setting, tuning, optimizer) for optimizer in ("fedavg", protocol.FEDYOGI)}
    for rates in protocol.tried(setting):
        held = tuning.rows.get(rates.row)
        value = "diverged" if held is None else f"{measures.last_rounds(held).mean():.3f}"
        optimizer = "FedAvg" if rates.server is None else "FedYogi"
        shown = f"**{value}**" if rates in best else value
        lines.append(
            f"| {optimizer} | {rates.client:g} | {'' if rates.server is None else f'{rates.server:g}'} | {shown} |"
        )
    edges = [edge for rates in best if rates is not None for edge in _edges(setting, rates)]
    note = (
        "No best rate is at an end of its grid." if not edges else f"At an end of its grid: {'; '.join(sorted(edges))}."
    )
    return "\n".join([*lines, "", f"Bold rates are used. {note}"])


def _edges(setting: Setting, rates: protocol.Rates) -> list[str]:
    clients = setting.rates if rates.server is None else setting.fedyogi_rates[0]
    name = "FedAvg" if rates.server is None else "FedYogi"
    found = [f"{name}, clients {rates.client:g}"] if rates.client in (clients[0], clients[-1]) else []
    servers = setting.fedyogi_rates[1]
    return found + ([f"FedYogi, server {rates.server:g}"] if rates.server in (*servers[:1], *servers[-1:]) else [])


OWN_TITLE = "Each strategy with its own parameters and rate"
OWN = f"""Each strategy, also random selection, has its best of {DRAWS} draws of its parameters and learning rate
and of its defaults, on tuning seeds and tuning examples. Gains are over random selection with its best rate."""


def _own(setting: Setting, table: Table, own: Held) -> str:
    lines = [
        "| | parameters | clients' rate | accuracy | gain | leads in | gain at the best round |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in _ordered(table):
        about, value = own.about["rows"][row], table.values[row][MAIN]
        parameters = ", ".join(f"{name}={value}" for name, value in about["algo_args"].items()) or "defaults"
        lines.append(
            f"| {cell(row)} | {cell(parameters)} | {about['learning_rate']:g} | {value.mean():.3f} ± "
            f"{value.std(ddof=1):.3f} | {table.gain(row)} | {table.leads(row)} | "
            f"{table.gain(row, BEST)} |"
        )
    missing = [name for name in protocol.GRIDS[setting.name + TUNED].rows if name not in table.values]
    lines += ["", f"Not run yet with own parameters: {', '.join(missing)}."] if missing else []
    return "\n".join(lines)


def _objections(out: Path) -> dict[str, Table]:
    found = {name: series.read(out / name) for name in protocol.OBJECTIONS}
    return {name: make_table(held.rows) for name, held in found.items() if held is not None and BASELINE in held.rows}


ANSWERED = {
    MAIN: "test set",
    BEST: "test set, at the best round",
    IN_SECONDS: "test set, at equal seconds",
    "clients": "clients' own",
}
SAME_TASK = {BASELINE, "optimizer", "learning_rate", "learning_rate_milestones", "learning_rate_decay"}
"""Changes that leave the data and the clients as they are, so that random selection compares with the main table's."""


def _answers(answers: Mapping[str, Table], tables: Mapping[str, Table]) -> str:
    lines = [
        "| | tests | random | " + " | ".join(protocol.ADVISED[1:]) + " |",
        "|---|---|---|" + "---|" * len(protocol.ADVISED[1:]),
    ]
    for name, table in answers.items():
        setting, _, changes = protocol.OBJECTIONS[name]
        usual = tables.get(setting) if changes.keys() <= SAME_TASK else None
        usually = protocol.row(BASELINE, changes.get("optimizer", "fedavg"))
        for measure, words in ANSWERED.items():
            baseline = f"{table.values[BASELINE][measure].mean():.3f}"
            if usual is not None:
                baseline += f" ({_gain_of_baseline(table.rows[BASELINE], usual.rows[usually], measure)})"
            gains = " | ".join(_gain_and_leads(table, row, measure) for row in protocol.ADVISED[1:])
            title = f"`{name}`: {protocol.GRIDS[name].title}" if measure == MAIN else ""
            lines.append(f"| {title} | {words} | {baseline} | {gains} |")
    return "\n".join(lines)


def _gain_of_baseline(other: Series, usual: Series, measure: str) -> str:
    """Return the gain of another random selection over that of the main table, a family of one comparison."""
    both = {"usual": usual, BASELINE: other}
    shared = measures.common(both, NUM_CLASSES)
    usually, here = (_values(both, row, measures.of_row(both[row], shared))[measure] for row in both)
    (one,) = statistics.compare([here - usually])
    return f"{_bold(f'{one.difference:+.3f}', one)}, {one.leads}/{one.seeds}"


def _both(tables: Mapping[str, Table], of_own: Mapping[str, Table]) -> str:
    """Return the gains of strategies with their own parameters, beside those of the main tables."""
    lines = ["|", "|---|"]
    columns = [(name, tables[name.removesuffix(TUNED)], own) for name, own in of_own.items()]
    for name, _, _ in columns:
        lines[0] += f" | {name.removesuffix(TUNED)}, own | defaults"
        lines[1] += "---|---|"
    lines[0] += " |"
    for row in protocol.ALGOS[1:]:
        if any(row in own.values for _, _, own in columns):
            gains = (_gain_and_leads(table, row) for _, usual, own in columns for table in (own, usual))
            lines.append(f"| {cell(row)} | {' | '.join(gains)} |")
    return "\n".join(lines)


def _summary(tables: Mapping[str, Table], answers: Mapping[str, Table], of_own: Mapping[str, Table]) -> str:
    heads = " | ".join(f"[{name}]({name}/README.md)" for name in tables)
    lines = [f"| gain over random selection | {heads} |", "|---|" + "---|" * len(tables)]
    accuracy = " | ".join(f"{table.values[BASELINE][MAIN].mean():.3f}" for table in tables.values())
    lines.append(f"| accuracy of random selection, tuned | {accuracy} |")
    rows = [name for name in protocol.rows_of_any() if name != BASELINE]
    lines += [
        f"| {cell(row)} | " + " | ".join(_gain_and_leads(table, row) for table in tables.values()) + " |"
        for row in rows
    ]
    parts = [
        "# Leaderboard", INTRODUCTION, "\n".join(lines), COMMON.replace("DOCS", "../../docs"),
        "![gains](gains.png)", INTERVALS,
        _families([*tables.values(), *answers.values(), *of_own.values()]),
        "## At the best round", _best_rounds(tables), _at_best(tables),
        *([f"## {OWN_TITLE}", OWN, OWN_NOTE, _both(tables, of_own)] if of_own else []),
        *(["## Objections", OBJECTIONS, _answers(answers, tables)] if answers else []),
        "## Does an order of strategies transfer?", _transfer(tables),
        *_still_to_run([name for name in SETTINGS if name not in tables]),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


BEST_ROUNDS = """Two choices of a round, in each cell: the best on the clients' own tests, among every tenth, and the
best on the test set, among all that are tested. Nobody can make the second choice; it favors the curve that oscillates
more, here that of random selection. {}

Tests of all clients in every tenth round would cost {} to {} times the traffic of random selection; the tables do not
bill them. A server with validation examples pays nothing."""


def _best_rounds(tables: Mapping[str, Table]) -> str:
    """Return the text on best rounds: what the number of tests changes, and their traffic."""
    configs = [SETTINGS[name].config for name in tables]
    times = sorted(
        one.num_training_clients / (2 * one.selection.num_selected * one.run.eval_clients_every) for one in configs
    )
    tested = ""
    if CHECKED in tables:
        every = SETTINGS[CHECKED].config.run.eval_clients_every
        best = {
            row: tables[CHECKED].rows[row].test_accuracy[:, every - 1 :: every].max(axis=1).mean()
            for row in protocol.ADVISED
            if row in tables[CHECKED].rows
        }
        gains = ", ".join(f"{best[row] - best[BASELINE]:+.3f} (`{row}`)" for row in best if row != BASELINE)
        tested = f"Chosen on the test set, but among every tenth round, the gains in {CHECKED} are {gains}."
    return BEST_ROUNDS.format(tested, f"{times[0]:.1f}", f"{times[-1]:.1f}")


CHECKED = "gray-2labels"
"""Setting in which the choice of a best round is explained."""


def _at_best(tables: Mapping[str, Table]) -> str:
    rows = [name for algo in protocol.ADVISED for name in (algo, f"{algo} + {protocol.FEDYOGI}")][1:]
    lines = ["| | " + " | ".join(tables) + " |", "|---|" + "---|" * len(tables)]
    for row in rows:
        gains = ("/".join(filter(None, (t.gain(row, BEST), t.gain(row, BEST_TEST)))) for t in tables.values())
        lines.append(f"| {cell(row)} | {' | '.join(gains)} |")
    return "\n".join(lines)


def _families(tables: Sequence[Table]) -> str:
    families = sum(len({measure for measure, _ in table.found}) for table in tables)
    return (
        f"These pages have {families} families (settings x measures), without the leaders' comparisons and the gains\n"
        f"in parentheses. A family holds a false verdict with a probability of at most 5 %: up to "
        f"{0.05 * families:.0f} are expected to hold one."
    )


def _still_to_run(names: Sequence[str]) -> list[str]:
    """Return the paragraph on the settings without runs, if there are any."""
    of_gpu = [name for name in names if SETTINGS[name].task in protocol.ON_GPU]
    others = [name for name in names if name not in of_gpu]
    command = f"`python -m studies leaderboard {' '.join(protocol.ON_GPU)}`"
    parts = [f"Not run yet: {', '.join(others)}."] if others else []
    parts += [f"Not run yet, for a GPU: {', '.join(of_gpu)} ({command})."] if of_gpu else []
    return [" ".join(parts)] if parts else []


_OF_FEDYOGI, _OF_FEDAVG = math.prod(map(len, protocol.FEDYOGI_RATES)), len(protocol.RATES)
_OF_TEXT = len(SETTINGS["text-roles"].rates)
INTRODUCTION = f"""Learning rates are tuned for random selection in each setting, before all strategies use them
([protocol](../../studies/leaderboard/protocol.py), committed before the runs). CIFAR-10 is a lossy copy: the images
were compressed as JPEG, tests included. Networks are MLPs, a GRU and, as a look (200 rounds, six seeds), a CNN. A cell
has the gain in test accuracy, bold if significant, and the number of seeds in which the strategy leads. Verdicts in a
column with missing rows can change, because each depends on all rows of its column.

Four changes of the protocol are younger than first results. On text, FedYogi lost to FedAvg, and its best rates were
the largest of their grid, which was enlarged twice; `greedyfed` was left out for its cost. On color, all runs were
repeated, because the features seemed lost; they are equal, bit for bit. With other rounding, tuning in `color-2labels`
then chose the other of two rates that differ by less than 0.001, under which most gains are smaller; the first rate is
an [objection](#objections). There, one draw of `pow_d` had fewer candidates than the cohort, and could not run; the
number is raised to the cohort's size. The other settings keep grids whose end is best; their pages say so. FedYogi has
{_OF_FEDYOGI} candidates, FedAvg {_OF_FEDAVG} (text: {_OF_TEXT})."""


OWN_NOTE = """Three tuning seeds are few: a strategy's best draw there can be worse than its defaults on the twelve.
`python -m studies leaderboard gray-own color-own` makes these runs."""


OBJECTIONS = """Settings in which a hostile reader expected our advice to fail; they were run after the tables above,
each by its name (`python -m studies leaderboard gray-dir0.3-noise`). The learning rates are those of the tables. On the
same data as the table, random selection has its own gain over the table's (under the same optimizer) in parentheses,
at equal seconds of the faster of the two; each is a family of one comparison."""


INTERVALS = """The picture shows the gains of the last ten rounds under FedAvg. Each interval (95 %) is that of one
comparison; verdicts (blue: better, orange: worse) hold in the family of their setting. An arrow marks a gain beyond the
axis."""


def _gain_and_leads(table: Table, row: str, measure: str = MAIN) -> str:
    leads = table.leads(row, measure)
    return f"{table.gain(row, measure)} ({leads.replace(' of ', '/')})" if leads else ""


def _transfer(tables: Mapping[str, Table]) -> str:
    parts = []
    for measure in (MAIN, BEST):
        gains = {name: _gains(table, measure) for name, table in tables.items()}
        gains = {name: of_algos for name, of_algos in gains.items() if len(of_algos) >= FEWEST}
        if len(gains) < 2:
            return f"Fewer than two settings have {FEWEST} strategies."
        title = f"Kendall's rank correlation, {TESTED[measure]}"
        lines = [f"| {title} | " + " | ".join(gains) + " |", "|---|" + "---|" * len(gains)]
        for place, first in enumerate(gains):
            cells = [
                _shown(rank_correlation(gains[first], gains[second])) if place < other else ""
                for other, second in enumerate(gains)
            ]
            lines.append(f"| {first} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, TRANSFER])


FEWEST = 8
TRANSFER = f"""The correlation is that of the mean gains under FedAvg, without `full`, in settings with {FEWEST}
strategies or more; 1: equal orders, 0: unrelated, -1: reversed. Intervals (95 %) resample the seeds of both settings;
they do not extend to other settings or strategies."""


def _gains(table: Table, measure: str) -> dict[str, np.ndarray]:
    return {
        algo: table.values[algo][measure] - table.values[BASELINE][measure]
        for algo in protocol.ALGOS
        if algo in table.values and algo not in (BASELINE, "full")
    }


def rank_correlation(
    first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray], resamples: int = 2_000
) -> tuple[float, float, float]:
    """Return Kendall's correlation of two settings' mean gains, [seeds] each, with the ends of a bootstrap interval."""
    names = [name for name in first if name in second]
    if len(names) < 3:
        return np.nan, np.nan, np.nan
    tables = [np.stack([one[name] for name in names]) for one in (first, second)]
    rng = np.random.default_rng(0)
    drawn = [rng.integers(table.shape[1], size=(resamples, table.shape[1])) for table in tables]
    means = [table[:, index].mean(axis=-1).T for table, index in zip(tables, drawn)]
    taus = [_kendall(a, b) for a, b in zip(*means)]
    low, high = np.nanquantile(taus, (0.025, 0.975))
    return _kendall(*(table.mean(axis=1) for table in tables)), float(low), float(high)


def _kendall(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.asarray(stats.kendalltau(first, second))[0])


def _shown(found: tuple[float, float, float]) -> str:
    value, low, high = found
    return "" if np.isnan(value) else f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(dict.fromkeys(itertools.chain.from_iterable(table.values.values())))
    compared = [name for name in TESTED if (name, next(iter(table.found), ("", ""))[1]) in table.found]
    of_pairs = ("difference", "low", "high", "p_family", "leads", "verdict")
    writer.writerow(
        ["row", "times_random", *(f"{name}_{what}" for name in names for what in ("mean", "sd")),
         *(f"{name}_{what}" for name in compared for what in of_pairs)]
    )  # fmt: skip
    for row, values in table.values.items():
        numbers = [
            f(values[name]) if name in values and np.isfinite(values[name]).all() else None
            for name in names
            for f in (np.mean, partial(np.std, ddof=1))
        ]
        pairs = [
            getattr(table.found[name, row], what) if (name, row) in table.found else None
            for name in compared
            for what in of_pairs
        ]
        writer.writerow([row, *map(plain, (table.times_random[row], *numbers, *pairs))])
    return text.getvalue()


def write(out: Path, changed: Collection[str] | None = None) -> list[str]:
    """Write pages, tables and the picture; return the settings with results.

    Args:
        out: results folder.
        changed: unused; the one picture is always drawn.
    """
    del changed
    texts = pages(out)
    for name, text in texts.items():
        files.write(out / name, text.encode())
    if (drawn := picture(out)) is not None:
        files.write(out / "gains.png", drawn)
    return [name for name in SETTINGS if f"{name}/README.md" in texts]


def check(out: Path) -> list[str]:
    """Return a line per page or table that does not follow from its curves, and per run older than the protocol."""
    return checks.differences(out, pages(out), Path(protocol.__file__), (*protocol.GRIDS,))


def picture(out: Path) -> bytes | None:
    """Return the picture of all gains as PNG; None without a setting."""
    from matplotlib.figure import Figure

    found = {name: held for name in SETTINGS if (held := series.read(out / name)) is not None and BASELINE in held.rows}
    if not found:
        return None
    with_results = {row for held in found.values() for row in held.rows} - {BASELINE, "full"}
    rows: Sequence[str] = [name for name in protocol.ALGOS if name in with_results]
    figure = Figure(figsize=(1.05 * len(found) + 1.0, 0.27 * len(rows) + 1.1), layout="constrained")
    panels = figure.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, held) in zip(panels, found.items()):
        table = make_table(held.rows)
        for height, row in enumerate(reversed(rows)):
            if (one := table.found.get((MAIN, row))) is not None:
                _draw_gain(axes, height, one)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(name.replace("-", "\n", 1), fontsize="medium")
        axes.grid(alpha=0.25)
        axes.tick_params(length=0)
    panels[0].set_xlim(-LARGEST, LARGEST)
    panels[0].set_xticks((-0.05, 0.05), ("-0.05", "+0.05"), fontsize="small")
    panels[0].set_ylim(-0.6, len(rows) - 0.4)
    panels[0].set_yticks(range(len(rows)), list(reversed(rows)))
    figure.supxlabel(
        "gain in test accuracy over random selection, last ten rounds (blue: better, orange: worse, light gray: not "
        "significant)",
        fontsize="medium",
    )
    return png_bytes(figure)


_COLORS = {BETTER: COLORS[8], WORSE: COLORS[1]}


def _draw_gain(axes: Any, height: int, one: Comparison) -> None:
    """Draw a gain with its interval in a panel; one beyond the axis is written beside an arrow."""
    color = _COLORS.get(one.verdict, "#9A9A9A")
    if abs(one.difference) > LARGEST:
        side, arrow = (-1, "◂") if one.difference < 0 else (1, "▸")
        text = f"{arrow} {one.difference:+.2f}" if side < 0 else f"{one.difference:+.2f} {arrow}"
        where = "left" if side < 0 else "right"
        axes.text(0.97 * side * LARGEST, height, text, color=color, fontsize="small", ha=where, va="center")
        return
    axes.plot([one.low, one.high], [height, height], color=color, linewidth=1.5)
    axes.plot(one.difference, height, "o", color=color, markersize=4.5)
