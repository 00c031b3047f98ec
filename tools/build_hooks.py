"""What the build adds to wheels and archives of the source; hatchling calls it (pyproject.toml).

* The commit, in `fedjax_sel/commit.txt`, so that runs of an installed package know it.
* The public address, from the one place where it stands, `address` in pyproject.toml: the project's
  URLs, and absolute links in the long description, where a package index shows it. While there is no public address
  the metadata names none, and the links stay relative, as they are in the README.
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
        address: of the repository, such as "https://github.com/OWNER/NAME"; empty where there is none.
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
    """Return Markdown whose relative links are absolute: pictures to the files themselves, others to their pages.

    Args:
        text: with links relative to the repository's root.
        address: of the repository; empty where there is none, and then the text stays as it is.
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
    """Fills in URLs and the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields that pyproject.toml calls dynamic."""
        address = str(self.config.get("address", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, address)}
        metadata["urls"] = urls(address)


class BuildHook(BuildHookInterface):
    """Notes the commit."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the note to what is built; not to an editable install, whose checkout is asked itself."""
        note = None if version == "editable" else _note(Path(self.root))
        if note is not None:
            self._folder = tempfile.TemporaryDirectory()
            file = Path(self._folder.name) / "commit.txt"
            file.write_text(note, encoding="ascii")
            build_data["force_include"][str(file)] = COMMIT


def _note(root: Path) -> str | None:
    """Return what the note says; None outside a checkout, such as in an archive, which has its own."""
    import runpy

    of = runpy.run_path(str(root / "fedjax_sel" / "core" / "commit.py"))["of"]
    found = of(root / "fedjax_sel")
    if (root / COMMIT).exists() or found.commit is None:
        return None
    return f"{found.commit}{' changed' if found.uncommitted_changes else ''}\n"
