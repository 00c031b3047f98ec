"""Styles of strategies: one color and line style each, the same in all plots and pages."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00",
    "#56B4E9", "#882255", "#7F7F7F", "#6A3D9A", "#A6761D", "#B2182B",
)  # fmt: skip
"""The palette of Okabe and Ito, with darker colors in between; neighbors also differ in lightness."""
ON_BLACK = (
    "#4BA3E3", "#F07F2F", "#22C795", "#F0A3CC", "#F2F2F2", "#FFC233",
    "#9AD8FF", "#D4559A", "#9AA0A6", "#AD8BE8", "#C79A4A", "#F2596B",
)  # fmt: skip
"""The same hues for dark backgrounds, in the same order."""
LINES: tuple[tuple[Any, str], ...] = (
    ("-", "solid"),
    ((0, (5, 1.5)), "10px,3px"),
    ((0, (1.2, 1.2)), "2.5px,2.5px"),
    ((0, (6, 1.5, 1.2, 1.5)), "12px,3px,2.5px,3px"),
    ((0, (9, 2, 1.2, 1.2, 1.2, 2)), "18px,4px,2.5px,2.5px,2.5px,4px"),
)
"""Line styles for Matplotlib, in multiples of the line width, and for browsers."""
KNOWN = ("random", "fedgp", "fedcor", "gpfl", "fl_dp3s", "afl", "pow_d", "fedsae", "clustered", "divfl", "oort")
"""Strategies with a fixed style."""


class Style(NamedTuple):
    """One strategy's style."""

    color: str  # for light backgrounds
    line: Any  # Matplotlib line style
    on_black: str  # color for dark backgrounds
    dash: str  # line style for browsers


def styles_of(names: Iterable[str]) -> dict[str, Style]:
    """Return a style for each strategy; up to 48 styles are distinct.

    A strategy of the package always has the same style. A variant with parameters or an optimizer
    (`name[key=value]`, `name + optimizer`) has the same color with another line style. Other strategies get the
    remaining styles in order.

    Args:
        names: strategy names; appending names does not change the styles of earlier ones.
    """
    own = {name: (color, color % 4) for color, name in enumerate(KNOWN)}
    # Starts after the first line style of each color, so that the first twelve other strategies get distinct colors.
    steps = [*range(1, len(LINES)), 0]
    free = [(color, (color % 4 + step) % len(LINES)) for step in steps for color in range(len(COLORS))]
    free = [place for place in free if place not in own.values()]
    chosen: dict[str, tuple[int, int]] = {}
    for name in dict.fromkeys(names):
        if name in own:
            chosen[name] = own[name]
            continue
        base = own.get(re.split(r"[\[ ]", name, maxsplit=1)[0])
        related = [] if base is None else [place for place in free if place[0] == base[0]]
        chosen[name] = (related or free or [(len(chosen) % len(COLORS), len(chosen) % len(LINES))])[0]
        if chosen[name] in free:
            free.remove(chosen[name])
    return {
        name: Style(COLORS[color], LINES[line][0], ON_BLACK[color], LINES[line][1])
        for name, (color, line) in chosen.items()
    }
