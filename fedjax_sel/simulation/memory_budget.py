"""The memory budget: how many seeds fit on the devices together, estimated from shapes before any allocation."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.core import jax_settings, parsing
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation, Segment
from fedjax_sel.devices import memory
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import layout, run
from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT
from fedjax_sel.simulation.plan import Plan
from fedjax_sel.training import client


def seeds_that_fit(problem: Problem, available_bytes: int | None = None) -> tuple[int, int, int]:
    """Return the largest group of seeds that fits in the devices' memory; groups have equal size.

    Args:
        problem: from `pose`.
        available_bytes: memory of a device; None: as the device reports it.

    Returns:
        Seeds per group, bytes per device for one group, and bytes per device for all seeds. The estimates err on the
        high side.

    Raises:
        UserError: the smallest group, one seed per device group of the mesh, does not fit.
    """
    count, mesh = len(problem.config.run.seeds), problem.config.run.mesh
    groups = parsing.mesh_shape(mesh)[0] if mesh else 1  # device groups that share the seeds
    limit = memory.of_device() if available_bytes is None else available_bytes
    everything = needed = 0
    for together in sorted((size for size in range(groups, count + 1, groups) if count % size == 0), reverse=True):
        needed = needed_bytes(problem, together)
        everything = everything or needed
        if limit is None or needed <= limit:
            return together, needed, everything
    least = "one seed needs" if groups == 1 else f"{groups} seeds, one for each part of --mesh {mesh}, need"
    raise UserError(
        f"--seeds: {least} about {needed / 1e9:.1f} GB of a device's memory, which has "
        f"{(limit or 0) / 1e9:.1f} GB; choose a smaller model, fewer --num-clients, a strategy that keeps less per "
        "client, or --cohort-batch 1"
    )


def needed_bytes(problem: Problem, seeds_at_once: int) -> int:
    """Return the bytes that a device needs for a group of seeds.

    They cover data, three copies of the state (`layout.COPIES`), the cohort's models, and the arrays of training.
    """
    laid_out = layout.lay_out(problem, seeds_at_once)
    host, plan, _ = laid_out
    tables = {name: getattr(host, name)[:seeds_at_once] for name in fed.PER_REPLICATE}
    federation = host._replace(**tables)
    carry = run.shapes_of_group(problem, laid_out)
    images = memory.of_arrays(federation) - memory.of_arrays(tables)
    groups, share = plan.mesh.devices.shape
    cohort = seeds_at_once // groups * plan.num_selected
    jobs = -(-cohort // share)
    together = min(plan.clients_at_once or jobs, jobs)
    model_bytes = plan.trainer.model.size * BYTES_PER_FLOAT
    step = memory.of_program_text(partial(_gradient, plan), *_batch_shapes(plan, federation))
    return (
        images
        + (memory.of_arrays(tables) + layout.COPIES * memory.of_arrays(carry)) // groups
        + (jobs + cohort) * model_bytes
        + together * (3 * model_bytes + step)
    )


def _gradient(plan: Plan, weights: Weights, inputs: Any, targets: Any) -> Any:
    trainer, unmasked = plan.trainer, jnp.ones((plan.trainer.work.batch_size,), bool)

    def loss(trained: Any) -> jax.Array:
        return client.mean_loss(
            trainer.model, trainer.task, weights._replace(trained=trained), inputs, targets, unmasked
        )

    return jax.grad(loss)(weights.trained)


def _batch_shapes(plan: Plan, federation: Federation) -> tuple[Any, ...]:
    """Return the shapes of a model and one batch."""
    positions = jnp.arange(plan.trainer.work.batch_size)
    part = Segment(*[jnp.int32(0)] * 3)
    examples = jax.eval_shape(lambda federation: fed.gather(federation, part, positions), federation)
    return jax.eval_shape(plan.trainer.model.init, jax_settings.key(0)), *examples
