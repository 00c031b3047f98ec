"""Runs whose terminal, pipe or log goes away: they go on, or stop as they were told, and all rounds are kept."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedjax_sel.runs import checkpoint

SMALL = [
    "--algo", "random", "--dataset", "synthetic:train_size=600,test_size=100,num_classes=10,image_size=8",
    "--num-clients", "12", "--num-selected", "3", "--batch-size", "20", "--local-epochs", "1", "--chunk", "5",
]  # fmt: skip
IN_THE_TERMINAL = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # from now on this process hears when the terminal is closed
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
FOREVER = ["--rounds", "10000000"]


def train(out, *more):
    return [sys.executable, "-m", "fedjax_sel.train", *SMALL, *more, "--out", str(out)]


def compare(out, *more):
    return [
        sys.executable,
        "-m",
        "fedjax_sel",
        "compare",
        "--algos",
        "random",
        "oort",
        *SMALL[2:],
        *more,
        "--out",
        str(out),
    ]


def wait_for_rounds(out, process, more=20):
    """Until a run has written some."""
    deadline = time.monotonic() + 120
    while rounds_in(out) < more:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def rounds_in(out):
    try:
        return (out / "metrics.csv").read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return 0


def assert_kept(out):
    """All rounds that were written are in the newest checkpoint, and the same command resumes from there."""
    newest = checkpoint.list_all(out / "checkpoints")[0]
    told, _ = checkpoint.read(newest)
    assert told["rounds"] == rounds_in(out) > 0
    assert np.load(out / "cohorts.npy").shape[1] == told["rounds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "both,number",
    [
        (True, signal.SIGINT),
        (False, signal.SIGINT),
        (True, signal.SIGTERM),
    ],
)
def test_ctrl_c_under_tee_keeps_the_rounds(tmp_path, both, number):
    """`train 2>&1 | tee log`: Ctrl-C goes to both, and `tee` is the first to end."""
    out = tmp_path / "run"
    reader, writer = os.pipe()
    tee = subprocess.Popen(["tee", str(tmp_path / "log")], stdin=reader, stdout=subprocess.DEVNULL, process_group=0)
    other = writer if both else subprocess.DEVNULL
    process = subprocess.Popen(train(out, *FOREVER), stdout=writer, stderr=other, process_group=tee.pid)
    os.close(reader), os.close(writer)
    wait_for_rounds(out, process)
    tee.send_signal(number)
    tee.wait(timeout=60)
    os.killpg(tee.pid, number)
    assert process.wait(timeout=60) == (130 if number == signal.SIGINT else 0)
    assert_kept(out)


@pytest.mark.slow
def test_a_run_goes_on_when_head_has_seen_enough(tmp_path):
    """`train 2>&1 | head -1`."""
    out = tmp_path / "run"
    process = subprocess.Popen(
        train(out, "--rounds", "40"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
    )
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert rounds_in(out) == 40 and (out / "curves.png").exists()
    assert_kept(out)


@pytest.mark.slow
@pytest.mark.parametrize("command", [train, compare])
def test_a_terminal_that_is_closed_saves_the_run(tmp_path, command):
    """The system sends SIGHUP, and whatever is written fails from then on."""
    out = tmp_path / "out"
    run = out if command is train else out / "random"
    ours, theirs = os.openpty()
    python, _, module, *arguments = command(out, *FOREVER)
    process = subprocess.Popen(
        [python, "-c", IN_THE_TERMINAL, module, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    deadline = time.monotonic() + 120
    while rounds_in(run) < 20:
        assert process.poll() is None and time.monotonic() < deadline
        try:
            os.read(ours, 2**16)  # as a terminal does
        except BlockingIOError:
            time.sleep(0.02)
    os.close(ours)
    assert process.wait(timeout=60) == 129
    assert_kept(run)


@pytest.mark.slow
def test_a_comparison_under_tee_keeps_the_rounds_and_says_130(tmp_path):
    out = tmp_path / "out"
    process = subprocess.Popen(
        compare(out, *FOREVER), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0
    )
    wait_for_rounds(out / "random", process)
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert_kept(out / "random")
    assert not (out / "oort").exists()


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_again_and_again(tmp_path, attempt):
    """Ctrl-C to the whole group at once, at other moments: whoever ends first."""
    out = tmp_path / "run"
    kept = 0
    for start in range(2):
        reader, writer = os.pipe()
        tee = subprocess.Popen(["tee", str(tmp_path / "log")], stdin=reader, stdout=subprocess.DEVNULL, process_group=0)
        process = subprocess.Popen(train(out, *FOREVER), stdout=writer, stderr=writer, process_group=tee.pid)
        os.close(reader), os.close(writer)
        wait_for_rounds(out, process, kept + 20)
        time.sleep(0.13 * attempt + 0.07 * start)
        os.killpg(tee.pid, signal.SIGINT)
        tee.wait(timeout=60)
        assert process.wait(timeout=60) == 130
        assert_kept(out)
        assert rounds_in(out) > kept
        kept = rounds_in(out)
    assert len(json.loads((out / "environment.json").read_text())["resumed"]) == 1


@pytest.mark.slow
def test_a_log_on_a_full_disk_does_not_end_a_run(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            train(tmp_path / "run", "--rounds", "40"), stdout=subprocess.PIPE, stderr=full, timeout=120
        )
    assert ended.returncode == 0 and b"final test accuracy" in ended.stdout
    assert_kept(tmp_path / "run")
