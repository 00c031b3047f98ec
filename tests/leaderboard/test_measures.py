"""One number a seed, by hand."""

import numpy as np
import pytest

from fedjax_sel.leaderboard import measures
from fedjax_sel.leaderboard.measures import Common
from tests.leaderboard import made_up

STEPS = made_up.series([[0.2, 0.4, 0.6, 0.8], [0.1, 0.1, 0.1, 0.5]], down=[2_000_000, 1_000_000, 1_000_000, 1_000_000])


def test_the_target_is_what_random_selection_ends_with():
    rows = made_up.series(np.concatenate([np.zeros((2, 5)), [[0.61] * 10, [0.668] * 10]], axis=1))
    assert measures.target_of(rows) == 0.63  # of a mean of 0.639
    assert measures.target_of(made_up.series([[0.69] * 10])) == 0.69  # float32(0.69) is below it
    assert measures.target_of(made_up.series([[0.001] * 10])) is None


def test_accuracy_at_megabytes():
    assert STEPS.megabytes[0].tolist() == [3.0, 5.0, 7.0, 9.0]
    assert measures.accuracy_at(STEPS, 2.9, 0.1).tolist() == [0.1, 0.1]  # no round is paid for
    np.testing.assert_allclose(measures.accuracy_at(STEPS, 5.0, 0.1), [0.3, 0.1], rtol=1e-6)
    np.testing.assert_allclose(measures.accuracy_at(STEPS, 100.0, 0.1), [0.5, 0.2], rtol=1e-6)
    long = made_up.series([np.arange(30) / 100])
    assert measures.accuracy_at(long, 60.0, 0.1) == pytest.approx(np.arange(20, 30).mean() / 100)  # the last ten


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
    shared = Common(4, 0.6, 9.0, 3.0, 0.1)
    found = measures.of_row(STEPS, shared)
    assert found["arrived"].tolist() == [1.0, 0.0]
    assert found["rounds_to_target"].tolist() == [3.0, 4.0]
    assert found["megabytes_down_to_target"].tolist() == [4.0, 5.0]
    assert found["megabytes_up_to_target"].tolist() == [3.0, 4.0]
    np.testing.assert_allclose(found["accuracy_at_equal_megabytes_up"], [0.4, 0.1], rtol=1e-6)
    assert "arrived" not in measures.of_row(STEPS, shared._replace(target=None))


def test_what_is_equal_for_all_rows():
    dear = made_up.series(np.full((2, 4), 0.3), down=5_000_000)
    shared = measures.common({"random": STEPS, "dear": dear}, 10)
    assert shared == Common(4, 0.35, 9.0, 4.0, 0.1)
    assert measures.common({"dear": dear}, 4).target is None
