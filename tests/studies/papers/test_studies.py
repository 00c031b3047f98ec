"""What entries compute beside tables of runs: neighbors, profiles, descent, convergence, seconds."""

import dataclasses
import shutil

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.errors import DamagedRunError
from fedjax_sel.experiment.problem import pose
from studies.papers import state, verdicts
from studies.papers.entries import (
    ENTRIES,
    embeddings,
    fedcor,
    fedcor_normality,
    fedcor_proxy,
    fedcor_toy,
    fl_dp3s,
    fl_dp3s_profiles,
    fl_dp3s_untrained,
    gpfl_descent,
    gpfl_selections,
    gpfl_statistics,
    gpfl_time,
    gpfl_writers,
)
from studies.papers.entry import Cell, Scale
from tests.studies.papers import made_up
from tests.studies.papers.small import SMALL


def test_purity_goes_by_the_angle():
    directions = np.array([[1.0, 0.0], [5.0, 0.5], [0.0, 1.0], [0.1, 0.2]]).T  # lengths do not matter
    assert embeddings.purity(directions, np.array([0, 0, 1, 1])) == 1.0
    assert embeddings.purity(directions, np.array([0, 1, 0, 1])) == 0.0
    assert embeddings.purity(directions, np.array([0, 0, 1, 2])) == 0.5
    assert embeddings.chance(np.repeat(np.arange(10), 10)) == pytest.approx(9 / 99)


def test_random_embeddings_are_as_pure_as_chance():
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(10), 10)
    found = [embeddings.purity(rng.normal(size=(15, 100)), labels) for _ in range(300)]
    assert np.mean(found) == pytest.approx(embeddings.chance(labels), abs=4 * np.std(found) / 300**0.5)


@pytest.mark.parametrize(
    "purity,verdict",
    [(0.9, verdicts.REPRODUCED), (0.3, verdicts.NOT_REPRODUCED), (0.0, verdicts.CONTRADICTED)],
)
def test_the_verdict_on_neighbors(monkeypatch, purity, verdict):
    monkeypatch.setattr(state, "after", lambda result: {".strategy.embeddings": np.ones((5, 2, 8))})
    monkeypatch.setattr(state, "main_labels", lambda result: np.tile(np.arange(8) % 4, (5, 1)))
    monkeypatch.setattr(embeddings, "purity", lambda one, labels: purity)
    monkeypatch.setattr(embeddings, "_figure", lambda one, labels: None)
    page = ENTRIES["fedcor/fig7"].judge({Cell("fmnist-1spc", "fedcor"): made_up.result(np.zeros((5, 2)))}, Scale())
    assert [row.verdict for row in page.rows] == [verdict]


def test_constants_of_exploration_are_judged_after_a_thousand_rounds():
    rng = np.random.default_rng(0)
    levels = {"alpha = 0": 0.5, "alpha = 0.1": 0.6, "alpha = 2": 0.55, "alpha = 5": 0.55}
    for rounds, verdict in ((500, verdicts.NOT_COMPARABLE), (1000, verdicts.AGREES)):
        results = {
            Cell("fmnist-2spc", row): made_up.result(np.full((10, rounds), level) + rng.normal(0, 1e-3, (10, 1)))
            for row, level in levels.items()
        }
        gain, *orders = ENTRIES["gpfl/fig7"].judge(results, Scale(rounds=rounds)).rows
        assert gain.what == "accuracy with alpha = 0.1 less that with alpha = 0" and gain.verdict == verdict
        assert {row.verdict == verdicts.NOT_COMPARABLE for row in orders} == {rounds == 500}


@pytest.mark.slow
def test_the_state_of_a_run_is_read_from_its_folder(tmp_path):
    config = SMALL.replace(algo="fl_dp3s", rounds=1, seeds=2, out=str(tmp_path / "run"))
    result = fedjax_sel.run(config)
    kept = [state.keeping(name) for name in (fl_dp3s_profiles.SIMILARITIES, fl_dp3s_profiles.PROFILES)]
    for number, one in enumerate(kept):
        assert not one.is_there(result, Scale())
        assert list(one.take(result, Scale())) == [""] and len(state.after(result)) == number + 1
    assert all(one.is_there(result, Scale()) and not list(one.take(result, Scale())) for one in kept)
    similarity, profiles = state.after(result).values()
    assert similarity.shape == (2, 10, 10) and profiles.shape[:2] == (2, 10)
    distances = np.linalg.norm(profiles[:, :, None] - profiles[:, None], axis=3)
    for own, expected in zip(similarity, distances):
        others = ~np.eye(10, dtype=bool)
        assert np.corrcoef(own[others], expected[others])[0, 1] == pytest.approx(-1.0, abs=1e-4)  # Eq. 14
    labels = state.main_labels(result)
    assert labels.shape == (2, 10) and set(labels.ravel()) <= set(range(10))
    other = state.keeping(".carry.params")
    (place,) = (tmp_path / "run" / "checkpoints").iterdir()
    (place / "manifest.json").write_text("{}")
    with pytest.raises(DamagedRunError, match=r"manifest.json cannot be read .* remove .*run to run it again"):
        list(other.take(result, Scale()))
    shutil.rmtree(place)
    with pytest.raises(DamagedRunError, match="it has no checkpoint after round 1; remove "):
        list(other.take(result, Scale()))
    assert not other.is_there(result, Scale())


def test_profiles_and_kernels(monkeypatch):
    rng = np.random.default_rng(0)
    clients = rng.normal(size=(8, 20, 5))
    made = {name: clients + 9.0 * place for place, name in enumerate(fl_dp3s_profiles.INITIALIZERS)}
    distances = np.linalg.norm(clients[:, :, None] - clients[:, None], axis=3)
    kernels = {name: 1 - distances / distances.max() for name in made}
    kernels["xavier-normal"] = rng.normal(size=(8, 20, 20))
    monkeypatch.setattr(fl_dp3s_profiles, "_profiles", lambda results: made)
    monkeypatch.setattr(fl_dp3s_profiles, "_kernels", lambda results: kernels)
    rows = ENTRIES["fl_dp3s/fig4"].judge({}, Scale()).rows
    assert len(rows) == 6 and {row.verdict for row in rows} == {verdicts.REPRODUCED}
    for name in made:
        made[name] = clients + 0.01 * rng.normal(size=clients.shape)
    rows = ENTRIES["fl_dp3s/fig4"].judge({}, Scale()).rows
    assert {row.verdict for row in rows} == {verdicts.CONTRADICTED}
    assert all(" times the mean distance between clients, 0.0" in row.ours for row in rows)
    for row in ENTRIES["fl_dp3s/fig5"].judge({}, Scale()).rows:
        assert row.verdict == (verdicts.CONTRADICTED if "xavier-normal" in row.what else verdicts.REPRODUCED)


def test_descent_by_hand():
    path = gpfl_descent.descend(0.01, 0.0)
    np.testing.assert_allclose(path[1], [0.99, 0.0])
    np.testing.assert_allclose(path[2], [0.99**2, 0.0])
    with_momentum = gpfl_descent.descend(0.01, 0.1)
    np.testing.assert_allclose(with_momentum[2], [0.99 - 0.01 * (0.1 + 0.99), -0.1])
    assert gpfl_descent.steps(path[:3]) == 2 and gpfl_descent.oscillation(path[:3]) == pytest.approx(1.0)


def test_only_the_papers_momentum_is_judged():
    rows = ENTRIES["gpfl/fig1"].judge({}, Scale()).rows
    assert {row.what.split(":")[0] for row in rows if row.verdict} == {gpfl_descent.PAPERS}
    plain, other = gpfl_descent.PAIRS[gpfl_descent.PAPERS]
    assert plain[0] == other[0] and (plain[1], other[1]) == (0.0, 0.1)  # Eq. 1-2: the same step size
    oscillations = [gpfl_descent.oscillation(gpfl_descent.descend(*numbers)) for numbers in (plain, other)]
    assert oscillations[0] > 10 * oscillations[1]


@pytest.mark.parametrize(
    "after,expected",
    [
        ((1.2, 0.52, 0.5), [verdicts.BY_CONSTRUCTION, verdicts.REPRODUCED, verdicts.REPRODUCED]),
        ((0.9, 0.6, 0.5), [verdicts.CONTRADICTED, verdicts.REPRODUCED, verdicts.NOT_REPRODUCED]),
        ((0.6, 0.9, 0.5), [verdicts.CONTRADICTED, verdicts.CONTRADICTED, verdicts.NOT_REPRODUCED]),
    ],
)
def test_the_verdicts_on_the_toy(monkeypatch, after, expected):
    """Ind fails, Cor is better, and reaches nine tenths of what the best pair does."""

    def play(rng):
        return (1.0, *after, 0.8) + rng.normal(size=5) * [0, 1e-3, 1e-3, 0, 0]

    monkeypatch.setattr(fedcor_toy, "_play", play)
    assert [row.verdict for row in ENTRIES["fedcor/fig1"].judge({}, Scale()).rows if row.verdict] == expected


def test_the_hours_of_a_seed_are_not_compared():
    runs = {
        Cell("fmnist-2spc", "fedcor"): dataclasses.replace(
            made_up.result(np.zeros((2, 4))), elapsed_seconds=np.array([1.0, 2.0, 3.0, 3600.0])
        )
    }
    [row] = ENTRIES["fedcor/hours"].judge(runs, Scale()).rows
    assert (row.paper, row.ours, row.difference) == ("about 3", "0.5", "6 times less")
    assert row.verdict == verdicts.NOT_COMPARABLE and ENTRIES["fedcor/hours"].judge({}, Scale()).rows == []


def test_statistics_of_writers(monkeypatch):
    """LEAF's file of 3,550 writers, nine tenths of it for training."""
    held = np.array([2.0, 4.0, 6.0]) * 9
    found = gpfl_statistics.statistics_of(120, held, 0.9)
    assert list(found.values()) == pytest.approx([3, 120, 40.0, 20.0])
    femnist = {Cell("femnist", "random"): made_up.result(np.zeros((1, 1)))}

    def rows(**changes):
        numbers = {"clients": 3550, "samples": 805263, "mean samples a client": 226.834,
                   "deviation of samples a client": 88.936}  # fmt: skip
        monkeypatch.setattr(gpfl_statistics, "_of", lambda result: numbers | changes)
        return {row.what: row.verdict for row in ENTRIES["gpfl/table1"].judge(femnist, Scale()).rows[:4]}

    assert set(rows().values()) == {verdicts.AGREES}
    assert rows(clients=3549)["clients"] == verdicts.DIFFERS
    without = ENTRIES["gpfl/table1"].judge({}, Scale()).rows
    assert [row.verdict for row in without] == [verdicts.NOT_COMPARABLE] * 4 + [verdicts.DIFFERS]


@pytest.mark.slow
def test_the_stand_in_has_the_writers_sizes(tmp_path):
    """A hundredth of its samples and writers, dealt out as the whole would be."""
    column = gpfl_writers.STAND_IN
    config = gpfl_writers.shortest(column).replace(
        dataset=gpfl_writers.DATASETS[column].replace("805263", "80526").replace("3550", "355"), num_clients=355
    )
    result = fedjax_sel.run(config.replace(model="mlp", out=str(tmp_path / "run")))
    rows = ENTRIES["gpfl/table1"].judge({Cell(column, "random"): result}, Scale()).rows
    ours = {row.what: float(row.ours) for row in rows if row.setting == column}
    assert ours["clients"] == 355 and ours["samples"] == 80526
    assert ours["mean samples a client"] == pytest.approx(226.83, abs=0.01)
    assert ours["deviation of samples a client"] == pytest.approx(88.94, rel=0.2)
    assert not any(row.verdict for row in rows if row.setting == column)


def test_by_writer_the_stand_in_is_not_held_against_the_paper():
    def page(column):
        rng = np.random.default_rng(0)
        runs = {
            Cell(column, row): made_up.result(rng.normal(0.5 + 0.1 * place, 0.001, (8, 20)))
            for place, row in enumerate(("random", "pow_d", "fedcor", "gpfl"))
        }
        return {row.verdict for row in ENTRIES["gpfl/fig3"].judge(runs, Scale()).rows}

    assert page("femnist") == page("fmnist-dir") == {verdicts.REPRODUCED}
    assert page("writers") == {verdicts.NOT_COMPARABLE}


def test_what_gpfls_table_copied_is_not_judged():
    rng = np.random.default_rng(0)
    runs = {
        Cell(column, row): made_up.result(rng.normal(0.9, 0.001, (8, 20)))
        for column in ("cifar10-1spc", "cifar10-dir")
        for row in ("random", "fedcor", "gpfl")
    }
    rows = ENTRIES["gpfl/table2"].judge(runs, Scale()).rows
    of_shares = {(row.setting, row.what): row.verdict for row in rows if "accuracy at" in row.what}
    assert len(of_shares) == 18
    for share, expected in ((15, verdicts.NOT_COMPARABLE), (50, verdicts.NOT_COMPARABLE), (100, verdicts.DIFFERS)):
        what = f"fedcor: accuracy at {share} % of the rounds"
        assert of_shares["cifar10-dir", what] == expected
        assert of_shares["cifar10-1spc", what] == verdicts.DIFFERS
    assert {row.setting for row in rows if "ends above" in row.what} == {"cifar10-dir"}  # the claim leaves 1SPC out


def test_what_gpfls_text_says_of_its_table():
    rng = np.random.default_rng(0)

    def verdicts_of(gain, swing):
        base = np.full((8, 20), 0.5) + rng.normal(0, 0.01, (8, 1))
        wave = np.where(np.arange(20) % 2, swing, -swing)
        runs = {
            Cell("fmnist-1spc", row): made_up.result(base + lift + (row == "gpfl") * wave)
            for row, lift in (("random", -0.1), ("pow_d", 0.0), ("fedcor", -0.05), ("gpfl", gain))
        }
        rows = ENTRIES["gpfl/table2"].judge(runs, Scale()).rows
        return [row.verdict for row in rows if row.what.startswith(("gpfl: greatest", "gpfl: last"))]

    noisy = 0.1989 + rng.normal(0, 0.01, (8, 1))
    assert verdicts_of(noisy, 0.02) == [verdicts.AGREES, verdicts.AGREES]
    assert verdicts_of(noisy - 0.1, 0.06) == [verdicts.DIFFERS, verdicts.DIFFERS]


def test_who_fluctuates_least():
    wave = np.where(np.arange(20) % 2, 1.0, -1.0)
    swings = {"gpfl": 0.01, "random": 0.03, "fedcor": 0.002}
    runs = {
        Cell(column, row): made_up.result(0.5 + np.random.default_rng(0).uniform(1, 1.1, (8, 1)) * swing * wave)
        for column in ("fmnist-2spc", "cifar10-2spc")
        for row, swing in swings.items()
    }
    rows = [row for row in ENTRIES["gpfl/table2"].judge(runs, Scale()).rows if "fluctuates" in row.what]
    assert [(row.setting, row.what.split()[-1], row.verdict) for row in rows] == [
        ("fmnist-2spc", "random", verdicts.REPRODUCED),
        ("fmnist-2spc", "fedcor", verdicts.CONTRADICTED),
    ]  # the text says it of FEMINST alone


def test_tails_and_peaks():
    rng = np.random.default_rng(0)
    cohorts = rng.integers(0, 40, (6, 1000, 1))  # 25 selections of each of 40 clients
    run = made_up.result(np.full((6, 1000), 0.5), cohorts)
    run = dataclasses.replace(run, config=run.config.replace(num_clients=40))
    rows = ENTRIES["gpfl/fig5"].judge({Cell("fmnist-2spc", row): run for row in ("random", "gpfl")}, Scale()).rows
    told = {row.what: (row.paper, row.verdict) for row in rows}
    assert told["random: mean selections of a client"] == ("about 20", "")  # K T / N, whoever is selected
    assert told["random: selections at the histogram's peak"] == ("about 25", verdicts.AGREES)
    assert told["random: clients at the histogram's peak"] == (
        "about 10",
        verdicts.DIFFERS,
    )  # of 40 clients not so many
    assert told["gpfl: selections of the most selected client"] == ("about 500", verdicts.DIFFERS)
    assert told["gpfl: mean selections of a client"] == ("", "")
    assert gpfl_selections.peak(np.array([3, 3, 3])) == (3.0, 3.0)
    where, height = gpfl_selections.peak(np.array([10, 10, 10, 10, 11, 9, 30]))
    assert where == pytest.approx(10, abs=1) and 0 < height < 7


@pytest.mark.parametrize(
    "rounds,verdict",
    [
        ((3, 6, 9, 12), verdicts.REPRODUCED),
        ((12, 9, 6, 3), verdicts.CONTRADICTED),
        ((5, 5, 5, 5), verdicts.INCONCLUSIVE),
    ],
)
def test_distance_and_speed_go_together(rounds, verdict):
    runs = {}
    for place, first in enumerate(rounds):
        accuracy = np.zeros((6, 20))
        accuracy[:, first - 1 :] = 0.95
        gemd = np.full((6, 20), 0.1 * (1 + place))
        name = ("fl_dp3s", "clustered", "random", "fedsae")[place]
        runs[Cell("mnist-xi1", name)] = made_up.result(accuracy, train_accuracy=accuracy, gemd=gemd)
    rows = ENTRIES["fl_dp3s/fig2"].judge(runs, Scale()).rows
    assert [row.verdict for row in rows if "correlation" in row.what] == [verdict]
    assert fl_dp3s.rank_correlation(np.array([1.0, 9.0, 2.0]), np.array([-3.0, 5.0, 0.0])) == pytest.approx(1.0)


def test_slopes():
    rounds = np.arange(1, 1001)
    assert fedcor_proxy.slope(3.0 / rounds) == pytest.approx(-1.0)
    assert fedcor_proxy.slope(np.full(1000, 2.0)) == pytest.approx(0.0)


def test_the_proxy_goes_to_the_optimum_of_all_and_not_to_that_of_its_cohort(monkeypatch):
    monkeypatch.setattr(fedcor_proxy, "ROUNDS", 400)
    squares = fedcor_proxy.distances(np.random.default_rng(0))
    assert squares.of_all.shape == squares.of_cohort.shape == (400,)
    assert squares.of_all[-1] < 0.5 < 1.0 < squares.of_cohort[-100:].min()
    monkeypatch.setattr(fedcor_proxy, "SELECTED", fedcor_proxy.CLIENTS)
    both = fedcor_proxy.distances(np.random.default_rng(0))
    np.testing.assert_allclose(both.of_cohort[1:], both.of_all[:-1])  # all are the cohort: one optimum


def test_seconds_in_order():
    def timed(seconds, seeds):
        return dataclasses.replace(made_up.result(np.zeros((seeds, 4))), round_seconds=np.full(4, seconds / 4))

    def page_of(*seconds, seeds=1, **scale):
        runs = {
            Cell(column, row): timed(value, seeds)
            for column in gpfl_time.COLUMNS
            for row, value in zip(("random", "gpfl", "pow_d", "fedcor"), seconds)
        }
        return ENTRIES["gpfl/fig6"].judge(runs, Scale(**scale)).rows

    def verdicts_of(*seconds, **how):
        return [row.verdict for row in page_of(*seconds, **how) if row.verdict]

    # Power-of-choice may take as much less as a random run does.
    assert verdicts_of(1.0, 2.0, 3.0 + 1.0, 5.0) == [verdicts.REPRODUCED] * 3
    assert verdicts_of(2.0, 1.0, 3.0 + 2.0, 5.0) == [verdicts.CONTRADICTED, verdicts.REPRODUCED, verdicts.INCONCLUSIVE]
    assert verdicts_of(0.95, 1.0, 0.95 + 0.95, 3.0) == [
        verdicts.INCONCLUSIVE,
        verdicts.INCONCLUSIVE,
        verdicts.REPRODUCED,
    ]
    assert verdicts_of(5.0, 4.0, 20.0, 4.0)[-1] == verdicts.CONTRADICTED
    assert verdicts_of(1.0, 2.0, 3.0 + 1.0, 5.0, rounds=4) == [verdicts.NOT_COMPARABLE] * 3
    assert {row.seeds for row in page_of(1.0, 2.0, 3.0, 4.0)} == {1}
    assert {row.seeds for row in page_of(1.0, 2.0, 3.0, 4.0, seeds=3)} == {3}


def test_bytes_until_the_target():
    accuracy = np.array([[0.1, 0.95, 0.95], [0.1, 0.2, 0.3]])
    found = made_up.result(accuracy, train_accuracy=accuracy)  # a byte down and one up in each round
    np.testing.assert_allclose(fl_dp3s._megabytes(found) * 1e6, [4, 6])


def test_a_smooth_curve_rises_and_a_rough_one_jumps():
    smooth, rough = np.array([[0.1, 0.2, np.nan, 0.3]]), np.array([[0.1, 0.3, np.nan, 0.1]])
    np.testing.assert_allclose([fedcor.roughness(one)[0] for one in (smooth, rough)], [0.1, 0.2])


def test_curves_are_judged_by_smoothness_and_by_the_lead_under_1spc():
    noise = 0.1 * np.random.default_rng(0).random((8, 30))
    curves = {}
    for column, lead in (("fmnist-1spc", 0.3), ("fmnist-2spc", 0.1), ("fmnist-dir", 0.4)):
        curves |= {Cell(column, row): 0.3 + noise + 0.01 * np.arange(8)[:, None] for row in fedcor.BASELINES}
        curves[Cell(column, "fedcor")] = 0.3 + lead + noise / 10
    rows = fedcor.smooth_rows(curves, "fedcor")
    assert [row.verdict for row in rows] == [verdicts.REPRODUCED] * 10 + [verdicts.CONTRADICTED]
    assert "larger under fmnist-1spc than under fmnist-dir" in rows[-1].what
    unfinished = fedcor.smooth_rows(curves, "fedcor", whole=False)
    assert {row.verdict for row in unfinished} == {verdicts.NOT_COMPARABLE}
    curves.pop(Cell("fmnist-1spc", "afl"))
    assert not [row for row in fedcor.smooth_rows(curves, "fedcor") if "lead" in row.what]


def test_cohorts_of_the_proxy_and_their_correlations_by_hand():
    embeddings = np.array([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, -0.5]])  # two alike, two opposite, no others
    covariance = fedcor_proxy.covariance_of(embeddings)
    np.testing.assert_allclose(covariance[0, :3], [4 + 1e-4, 4, 0])
    assert fedcor_proxy.mean_correlation(covariance, np.array([0, 1])) == pytest.approx(1, abs=1e-4)
    assert fedcor_proxy.mean_correlation(covariance, np.array([0, 2])) == 0
    assert fedcor_proxy.mean_correlation(covariance, np.array([2, 3])) == pytest.approx(1, abs=1e-3)
    assert set(fedcor_proxy.proxy_cohort(covariance, np.full(4, 0.25), 2)) == {0, 1}
    found = fedcor_proxy._of_seed(embeddings, np.full(4, 0.25), np.array([0, 2]))
    assert found.overlap == 0.5 and found.fedcor == 0 and found.proxy == pytest.approx(1, abs=1e-4)


def test_what_a_linear_function_of_the_cohort_explains():
    rng = np.random.default_rng(0)
    cohorts = rng.permuted(np.tile(np.arange(8), (400, 1)), axis=1)[:, :3]
    of_client = rng.normal(size=(8, 8))
    linear = of_client[cohorts].sum(axis=1)  # [M, N]
    assert fedcor_normality.explained(linear - 7, cohorts) == pytest.approx(1)
    assert fedcor_normality.explained(rng.normal(size=linear.shape), cohorts) < 0.1
    assert 0.3 < fedcor_normality.explained(linear + rng.normal(size=linear.shape) * linear.std(), cohorts) < 0.7


def test_the_bound_on_gpfls_regret_divides_by_a_negative_number():
    assert gpfl_descent.denominator(np.array(4.0), np.array(2.0)) == pytest.approx(1 - 5 / 2)
    counted, _ = ENTRIES["gpfl/theorem1"].judge({}, Scale()).rows
    assert counted.ours == "500500 of 500500" and counted.verdict == verdicts.CONTRADICTED


@pytest.mark.slow
def test_cohorts_at_the_initial_model_are_those_of_a_run():
    """Neither random selection nor FL-DP3S looks at what training found."""
    config = SMALL.replace(seeds=(3, 4), rounds=5, dataset="digits", partition="skewness", skewness="1")
    for algo in fl_dp3s.LEADERS:
        run = fedjax_sel.run(config.replace(algo=algo, local_steps=3))
        problem = pose(run.config)
        for number, seed in enumerate(run.seeds):
            outputs = fl_dp3s_untrained.first_layer(problem, seed)
            profiles = np.stack([outputs[own].mean(axis=0) for own in problem.partitions[number].indices])
            found = fl_dp3s_untrained.cohorts(problem, algo, profiles, number, 5)
            np.testing.assert_array_equal(found, run.cohorts[number])


@pytest.mark.slow
def test_what_is_measured_at_the_initial_model(tmp_path):
    cell = next(iter(ENTRIES["fl_dp3s/gemd"].runs))
    assert cell.column == "mnist"
    small = SMALL.replace(seeds=2, rounds=1, partition="skewness", skewness="1", out=str(tmp_path / "run"))
    result = fedjax_sel.run(small)
    (measure,) = {ENTRIES[name].measure for name in ("fl_dp3s/gemd", "fl_dp3s/theorem1")}
    scale = Scale(share=0.1)
    assert not measure.is_there(result, scale) and len(list(measure.take(result, scale))) == 2
    assert measure.is_there(result, scale) and not list(measure.take(result, scale))
    lower = ENTRIES["fl_dp3s/gemd"].judge({cell: result}, scale).rows
    assert [row.setting for row in lower] == ["mnist-xi1", "mnist-xih", "mnist-xi0.8", "mnist-xi0.5"]
    distance, share = ENTRIES["fl_dp3s/theorem1"].judge({cell: result}, scale).rows
    assert distance.setting == share.setting == "mnist-xi1" and 0 <= float(share.ours.split()[0]) <= 1
