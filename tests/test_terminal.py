"""Output that nobody takes any more: it is dropped, and the exit code says what the command did."""

import io
import os
import subprocess
import sys

import pytest

from fedjax_sel.core.terminal import Unbroken

COMMAND = """
import sys
from fedjax_sel.cli import command_line
from fedjax_sel.errors import UserError

def main(arguments):
    for number in range(20_000):
        print("line", number)
    print("the end", file=sys.stderr)
    if arguments[0] == "refused":
        raise UserError("something to mend")
    return int(arguments[0])

sys.exit(command_line.guarded(main))
"""


def run(result, **streams):
    return subprocess.run([sys.executable, "-c", COMMAND, result], timeout=60, text=True, **streams)


@pytest.fixture
def left():
    """The end of a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("result,code", [("0", 0), ("130", 130), ("3", 3), ("refused", 2)])
def test_a_reader_that_leaves_changes_nothing(left, result, code):
    ended = run(result, stdout=left, stderr=subprocess.PIPE)
    assert ended.returncode == code
    assert ended.stderr.startswith("the end\n") and ended.stderr.count("\n") == 1 + (result == "refused")
    ended = run(result, stdout=left, stderr=left)
    assert ended.returncode == code


@pytest.mark.parametrize("result,code", [("0", 2), ("130", 130), ("3", 3)])
def test_a_full_device_is_an_error_where_nothing_else_happened(result, code):
    with open("/dev/full", "w") as full:
        ended = run(result, stdout=full, stderr=subprocess.PIPE)
        assert ended.returncode == code
        sentence = "error: cannot write standard output (No space left on device); free disk space"
        assert ended.stderr.splitlines()[0] == "the end" and "Traceback" not in ended.stderr
        assert (sentence in ended.stderr) == (code == 2)
        assert run(result, stdout=subprocess.DEVNULL, stderr=full).returncode == int(result)


def test_a_process_that_was_started_without_streams_writes_to_no_file_of_its_own(tmp_path):
    code = f"""
import os, sys
from fedjax_sel.cli import command_line
def main(arguments):
    with open({str(tmp_path / "file")!r}, "w") as file:
        file.write("mine")
        file.flush()
        os.write(2, b"not mine")
        print("neither", file=sys.stderr)
    return 7
sys.exit(command_line.guarded(main))
"""
    ended = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" 0<&- 1>&- 2>&-', sys.executable, code], timeout=60)
    assert ended.returncode == 7
    assert (tmp_path / "file").read_text() == "mine"


def test_a_stream_remembers_that_its_reader_left(left):
    stream = Unbroken(os.fdopen(os.dup(left), "w"))
    assert stream.error is None and not stream.left
    print("text", file=stream, flush=True)
    assert isinstance(stream.error, BrokenPipeError) and stream.left
    print("more", file=stream, flush=True)
    stream.close()  # what waited went nowhere


def test_a_stream_that_works_is_as_it_was():
    beneath = io.StringIO()
    print("text", file=Unbroken(beneath), flush=True)
    assert beneath.getvalue() == "text\n"
    assert Unbroken(None).write("nowhere") == 7
