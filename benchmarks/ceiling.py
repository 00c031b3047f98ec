"""The speed ceiling of a round: its matrix multiplications alone, with the same shapes on the same devices."""

from collections.abc import Callable
from typing import Any


def bare_multiplications(program: Any, seeds: int, length: int, evaluate: bool) -> tuple[Callable[[], Any], float]:
    """Return a function that runs only a chunk's matrix multiplications, and the operations per seed-round.

    The shapes come from the traced training step and evaluation, including the split of a batch into micro-batches.
    Each device computes its share of all (seed, client) pairs, batched as in the round.
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
        return jax.grad(lambda w: client.mean_loss(model, plan.trainer.task, w, images, labels, every))(params)

    def shapes(function: Callable, count: int) -> list[tuple]:
        images = jax.ShapeDtypeStruct((count, *image), jnp.float32)
        labels = jax.ShapeDtypeStruct((count,), jnp.int32)
        return products(jax.make_jaxpr(function)(params, images, labels).jaxpr)

    def forward(params, images, labels):
        return model.apply(params, images, None).prediction

    groups, share = plan.mesh.devices.shape
    per_device = -(-seeds // groups * plan.cohort_size // share)
    together = plan.clients_at_once or per_device
    pieces = -(-work.batch_size // plan.trainer.micro_batch)  # as `training.client` splits a batch
    train = shapes(step, -(-work.batch_size // pieces))
    tests = federation.test_images.shape[0]
    block = evaluation.block_size(tests, plan.evaluation_block)
    blocks = -(-(tests // block) * seeds // devices)
    test = shapes(forward, block)
    steps = work.equal_steps * pieces * (per_device // together)

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
        [(filled(batch, left), filled(batch, right)) for left, right, *_ in train],
        [(filled(devices, left), filled(devices, right)) for left, right, *_ in test],
    )
    run = jax.jit(jax.shard_map(chunk, mesh=plan.mesh, in_specs=(spec,), out_specs=spec, check_vma=False))
    training = sum(map(operations, train)) * work.equal_steps * pieces * plan.cohort_size
    evaluating = sum(map(operations, test)) * (tests / block) if evaluate else 0.0
    return lambda: run(operands), training + evaluating


def loop(count: int, operands: list, shapes: list[tuple]) -> list:
    """Multiply every pair `count` times; each result feeds the next turn, so that XLA cannot remove any product.

    A product that a step repeats (`products`) runs in a loop of its own.
    """
    import jax

    def multiplied(how, left, right):
        product = jax.vmap(lambda a, b: jax.lax.dot_general(a, b, **how))(left, right)
        corner = product[(slice(None), *([slice(0, 1)] * (product.ndim - 1)))]
        corner = corner.reshape(corner.shape[0], *([1] * (right.ndim - 1)))
        return jax.lax.dynamic_update_slice(right, (corner * 1e-3).astype(right.dtype), (0,) * right.ndim)

    def turn(_, operands):
        return [
            (left, jax.lax.fori_loop(0, times, lambda _, last, left=left, how=how: multiplied(how, left, last), right))
            for (left, right), (_, _, how, times) in zip(operands, shapes)
        ]

    return jax.lax.fori_loop(0, count, turn, operands)


def products(jaxpr: Any, times: int = 1) -> list[tuple]:
    """Return (left, right, how, times) of every dot_general, including those in inner programs.

    `left` and `right` are abstract arrays, `how` the parameters, `times` the repetitions in loops of known length.
    """
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            left, right = (variable.aval for variable in equation.invars)
            how = {name: equation.params[name] for name in ("dimension_numbers", "precision")}
            found.append((left, right, how, times))
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found += products(inner, times * turns)
    return found


def operations(shape: tuple) -> float:
    """Return the floating-point operations of all repetitions of a product, 2 m k n each."""
    import numpy as np

    left, right, how, times = shape
    (contracted, _), (batch, _) = how["dimension_numbers"]
    inner = np.prod([left.shape[i] for i in contracted])
    shared = np.prod([left.shape[i] for i in batch])
    return float(times * 2 * left.size * right.size / (inner * shared))
