"""The speed of different forms of a convolution with per-client kernels.

    python benchmarks/convolutions.py                              writes results/convolutions_xla_cpu.json (or _gpu)
    python benchmarks/convolutions.py --models resnet8 lenet --out FILE   ordinary flax.linen modules

Times a training step (forward, backward, SGD) of a cohort inside a scan, as in a round, with the clients distributed
over the devices. The forms are the package's product of patches (`models/layers.py`) and XLA's convolution, with
clients in one `vmap` or one after another. Each case runs in its own process, and the cases alternate. Results are
median milliseconds per step of all clients.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reports

SETTINGS = {
    # model: image shape, clients, batch
    "cnn": ((32, 32, 3), 5, 50),  # FedCor on CIFAR-10
    "cnn_small": ((28, 28, 1), 10, 10),  # FL-DP3S on MNIST
}
FLAX_SETTINGS = {
    "resnet8": ((32, 32, 3), 4, 20),
    "lenet": ((28, 28, 1), 4, 20),
}
FORMS = ("patches", "xla")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(SETTINGS), choices=[*SETTINGS, *FLAX_SETTINGS])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS, help="forms (default: all)")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="repetitions of each case (default: 3)")
    parser.add_argument(
        "--budget",
        type=float,
        default=4.0,
        metavar="SECONDS",
        help="timed seconds per case and repetition (default: 4)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(**json.loads(arguments.case))))
        return
    import numpy as np

    cases = [
        {"model": model, "form": form, "clients_at_once": at_once}
        for model in arguments.models
        for form in arguments.forms
        for at_once in ("all", "one")
    ]
    measured: list[list[dict[str, Any]]] = [[] for _ in cases]
    for _ in range(arguments.turns):
        for case, results in zip(cases, measured):
            given = json.dumps(case | {"budget": arguments.budget})
            done = subprocess.run(
                [sys.executable, __file__, "--case", given], stdout=subprocess.PIPE, text=True, check=True
            )
            results.append(json.loads(done.stdout))
    report: dict[str, Any] = reports.head() | {"cases": []}
    for case, results in zip(cases, measured):
        steps = float(np.median([result["milliseconds_a_step"] for result in results]))
        report["cases"].append({**case, **results[0], "milliseconds_a_step": round(steps, 2)})
        print(f"{case['model']:10} {case['form']:8} {case['clients_at_once']:4} {steps:9.2f} ms a step")
    out = arguments.out or Path(f"results/convolutions_xla_{report['cases'][0]['platform']}.json")
    reports.write(out, report)


def run_case(model: str, form: str, clients_at_once: str, budget: float) -> dict[str, Any]:
    """Time one case in this process."""
    from fedjax_sel import devices

    devices.use_every_core()
    import jax
    import jax.numpy as jnp
    import numpy as np

    setting = (SETTINGS | FLAX_SETTINGS)[model]
    _, clients, batch = setting
    run, num_devices = training_steps(model, form, clients_at_once, setting)
    run = jax.jit(run)
    started = time.perf_counter()
    jax.block_until_ready(run(jnp.int32(1)))
    compile_seconds = time.perf_counter() - started
    times, steps = [], 1
    while sum(times) < budget:
        started = time.perf_counter()
        jax.block_until_ready(run(jnp.int32(steps)))
        times.append(time.perf_counter() - started)
        if times[-1] < 0.2:  # too short for the clock
            steps, times = 2 * steps, []
    device = jax.devices()[0]
    return {
        "milliseconds_a_step": 1000 * float(np.median(times)) / steps,
        "compile_seconds": round(compile_seconds, 2),
        "clients": clients,
        "batch_size": batch,
        "platform": device.platform,
        "devices": f"{num_devices} x {device.device_kind}",
        "jax": jax.__version__,
    }


def training_steps(
    model: str, form: str, clients_at_once: str, setting: tuple, precision: str = "float32"
) -> tuple[Callable[[Any], Any], int]:
    """Return the training of all clients as a function of the number of steps, and the number of devices.

    Args:
        model: the model's name.
        form: one of FORMS; `xla` replaces the package's functions for the rest of the process.
        clients_at_once: `all` or `one`.
        setting: image shape, number of clients, batch size.
        precision: precision of the matrix products.
    """
    import jax
    import jax.numpy as jnp
    from jax import lax

    from fedjax_sel import devices, models, tasks
    from fedjax_sel.models import layers
    from fedjax_sel.training import client

    if form == "xla":
        layers.by_patches, layers.convolve = by_xla, lax.conv_general_dilated
    shape, clients, batch = setting
    mesh = devices.make_mesh(1, clients, 0)
    key = jax.random.key(0)
    images = jax.random.normal(key, (clients, batch, *shape))
    labels = jax.random.randint(key, (clients, batch), 0, 10)
    every, task = jnp.ones((batch,), bool), tasks.classification()
    if model in FLAX_SETTINGS:
        params, mean_loss = flax_model(model, images[0], key)
    else:
        network = models.make(model, shape, 10, precision=precision)
        params = network.init(key)

        def mean_loss(weights: Any, images: jax.Array, labels: jax.Array) -> Any:
            return client.mean_loss(network, task, weights, images, labels, every)

    def train(steps: Any, job: tuple[jax.Array, jax.Array]) -> Any:
        def step(_, weights):
            gradient = jax.grad(mean_loss)(weights, *job)
            return jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradient)

        return lax.fori_loop(0, steps, step, params)

    at_once = 0 if clients_at_once == "all" else 1

    def all_clients(steps: Any) -> Any:
        return devices.spread(mesh, train, steps, (images, labels), at_once)

    return devices.over_seeds(mesh, all_clients, (devices.WHOLE,), devices.WHOLE), mesh.size


def flax_model(name: str, images: Any, key: Any) -> tuple[Any, Callable[..., Any]]:
    """Return a flax.linen module's initial weights and its loss function (weights, images, labels) -> scalar."""
    import optax

    from fedjax_sel import models
    from fedjax_sel.models.linen import from_linen

    module = {"resnet8": models.resnet8, "lenet": models.LeNet}[name](10)
    pure = from_linen(module, images)
    params, carried = pure.init(key)

    def mean_loss(weights: Any, images: Any, labels: Any) -> Any:
        logits, _ = pure.apply(weights, carried, images, None, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return params, mean_loss


def by_xla(x: Any, kernel: Any, size: int, precision: str = "float32", pooled: bool = False) -> Any:
    """Convolve by XLA's operation, which is grouped under `vmap` over kernels; arguments as in `layers.by_patches`."""
    import jax.numpy as jnp
    from jax import lax

    from fedjax_sel.models import core, layers

    window = kernel.reshape(kernel.shape[0], size, size, -1).transpose(2, 1, 3, 0)
    y = lax.conv_general_dilated(
        core.narrowed(x, precision), core.narrowed(window, precision), (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"), precision=core.LEVELS[precision],
    ).astype(jnp.float32)  # fmt: skip
    return layers.max_pool(y) if pooled else y


if __name__ == "__main__":
    main()
