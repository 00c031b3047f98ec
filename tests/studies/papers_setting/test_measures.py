"""One number a seed, by hand."""

import numpy as np
import pytest

from studies.boards import measures
from studies.boards.measures import Common
from studies.papers_setting import pictures
from tests.studies.papers_setting import made_up

STEPS = made_up.series([[0.2, 0.4, 0.6, 0.8], [0.1, 0.1, 0.1, 0.5]], down=[2_000_000, 1_000_000, 1_000_000, 1_000_000])


def test_the_target_is_what_random_selection_ends_with():
    rows = made_up.series(np.concatenate([np.zeros((2, 5)), [[0.61] * 10, [0.668] * 10]], axis=1))
    assert measures.target_of(rows) == 0.63  # of a mean of 0.639
    assert measures.target_of(made_up.series([[0.69] * 10])) == 0.69  # float32(0.69) is below it
    assert measures.target_of(made_up.series([[0.001] * 10])) is None


def test_accuracy_at_megabytes():
    assert STEPS.megabytes[0].tolist() == [3.0, 5.0, 7.0, 9.0]
    assert measures.accuracy_at(STEPS, 2.9, 0.1).tolist() == [0.1, 0.1]  # no round is paid for
    np.testing.assert_allclose(measures.accuracy_at(STEPS, 5.0, 0.1), [0.4, 0.1], rtol=1e-6)  # the last of two
    np.testing.assert_allclose(measures.accuracy_at(STEPS, 100.0, 0.1), [0.7, 0.3], rtol=1e-6)  # the last two of four
    long = made_up.series([np.arange(60) / 100])
    for megabytes, rounds, counted in ((120.0, 60, 10), (54.0, 27, 9), (20.0, 10, 4), (3.9, 1, 1)):
        expected = np.arange(rounds - counted, rounds).mean() / 100
        assert measures.accuracy_at(long, megabytes, 0.1) == pytest.approx(expected)


def test_a_target_is_reached_by_the_mean_of_ten_rounds():
    values = np.full((3, 30), 0.4)
    values[0, 4] = 0.9  # chance
    values[1, 9:] = 0.6
    values[2, :10] = 0.55
    rounds = measures.rounds_to_target(made_up.series(values), 0.5)
    np.testing.assert_array_equal(rounds, [np.nan, 14.0, 10.0])
    assert np.isnan(measures.rounds_to_target(made_up.series(values[:, :9]), 0.5)).all()  # nobody has ten rounds
    exact = made_up.series(np.full((1, 12), 0.69))  # float32(0.69) is below it
    assert measures.rounds_to_target(exact, 0.69).tolist() == [10.0]


def test_areas():
    np.testing.assert_allclose(measures.area_by_rounds(STEPS), [0.5, 0.2], rtol=1e-6)
    # a guess for 3 MB, then each accuracy until the next round ends
    expected = (3 * 0.1 + 2 * 0.2 + 2 * 0.4 + 1 * 0.6) / 8
    assert measures.area_by_megabytes(STEPS, 8.0, 0.1)[0] == pytest.approx(expected)
    assert measures.area_by_megabytes(STEPS, 20.0, 0.1)[1] == pytest.approx((3 * 0.1 + 6 * 0.1 + 11 * 0.5) / 20)


def test_worst_decile_is_of_the_last_fifth():
    worst = np.full((1, 20), np.nan)
    worst[0, [4, 16, 19]] = 0.9, 0.1, 0.3
    assert measures.worst_decile(made_up.series(np.zeros((1, 20)), worst=worst)) == pytest.approx(0.2)


def test_who_does_not_arrive_counts_everything():
    rising = np.minimum(np.arange(1, 13) / 10, 1.0)
    rows = made_up.series([rising, rising / 2], down=[2_000_000, *[1_000_000] * 11])
    found = measures.of_row(rows, Common(12, 0.6, 25.0, 6.0, 0.1))
    assert found["arrived"].tolist() == [1.0, 0.0]  # means of ten rounds: 0.55, 0.64 and 0.73; half of them
    assert found["rounds_to_target"].tolist() == [11.0, 12.0]
    assert found["megabytes_down_to_target"].tolist() == [12.0, 13.0]
    assert found["megabytes_up_to_target"].tolist() == [11.0, 12.0]
    np.testing.assert_allclose(found["accuracy_at_equal_megabytes_up"], [0.55, 0.275], rtol=1e-6)  # rounds 5 and 6
    assert "arrived" not in measures.of_row(rows, Common(12, None, 25.0, 6.0, 0.1))


def test_what_is_equal_for_all_rows():
    dear = made_up.series(np.full((2, 4), 0.3), down=5_000_000)
    shared = measures.common({"random": STEPS, "dear": dear}, 10)
    assert shared == Common(4, 0.35, 9.0, 4.0, 0.1)
    assert measures.common({"dear": dear}, 4).target is None


def test_seconds_by_hand():
    slow = made_up.series([[0.2, 0.4, 0.6, 0.8]], seconds=10)
    fast = made_up.series([[0.1, 0.2, 0.3, 0.4]], seconds=5)
    shared = measures.common({"slow": slow, "fast": fast}, 10)
    assert shared.seconds == 20
    assert measures.of_row(slow, shared)["accuracy_at_equal_seconds"] == pytest.approx(0.4)  # the last of two
    assert measures.of_row(fast, shared)["accuracy_at_equal_seconds"] == pytest.approx(0.35)  # the last two of four
    assert measures.common({"slow": slow, "none": STEPS}, 10).seconds is None


def test_seconds_to_the_target_end_at_equal_seconds():
    early, late = np.full((1, 30), 0.7), np.full((1, 30), 0.1)
    rows = {"random": made_up.series(early, seconds=2), "afl": made_up.series(late, seconds=1)}
    shared = measures.common(rows, 10)
    assert (shared.target, shared.seconds) == (0.7, 30)
    assert measures.of_row(rows["random"], shared)["seconds_to_target"] == 20  # ten rounds
    assert measures.of_row(rows["afl"], shared)["seconds_to_target"] == 30  # it never arrives


def test_rounds_without_evaluation_hold_the_last_one():
    every = made_up.series([[0.1, 0.1, 0.4, 0.4]])
    second = made_up.series([[0.1, np.nan, 0.4, np.nan]])
    assert measures.area_by_megabytes(second, 8.0, 0.0) == measures.area_by_megabytes(every, 8.0, 0.0)
    assert pictures._curve(second, "round").x.tolist() == [1.0, 3.0]
