"""Compact JSON encodings of arrays."""

import base64
import math
from typing import Any

import numpy as np

DIGITS = 5


def short(values: Any) -> list[float | None]:
    """Return numbers with five significant digits; None for non-finite values.

    Args:
        values: numbers [...], flattened in the result.
    """
    return [_short(value) for value in np.asarray(values, np.float64).ravel().tolist()]


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def packed(values: np.ndarray) -> str:
    """Return integers as little-endian uint16 in base64.

    Args:
        values: integers from -1 to 65534; -1 becomes 65535.
    """
    return base64.b64encode(np.asarray(values).astype("<u2").tobytes()).decode()


def shades(values: np.ndarray) -> dict[str, Any]:
    """Return numbers quantized to one byte between their minimum and maximum, in base64.

    Args:
        values: finite numbers [...].
    """
    low, high = float(values.min()), float(values.max())
    steps = np.rint((values - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
    return {"low": _short(low), "high": _short(high), "bytes": base64.b64encode(steps.tobytes()).decode()}
