"""Pictures that are committed: files of 256 colours, a third as large as others."""

import io
from typing import Any

DPI = 100
COLORS = 256


def of(figure: Any) -> bytes:
    """Return the PNG of a figure of Matplotlib.

    Args:
        figure: whose lines and bands have few colours; their smoothed edges are what is lost.
    """
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    picture = (
        Image.open(drawn)
        .convert("RGB")
        .quantize(COLORS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    )
    picture.save(small, format="png", optimize=True)
    return small.getvalue()
