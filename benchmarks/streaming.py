"""The cost of keeping training images in host memory and transferring each batch (--host-images).

    python benchmarks/streaming.py                             writes results/streaming.json

Times chunks of a preset's rounds (random selection, no evaluation) on synthetic images in a memory-mapped file. Runs
with images on the devices and in host memory alternate. On a CPU, both use the same memory, so the difference is the
call overhead; an accelerator adds the transfer.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import reports
import synthetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["fedcor/fmnist-2spc", "fl_dp3s/mnist-xi1"], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5], metavar="N")
    parser.add_argument("--seconds", type=float, default=20.0, help="timed seconds per case (default: 20)")
    parser.add_argument("--out", type=Path, default=Path("results/streaming.json"), help="JSON file to write")
    arguments = parser.parse_args()
    report: dict[str, Any] = reports.head() | {"cases": []}
    for preset in arguments.presets:
        for seeds in arguments.seeds:
            case = {"preset": preset, "seeds": seeds} | run_case(preset, seeds, arguments.seconds)
            report["cases"].append(case)
            print(f"{preset}, {seeds} seeds: {case['ratio']:.3f} of the speed with images on the devices", flush=True)
    reports.write(arguments.out, report)


def run_case(preset: str, seeds: int, budget: float) -> dict[str, Any]:
    """Time both variants, alternating chunk by chunk."""
    from fedjax_sel import devices

    devices.use_every_core()
    import dataclasses

    import jax

    import fedjax_sel
    from fedjax_sel.experiment.problem import pose
    from fedjax_sel.simulation import run

    config = fedjax_sel.preset(preset)
    chunk = 1 if config.model.model == "cnn_small" else 10
    config = config.replace(
        dataset=synthetic.like(config.data.dataset, test_size=1000),
        algo="random",
        seeds=seeds,
        chunk=chunk,
        rounds=1000 * chunk,
        train_metrics_every=0,
    )
    problem = pose(config)
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/images.npy", problem.dataset.train_images)
        mapped = np.load(f"{folder}/images.npy", mmap_mode="r")
        problem = dataclasses.replace(problem, dataset=dataclasses.replace(problem.dataset, train_images=mapped))
        programs, carries = {}, {}
        times: dict[bool, list[float]] = {False: [], True: []}
        for on_host in times:
            posed = dataclasses.replace(problem, config=config.replace(host_images=on_host))
            programs[on_host] = run.prepare(posed, eval_every=0)
            carries[on_host] = programs[on_host].carry
        while sum(map(sum, times.values())) < budget or len(times[True]) < 2:
            for on_host, program in programs.items():
                started = time.perf_counter()
                carries[on_host], _ = jax.block_until_ready(
                    program.chunk(carries[on_host], np.int32(0), program.federation, program.streams)
                )
                times[on_host].append(time.perf_counter() - started)
    device_seconds, host_seconds = (median(times[on_host][1:]) for on_host in (False, True))  # the first one compiles
    return {
        "ratio": round(device_seconds / host_seconds, 4),
        "seed_rounds_per_second": round(seeds * chunk / host_seconds, 3),
        "on_device": round(seeds * chunk / device_seconds, 3),
        "chunks": len(times[True]) - 1,
        "devices": f"{programs[True].plan.mesh.size} x {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    main()
