"""Signals: the first is a wish, the second is at once."""

import os
import signal
from types import SimpleNamespace

import pytest

import fedjax_sel
from fedjax_sel.runs.interruption import Interruption, exit_code, how_to_go_on

SMALL = fedjax_sel.preset("quickstart").replace(
    algo="random", num_clients=10, num_selected=2, local_steps=1, rounds=6, chunk=1
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_interrupts(number, capfd):
    before = signal.getsignal(number)
    with Interruption(shown=True) as interruption:
        assert interruption.asked == 0
        signal.raise_signal(number)
        assert interruption.asked == number
        assert "stopping after the rounds that are being computed" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


class Impatient:
    """Presses Ctrl-C in the first chunk."""

    def chunk(self, rounds, first):
        if first == 0:
            signal.raise_signal(signal.SIGINT)


class StopAt:
    """Ends the run after so many rounds."""

    def __init__(self, rounds):
        self.rounds = rounds

    def chunk(self, rounds, first):
        return first + rounds.num_rounds >= self.rounds


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "changes,then,on",
    [
        ({}, "the same command goes on from there (runs/x)", True),
        ({"resume": "never"}, "without --resume never the same command goes on from there (runs/x)", True),
        ({"keep": 0}, "--keep 0 left no checkpoint, so the same command begins anew (runs/x)", False),
    ],
)
def test_what_becomes_of_a_run_that_ended_early(tmp_path, changes, then, on):
    config = SMALL.replace(out=str(tmp_path / "run"), **changes)
    assert how_to_go_on(config.run, "runs/x") == then
    first = fedjax_sel.run(config, callbacks=[Impatient()])
    assert not first.finished and first.stopped_by == signal.SIGINT
    seen = []
    again = SimpleNamespace(start=lambda config, rounds: seen.append(rounds))
    fedjax_sel.run(config.replace(resume="auto"), callbacks=[again])
    assert seen == [first.num_rounds if on else 0]


def test_what_becomes_of_a_run_without_checkpoints_of_its_own(tmp_path):
    config = SMALL.replace(out=str(tmp_path / "run"))
    first = fedjax_sel.run(config, callbacks=[Impatient()])
    fedjax_sel.run(config.replace(keep=0), callbacks=[StopAt(first.num_rounds + 1)])
    then = f"--keep 0 saved none of these rounds, so the same command goes on after round {first.num_rounds} ("
    assert how_to_go_on(config.replace(keep=0).run, config.run.out).startswith(then)
    never = how_to_go_on(config.replace(resume="never").run, "runs/x", where="the last checkpoint")
    assert never == "without --resume never the same command goes on from the last checkpoint (runs/x)"


def test_ctrl_c_and_a_scheduler_have_their_exit_codes():
    assert (exit_code(signal.SIGINT), exit_code(signal.SIGTERM)) == (130, 0)
    assert exit_code(0) == 130  # a second Ctrl-C, at once


def test_a_closed_terminal_asks_once_however_often_it_is_told(capfd):
    with Interruption(shown=True) as interruption:
        for _ in range(3):  # the system, the shell, and the session
            signal.raise_signal(signal.SIGHUP)
        assert interruption.asked == signal.SIGHUP and exit_code(interruption.asked) == 129
        signal.raise_signal(signal.SIGTERM)  # what the session sends next
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_under_nohup_a_closed_terminal_means_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption(shown=False) as interruption:
            signal.raise_signal(signal.SIGHUP)
            assert interruption.asked == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_is_a_wish_where_nobody_reads_what_it_says():
    """Ctrl-C ends the reader of a pipe too, and often first."""
    reader, writer = os.pipe()
    os.close(reader)
    kept = os.dup(2)
    os.dup2(writer, 2)
    try:
        with Interruption(shown=True) as interruption:
            signal.raise_signal(signal.SIGINT)
        assert interruption.asked == signal.SIGINT
    finally:
        os.dup2(kept, 2)
        os.close(kept), os.close(writer)
