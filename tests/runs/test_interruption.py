"""Signals: the first is a wish, the second is at once."""

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
