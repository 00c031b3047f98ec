"""Rows of tables, on made-up results."""

import numpy as np
import pytest

from fedjax_sel import statistics
from studies.papers import tables, verdicts
from studies.papers.entries import ENTRIES, fl_dp3s
from studies.papers.entry import Cell, Part, Scale
from studies.papers.published import Cell as Number
from studies.papers.published import Numbers
from studies.papers.published import Row as PaperRow
from tests.studies.papers import made_up

PAPER = Numbers(
    "rounds", "rounds", ("strategy", "task"), ("a",),
    {"fast": PaperRow((Number(5.0, 1.0),), ()), "slow": PaperRow((None,), ())},
)  # fmt: skip
FAST, SLOW, NEW = Cell("a", "fast"), Cell("a", "slow"), Cell("a", "new")
EIGHT = [4, 5, 6, 5, 4, 6, 5, 5]


def rounds_rows(results, whole=True):
    return tables.rounds_rows(results, PAPER, 5, {"a": 0.5}, whole=whole)


def test_rounds_beside_the_papers():
    row, censored, new = rounds_rows(
        {FAST: made_up.arriving(EIGHT), SLOW: made_up.arriving([3, None]), NEW: made_up.arriving([3, 5])}
    )
    assert row.what == "fast: rounds to 50 %" and row.paper == "5.0 ± 1.0" and row.ours == "5.0 ± 0.8"
    assert row.seeds == 8 and row.difference.startswith("+0.0 (-") and row.verdict == verdicts.INCONCLUSIVE
    assert censored.ours == "N/A: 1 of 2 arrive; 11.5 restricted to 20" and censored.verdict == verdicts.AGREES
    assert (new.paper, new.verdict) == ("", "")


def test_what_differs():
    late, on_time = rounds_rows({FAST: made_up.arriving([12, 13, 13, 13, 14]), SLOW: made_up.arriving([3, 4])})
    assert late.difference.startswith("+8.0 (") and late.verdict == verdicts.DIFFERS
    assert on_time.paper == "N/A"
    assert on_time.verdict == verdicts.INCONCLUSIVE  # one late seed of seven may be the paper's
    [once] = rounds_rows({FAST: made_up.arriving([*EIGHT, 5, None])})
    assert once.verdict == verdicts.INCONCLUSIVE
    [never] = rounds_rows({FAST: made_up.arriving([*EIGHT[:4], *[None] * 6])})
    assert never.verdict == verdicts.DIFFERS


def test_who_has_not_arrived_in_fewer_rounds_may_still_do_so():
    results = {FAST: made_up.arriving([5, None]), SLOW: made_up.arriving([5, None])}
    assert {row.verdict for row in rounds_rows(results, whole=False)} == {verdicts.NOT_COMPARABLE}
    [arrived] = rounds_rows({FAST: made_up.arriving(EIGHT)}, whole=False)
    assert arrived.verdict == verdicts.INCONCLUSIVE


def test_a_mean_at_the_end_of_the_rounds_is_compared_only_if_all_arrive():
    """Half of the seeds of the same law do not arrive where the mean lies at the end."""
    late = [*EIGHT[:2], *[None] * 8]
    [kept] = rounds_rows({FAST: made_up.arriving(late, horizon=6)})
    [cut] = rounds_rows({FAST: made_up.arriving(late, horizon=5)})
    assert (kept.verdict, cut.verdict) == (verdicts.DIFFERS, verdicts.NOT_COMPARABLE)


def test_orders_restrict_who_does_not_arrive_and_count_the_baselines_only():
    late = [first + 3 + place % 2 for place, first in enumerate(EIGHT)]
    results = {
        FAST: made_up.arriving(EIGHT),
        SLOW: made_up.arriving([*late[:-1], None]),
        NEW: made_up.arriving([1] * 8),
    }
    [row] = tables.order_rows(results, "fast", {"a": 0.5}, against=("slow",))
    expected = np.mean(np.array(EIGHT) - [*late[:-1], 20])
    assert row.what == "fast takes fewer rounds than slow" and row.verdict == verdicts.REPRODUCED
    assert row.difference.startswith(f"{expected:+.1f} (")
    assert [row.verdict for row in tables.order_rows(results, "slow", {"a": 0.5}, against=("fast",))] == [
        verdicts.CONTRADICTED
    ]
    assert len(tables.order_rows(results, "fast", {"a": 0.5})) == 2
    assert tables.order_rows({FAST: results[FAST]}, "fast", {"a": 0.5}) == []
    [shorter] = tables.order_rows(results, "fast", {"a": 0.5}, against=("slow",), whole=False)
    assert shorter.verdict == verdicts.REPRODUCED  # in every seed one of them arrives
    both = {FAST: made_up.arriving([*EIGHT[:-1], None]), SLOW: results[SLOW]}
    [shorter] = tables.order_rows(both, "fast", {"a": 0.5}, against=("slow",), whole=False)
    assert shorter.verdict == verdicts.NOT_COMPARABLE


def test_a_family_is_a_setting():
    """2 / 2^6 passes alone, and not beside a comparison with mixed signs: 4 / 2^6."""
    noise = np.random.default_rng(0).normal(0, 0.001, (6, 1))
    best, one = made_up.result(np.full((6, 1), 0.6)), made_up.result(0.5 + noise)
    mixed = made_up.result(0.6 - 0.1 * np.array([[1.0], [1], [1], [1], [1], [-1]]))
    alone = tables.best_rows({Cell("a", "x"): best, Cell("a", "y"): one, Cell("b", "z"): mixed}, "x")
    assert [row.verdict for row in alone] == [verdicts.REPRODUCED]
    both = tables.best_rows({Cell("a", "x"): best, Cell("a", "y"): one, Cell("a", "z"): mixed}, "x")
    assert [row.verdict for row in both] == [verdicts.INCONCLUSIVE] * 2


def test_what_no_paper_claims_is_told_and_not_reproduced():
    noise = np.random.default_rng(0).normal(0, 0.001, (8, 1))
    results = {FAST: made_up.result(0.4 + noise), SLOW: made_up.result(np.full((8, 1), 0.5))}
    [row] = tables.best_rows(results, "fast", claimed=False)
    assert (row.paper, row.verdict) == ("", "worse")
    [row] = tables.best_rows(results, "fast", whole=False, claimed=False)
    assert row.verdict == verdicts.NOT_COMPARABLE


def test_how_much_faster():
    rng = np.random.default_rng(0)
    soon = 10 + rng.integers(0, 3, 10)
    results = {FAST: made_up.arriving(soon, 60), SLOW: made_up.arriving([*(2 * soon)[:-1] + 1, None], 60)}

    def gain(*ends, less=0.0, **how):
        [row] = tables.gain_rows(results, "fast", "slow", {"a": 0.5}, {"a": ends, "b": ends}, less, **how)
        return row

    expected = (2 * soon[:-1] + 1).sum() + 60  # who does not arrive counts all rounds
    row = gain(1.9, 2.2)
    assert row.ours.startswith(f"{expected / soon.sum():.2f} (") and row.verdict == verdicts.INCONCLUSIVE
    row = gain(0.5, 3.0, less=1.0)
    assert row.ours.startswith(f"{expected / soon.sum() - 1:.2f} (") and row.verdict == verdicts.AGREES
    assert row.what == "rounds of slow over rounds of fast, less 1"
    assert gain(0.2, 1.5).verdict == gain(4.0, 5.0).verdict == verdicts.DIFFERS
    assert gain(1.9, 2.2, whole=False).verdict == verdicts.NOT_COMPARABLE


def test_accuracies_at_shares_of_the_rounds():
    accuracy = np.tile(np.linspace(0.05, 1.0, 20), (5, 1)) + np.array([[-0.01], [-0.01], [0.0], [0.01], [0.01]])
    paper = Numbers("", "", ("", ""), ("a",), {"fast": PaperRow((Number(0.25),), ())})
    rows = tables.accuracy_rows({FAST: made_up.result(accuracy)}, {0.25: paper, 1.0: paper})
    assert rows[0].what == "fast: accuracy at 25 % of the rounds" and rows[0].ours == "0.250 ± 0.010"
    assert rows[0].paper == "0.2500" and rows[0].verdict == verdicts.INCONCLUSIVE
    close = tables.accuracy_rows({FAST: made_up.result(0.25 + (accuracy - 0.25) / 10)}, {0.25: paper})
    assert close[0].verdict == verdicts.AGREES
    assert rows[1].ours == "0.775 ± 0.010" and rows[1].verdict == verdicts.DIFFERS  # rounds 11 to 20
    shorter = tables.accuracy_rows({FAST: made_up.result(accuracy)}, {0.25: paper}, whole=False)
    assert shorter[0].verdict == verdicts.NOT_COMPARABLE


def test_the_end_of_fewer_rounds_is_no_end():
    results = {FAST: made_up.result(np.full((8, 3), 0.6)), SLOW: made_up.result(np.full((8, 3), 0.5))}
    assert [row.verdict for row in tables.best_rows(results, "fast", whole=False)] == [verdicts.NOT_COMPARABLE]
    contest = tables.contest_rows(results, "fast", tables.mean_accuracy, "is above", 3, whole=False)
    assert [row.verdict for row in contest] == [verdicts.NOT_COMPARABLE]


@pytest.mark.parametrize(
    "name,column,rows",
    [
        ("fedcor/fig4", "fmnist-1spc", ("random", "fedcor")),
        ("fedgp/fig2", "fmnist-1spc", ("random", "fedgp")),
        ("gpfl/fig3", "fmnist-1spc", ("random", "gpfl")),
        ("gpfl/fig4", "fmnist-2spc", ("random", "fedcor", "gpfl")),
        ("fl_dp3s/fig1", "mnist-xih", ("random", "fl_dp3s")),
        ("fl_dp3s/fig2", "mnist-xi1", ("random", "fl_dp3s", "fedsae")),
    ],
)
def test_orders_of_fewer_rounds_are_not_comparable(name, column, rows):
    """Of accuracies, distances and coverage: where seeds would end, or cover all clients, is not known."""
    results = {}
    for place, row in enumerate(rows):
        values = np.full((8, 12), 0.5 + 0.1 * place)
        cohorts = np.tile(np.arange(12)[:, None] // (1 + place) % 4, (8, 1, 1))
        results[Cell(column, row)] = made_up.result(values, cohorts, train_accuracy=values, gemd=1 - values)
    whole, fewer = (ENTRIES[name].judge(results, scale).rows for scale in (Scale(), Scale(share=0.1)))
    judged = [row.what for row in whole if " than " in row.what]
    assert judged and verdicts.REPRODUCED in {row.verdict for row in whole}
    assert {row.verdict for row in fewer if row.what in judged} == {verdicts.NOT_COMPARABLE}


def test_a_single_seed_is_not_close():
    """One seed has no interval, so nothing is told of how close it is."""
    results = {Cell("fmnist-2spc", f"beta={beta}"): made_up.result(np.full((1, 8), 0.5)) for beta in (0.5, 0.95)}
    rows = [row for row in ENTRIES["fedcor/fig8"].judge(results, Scale()).rows if "within" in row.what]
    assert [row.verdict for row in rows] == [verdicts.NOT_COMPARABLE] * 2


def test_rules_say_once_what_an_order_is():
    for name, entry in ENTRIES.items():
        assert entry.rule.count("An order is reproduced") <= 1, name
        assert "a family is a setting" not in entry.rule


def test_rules_say_who_has_not_arrived():
    for name, rounds in (("fedcor/table1", "500 or 2000"), ("fedgp/table1", "500 or 2000"), ("fl_dp3s/fig1", "260")):
        assert (tables.ARRIVAL in ENTRIES[name].rule) == (name != "fl_dp3s/fig1")  # whose number is no mean over seeds
        assert f'"Restricted to {rounds}" is' in ENTRIES[name].rule
    assert "exceeds 90 % of the rounds run" in tables.ARRIVAL


def covering(firsts, horizon=120):
    """A run whose last client is first selected in these rounds."""
    cohorts = np.zeros((len(firsts), horizon, 1), int)
    for seed, first in enumerate(firsts):
        cohorts[seed, 1, 0], cohorts[seed, 2, 0] = 1, 2
        if first is not None:
            cohorts[seed, first - 1 :, 0] = 3
    return made_up.result(np.zeros((len(firsts), horizon)), cohorts)


def test_coverage():
    column = "fmnist-2spc"
    results = {
        Cell(column, "random"): covering([90, 95, 100, 105, 110, 98, 102, 101]),
        Cell(column, "pow_d"): covering([10, 11, 12, 11, 10, 12, 11, 10]),
        Cell(column, "fedcor"): covering([None] * 8),
        Cell(column, "gpfl"): covering([20, 21, 22, 21, 20, 20, 21, 22]),
    }
    judge = ENTRIES["gpfl/fig4"].judge
    rows = {row.what: row for row in judge(results, Scale()).rows}
    said = {cell.row: rows[f"{cell.row}: round in which all clients were selected once"] for cell in results}
    assert (said["gpfl"].verdict, said["random"].verdict) == (verdicts.BY_CONSTRUCTION, verdicts.AGREES)
    assert said["pow_d"].verdict == said["fedcor"].verdict == verdicts.DIFFERS
    assert said["random"].paper == "about 100" and said["gpfl"].paper == "within 50"
    assert said["fedcor"].ours == "0 of 8 seeds within 120"
    assert rows["gpfl has selected everyone sooner than random"].verdict == verdicts.BY_CONSTRUCTION
    assert rows["gpfl has selected everyone sooner than pow_d"].verdict == verdicts.CONTRADICTED
    assert rows["fedcor has selected everyone later than random"].verdict == verdicts.REPRODUCED
    shorter = {row.what: row for row in judge(results, Scale(share=0.5)).rows}
    assert shorter["fedcor: round in which all clients were selected once"].verdict == verdicts.NOT_COMPARABLE


def test_tails():
    cohorts = np.zeros((3, 8, 1), int)
    cohorts[:, 6:, 0] = [[1, 2], [3, 1], [1, 3]]
    cohorts[1, 5, 0] = 2
    runs = [made_up.result(np.zeros((len(one), 8)), one) for one in (cohorts, np.concatenate([cohorts] * 2))]
    few, more = (ENTRIES["gpfl/fig5"].judge({Cell("fmnist-2spc", "gpfl"): run}, Scale()) for run in runs)
    assert [row.ours.split(" (")[0] for row in few.rows[:2]] == ["5.7 ± 0.6", "2.0 ± 0.0"]
    assert few.rows[0].paper == more.rows[0].paper == "about 500"
    assert (few.rows[0].verdict, more.rows[0].verdict) == (statistics.TOO_FEW_SEEDS, verdicts.DIFFERS)


def test_frequencies_vary_less():
    uniform = [[[place] for place in (0, 1, 2, 3, 0, 1, 2, 3)]] * 8
    skewed = [[[0]] * 8] * 8
    column = "fmnist-2spc"
    results = {
        Cell(column, "beta=0.5"): made_up.result(np.full((8, 8), 0.5), uniform),
        Cell(column, "beta=0.95"): made_up.result(np.full((8, 8), 0.51), skewed),
    }
    frequency, close, over_all = ENTRIES["fedcor/fig6"].judge(results, Scale()).rows
    assert frequency.verdict == verdicts.REPRODUCED and "beta=0.5 than with beta=0.95" in frequency.what
    assert close.what == "beta=0.5 ends within 0.03 of beta=0.95" and close.verdict == verdicts.REPRODUCED
    assert close.difference == over_all.difference == "-0.010 (-0.010 to -0.010)"
    assert over_all.what == "beta=0.5 has an accuracy over all rounds within 0.03 of beta=0.95"
    shorter = ENTRIES["fedcor/fig6"].judge(results, Scale(share=0.5)).rows
    assert {row.verdict for row in shorter} == {verdicts.NOT_COMPARABLE}


def test_the_reference_is_the_settings_own():
    def run(end, first=None):
        accuracy = np.concatenate([np.full((8, 10), end if first is None else first), np.full((8, 10), end)], axis=1)
        return made_up.result(accuracy + np.linspace(0, 0.001, 8)[:, None])

    results = {
        Cell("fmnist-1spc", "interval=10"): run(0.6),
        Cell("fmnist-1spc", "interval=500"): run(0.5),
        Cell("fmnist-1spc", "random"): run(0.4),
        Cell("cifar10-1spc", "interval=50"): run(0.3),
        Cell("cifar10-1spc", "interval=2000"): run(0.31, first=0.1),
    }
    over_all = "has an accuracy over all rounds"
    rows = {(row.setting, row.what): row.verdict for row in ENTRIES["fedcor/fig5"].judge(results, Scale()).rows}
    assert rows == {
        ("fmnist-1spc", "interval=500 ends within 0.03 of interval=10"): verdicts.CONTRADICTED,
        ("fmnist-1spc", f"interval=500 {over_all} within 0.03 of interval=10"): verdicts.CONTRADICTED,
        ("cifar10-1spc", "interval=2000 ends within 0.03 of interval=50"): verdicts.REPRODUCED,
        ("cifar10-1spc", f"interval=2000 {over_all} within 0.03 of interval=50"): verdicts.CONTRADICTED,
        ("fmnist-1spc", "interval=10 ends above random"): verdicts.REPRODUCED,
        ("fmnist-1spc", "interval=500 ends above random"): verdicts.REPRODUCED,
        ("fmnist-1spc", f"interval=10 {over_all} above random"): verdicts.REPRODUCED,
        ("fmnist-1spc", f"interval=500 {over_all} above random"): verdicts.REPRODUCED,
    }


def training(firsts, rounds=30, **columns):
    """A run whose seeds are at 95 % training accuracy from these rounds on, and on the way before."""
    accuracy = np.full((len(firsts), rounds), 0.95)
    for values, first in zip(accuracy, firsts):
        values[: first - 1] = np.linspace(0.1, 0.6, first - 1)
    return made_up.result(accuracy, train_accuracy=accuracy, **columns)


def test_leads_and_spreads():
    seeds = np.arange(8)
    results = {
        Cell("mnist-xi1", "fl_dp3s"): training(5 + seeds % 2),
        Cell("mnist-xi1", "random"): training(20 + seeds % 3),
        Cell("mnist-xih", "fl_dp3s"): training(5 + seeds % 2),
        Cell("mnist-xih", "random"): training(8 + seeds % 3),
    }
    rows = {row.what: row for row in ENTRIES["fl_dp3s/fig1"].judge(results, Scale()).rows}
    # FL-DP3S could have ended after 6 rounds, in which random is the higher the sooner it arrives
    lead = rows["the lead over random is greater under mnist-xi1 than under mnist-xih"]
    sooner, later = (results[Cell(column, "random")].measured["train_accuracy"][:, :6].mean()
                     for column in ("mnist-xih", "mnist-xi1"))  # fmt: skip
    assert lead.verdict == verdicts.REPRODUCED and lead.difference.startswith(f"{sooner - later:+.3f} (+")
    for setting in ("mnist-xi1", "mnist-xih"):
        assert verdicts.REPRODUCED in [
            row.verdict for row in ENTRIES["fl_dp3s/fig1"].judge(results, Scale()).rows
            if row.setting == setting and row.what == "fl_dp3s has a higher accuracy over the rounds than random"
        ]  # fmt: skip
    mean = rows["random: round in which the mean over seeds is at 90 %"]
    assert (mean.paper, mean.ours, mean.verdict) == ("127", "22", verdicts.DIFFERS)  # the latest of 20, 21 and 22
    assert rows["random: rounds to 90 %"].paper == ""  # which is of single seeds
    greedy = (
        ENTRIES["fl_dp3s/fig1"]
        .judge({Cell("mnist-xi1", "fedsae greedy"): training(258 + seeds % 3, 260)}, Scale())
        .rows
    )
    assert (greedy[1].paper, greedy[1].verdict) == ("259", verdicts.AGREES)  # up to four rounds late
    assert rows["fl_dp3s takes fewer rounds than random"].verdict == verdicts.REPRODUCED


INITIALIZERS = ("kaiming-uniform", "kaiming-normal", "xavier-uniform", "xavier-normal")


def spreads(ours, randoms):
    """Fig. 6's rows of the ranges, of rounds and of accuracy, where each initialization's seeds arrive so."""
    results = {}
    for name, one, other in zip(INITIALIZERS, ours, randoms):
        results |= {
            Cell(f"mnist-xi1 {name}", "fl_dp3s"): training(one),
            Cell(f"mnist-xi1 {name}", "random"): training(other),
        }
    rows = ENTRIES["fl_dp3s/fig6"].judge(results, Scale()).rows
    return [row for row in rows if row.what.startswith("the range")]


def test_spreads_over_initializations():
    seeds = np.arange(8)
    same, apart = [5 + seeds % 2] * 4, [6 + 4 * place + seeds % 2 for place in range(4)]
    rounds, over = spreads(same, apart)
    assert rounds.difference == "-12.0" and rounds.verdict == verdicts.REPRODUCED
    assert over.ours.startswith("0.000 (p = 1) against 0.") and over.verdict == verdicts.REPRODUCED
    assert [row.verdict for row in spreads(apart, same)] == [verdicts.CONTRADICTED] * 2
    noise = np.random.default_rng(0).integers(5, 25, (4, 2, 8))
    rounds, _ = spreads(5 + noise[:, 0] % 3, noise[:, 1])
    assert rounds.verdict == verdicts.INCONCLUSIVE  # chance alone, although random's means lie farther apart
    for row in spreads([one[:1] for one in same], [one[:1] for one in apart]):
        assert row.verdict == verdicts.INCONCLUSIVE and "p = " not in row.ours  # a test needs two blocks


def test_profiles_are_held_against_each_other_by_rounds_and_by_accuracy():
    seeds = np.arange(8)
    results = {
        Cell("mnist-xi1", "fc1"): training(5 + seeds % 2),
        Cell("mnist-xi1", "gradient"): training(20 + seeds % 3),
    }
    rows = ENTRIES["fl_dp3s/fig3"].judge(results, Scale()).rows
    assert [(row.what, row.verdict) for row in rows] == [
        ("fc1 takes fewer rounds than gradient", verdicts.REPRODUCED),
        ("fc1 has a higher accuracy over the rounds than gradient", verdicts.REPRODUCED),
    ]


def ending(firsts, rounds):
    """A training run of so many rounds, whose distances and accuracies turn round after the twelfth."""
    seeds = len(firsts)
    gemd = np.where(np.arange(rounds) < 12, 0.1, 5.0) + 0.01 * np.arange(seeds)[:, None]
    return training(firsts, rounds, gemd=gemd)


@pytest.mark.parametrize("name", ["fl_dp3s/fig1", "fl_dp3s/fig2"])
def test_how_a_run_happened_to_end_changes_nothing(name):
    """Runs that arrived may have ended there, or have gone on: rounds count to where the first could have ended."""
    firsts = {"fl_dp3s": 10 + np.arange(8) % 3, "random": 10 + np.arange(8) % 2, "fedsae": 14 + np.arange(8) % 2}

    def rows(rounds):
        results = {}
        for column in ("mnist-xi1", "mnist-xih"):
            for row, first in firsts.items():
                run = ending(first, rounds)
                if row != "fl_dp3s":  # one distance throughout: less than that of late rounds
                    run.measured["gemd"] = np.full((8, rounds), 1.0)
                results[Cell(column, row)] = run
        return ENTRIES[name].judge(results, Scale()).rows

    early, late = rows(16), rows(260)
    assert early == late
    if name == "fl_dp3s/fig2":
        lower = [row for row in late if "GEMD" in row.what]
        assert lower and {row.verdict for row in lower} == {verdicts.REPRODUCED}


def test_a_run_that_does_not_arrive_counts_all_its_rounds():
    """The mean over seeds is at 90 % when all seeds are, and a seed that never is leaves the run without an end."""
    assert fl_dp3s._enough_after(training([5, 9, 7])) == 9
    wavering = training([5, 9, 7])
    wavering.measured["train_accuracy"][:, 8:20] = [[0.95] * 12, [0.9] + [0.5] * 11, [0.5] * 12]
    assert fl_dp3s._enough_after(wavering) == 21  # the mean
    never = training([5, 9, 7])
    never.measured["train_accuracy"][0] = 0.1
    assert fl_dp3s._enough_after(never) == 30


def test_a_lead_is_held_against_the_next_skewness_only():
    results = {
        Cell(f"mnist-xi{skewness}", algo): training(first + np.arange(8) % 2)
        for skewness, first in (("1", 20), ("0.8", 12), ("0.5", 8))
        for algo, first in (("fl_dp3s", 5), ("random", first))
    }
    leads = [row.what for row in ENTRIES["fl_dp3s/fig1"].judge(results, Scale()).rows if "lead" in row.what]
    assert leads == ["the lead over random is greater under mnist-xi0.8 than under mnist-xi0.5"]


def test_exploration_is_judged_by_the_constants():
    """The text's gain is that of a constant over none, and not that of the slope."""
    ends = {"alpha = 0": 0.6, "alpha = 0.1": 0.65, "alpha = 2": 0.7, "alpha = 5": 0.62, "alpha = t / T": 0.9}
    noise = np.random.default_rng(0).normal(0, 0.004, (8, 1))
    results = {
        Cell("fmnist-2spc", name + ending): made_up.result(np.full((8, 12), end) + place * noise)
        for place, (name, end) in enumerate(ends.items())
        for ending in ("", ", released code")
    }
    rows = {row.what: row for row in ENTRIES["gpfl/fig7"].judge(results, Scale()).rows}
    for ending in ("", ", released code"):
        gain = rows[f"accuracy with alpha = 2{ending} less that with alpha = 0{ending}"]
        assert gain.paper == "nearly 0.10" and gain.ours.startswith("0.10")
        below = rows[f"alpha = 0{ending} ends below alpha = 5{ending}"]
        assert gain.verdict == below.verdict == verdicts.NOT_COMPARABLE  # the text's are of more than 500 rounds
        assert below.difference.startswith("-0.02")
        assert rows[f"alpha = t / T{ending} ends above alpha = 2{ending}"].verdict == verdicts.REPRODUCED
    logged = rows["alpha = t / T, released code: last ten rounds' accuracy"]
    assert logged.paper == "0.739 (log)" and logged.verdict == verdicts.DIFFERS
    shorter = ENTRIES["gpfl/fig7"].judge(results, Scale(share=0.5)).rows
    assert {row.verdict for row in shorter} == {verdicts.NOT_COMPARABLE}
    del results[Cell("fmnist-2spc", "alpha = 5")]
    assert not any(row.what == "accuracy with alpha = 2 less that with alpha = 0"
                   for row in ENTRIES["gpfl/fig7"].judge(results, Scale()).rows)  # fmt: skip


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.of_part(Part()).runs])
def test_a_page_without_results_is_empty(name):
    page = ENTRIES[name].judge({}, Scale())
    assert not page.rows and not page.pictures
