"""Output that nobody takes any more: it is dropped, and the exit code says what the command did."""

import io
import os
import subprocess
import sys

import pytest

from fedjax_sel.core.files import Unbroken

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


@pytest.mark.slow
@pytest.mark.parametrize("result,code", [("0", 0), ("130", 130), ("3", 3), ("refused", 2)])
def test_a_reader_that_leaves_changes_nothing(left, result, code):
    ended = run(result, stdout=left, stderr=subprocess.PIPE)
    assert ended.returncode == code
    assert ended.stderr.startswith("the end\n") and ended.stderr.count("\n") == 1 + (result == "refused")
    ended = run(result, stdout=left, stderr=left)
    assert ended.returncode == code


def test_a_stream_drops_its_text_once_its_reader_left(left):
    stream = Unbroken(os.fdopen(os.dup(left), "w"))
    print("text", file=stream, flush=True)
    print("more", file=stream, flush=True)
    stream.close()  # what waited went nowhere


def test_a_stream_that_works_is_as_it_was():
    beneath = io.StringIO()
    print("text", file=Unbroken(beneath), flush=True)
    assert beneath.getvalue() == "text\n"
    assert Unbroken(None).write("nowhere") == 7
