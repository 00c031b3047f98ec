"""A run whose folder is removed and made again writes nothing into the new one: its lock is on the old."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from fedjax_sel import UserError
from fedjax_sel.core.files import FolderLock

SMALL = [
    "--algo", "random", "--dataset", "synthetic:train_size=600,test_size=100,num_classes=10,image_size=8",
    "--num-clients", "12", "--num-selected", "3", "--batch-size", "20", "--local-epochs", "1", "--chunk", "5",
    "--rounds", "10000000",
]  # fmt: skip


def make_again(out):
    shutil.rmtree(out)
    out.mkdir()


def move(out):
    out.rename(out.with_name("moved"))


@pytest.mark.parametrize("what", [shutil.rmtree, make_again, move])
def test_a_lock_tells_that_its_folder_is_another_one(tmp_path, what):
    out = tmp_path / "run"
    out.mkdir()
    with FolderLock() as lock:
        lock.take(out)
        lock.check(out)
        what(out)
        with pytest.raises(
            UserError, match=r"--out: \S+run was removed, moved or replaced .* so this run stops writing"
        ):
            lock.check(out)


def test_a_folder_that_is_gone_cannot_be_taken(tmp_path):
    with FolderLock() as lock, pytest.raises(UserError, match=r"--out: cannot use .*No such file"):
        lock.take(tmp_path / "run")


def test_a_folder_that_was_set_aside_is_no_longer_meant(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    with FolderLock() as lock:
        lock.take(out)
        lock.release(out)
        out.rename(tmp_path / "run.aside-1")
        out.mkdir()
        lock.take(out)
        lock.check(out)
        with FolderLock() as other, pytest.raises(UserError, match="another process"):
            other.take(out)
    assert not list(out.iterdir()), "a released lock leaves no file"


def test_a_waiting_lock_excludes_others(tmp_path):
    """A release removes the lock file, so a waiting process can lock a file that no longer has a name."""
    with FolderLock() as first, FolderLock() as second, FolderLock() as third:
        first.take(tmp_path)
        waiting = threading.Thread(target=second.take, args=(tmp_path, True))
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive()
        first.release(tmp_path)
        waiting.join(10)
        second.check(tmp_path)
        with pytest.raises(UserError, match="another process"):
            third.take(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("what", [make_again, shutil.rmtree])
def test_a_run_ends_when_its_folder_is_another_one(tmp_path, what):
    out = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "fedjax_sel.train", *SMALL, "--out", str(out)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "300"},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (out / "metrics.csv").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    away = out.with_name("away")
    out.rename(away)  # at once, and then removed, as in a moment when nothing is being written
    shutil.rmtree(away)
    if what is make_again:
        out.mkdir()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2
    last = error.splitlines()[-1]
    assert last.startswith(f"error: --out: {out} was removed, moved or replaced") and "Traceback" not in error
    assert not out.exists() or not list(out.iterdir())
