"""Signals: the first is a wish, the second is at once."""

import os
import signal

import pytest

from fedjax_sel.runs.interruption import Interruption, exit_code


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
