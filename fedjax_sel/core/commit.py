"""Which commit this code is of: asked of git in a checkout, read from what the build noted in an installed package."""

import contextlib
import functools
import importlib.metadata
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

NOTE = "commit.txt"  # written by tools/build_hooks.py into wheels and archives of the source
_PACKAGE = Path(__file__).parents[1]
_SECONDS = 5.0
_HASH = re.compile(r"[0-9a-f]{40,64}")


class Commit(NamedTuple):
    """A commit, as far as it is known."""

    commit: str | None  # hexadecimal digits
    uncommitted_changes: bool | None  # of the package's own files, against it


@functools.cache
def current() -> Commit:
    """Return the commit that the running package is of; None where nothing tells."""
    return of(_PACKAGE)


def of(package: Path) -> Commit:
    """Return the commit of a package's folder.

    Args:
        package: whose parent is the checkout, if there is one.
    """
    if (package.parent / ".git").exists():  # not somebody else's repository that an environment lies in
        found = _git(package.parent, "rev-parse", "HEAD")
        if found is not None and _HASH.fullmatch(found):
            changes = _git(package.parent, "status", "--porcelain", "--", package.name)
            return Commit(found, None if changes is None else bool(changes))
    with contextlib.suppress(OSError, ValueError):
        commit, _, changed = (package / NOTE).read_text(encoding="ascii").strip().partition(" ")
        if _HASH.fullmatch(commit):
            return Commit(commit, changed == "changed")
    return Commit(_installed_from(package), None)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):  # there is no git, or it does not answer
        return None
    return done.stdout.strip()


def _installed_from(package: Path) -> str | None:
    """Return the commit that pip noted when it installed from a repository; None otherwise."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        installed = importlib.metadata.distribution("fedjax-sel")
        if Path(str(installed.locate_file(package.name))).resolve() == package.resolve():
            return json.loads(installed.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"]
    return None
