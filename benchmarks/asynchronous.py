#!/usr/bin/env python3
"""The cost of asynchronous rounds: the CPU time of a round with `--concurrency C` relative to a synchronous round.

    python benchmarks/asynchronous.py                   writes results/asynchronous.json

Both runs train equally many clients per round, with the simulated clock. They share one process on two CPU devices, and
run in turns. With C = K = 5, both compute the same rounds.
"""

import argparse
from pathlib import Path

import clock_cost
import jax
import reports

CASES = tuple(("fedcor/fmnist-2spc", algo, concurrency) for algo in ("random", "oort") for concurrency in (5, 30, 100))
TIMED = {"timing": "tiers"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=40, metavar="N", help="timed chunks of each run (default: 40)")
    parser.add_argument("--out", type=Path, default=Path("results/asynchronous.json"), help="JSON file to write")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 2)
    cases = []
    for preset, algo, concurrency in CASES:
        asynchronous = TIMED | {"concurrency": concurrency}
        cases.append(case := clock_cost.measured(preset, algo, arguments.chunks, TIMED, asynchronous))
        print(f"{preset:20} {algo:8} C = {concurrency:3}: {case['ratio']:.3f} times the CPU time of synchronous rounds "
              f"({case['lower_quartile']:.3f} to {case['upper_quartile']:.3f})", flush=True)  # fmt: skip
    reports.write(arguments.out, reports.head() | {"cases": cases})


if __name__ == "__main__":
    main()
