"""Generated parts of pages, made from the code and from committed results.

A page marks such a part with two comments. `tools/generated_parts.py` writes the text between them, and the site's
build generates it again:

    <!-- generated: buys fedcor -->
    <!-- end -->
"""

import re
from collections.abc import Callable
from pathlib import Path

import reference
import strategy_pages
import strategy_results

_SITE_ONLY = ("public", "reference")  # parts that are not committed
_PART = re.compile(r"<!-- generated: ([^\n]*?) -->\n(.*?)<!-- end -->", re.DOTALL)

PARTS: dict[str, Callable[..., str]] = {
    "public": reference.overview,
    "reference": reference.entries,
    "strategies": strategy_pages.overview,
    "disclosures": strategy_pages.disclosures,
    "facts": strategy_pages.facts,
    "glance": strategy_pages.glance,
    "buys": strategy_pages.buys,
    "parameters": strategy_pages.parameters,
    "presets": strategy_pages.presets,
    "differs": strategy_pages.differs,
    "defaults": strategy_pages.defaults,
    "results": strategy_results.of_strategy,
}


def filled(markdown: str, root: Path, marked: bool = False) -> str:
    """Return a page with its generated parts.

    Args:
        markdown: the page's text.
        root: the repository's root.
        marked: whether to keep the marks, so that the page can be updated again.

    Raises:
        KeyError: If a part's name is unknown.
    """

    def made(match: re.Match) -> str:
        name, *arguments = match[1].split()
        if marked and name in _SITE_ONLY:
            return match[0]
        text = PARTS[name](root, *arguments).strip() + "\n"
        return f"<!-- generated: {match[1]} -->\n{text}<!-- end -->" if marked else text

    return _PART.sub(made, markdown)
