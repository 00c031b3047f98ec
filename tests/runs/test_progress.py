"""What a person reads of a run's speed and of the time that is left."""

import re
import time

import numpy as np
import pytest

from fedjax_sel import Config
from fedjax_sel.runs import terminal


def of(rounds, seeds):
    return Config().replace(rounds=rounds, seeds=seeds)


@pytest.mark.parametrize(
    "speed,words",
    [(66.31, "66.3 seed-rounds/s"), (1.0, "1.0 seed-rounds/s"), (0.19, "5.3 s per seed-round")],
)
def test_a_slow_run_says_how_long_a_round_takes(speed, words):
    """ "0.2 seed-rounds/s" is as true of four seconds a round as of six."""
    assert terminal.rate(speed) == words


def test_the_time_left_includes_the_runs_that_follow():
    """Two more runs of ten rounds and two seeds, each with a first chunk that takes as long as this run's."""
    reporter = terminal.Reporter(of(10, 2), 0.0, shown=False, further=[20, 20])
    reporter._compiling = 30.0
    assert reporter._left(5, speed=10.0) == "0:01:05 left for all runs"  # (10 + 40) / 10 + 2 * 30
    assert terminal.Reporter(of(10, 2), 0.0, shown=False)._left(5, speed=10.0) == "0:00:01 left"


def test_in_a_terminal_a_stage_has_a_clock(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    now = time.monotonic()
    with terminal.Reporter(of(4, 1), now) as reporter:
        reporter.resume_after(0)
        reporter._bar._tasks[reporter._task].start_time -= 65
        reporter._bar.refresh()
        for done in (2, 4):
            reporter.chunk(done, np.ones((1, 2)), np.ones((1, 2)))
    shown = re.sub(r"\x1b\[[\d?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "preparing 0:00:00" in shown and "compiling 0:01:05" in shown
    assert "seed-rounds/s  0:00:00 left" in shown
