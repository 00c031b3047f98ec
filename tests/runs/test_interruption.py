"""Signals: the first is a wish, the second is at once."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import fedjax_sel
from fedjax_sel.runs.terminal import Interruption, exit_code, resume_advice

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
        assert "stopping after the current chunk of rounds" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


class Impatient:
    """Presses Ctrl-C, or sends another signal, after a chunk."""

    def __init__(self, number=signal.SIGINT, after=0):
        self.number, self.after = number, after

    def chunk(self, rounds, first):
        if first == self.after:
            signal.raise_signal(self.number)


def interrupted(config, *callbacks):
    """Run until Ctrl-C; the rounds until then."""
    with pytest.raises(KeyboardInterrupt) as caught:
        fedjax_sel.run(config, callbacks=[Impatient(), *callbacks])
    return caught.value.result


class StopAt:
    """Ends the run after so many rounds."""

    def __init__(self, rounds):
        self.rounds = rounds

    def chunk(self, rounds, first):
        return first + rounds.num_rounds >= self.rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes,then,on",
    [
        ({}, "the same command resumes from there (runs/x)", True),
        ({"resume": "never"}, "without --resume never the same command resumes from there (runs/x)", True),
        ({"keep": 0}, "--keep 0 left no checkpoint, so the same command starts over (runs/x)", False),
    ],
)
def test_what_becomes_of_a_run_that_ended_early(tmp_path, changes, then, on):
    config = SMALL.replace(out=str(tmp_path / "run"), **changes)
    assert resume_advice(config.run, "runs/x") == then
    first = interrupted(config)
    assert not first.finished and first.stopped_by == signal.SIGINT
    seen = []
    again = SimpleNamespace(start=lambda config, rounds: seen.append(rounds))
    fedjax_sel.run(config.replace(resume="auto"), callbacks=[again])
    assert seen == [first.num_rounds if on else 0]


@pytest.mark.slow
def test_what_becomes_of_a_run_without_checkpoints_of_its_own(tmp_path):
    config = SMALL.replace(out=str(tmp_path / "run"))
    first = interrupted(config)
    fedjax_sel.run(config.replace(keep=0), callbacks=[StopAt(first.num_rounds + 1)])
    then = f"--keep 0 saved none of these rounds, so the same command resumes after round {first.num_rounds} ("
    assert resume_advice(config.replace(keep=0).run, config.run.out).startswith(then)
    never = resume_advice(config.replace(resume="never").run, "runs/x", where="the last checkpoint")
    assert never == "without --resume never the same command resumes from the last checkpoint (runs/x)"


@pytest.mark.slow
@pytest.mark.parametrize("last", [False, True])
def test_a_signal_ends_a_script_and_leaves_the_result(tmp_path, last):
    """Also one that comes while the last rounds are computed: the script's next run must not start."""
    config = SMALL.replace(out=str(tmp_path / "run"), rounds=3)
    after = 2 if last else 0
    with pytest.raises(KeyboardInterrupt) as caught:
        fedjax_sel.run(config, callbacks=[Impatient(after=after)])
    assert caught.value.result.finished == last and caught.value.result.params is not None
    assert fedjax_sel.load(tmp_path / "run").num_rounds == caught.value.result.num_rounds
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(SystemExit) as caught:
            fedjax_sel.run(config.replace(out=None), callbacks=[Impatient(number, after)])
        assert caught.value.code == 128 + number and caught.value.result.finished == last


@pytest.mark.slow
def test_a_second_signal_leaves_no_result():
    class Twice(Impatient):
        def chunk(self, rounds, first):
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        fedjax_sel.run(SMALL, callbacks=[Twice()])
    assert caught.value.result is None


@pytest.mark.slow
def test_a_signal_ends_a_script_that_compares(tmp_path):
    with pytest.raises(SystemExit) as caught:
        fedjax_sel.run_comparison(["random", "oort"], SMALL, out=tmp_path, callbacks=[Impatient(signal.SIGTERM)])
    found = caught.value.result
    assert caught.value.code == 143 and found.stopped and found.rows == () and not (tmp_path / "oort").exists()


SLOW = """
import sys
import fedjax_sel
config = fedjax_sel.preset("quickstart").replace(
    algo="random", num_clients=10, num_selected=2, local_steps=1, rounds=10**7, chunk=10**7, out=sys.argv[1]
)
fedjax_sel.run(config)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_in_the_first_chunk_ends_a_process_at_once(tmp_path, number):
    out = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", SLOW, out], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (out / "environment.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(2.0)
    process.send_signal(number)
    try:
        assert process.wait(timeout=20) == -number
    finally:
        process.kill()
    assert not (out / "metrics.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 4.0, 7.0])
def test_ctrl_c_while_the_device_computes_ends_the_process_at_once(tmp_path, seconds):
    """Python's own shutdown would wait for the chunk (1,000,000 rounds), or crash with exit code 139."""
    flags = "--algo random --num-clients 10 --num-selected 2 --local-steps 1 --rounds 1000000 --chunk 1000000"
    command = [sys.executable, "-m", "fedjax_sel", "train", *flags.split(), "--out", str(tmp_path / "run")]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment) as process:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / "run" / "environment.json").exists():
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)  # compilation cannot be interrupted
        finally:
            process.kill()
    assert process.returncode == 130 and err.decode().rstrip().endswith("interrupted")


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
