"""Links from pages to files outside of docs/, which become part of the site.

Pages are read both in a checkout and in the site. They use a checkout's links (`../results/wide.json`).
"""

import functools
import os
import re
from pathlib import Path

_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.DOTALL | re.MULTILINE)
_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_COPIED = {".csv", ".json", ".md", ".png", ".svg", ".html"}  # from results/


@functools.cache
def targets(root: Path) -> dict[str, str]:
    """Return the files that the site includes: path in the repository -> path in the site's sources.

    Args:
        root: the repository's root.

    Raises:
        ValueError: If a page links to a missing file.
    """
    found = {
        str(path.relative_to(root)): str(path.relative_to(root))
        for path in sorted((root / "results").rglob("*"))
        if path.suffix in _COPIED
    }
    found |= {name: page for name, page in _PAGES.items() if page != "index.md"}
    waiting = [*sorted((root / "docs").rglob("*.md")), *(root / name for name in found if name.endswith(".md"))]
    for page in waiting:  # the list grows inside the loop
        for match in _LINK.finditer(_COMMENT.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))):
            path = _inside(root, page, match[1])
            if path is None:
                raise ValueError(f"{page.relative_to(root)} links to {match[1]}, which does not exist")
            if path.startswith("docs/") or path in found or path in _PAGES:
                continue
            found[path] = path if path.endswith(".md") else f"source/{path}.md"
            if path.endswith(".md"):
                waiting.append(root / path)
    return found


def as_page(name: str, source: Path) -> str:
    """Return a file of the repository as a page that search ignores.

    Args:
        name: the file's path in the repository.
        source: the file, or a folder, whose files are listed.
    """
    if source.suffix == ".ipynb" and source.with_suffix(".py").is_file():
        source = source.with_suffix(".py")  # show a notebook's text form
    if source.is_dir():
        text = "\n".join(
            f"* `{path.name}`" for path in sorted(source.iterdir()) if not path.name.startswith((".", "__p"))
        )
    else:
        language = {".py": "python", ".toml": "toml"}.get(source.suffix, "text")
        text = f"````{language}\n{source.read_text(encoding='utf-8')}\n````"
    return f"---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n# {name}\n\n{text}\n"


def redirected(markdown: str, page: str, root: Path) -> str:
    """Return a page with its links redirected to the targets' places in the site.

    Args:
        markdown: the page's text.
        page: the page's path in the site's sources.
        root: the repository's root.
    """
    in_site = targets(root)
    where = {site: repository for repository, site in in_site.items()}
    origin = root / where[page] if page in where else root / "docs" / page

    def moved(match: re.Match) -> str:
        path = _inside(root, origin, match[1])
        if path is None:
            return match[0]  # mkdocs reports the broken link
        site = path.removeprefix("docs/") if path.startswith("docs/") else _PAGES.get(path) or in_site[path]
        return os.path.relpath(site, os.path.dirname(page) or ".") + (match[2] or "")

    if page.startswith("source/"):
        return markdown
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(moved, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(moved, markdown[end:])])


def _inside(root: Path, page: Path, link: str) -> str | None:
    """Return a link's target as a path in the repository; None if it does not exist."""
    target = Path(os.path.normpath(page.parent / link))
    return str(target.relative_to(root)) if target.is_relative_to(root) and target.exists() else None
