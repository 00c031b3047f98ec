"""Rounds per second, compared to the machine's ceiling: the round's matrix multiplications alone.

    python benchmarks/rounds_per_second.py                         writes results/rounds_per_second.json
    python benchmarks/rounds_per_second.py --presets fedcor/cifar10-2spc --model resnet8 --out FILE

Each case runs in its own process. Reported are compile seconds, steady-state seed-rounds per second (median, 10th and
90th percentile over chunks) and peak memory. The ceiling is measured in the same process, alternating chunk by chunk:
all matrix multiplications of the round, with the same shapes on the same devices, and nothing else. `share_of_ceiling`
is ceiling time over round time. Images are synthetic, because speed does not depend on pixel values.
"""

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import reports

PRESETS = ("fedcor/fmnist-2spc", "fedcor/fmnist-1spc", "fl_dp3s/mnist-xi1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=PRESETS, metavar="NAME", help="settings to time")
    parser.add_argument("--model", metavar="NAME", help="model, as in fedjax-sel train (default: the preset's)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5], metavar="N", help="numbers of replicates")
    parser.add_argument(
        "--chunks", type=int, default=7, metavar="N", help="timed chunks, after a first one (default: 7)"
    )
    parser.add_argument("--algo", default="random", help="selection strategy")
    parser.add_argument("--precision", default="float32", help="precision of the matrix products (default: float32)")
    parser.add_argument("--out", type=Path, default=Path("results/rounds_per_second.json"), help="JSON file to write")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(**json.loads(arguments.case))))
        return
    cases = []
    for preset in arguments.presets:
        for seeds in arguments.seeds:
            for evaluate in (False, True):
                case = {"preset": preset, "seeds": seeds, "evaluate": evaluate}
                case |= {"chunks": arguments.chunks, "algo": arguments.algo, "precision": arguments.precision}
                case |= {} if arguments.model is None else {"model": arguments.model}
                command = [sys.executable, __file__, "--case", json.dumps(case)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                cases.append(case | json.loads(done.stdout))
                print(describe(cases[-1]), flush=True)
    report = reports.head() | {"cases": cases}
    reports.write(arguments.out, report)


def describe(case: dict[str, Any]) -> str:
    """Format a case in one line."""
    evaluated = "with evaluation   " if case["evaluate"] else "without evaluation"
    name = f"{case['preset']} {case.get('model', '')}"
    return (
        f"{name:20} {case['seeds']} seeds {evaluated}  {case['seed_rounds_per_second']:7.2f} seed-rounds/s "
        f"({case['p10']:.2f} to {case['p90']:.2f})  {case['share_of_ceiling']:4.0%} of the ceiling  "
        f"compiled in {case['compile_seconds']:.1f} s  {case['peak_megabytes']:,.0f} MB"
    )


def run_case(
    preset: str,
    seeds: int,
    evaluate: bool,
    chunks: int,
    algo: str,
    precision: str,
    model: str | None = None,
) -> dict[str, Any]:
    """Time one case in this process."""
    from fedjax_sel import devices

    devices.use_every_core()
    import jax
    import numpy as np
    import rounds

    config = rounds.setting(preset, seeds, algo, precision, model)
    timed = rounds.time_rounds(config, evaluate, chunks)
    speeds = timed.seed_rounds_per_second
    peak = rounds.peak_bytes() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "clients": config.selection.num_selected,
        "local_steps": timed.work.equal_steps,
        "batch_size": config.training.batch_size,
        "compile_seconds": round(timed.compile_seconds, 2),
        "seed_rounds_per_second": round(float(np.median(speeds)), 3),
        "p10": round(float(np.percentile(speeds, 10)), 3),
        "p90": round(float(np.percentile(speeds, 90)), 3),
        "ceiling_seed_rounds_per_second": round(timed.ceiling_seed_rounds_per_second, 3),
        "share_of_ceiling": round(timed.share_of_ceiling, 3),
        "gigaflop_a_seed_round": round(timed.flops / 1e9, 3),
        "peak_megabytes": round(peak / 1e6),
        "devices": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "processor": reports.processor(),
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    main()
