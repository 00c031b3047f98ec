"""A breakdown of a round's time by kind of operation, from JAX's profiler.

    python benchmarks/profile_round.py                                         writes results/profile_round.json
    python benchmarks/profile_round.py --presets fl_dp3s/mnist-xi1 --chunk 1 --out results/profile_round_cnn_small.json

Traces one compiled chunk of a preset's rounds (random selection, no evaluation) on synthetic images of the data set's
shape. Each operation is classified by its name in the program; control flow counts as the operations inside it. Shares
refer to the devices' time, which is wall-clock time times the number of devices. `waiting` is the remainder: devices
waiting for each other, and launch overhead.
"""

import argparse
import collections
import glob
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import reports
import synthetic

CONTROL = ("while", "call", "conditional")  # not counted: their time is that of the operations inside
PLACES = {  # the first pattern that matches an operation's name wins
    "matrix products": r"dot_general",
    "dropout": r"Dropout",
    "max-pooling": r"max_pool|reduce_window|pool",
    "patches of convolutions": r"Conv",
    "biases": r"Dense.*(reduce_sum|add)$",
    "random keys": r"threefry|random_bits|random_split|fold_in",
    "gathering models": r"all_gather",
    "batches: order, gather, normalize": r"gather|take|rem$|remainder|floor_divide|xor|shift",
    "loss": r"jvp\(\)|exp|log",
    "activations": r"relu|max$|select",
    "SGD": r"while/body/.*(sub|mul|add)$",
}
REST = "the rest of a round"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["fedcor/fmnist-2spc"], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5], metavar="N")
    parser.add_argument("--chunk", type=int, default=10, metavar="T", help="number of traced rounds (default: 10)")
    parser.add_argument("--out", type=Path, default=Path("results/profile_round.json"), help="JSON file to write")
    arguments = parser.parse_args()
    report: dict[str, Any] = reports.head() | {"cases": []}
    for preset in arguments.presets:
        for seeds in arguments.seeds:
            case = {"preset": preset, "seeds": seeds} | profile(preset, seeds, arguments.chunk)
            report["cases"].append(case)
            print(f"{preset}, {seeds} seeds: {case['seed_rounds_per_second']:.1f} seed-rounds/s while traced")
            for place, share in case["shares"].items():
                print(f"  {100 * share:5.1f} %  {place}")
    reports.write(arguments.out, report)


def profile(preset: str, seeds: int, length: int) -> dict[str, Any]:
    """Trace the second call of a chunk."""
    from fedjax_sel import devices

    devices.use_every_core()
    import jax

    import fedjax_sel
    from fedjax_sel.experiment.problem import pose
    from fedjax_sel.simulation import run

    config = fedjax_sel.preset(preset)
    config = config.replace(
        dataset=synthetic.like(config.data.dataset), algo="random", seeds=seeds, chunk=length, rounds=4 * length,
        train_metrics_every=0,
    )  # fmt: skip
    program = run.prepare(pose(config), eval_every=0)
    rest = (np.int32(0), program.federation, program.streams)
    compiled = program.chunk.lower(program.carry, *rest).compile()
    carry, _ = jax.block_until_ready(compiled(program.carry, *rest))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            started = time.perf_counter()
            jax.block_until_ready(compiled(carry, *rest))
            wall = time.perf_counter() - started
        file = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[0]
        spent = by_place(jax.profiler.ProfileData.from_file(file), compiled.as_text())
    total = wall * program.plan.mesh.size
    shares = {place: seconds / total for place, seconds in spent.most_common()}
    shares["waiting"] = 1.0 - sum(shares.values())
    device = jax.devices()[0]
    return {
        "seed_rounds_per_second": seeds * length / wall,
        "shares": {place: round(share, 4) for place, share in shares.items()},
        "devices": f"{program.plan.mesh.size} x {device.device_kind}",
        "jax": jax.__version__,
    }


def by_place(data: Any, program: str) -> collections.Counter[str]:
    """Sum the operations' time by kind.

    Args:
        data: the profile.
        program: the compiled program's text, whose metadata names each operation's source.

    Returns:
        Kind -> seconds, summed over devices.
    """
    names = dict(re.findall(r'%?([\w.\-]+) = [^\n]*?op_name="([^"]*)"', program))
    kinds = dict(re.findall(r"%?([\w.\-]+) = [^\n]*? ([a-z\-]+)\(", program))
    spent: collections.Counter[str] = collections.Counter()
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                if "hlo_op" in dict(event.stats) and kinds.get(event.name) not in CONTROL:
                    spent[place_of(names.get(event.name, ""), kinds.get(event.name, ""))] += event.duration_ns / 1e9
    return spent


def place_of(name: str, kind: str) -> str:
    """Classify an operation by its name and HLO kind."""
    if kind == "dot":
        return "matrix products"
    return next((place for place, pattern in PLACES.items() if re.search(pattern, name)), REST)


if __name__ == "__main__":
    main()
