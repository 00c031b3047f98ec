"""Checks of committed results: pages follow from curves, and runs from a protocol that was committed before them."""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedjax_sel import UserError
from studies.boards import series


def differences(out: Path, texts: Mapping[str, str], protocol: Path, names: Iterable[str]) -> list[str]:
    """Return a line per file that differs from its text, and per part with a run older than the protocol.

    Args:
        out: results folder.
        texts: what the files contain if they follow from the curves, by path in the folder.
        protocol: file with the protocol.
        names: parts to check.

    Raises:
        UserError: there is nothing to check.
    """
    if not texts:
        raise UserError(f"--check: no part in {out} has a page to check; give --out")
    found = [
        f"{out / name} does not follow from the curves; --pages rewrites it"
        for name, text in texts.items()
        if not (out / name).exists() or (out / name).read_text(encoding="utf-8") != text
    ]
    return found + [f"{out / name}: a run is older than the protocol" for name in _older(out, protocol, names)]


def _older(out: Path, protocol: Path, names: Iterable[str]) -> list[str]:
    """Return the parts with a run whose commit does not contain the protocol's first commit."""
    git = ("git", "-C", str(protocol.parent))
    added = subprocess.run(
        (*git, "log", "--follow", "--diff-filter=A", "--format=%H", "--", str(protocol)),
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    found = []
    for name in names:
        held = series.read(out / name)
        rows = {} if held is None else held.about["rows"]
        commits = {about["commit"].removesuffix("+") for about in rows.values()}
        contained = (
            subprocess.run((*git, "merge-base", "--is-ancestor", added[-1], commit), check=False) for commit in commits
        )
        if any(one.returncode for one in contained):
            found.append(name)
    return found
