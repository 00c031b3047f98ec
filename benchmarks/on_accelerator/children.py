"""Child processes, read line by line and ended at their time limit or with the parent."""

import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedjax_sel.core import parsing

COMMAND = Path(__file__).parents[1] / "accelerator.py"
KILLED = -9  # return code
SECONDS_TO_END = 10.0  # for a process to exit after closing its output


class Child(NamedTuple):
    """The task of a child process."""

    function: str  # "module:function", see `child.py`
    settings: Mapping[str, Any] = MappingProxyType({})  # keyword arguments of the function
    environment: Mapping[str, str] = MappingProxyType({})  # extra environment variables
    kills_itself: bool = False  # whether SIGKILL is the expected end


class ChildError(Exception):
    """A child process's failure, with a one-line message."""


def run(
    children: Mapping[str, Child], flags: Sequence[str], seconds: float, limit: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run child processes concurrently and yield their records as they arrive.

    Args:
        children: name -> task.
        flags: flags to append to XLA_FLAGS.
        seconds: time budget of the processes; they start nothing that would exceed it.
        limit: seconds after which they are killed.

    Yields:
        The name of a process and one of its records.

    Raises:
        ChildError: If a process fails or is killed.
    """
    deadline = time.monotonic() + limit
    said: queue.Queue[tuple[str, str | None]] = queue.Queue()
    processes: dict[str, subprocess.Popen[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        errors = {name: Path(folder) / f"{number}.txt" for number, name in enumerate(children)}
        try:
            for name, child in children.items():
                processes[name] = _start(child, flags, seconds, errors[name])
                threading.Thread(target=_listen, args=(name, processes[name], said), daemon=True).start()
            talking = len(processes)
            while talking:
                try:
                    name, line = said.get(timeout=max(deadline - time.monotonic(), 0.0))
                except queue.Empty:
                    raise ChildError(f"killed at its limit of {limit:.0f} s") from None
                if line is None:
                    talking -= 1
                else:
                    yield name, json.loads(line)
            for name, process in processes.items():
                try:
                    code = process.wait(SECONDS_TO_END)
                except subprocess.TimeoutExpired:
                    raise ChildError(f"{name}: closed its output but did not exit".removeprefix(": ")) from None
                _check(name, children[name], code, errors[name])
        finally:
            for process in processes.values():
                process.kill()
                process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        stream.close()


def _start(child: Child, flags: Sequence[str], seconds: float, errors: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, **child.environment}
    environment |= {
        "XLA_FLAGS": " ".join([environment.get("XLA_FLAGS", ""), *flags]).strip(),
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # compilation is measured
        "PYTHONUNBUFFERED": "1",
    }
    command = [
        sys.executable,
        str(COMMAND),
        "--child",
        child.function,
        json.dumps({"seconds": seconds, **child.settings}),
    ]
    with errors.open("w") as file:
        # The child ends when its standard input closes, i.e. with this process.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, env=environment
        )


def _listen(name: str, process: "subprocess.Popen[str]", said: "queue.Queue[tuple[str, str | None]]") -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.put((name, line))
    except ValueError:  # `run` closed the stream after a failure
        pass
    said.put((name, None))


def _check(name: str, child: Child, code: int, errors: Path) -> None:
    if code == (KILLED if child.kills_itself else 0):
        return
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    errors_found = [line for line in lines if re.search(r"Unknown flag|RESOURCE_EXHAUSTED|Error:", line)]
    last = (errors_found or lines or [""])[-1]
    raise ChildError(f"{name}: exit code {code}: {parsing.without_folders(last)[:300]}".removeprefix(": "))


def described(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    if isinstance(error, ChildError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    return parsing.without_folders(f"{type(error).__name__}: {lines[0]}")[:300]
