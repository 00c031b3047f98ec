"""JSON reports of benchmarks, with their provenance: command, commit, date and processor."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from fedjax_sel.core import files, parsing

ROOT = Path(__file__).resolve().parents[1]


def head(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a report's provenance.

    Args:
        arguments: the command-line arguments to record; None records all.
    """
    return {
        "command": command(arguments),
        "commit": commit(),
        "date": date.today().isoformat(),
        "processor": processor(),
        "cores": cores(),
    }


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report atomically, and create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, (json.dumps(report, indent=1) + "\n").encode())


def command(arguments: Sequence[str] | None = None) -> str:
    """Return this process's command, relative to the repository and without local paths; see `head`."""
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT).as_posix() if script.is_relative_to(ROOT) else script.name
    return parsing.without_folders(shlex.join(["python", name, *(sys.argv[1:] if arguments is None else arguments)]))


def commit(checkout: Path = ROOT) -> str | None:
    """Return a checkout's commit, with "and changes" for uncommitted changes; None if unknown."""
    if shutil.which("git") is None or not (checkout / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "HEAD") + (" and changes" if changed else "")) or None


def processor() -> str:
    """Return the CPU's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def cores() -> int | None:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
