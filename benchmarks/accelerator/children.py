"""Child processes: what they say is taken line by line, and none of them outlives its time or its parent."""

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

from fedjax_sel.core import texts

COMMAND = Path(__file__).parents[1] / "accelerator.py"
KILLED = -9  # return code
SECONDS_TO_END = 10.0  # for a process that has nothing more to say


class Child(NamedTuple):
    """What a process is to do."""

    function: str  # "module:function", see `child.py`
    settings: Mapping[str, Any] = MappingProxyType({})  # its keywords
    environment: Mapping[str, str] = MappingProxyType({})  # beside this process's own
    kills_itself: bool = False  # how it is meant to end


class ChildError(Exception):
    """A process did not end as it should: one line."""


def run(
    children: Mapping[str, Child], flags: Sequence[str], seconds: float, limit: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run processes side by side and yield what they say, as it comes.

    Args:
        children: by name.
        flags: for XLA_FLAGS, beside those there.
        seconds: in which they should be done; they begin nothing that takes longer.
        limit: seconds after which they are ended.

    Yields:
        The name of a process and one record of it.

    Raises:
        ChildError: one of them failed, or was ended.
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
                    raise ChildError(f"ended after {limit:.0f} s, its limit") from None
                if line is None:
                    talking -= 1
                else:
                    yield name, json.loads(line)
            for name, process in processes.items():
                try:
                    code = process.wait(SECONDS_TO_END)
                except subprocess.TimeoutExpired:
                    raise ChildError(f"{name}: said everything and did not end".removeprefix(": ")) from None
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
        "JAX_ENABLE_COMPILATION_CACHE": "false",  # a program that was kept takes no time to compile
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
        # its standard input stays open as long as this process lives
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, env=environment
        )


def _listen(name: str, process: "subprocess.Popen[str]", said: "queue.Queue[tuple[str, str | None]]") -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.put((name, line))
    except ValueError:  # closed by the one who gave up
        pass
    said.put((name, None))


def _check(name: str, child: Child, code: int, errors: Path) -> None:
    if code == (KILLED if child.kills_itself else 0):
        return
    lines = [line.strip() for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"Unknown flag|RESOURCE_EXHAUSTED|Error:", line)] or lines or [""]
    raise ChildError(f"{name}: exit code {code}: {texts.without_folders(told[-1])[:300]}".removeprefix(": "))


def described(error: BaseException) -> str:
    """Return the kind of an error and the first line of what it says."""
    if isinstance(error, ChildError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    return texts.without_folders(f"{type(error).__name__}: {lines[0]}")[:300]
