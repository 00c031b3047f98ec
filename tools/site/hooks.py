"""Hooks of `mkdocs build`, registered in mkdocs.yml.

* Linked results, sources and CONTRIBUTING.md become part of the site, so that it works offline.
* Marked parts are generated from the code and from committed results (`generated.py`).
* Equations become MathML, which browsers render natively (`equations.py`).
"""

from pathlib import Path
from typing import Any

import equations
import generated
import repository_links
from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).resolve().parents[2]


def on_files(files: Any, config: Any) -> Any:
    """Add linked files outside of docs/."""
    for repository_path, site_path in repository_links.targets(ROOT).items():
        source = ROOT / repository_path
        if site_path.endswith(".md") and source.suffix != ".md":
            files.append(File.generated(config, site_path, content=repository_links.as_page(repository_path, source)))
        else:
            files.append(File.generated(config, site_path, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in the generated parts, and redirect links to the targets' places in the site."""
    return repository_links.redirected(generated.filled(markdown, ROOT), page.file.src_uri, ROOT)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Convert equations to MathML."""
    return equations.as_mathml(html, page.file.src_uri)
