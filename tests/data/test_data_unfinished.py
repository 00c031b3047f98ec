"""What a writer of decoded data leaves when it is killed, and who removes it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedjax_sel import data
from fedjax_sel.data import cache

WRITER = """
import sys
from pathlib import Path
import numpy as np
from fedjax_sel import data
from fedjax_sel.data import cache

blobs = data.load("synthetic:train_size=200")
blobs = data.Dataset(**{**vars(blobs), "name": "blobs"})
save = np.save

def wait(path, array, **options):
    save(path, array, **options)
    print("writing", flush=True)
    sys.stdin.read()  # until it is killed

np.save = wait
cache.fetch(Path(sys.argv[1]), "blobs", "abc", lambda: blobs)
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing a copy."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdin=-1, stdout=-1, text=True)
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.communicate()


def fetch(parent):
    blobs = data.load("synthetic:train_size=200")
    blobs = data.Dataset(**{**vars(blobs), "name": "others"})
    return cache.fetch(parent, "others", "abc", lambda: blobs)


def left(parent):
    return list(parent.glob(".writing-*"))


def test_half_a_copy_of_a_writer_that_was_killed_goes_with_the_next_load(tmp_path, writer):
    fetch(tmp_path)
    assert len(left(tmp_path)) == 1, "its writer is at work"
    os.utime(left(tmp_path)[0], (0, time.time() - 10 * 24 * 3600))
    fetch(tmp_path)
    assert len(left(tmp_path)) == 1, "however long it takes"
    writer.send_signal(signal.SIGKILL)
    writer.wait(timeout=60)
    assert len(left(tmp_path)) == 1
    fetch(tmp_path)  # which only reads what is there
    assert left(tmp_path) == [] and not (tmp_path / "blobs-abc").exists()


def test_old_folders_without_a_lock_go_when_a_copy_is_read(tmp_path):
    """As an earlier version, or a file system without locks, left them."""
    fetch(tmp_path)
    for name, days in ((".writing-old", 2), (".writing-young", 0)):
        (tmp_path / name).mkdir()
        stamp = time.time() - days * 24 * 3600
        os.utime(tmp_path / name, (stamp, stamp))
    fetch(tmp_path)
    assert [path.name for path in left(tmp_path)] == [".writing-young"]
