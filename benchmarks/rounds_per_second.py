"""How fast rounds run, and how far that is from the machine's bare multiplications.

    python benchmarks/rounds_per_second.py                         writes results/rounds_per_second.json

Every case runs in a process of its own: compile seconds, steady seed-rounds a second (median, 10th and 90th percentile
over chunks), peak memory. Beside it, in the same process and taking turns chunk by chunk, the ceiling: every matrix
multiplication that the round does, of the same shapes on the same devices, and nothing else. The share is ceiling time
over round time. Images are synthetic, of the data set's shape: speed does not depend on pixels.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import synthetic

PRESETS = ("fedcor/fmnist-2spc", "fedcor/fmnist-1spc", "fl_dp3s/mnist-xi1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=PRESETS, metavar="NAME", help="settings to time")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5], metavar="N", help="numbers of replicates")
    parser.add_argument("--chunks", type=int, default=7, metavar="N", help="chunks that are timed, after a first one")
    parser.add_argument("--algo", default="random", help="selection strategy")
    parser.add_argument("--precision", default="float32", help="of the model's multiplications, and of the ceiling's")
    parser.add_argument("--out", type=Path, default=Path("results/rounds_per_second.json"), help="where to write")
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
                command = [sys.executable, __file__, "--case", json.dumps(case)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                cases.append(case | json.loads(done.stdout))
                print(describe(cases[-1]), flush=True)
    report = {"command": "python benchmarks/rounds_per_second.py " + " ".join(sys.argv[1:]), "cases": cases}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")


def describe(case: dict[str, Any]) -> str:
    """One line for a person."""
    evaluated = "with evaluation   " if case["evaluate"] else "without evaluation"
    return (
        f"{case['preset']:20} {case['seeds']} seeds {evaluated}  {case['seed_rounds_per_second']:7.2f} seed-rounds/s "
        f"({case['p10']:.2f} to {case['p90']:.2f})  {case['share_of_ceiling']:4.0%} of the ceiling  "
        f"compiled in {case['compile_seconds']:.1f} s  {case['peak_megabytes']:,.0f} MB"
    )


def run_case(preset: str, seeds: int, evaluate: bool, chunks: int, algo: str, precision: str) -> dict[str, Any]:
    """Times one case in this process."""
    from fedjax_sel.simulation import devices

    devices.use_every_core()
    import jax
    import numpy as np

    import fedjax_sel
    from fedjax_sel.simulation import run
    from fedjax_sel.simulation.problem import pose

    config = fedjax_sel.preset(preset)
    length = 10 if config.model.model == "mlp" else 1
    config = config.replace(
        dataset=synthetic.like(config.data.dataset), seeds=seeds, algo=algo, precision=precision, chunk=length,
        rounds=length * (chunks + 1), train_metrics_every=0,
    )  # fmt: skip
    program = run.prepare(pose(config), eval_every=1 if evaluate else 0)
    arguments = (np.int32(0), program.federation, program.streams)
    started = time.perf_counter()
    compiled = program.chunk.lower(program.carry, *arguments).compile()
    compile_seconds = time.perf_counter() - started

    ceiling, flops = bare_multiplications(program, seeds, length, evaluate)
    carry, _ = jax.block_until_ready(compiled(program.carry, *arguments))  # not timed
    jax.block_until_ready(ceiling())
    round_times, ceiling_times = [], []
    for _ in range(chunks):
        started = time.perf_counter()
        carry, _ = jax.block_until_ready(compiled(carry, *arguments))
        round_times.append(time.perf_counter() - started)
        started = time.perf_counter()
        jax.block_until_ready(ceiling())
        ceiling_times.append(time.perf_counter() - started)
    speeds = seeds * length / np.array(round_times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if jax.devices()[0].platform != "cpu":
        peak = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    return {
        "clients": config.selection.num_selected,
        "local_steps": program.plan.trainer.work.equal_steps,
        "batch_size": config.training.batch_size,
        "compile_seconds": round(compile_seconds, 2),
        "seed_rounds_per_second": round(float(np.median(speeds)), 3),
        "p10": round(float(np.percentile(speeds, 10)), 3),
        "p90": round(float(np.percentile(speeds, 90)), 3),
        "ceiling_seed_rounds_per_second": round(float(seeds * length / np.median(ceiling_times)), 3),
        "share_of_ceiling": round(float(np.median(ceiling_times) / np.median(round_times)), 3),
        "gigaflop_a_seed_round": round(flops / 1e9, 3),
        "peak_megabytes": round(peak / 1e6),
        "devices": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "processor": processor(),
        "jax": jax.__version__,
    }


def processor() -> str:
    """The CPU's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def bare_multiplications(program: Any, seeds: int, length: int, evaluate: bool) -> tuple[Callable[[], Any], float]:
    """A function that does a chunk's matrix multiplications and nothing else, and the operations of one seed-round.

    The shapes are read from the traced step and evaluation, so that they are the round's own. A device does its share
    of all (seed, client) pairs, batched as the round batches them; evaluation likewise.
    """
    import jax
    import jax.numpy as jnp

    from fedjax_sel.simulation import evaluation
    from fedjax_sel.training import client

    plan, federation = program.plan, program.federation
    model, work, devices = plan.trainer.model, plan.trainer.work, plan.mesh.size
    image = federation.images.shape[1:]
    params = jax.eval_shape(model.init, jax.random.key(0))

    def step(params, images, labels):
        every = jnp.ones(labels.shape, bool)
        return jax.grad(lambda w: client.mean_loss(model, w, images, labels, every))(params)

    def shapes(function: Callable, count: int) -> list[tuple]:
        images = jax.ShapeDtypeStruct((count, *image), jnp.float32)
        labels = jax.ShapeDtypeStruct((count,), jnp.int32)
        return products(jax.make_jaxpr(function)(params, images, labels).jaxpr)

    def forward(params, images, labels):
        return model.apply(params, images, None).logits

    groups, share = plan.mesh.devices.shape
    per_device = -(-seeds // groups * plan.num_selected // share)
    together = plan.clients_at_once or per_device
    train = shapes(step, work.batch_size)
    tests = federation.test_images.shape[0]
    block = evaluation.block_size(tests, plan.evaluation_block)
    blocks = -(-(tests // block) * seeds // devices)
    test = shapes(forward, block)
    steps = work.equal_steps * (per_device // together)

    def chunk(operands):
        train_operands, test_operands = operands

        def again(_, operands):
            operands = loop(steps, operands[0], train), operands[1]
            return (operands[0], loop(blocks, operands[1], test)) if evaluate else operands

        return jax.lax.fori_loop(0, length, again, (train_operands, test_operands))

    spec = jax.sharding.PartitionSpec(plan.mesh.axis_names)
    sharded = jax.sharding.NamedSharding(plan.mesh, spec)
    batch = devices * together

    def filled(count, factor):
        return jax.device_put(jnp.full((count, *factor.shape), 1e-3, factor.dtype), sharded)

    operands = (
        [(filled(batch, left), filled(batch, right)) for left, right, _ in train],
        [(filled(devices, left), filled(devices, right)) for left, right, _ in test],
    )
    run = jax.jit(jax.shard_map(chunk, mesh=plan.mesh, in_specs=(spec,), out_specs=spec, check_vma=False))
    training = sum(map(operations, train)) * work.equal_steps * plan.num_selected
    evaluating = sum(map(operations, test)) * (tests / block) if evaluate else 0.0
    return lambda: run(operands), training + evaluating


def loop(count: int, operands: list, shapes: list[tuple]) -> list:
    """Multiplies every pair `count` times, one element of a result feeding the next turn so that none is left out."""
    import jax

    def turn(_, operands):
        after = []
        for (left, right), (_, _, how) in zip(operands, shapes):
            product = jax.vmap(lambda a, b, how=how: jax.lax.dot_general(a, b, **how))(left, right)
            corner = product[(slice(None), *([slice(0, 1)] * (product.ndim - 1)))]
            start = (0,) * right.ndim
            corner = corner.reshape(corner.shape[0], *([1] * (right.ndim - 1)))
            after.append((left, jax.lax.dynamic_update_slice(right, (corner * 1e-3).astype(right.dtype), start)))
        return after

    return jax.lax.fori_loop(0, count, turn, operands)


def products(jaxpr: Any) -> list[tuple]:
    """(left, right, how) of every dot_general, inner programs included: two shapes with types, and its settings."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval for variable in equation.invars)
            how = {name: equation.params[name] for name in ("dimension_numbers", "precision")}
            found.append((left, right, how))
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += products(inner)
    return found


def operations(shape: tuple) -> float:
    """Floating-point operations of a product: two for each of m * k * n."""
    import numpy as np

    left, right, how = shape
    (contracted, _), (batch, _) = how["dimension_numbers"]
    inner = np.prod([left.shape[i] for i in contracted])
    shared = np.prod([left.shape[i] for i in batch])
    return float(2 * left.size * right.size / (inner * shared))


if __name__ == "__main__":
    main()
