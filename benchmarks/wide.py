"""The speed of large fully connected layers, by weight layout and by gradient computation for small batches.

    python benchmarks/wide.py                             writes results/wide.json

Times local steps of one layer on one core: the product, both gradients, and SGD. `features first` and `inputs first`
name the weight layout and use matrix products only. `ours` is `models/layers.py`, which stores inputs first and sums
outer products for batches of at most FEW_EXAMPLES. The forms alternate; results are median microseconds per step.
"""

import argparse
import os
import time
from pathlib import Path

import reports

# pfl-research's layer, one just wide enough for `transposed_product`, and FL-DP3S's, which is too narrow
LAYERS = ((12544, 128), (2048, 512), (800, 500))
BATCHES = (4, 10, 16, 32, 64)
STEPS, TURNS = 50, 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/wide.json"), help="JSON file to write")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax

    report = reports.head() | {"jax": jax.__version__, "cases": []}
    for inputs, features in LAYERS:
        for batch in BATCHES:
            case = {"inputs": inputs, "features": features, "batch": batch}
            report["cases"].append(case | time_forms(inputs, features, batch))
            print(report["cases"][-1], flush=True)
            reports.write(arguments.out, report)


def time_forms(inputs: int, features: int, batch: int) -> dict[str, float]:
    """Return the microseconds per step of each form."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    from fedjax_sel.models import layers
    from fedjax_sel.training import client

    def steps(product, kernel, x):
        def step(_, carry):
            kernel, x = carry
            gradients = jax.grad(lambda kernel, x: jnp.sum(product(x, kernel) ** 2), (0, 1))(kernel, x)
            rate = client.depend_on(jnp.float32(1e-6), gradients)
            return kernel - rate * gradients[0], x + 1e-3 * gradients[1]

        return lax.fori_loop(0, STEPS, step, (kernel, x))

    keys = jax.random.split(jax.random.key(0))
    kernel = jax.random.normal(keys[0], (inputs, features)) * inputs**-0.5
    x = jax.random.normal(keys[1], (batch, inputs))
    forms = {
        "features first": (layers.matmul, kernel.T),
        "inputs first": (jnp.matmul, kernel),
        "ours": (layers.transposed_product, kernel),
    }
    programs = {name: (jax.jit(steps, static_argnums=0), *given) for name, given in forms.items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(TURNS + 1):
        for name, (program, product, weights) in programs.items():
            started = time.perf_counter()
            jax.block_until_ready(program(product, weights, x))
            seconds[name].append(time.perf_counter() - started)
    return {name: round(float(np.median(taken[1:])) / STEPS * 1e6, 1) for name, taken in seconds.items()}


if __name__ == "__main__":
    main()
