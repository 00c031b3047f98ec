"""What a person reads of a run's speed and of the time that is left."""

import pytest

from fedjax_sel.runs import progress


@pytest.mark.parametrize(
    "speed,words",
    [(66.31, "66.3 seed-rounds/s"), (1.0, "1.0 seed-rounds/s"), (0.19, "5.3 s per seed-round")],
)
def test_a_slow_run_says_how_long_a_round_takes(speed, words):
    """ "0.2 seed-rounds/s" is as true of four seconds a round as of six."""
    assert progress.rate(speed) == words


@pytest.mark.parametrize(
    "seconds,words",
    [(0.4, "0:00 left"), (95, "1:35 left"), (3599.9, "59:59 left"), (3600, "1:00:00 left"), (36_061, "10:01:01 left")],
)
def test_what_is_left_is_read_as_a_clock(seconds, words):
    assert progress.until_done(seconds) == words
