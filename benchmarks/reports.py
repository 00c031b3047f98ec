"""The file that a benchmark leaves: above what it found stands what was run, of which commit, when and on what."""

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

from fedjax_sel.core import texts, whole_files

ROOT = Path(__file__).resolve().parents[1]


def head(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what made a report.

    Args:
        arguments: of the command line, where some say nothing to others; None: all that were given.
    """
    return {
        "command": command(arguments),
        "commit": commit(),
        "date": date.today().isoformat(),
        "processor": processor(),
        "cores": cores(),
    }


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report, whole or not at all.

    Args:
        path: its folder is made where it is missing.
        report: that JSON can hold.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_files.write(path, (json.dumps(report, indent=1) + "\n").encode())


def command(arguments: Sequence[str] | None = None) -> str:
    """Return the command that runs now, from the project's folder, without folders of this machine.

    Args:
        arguments: as in `head`.
    """
    script = Path(sys.argv[0]).resolve()
    name = script.relative_to(ROOT).as_posix() if script.is_relative_to(ROOT) else script.name
    return texts.without_folders(shlex.join(["python", name, *(sys.argv[1:] if arguments is None else arguments)]))


def commit(checkout: Path = ROOT) -> str | None:
    """Return the commit of a checkout, with a mark where files differ from it; None where git cannot tell."""
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
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
