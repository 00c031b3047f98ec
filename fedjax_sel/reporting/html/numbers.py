"""Arrays as JSON that stays short."""

import base64
import math
from typing import Any

import numpy as np

DIGITS = 5


def short(values: Any) -> list[float | None]:
    """Return numbers with five digits; None for what is not finite.

    Args:
        values: [...], flattened.
    """
    return [_short(value) for value in np.asarray(values, np.float64).ravel().tolist()]


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def packed(values: np.ndarray) -> str:
    """Return whole numbers of two bytes each, in base64, little-endian.

    Args:
        values: in -1 .. 65534; -1 becomes 65535.
    """
    return base64.b64encode(np.asarray(values).astype("<u2").tobytes()).decode()


def shades(values: np.ndarray) -> dict[str, Any]:
    """Return numbers in 255 steps between the least and the greatest, a byte each, in base64.

    Args:
        values: finite, [...].
    """
    low, high = float(values.min()), float(values.max())
    steps = np.rint((values - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return {"low": _short(low), "high": _short(high), "bytes": base64.b64encode(steps.tobytes()).decode()}
