#!/usr/bin/env python3
"""Accuracy lost to partial availability, per strategy: the difference to full availability, paired by seed.

    python benchmarks/absence.py runs/absence --out results/absence/lost.csv

Reads the run folders described in results/absence/README.md, without training. `python tools/tables.py` then fills the
page.
"""

import argparse
import csv
from pathlib import Path

import fedjax_sel
from fedjax_sel import statistics

ALGOS = ("random", "fedcor", "fl_dp3s", "pow_d")
SHARES = ("0.7", "0.5")  # fractions of available clients, compared to 1
LAST = 10  # final rounds that are averaged
FIELDS: tuple[str, ...] = ("share", "algo", "difference", "low", "high", "p_family", "leads", "verdict")


def accuracy(folder: Path):
    """Return the mean accuracy of the last rounds, float [S], one per seed."""
    return fedjax_sel.load(str(folder)).test_accuracy[:, -LAST:].mean(axis=1)


def lost(runs: Path) -> list[dict[str, str]]:
    """Return a row per strategy and fraction; all rows form one family of comparisons."""
    cases = [(share, algo) for share in SHARES for algo in ALGOS]
    found = statistics.compare([accuracy(runs / share / algo) - accuracy(runs / "1" / algo) for share, algo in cases])
    return [
        {
            "share": share, "algo": algo, "difference": f"{one.difference:.7g}", "low": f"{one.low:.7g}",
            "high": f"{one.high:.7g}", "p_family": f"{one.p_family:.7g}", "leads": str(one.leads),
            "verdict": one.verdict,
        }
        for (share, algo), one in zip(cases, found)
    ]  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder with the comparisons 1/, 0.7/ and 0.5/")
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    flags = parser.parse_args()
    rows = lost(flags.runs)
    with flags.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list[str](FIELDS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"Written to {flags.out}")
