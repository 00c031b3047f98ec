#!/usr/bin/env python3
"""The cause of FedCor's loss under partial availability: unavailable cohorts, or missing answers to its queries.

    python benchmarks/absence_answers.py --out results/absence/answers.csv

Trains the quickstart three times, thirty rounds and ten seeds each (half a minute): with all clients available, with
70 % available, and with 70 % available while unavailable clients still answer queries. The third setting cannot occur
in a federation; it separates the two causes.
"""

import argparse
import contextlib
import csv
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import fedjax_sel
from fedjax_sel import Experiment, statistics, strategies
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation import queries

LAST, SHARE = 10, 0.7
ALL, SOME, ANSWERS = "all available", "70 % available", "70 % available, all answer"
FIELDS: tuple[str, ...] = (
    "case",
    "accuracy",
    "sd",
    "gemd",
    "difference",
    "low",
    "high",
    "p_family",
    "leads",
    "verdict",
)


@contextlib.contextmanager
def all_answer() -> Iterator[None]:
    """Let unavailable clients answer queries at the start of a round, too."""
    measure = queries.measure

    def measure_all(context, *arguments, **named):
        return measure(context._replace(available=None), *arguments, **named)

    with mock.patch.object(queries, "measure", measure_all):
        yield


def run(seeds: int, rounds: int, available: float, observe_all: bool = False) -> Result:
    """Run FedCor on the quickstart."""
    strategy = strategies.make("fedcor")
    observe = strategy.observe
    if observe_all:
        strategy = strategy._replace(observe=lambda state, now: observe(state, now._replace(available=None)))
    config = fedjax_sel.preset("quickstart").replace(seeds=seeds, rounds=rounds, available=available)
    return fedjax_sel.run(Experiment.of(config, algo=strategy))


def compared(seeds: int, rounds: int) -> list[dict[str, str]]:
    """Return a row per case, with differences to full availability, paired by seed."""
    results = {ALL: run(seeds, rounds, 1), SOME: run(seeds, rounds, SHARE)}
    with all_answer():
        results[ANSWERS] = run(seeds, rounds, SHARE, observe_all=True)
    ends = {case: result.test_accuracy[:, -LAST:].mean(axis=1) for case, result in results.items()}
    found = statistics.compare([ends[case] - ends[ALL] for case in (SOME, ANSWERS)])
    rows = []
    for case, one in zip(results, (None, *found)):
        row = dict.fromkeys(FIELDS, "") | {
            "case": case, "accuracy": f"{ends[case].mean():.7g}", "sd": f"{ends[case].std(ddof=1):.7g}",
            "gemd": f"{results[case].gemd[:, -LAST:].mean():.7g}",
        }  # fmt: skip
        if one is not None:
            row |= {name: f"{getattr(one, name):.7g}" for name in ("difference", "low", "high", "p_family", "leads")}
            row["verdict"] = one.verdict
        rows.append(row)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default: 10)")
    parser.add_argument("--rounds", type=int, default=30, help="number of rounds (default: 30)")
    parser.add_argument("--out", type=Path, required=True, help="CSV file to write")
    flags = parser.parse_args()
    rows = compared(flags.seeds, flags.rounds)
    with flags.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list[str](FIELDS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"Written to {flags.out}")
