"""Version and commit of the package."""

import contextlib
import functools
import importlib.metadata
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

NOTE = "commit.txt"  # written by tools/build_hooks.py into wheels and source archives
_PACKAGE = Path(__file__).parent
_SECONDS = 5.0
_HASH = re.compile(r"[0-9a-f]{40,64}")


class Commit(NamedTuple):
    """A commit; fields are None if unknown."""

    commit: str | None  # hexadecimal digits
    uncommitted_changes: bool | None  # in the package's own files


@functools.cache
def current_commit() -> Commit:
    """Return the running package's commit."""
    return commit_of(_PACKAGE)


def commit_of(package: Path) -> Commit:
    """Return the commit of a package's folder, whose parent is the checkout, if any."""
    if (package.parent / ".git").exists():  # git alone would also find a repository around a virtual environment
        found = _git(package.parent, "rev-parse", "HEAD")
        if found is not None and _HASH.fullmatch(found):
            changes = _git(package.parent, "status", "--porcelain", "--", package.name)
            return Commit(found, None if changes is None else bool(changes))
    with contextlib.suppress(OSError, ValueError):
        commit, _, changed = (package / NOTE).read_text(encoding="ascii").strip().partition(" ")
        if _HASH.fullmatch(commit):
            return Commit(commit, changed == "changed")
    # pip records the commit of an installation from a repository.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        installed = importlib.metadata.distribution("fedjax-sel")
        if Path(str(installed.locate_file(package.name))).resolve() == package.resolve():
            return Commit(json.loads(installed.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"], None)
    return Commit(None, None)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):  # git is missing, fails or times out
        return None
    return done.stdout.strip()


__version__ = "0.1.0"
