"""Build hooks for wheels and source archives, called by hatchling (pyproject.toml).

* The commit is written to `fedjax_sel/commit.txt`, so that runs of an installed package can record it.
* The repository's public address, `address` in pyproject.toml, becomes the project's URLs, and makes the links of the
  long description absolute. Without an address, the metadata has no URLs and the links stay relative.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # pyright: ignore[reportMissingImports]
from hatchling.metadata.plugin.interface import MetadataHookInterface  # pyright: ignore[reportMissingImports]

BRANCH = "main"
COMMIT = "fedjax_sel/commit.txt"


def urls(address: str) -> dict[str, str]:
    """Return the project's URLs.

    Args:
        address: the repository's address, such as "https://github.com/OWNER/NAME"; empty if it has none.
    """
    if not address:
        return {}
    return {
        "Homepage": address,
        "Documentation": f"{address}/tree/{BRANCH}/docs",
        "Changelog": f"{address}/blob/{BRANCH}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def absolute(text: str, address: str) -> str:
    """Make the relative links of a Markdown text absolute: images link to raw files, other links to pages.

    Args:
        text: the text, with links relative to the repository's root.
        address: the repository's address; empty leaves the text unchanged.
    """
    if not address:
        return text

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if re.match(r"[a-z][a-z0-9+.-]*:|#|/", target):
            return found[0]
        return f"{mark}[{words}]({address}/{'raw' if mark else 'blob'}/{BRANCH}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", link, text)


class MetadataHook(MetadataHookInterface):
    """A hook that sets the URLs and the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields listed as dynamic in pyproject.toml."""
        address = str(self.config.get("address", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, address)}
        metadata["urls"] = urls(address)


class BuildHook(BuildHookInterface):
    """A hook that adds the commit's note."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the note to the build, except to an editable install, whose checkout has the commit."""
        note = None if version == "editable" else _note(Path(self.root))
        if note is not None:
            self._folder = tempfile.TemporaryDirectory()
            file = Path(self._folder.name) / "commit.txt"
            file.write_text(note, encoding="ascii")
            build_data["force_include"][str(file)] = COMMIT


def _note(root: Path) -> str | None:
    """Return the note's text; None outside a checkout, e.g. in a source archive, which already has a note."""
    import runpy

    of = runpy.run_path(str(root / "fedjax_sel" / "version.py"))["commit_of"]
    found = of(root / "fedjax_sel")
    if (root / COMMIT).exists() or found.commit is None:
        return None
    return f"{found.commit}{' changed' if found.uncommitted_changes else ''}\n"
