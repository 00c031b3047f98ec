"""How often does a family of tests hold a false verdict, and how often does it find a true difference?

Simulates the leaderboard's families: 23 strategies against one baseline and 5 against another, so that differences with
the same baseline are correlated. Five strategies have an effect of 1.5 standard deviations of a difference. The joint
test of `fedjax_sel.statistics.compare` stands beside Holm's correction of the sign-flip tests:

    python benchmarks/family_error.py --out results/family_error.json
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import reports

from fedjax_sel import statistics

LAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {  # mean 0, standard deviation 1
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: (rng.gamma(8.0, size=shape) - 8.0) / np.sqrt(8.0),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1.0,
}
SIZES = (23, 5)  # strategies per baseline
SEEDS = (8, 10, 12)
EFFECTS, EFFECT = 5, 1.5  # strategies with an effect, in standard deviations of a difference
WITH_INTERVALS = 200  # repetitions whose intervals are computed


def differences(rng: np.random.Generator, law: str, seeds: int) -> np.ndarray:
    """Return one family without any effect: differences with standard deviation 1, [comparisons, seeds]."""
    families = [LAWS[law](rng, (1 + size, seeds)) for size in SIZES]
    return np.concatenate([runs[1:] - runs[0] for runs in families]) / np.sqrt(2.0)


def holm(p: np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p-values, [m]."""
    order, adjusted = np.argsort(p), np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return adjusted


def case(law: str, seeds: int, repetitions: int) -> dict[str, Any]:
    """Return the shares of families with a false verdict, and of the effects that are found."""
    rng = np.random.default_rng(0)
    tests = {
        "joint": statistics.joint_sign_flip_test,
        "holm": lambda rows: holm(statistics.sign_flip_test(rows)),
    }
    counts = {f"{what}_{test}": 0 for test in tests for what in ("error_without_effects", "error", "power")}
    with_zero = rejected = 0
    for repetition in range(repetitions):
        null = differences(rng, law, seeds)
        rows = null.copy()
        rows[:EFFECTS] += EFFECT
        for name, test in tests.items():
            found = test(rows) <= statistics.ALPHA
            counts[f"error_without_effects_{name}"] += (test(null) <= statistics.ALPHA).any()
            counts[f"error_{name}"] += found[EFFECTS:].any()
            counts[f"power_{name}"] += found[:EFFECTS].mean()
            if name == "joint" and repetition < WITH_INTERVALS and found.any():
                low, high = statistics.mean_interval(rows[found], resamples=1_999)
                with_zero, rejected = with_zero + ((low <= 0) & (high >= 0)).sum(), rejected + found.sum()
    shares = {name: round(float(count) / repetitions, 4) for name, count in counts.items()}
    return {"law": law, "seeds": seeds, **shares, "interval_with_zero": round(float(with_zero / max(1, rejected)), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=4000, help="families per case (default: 4000)")
    parser.add_argument("--out", type=Path, default=Path("results/family_error.json"), help="JSON file to write")
    arguments = parser.parse_args()
    settings = {"repetitions": arguments.repetitions, "comparisons": sum(SIZES), "effects": EFFECTS, "effect": EFFECT}
    report: dict[str, Any] = reports.head() | {"settings": settings, "cases": []}
    for law in LAWS:
        for seeds in SEEDS:
            report["cases"].append(case(law, seeds, arguments.repetitions))
            print(report["cases"][-1], flush=True)
            reports.write(arguments.out, report)


if __name__ == "__main__":
    main()
