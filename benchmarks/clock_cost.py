#!/usr/bin/env python3
"""The cost of the simulated clock: the CPU time of rounds with `--timing` relative to rounds without it.

    python benchmarks/clock_cost.py                     writes results/clock_cost.json

Both programs run in one process on one CPU device, in turns. CPU time does not count waiting for other processes. Each
case has a control: the same two runs, both without a clock. Its ratio shows the noise.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import reports
import rounds

from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run

CASES = (("fedcor/fmnist-2spc", "random"), ("fedcor/fmnist-2spc", "fedcor"), ("fedcor/fmnist-1spc", "gpfl"))


class Runner:
    """A run that executes one chunk at a time."""

    def __init__(self, preset: str, algo: str, chunks: int, **settings: Any):
        config = rounds.setting(preset, 1, algo, **settings)
        config = config.replace(rounds=config.run.chunk * (chunks + rounds.UNTIMED))
        self._program = run.prepare(pose(config), eval_every=0)
        self._carry, self._first = self._program.carry, 0
        for _ in range(rounds.UNTIMED):
            self.chunk()

    def chunk(self) -> float:
        """Run the next chunk, and return its CPU seconds."""
        started = time.process_time()
        first = np.int32(self._first)
        self._carry, _ = self._program.chunk(self._carry, first, self._program.federation, self._program.streams)
        jax.block_until_ready(self._carry)
        self._first += self._program.length
        return time.process_time() - started


def measured(preset: str, algo: str, chunks: int, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the ratio of adjacent chunks with the settings `other` and with `one`: median and quartiles."""
    first, second = (Runner(preset, algo, chunks, **settings) for settings in (one, other))
    ratios = []
    for number in range(chunks):
        pair = [runner.chunk() for runner in ((first, second) if number % 2 else (second, first))]
        before, after = pair if number % 2 else pair[::-1]
        ratios.append(after / before)
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "preset": preset, "algo": algo, **other, "chunks": chunks, "ratio": round(statistics.median(ratios), 4),
        "lower_quartile": round(low, 4), "upper_quartile": round(high, 4),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timing", default="tiers", metavar="LAW", help="law of the clients' devices (default: tiers)")
    parser.add_argument("--chunks", type=int, default=40, metavar="N", help="timed chunks of each run (default: 40)")
    parser.add_argument("--out", type=Path, default=Path("results/clock_cost.json"), help="JSON file to write")
    arguments = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 1)
    cases = []
    for (preset, algo), law in itertools.product(CASES, ("none", arguments.timing)):
        cases.append(case := measured(preset, algo, arguments.chunks, {"timing": "none"}, {"timing": law}))
        print(f"{preset:20} {algo:8} {law:10} {case['ratio']:.3f} times the CPU time without a clock "
              f"({case['lower_quartile']:.3f} to {case['upper_quartile']:.3f})", flush=True)  # fmt: skip
    reports.write(arguments.out, reports.head() | {"cases": cases})


if __name__ == "__main__":
    main()
