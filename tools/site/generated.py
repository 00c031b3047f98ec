"""Parts of pages that are made from the code and from committed results while the site is built.

A page marks such a part so; what stands between is shown where pages are read without the site:

    <!-- generated: buys fedcor -->
    (filled in when the site is built)
    <!-- end -->
"""

import re
from collections.abc import Callable
from pathlib import Path

import reference
import strategy_pages
import strategy_results

_PART = re.compile(r"<!-- generated: (.*?) -->\n(.*?)<!-- end -->", re.DOTALL)

PARTS: dict[str, Callable[..., str]] = {
    "public": reference.overview,
    "reference": reference.entries,
    "strategies": strategy_pages.overview,
    "information": strategy_pages.information,
    "facts": strategy_pages.facts,
    "buys": strategy_pages.buys,
    "parameters": strategy_pages.parameters,
    "presets": strategy_pages.presets,
    "differs": strategy_pages.differs,
    "results": strategy_results.of_strategy,
    "grid": strategy_results.grid,
}


def filled(markdown: str, root: Path) -> str:
    """Return a page with its generated parts.

    Args:
        markdown: the page.
        root: of the repository.

    Raises:
        KeyError: there is no part of such a name.
    """

    def made(match: re.Match) -> str:
        name, *arguments = match[1].split()
        return PARTS[name](root, *arguments).strip() + "\n"

    return _PART.sub(made, markdown)
