"""Paired differences behind the tables of a comparison, and in comparison_pairs.csv."""

import csv
import dataclasses
import io

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import metrics, statistics, tasks
from fedjax_sel.reporting import comparison
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation.ledger import Ledger

NOISE = np.random.default_rng(3).normal(0, 0.004, 10)


def made_up(last, target=0.6, rounds=12, arrival=None, seconds=None):
    """A result whose mean over the last ten rounds is `last`, one a seed, and that reaches the target when told to.

    With a clock, each round takes `seconds`.
    """
    last = np.asarray(last)
    config = fedjax_sel.preset("quickstart").replace(
        seeds=len(last), rounds=rounds, target_accuracy=target, num_clients=4, num_selected=2
    )
    accuracy = np.repeat(last[:, None], rounds, axis=1)
    for seed, at in enumerate([] if arrival is None else arrival):
        if at is not None:
            accuracy[seed, at - 1] = target
    ledger = Ledger(*(np.ones(accuracy.shape, np.int64) for _ in Ledger._fields))
    measured = dict.fromkeys(tasks.names(tasks.classification()), np.full(accuracy.shape, np.nan))
    measured["test_accuracy"] = accuracy
    if seconds is not None:
        measured["seconds"] = np.full(accuracy.shape, seconds, np.float32)
    cohorts = np.zeros((*accuracy.shape, 2), np.int32)
    return Result(config, "made up", config.run.seeds, measured, cohorts, ledger, np.arange(1.0, rounds + 1))


def paired(results, optimizers=None):
    """The rows and pairs of named results."""
    labels = optimizers or [""] * len(results)
    rows = [comparison.row("s", name, result, optimizer=label) for (name, result), label in zip(results, labels)]
    return rows, comparison.pairs(rows, [of_strategy(name, result) for name, result in results])


def of_strategy(name, result):
    """A result whose configuration has the strategy and the parameters of a row's name."""
    algo, _, parameters = name.removesuffix("]").partition("[")
    return dataclasses.replace(result, config=result.config.replace(algo=algo, algo_args=parameters))


def test_strategies_are_compared_with_random_in_words():
    base = np.linspace(0.3, 0.4, 10)  # seeds differ by more than strategies do
    results = [
        ("good", made_up(base + 0.02 + NOISE, target=None)),
        ("random", made_up(base, target=None)),
        ("bad", made_up(base - 0.02 + NOISE, target=None)),
        ("same", made_up(base + NOISE - NOISE.mean(), target=None)),
    ]
    rows, pairs = paired(results)
    assert [(one.algo, one.baseline, one.found.verdict) for one in pairs] == [
        ("good", "random", "better"), ("bad", "random", "worse"), ("same", "random", "not significant"),
    ]  # fmt: skip
    expected = statistics.compare(np.stack([0.02 + NOISE, NOISE - 0.02, NOISE - NOISE.mean()]))
    for pair, one in zip(pairs, expected):
        np.testing.assert_allclose(
            pair.found[:7], one[:7], atol=1e-6
        )  # rounding decides which resampled means are tied
    text = comparison.by_conditions(pairs)["s"]
    assert "rounds | difference | 95 % interval | joint p | leads in seeds | verdict |" in text
    line = next(line for line in text.splitlines() if line.startswith("| good minus random |"))
    good = expected[0]
    shown = f"| {good.difference:+.4f} | {good.low:+.4f} to {good.high:+.4f} | 0.002 | 10 of 10 | better |"
    assert line.endswith(shown) and "Too few" not in text
    page = comparison.document(rows, {"s": "title"}, [], 4, "command", {"s": text})
    assert page.index("| bad |") < page.index("| good minus random |") < page.index(comparison.NOTES_ON_PAIRS)


def test_leaders_are_compared_with_each_other():
    levels = {"random": 0.0, "best": 0.2, "bad": -0.1, "good": 0.1, "fair": 0.05}
    noise = np.random.default_rng(0).normal(0, 0.004, (5, 10))
    _, pairs = paired([(name, made_up(0.5 + level + one)) for (name, level), one in zip(levels.items(), noise)])
    leaders = [pair for pair in pairs if pair.measure == comparison.LEADERS]
    assert [(one.algo, one.baseline, one.found.verdict) for one in leaders] == [
        ("best", "good", "better"), ("best", "fair", "better"), ("good", "fair", "better"),
    ]  # fmt: skip
    text = comparison.by_conditions(pairs)["s"]
    assert "| leaders: test accuracy, mean of the last 10 rounds | difference |" in text
    assert "| good minus fair | +0.0" in text
    lines = csv.DictReader(io.StringIO(comparison.pairs_as_csv(pairs)))
    assert [line["leads"] for line in lines if line["measure"] == "last_10_rounds_of_leaders"] == ["10"] * 3


def test_without_random_the_first_strategy_is_the_baseline():
    _, pairs = paired([(name, made_up(0.3 + NOISE + shift)) for name, shift in (("b", 0), ("a", 0.01))])
    assert {(one.algo, one.baseline) for one in pairs} == {("a", "b")}
    assert len({one.measure for one in pairs}) == 2


def test_a_variant_of_random_is_the_baseline_before_what_comes_first():
    """A report lists folders by name, and `compare` lists strategies as they were given."""
    rows = [(name, made_up(0.3 + NOISE)) for name in ("clustered", "random[variant=md]", "fed_cbs")]
    _, pairs = paired(rows)
    assert {one.baseline for one in pairs} == {"random[variant=md]"}


def test_rounds_to_a_target_are_restricted_to_all_rounds_and_fewer_are_better():
    here, there = [2, 3, 2, 2, 3, 2, 4, 2, 3, 2], [9, 8, None, 10, 9, None, 12, 7, 8, 9]
    low = np.full(10, 0.1)
    _, pairs = paired([("random", made_up(low, arrival=there)), ("quick", made_up(low, arrival=here))])
    (pair,) = [one for one in pairs if one.measure == comparison.RESTRICTED_ROUNDS]
    assert pair.horizon == 12 and (pair.arrived, pair.baseline_arrived) == (1.0, 0.8)
    assert pair.found.difference == np.mean(here) - np.mean([12 if at is None else at for at in there])
    assert pair.found.verdict == "better" and pair.found.high < 0
    assert "rounds to 60% test accuracy, restricted to 12" in comparison.by_conditions(pairs)["s"]


def test_seconds_are_compared_as_rounds_are_within_what_the_fastest_run_takes():
    here, there = [2, 3, 2, 2, 3, 2, 4, 2, 3, 2], [9, 8, None, 10, 9, None, 12, 7, 8, 9]
    results = [
        ("random", made_up(np.full(10, 0.3), arrival=there, seconds=1.0)),
        ("slow", made_up(np.full(10, 0.4) + NOISE, arrival=here, seconds=2.5)),  # the first four rounds fit in 12 s
    ]
    rows, pairs = paired(results)
    found = {one.measure: one for one in pairs}
    assert list(found) == [
        comparison.LAST_ROUNDS_MEASURE, comparison.RESTRICTED_ROUNDS,
        comparison.EQUAL_SECONDS, comparison.RESTRICTED_SECONDS,
    ]  # fmt: skip
    seconds, equal = found[comparison.RESTRICTED_SECONDS], found[comparison.EQUAL_SECONDS]
    assert (seconds.horizon, seconds.arrived, seconds.baseline_arrived) == (12.0, 1.0, 0.8)
    expected = 2.5 * np.mean(here) - np.mean([12 if at is None else at for at in there])
    assert seconds.found.difference == pytest.approx(expected)
    base, slow = (metrics.value_at(one.test_accuracy, one.seconds_spent, 12.0) for _, one in results)
    assert equal.found.difference == pytest.approx((slow - base).mean()) and equal.found.verdict == "better"
    text = comparison.by_conditions(pairs)["s"]
    assert "| test accuracy after 12 simulated seconds |" in text
    assert "| simulated seconds to 60% test accuracy, restricted to 12 |" in text

    rows = comparison.with_equal_seconds(rows, [result for _, result in results])
    columns = comparison.columns(rows)
    assert columns["simulated seconds"] == ["12.0 ± 0.0", "30.0 ± 0.0"]
    assert columns["seconds to 60%"] == ["N/A (8 of 10 seeds)", "6.2 ± 1.8"]
    assert columns["test accuracy after 12 s"][1].startswith(f"{slow.mean():.4f}")
    first, second = csv.DictReader(io.StringIO(comparison.as_csv(rows)))
    assert (first["seconds_to_target_mean"], first["seconds_to_target_seeds_reached"]) == ("N/A", "8")
    assert (second["seconds_mean"], second["equal_seconds"]) == ("30", "12")
    assert float(second["at_equal_seconds_accuracy_mean"]) == pytest.approx(slow.mean())
    assert comparison.NOTES_ON_SECONDS in comparison.document(rows, {"s": "title"}, [], 2, "command")


def test_without_a_clock_there_are_no_seconds():
    results = [(name, made_up(np.full(10, 0.3))) for name in ("random", "other")]
    rows, pairs = paired(results)
    assert comparison.with_equal_seconds(rows, [result for _, result in results]) == rows
    assert {one.measure for one in pairs} == {comparison.LAST_ROUNDS_MEASURE, comparison.RESTRICTED_ROUNDS}
    page = comparison.document(rows, {"s": "title"}, [], 2, "command", comparison.by_conditions(pairs))
    assert "simulated" not in page and "seconds to" not in page
    assert [name for name in comparison.as_csv(rows).splitlines()[0].split(",") if "seconds" in name] == [
        "compilation_seconds"
    ]


def test_where_no_round_fits_the_equal_seconds_there_is_no_value():
    results = [(name, made_up(np.full(10, 0.3), target=None, seconds=one)) for name, one in (("a", 1.0), ("b", 20.0))]
    rows, pairs = paired(results)
    assert pairs[-1].measure == comparison.EQUAL_SECONDS and pairs[-1].found is None
    rows = comparison.with_equal_seconds(rows, [result for _, result in results])
    assert comparison.columns(rows)["test accuracy after 12 s"] == ["0.3000 ± 0.0000", "N/A (0 of 10 seeds)"]


@pytest.mark.parametrize("seeds,strategies", [(5, 1), (5, 2)])
def test_too_few_seeds_say_so(seeds, strategies):
    results = [("random", made_up(np.full(seeds, 0.3), target=None))]
    results += [(f"s{place}", made_up(0.5 + NOISE[:seeds], target=None)) for place in range(strategies)]
    _, pairs = paired(results)
    assert {one.found.verdict for one in pairs} == {"too few seeds"}
    text = comparison.by_conditions(pairs)["s"]
    assert f"{seeds} seeds are too few to tell (6 needed)." in text


def test_each_optimizer_has_its_own_baseline_and_family():
    results = [(name, made_up(0.3 + NOISE + 0.001 * place)) for place, name in enumerate(["random", "a"] * 2)]
    _, pairs = paired(results, ["o", "o", "p", "p"])
    assert [(one.conditions, one.algo) for one in pairs] == [("s, o", "a")] * 2 + [("s, p", "a")] * 2
    assert set(comparison.by_conditions(pairs)) == {"s, o", "s, p"}


def test_a_seed_that_was_not_measured_leaves_the_family():
    missing = made_up(0.5 + NOISE, target=None)
    accuracy = missing.test_accuracy.copy()
    accuracy[4, -10:] = np.nan
    missing = dataclasses.replace(missing, measured=missing.measured | {"test_accuracy": accuracy})
    _, pairs = paired(
        [
            ("random", made_up(0.3 + NOISE, target=None)),
            ("missing", missing),
            ("good", made_up(0.4 + 2 * NOISE, target=None)),
        ]
    )
    assert pairs[0].found is None and pairs[1].found.p_family == pairs[1].found.p
    text = comparison.by_conditions(pairs)["s"]
    assert "| missing minus random | N/A | N/A | N/A | N/A | not measured |" in text
    lines = list(csv.DictReader(io.StringIO(comparison.pairs_as_csv(pairs))))
    assert lines[0]["difference"] == lines[0]["verdict"] == "N/A" and lines[1]["verdict"] == "better"


def test_a_single_strategy_or_seed():
    _, pairs = paired([("a", made_up(NOISE))])
    assert pairs == [] and comparison.by_conditions(pairs) == {}
    _, pairs = paired([(name, made_up([0.3], target=None)) for name in ("random", "a|b")])
    text = comparison.by_conditions(pairs)["s"]
    assert r"| a\|b minus random | +0.0000 |  | 1 | 0 of 1 | too few seeds |" in text
    (line,) = csv.DictReader(io.StringIO(comparison.pairs_as_csv(pairs)))
    assert (line["low"], line["high"], line["seeds"], line["horizon"]) == ("", "", "1", "")
