"""The largest group of seeds that fits in the memory of the devices."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.core import jax_settings, memory, parsing
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Segment
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import layout, run
from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT
from fedjax_sel.simulation.state import Plan
from fedjax_sel.training import client


def seeds_that_fit(problem: Problem, available_bytes: int | None = None) -> tuple[int, int, int]:
    """Return the largest group of seeds that fits in the devices' memory; groups have equal size.

    Also return the bytes per device for one group and for all seeds; these estimates err on the high side.
    `available_bytes` is the memory of a device; None: as the device reports it.
    """
    count, mesh = len(problem.config.run.seeds), problem.config.run.mesh
    groups = parsing.mesh_shape(mesh)[0] if mesh else 1  # device groups that share the seeds
    limit = memory.device_memory() if available_bytes is None else available_bytes
    everything = needed = 0
    for together in sorted((size for size in range(groups, count + 1, groups) if count % size == 0), reverse=True):
        needed = needed_bytes(problem, together)
        everything = everything or needed
        if limit is None or needed <= limit:
            return together, needed, everything
    config = problem.config
    fewer = "" if config.timing.concurrency is None else ", a lower --concurrency"
    fewer = ", --late-reports drop" if config.uses_late_reports else fewer
    least = "one seed needs" if groups == 1 else f"{groups} seeds, one for each part of --mesh {mesh}, need"
    raise UserError(
        f"--seeds: {least} about {needed / 1e9:.1f} GB of a device's memory, which has "
        f"{(limit or 0) / 1e9:.1f} GB; choose a smaller model, fewer --num-clients{fewer}, a strategy that keeps less "
        "per client, or --cohort-batch 1"
    )


def needed_bytes(problem: Problem, seeds_at_once: int) -> int:
    """Return the bytes that a device needs for a group of seeds.

    They cover data, three copies of the state (`layout.COPIES`), the cohort's models, and the arrays of training.
    """
    laid_out = layout.lay_out(problem, seeds_at_once)
    host, plan, _ = laid_out
    tables = fed.seeds_tables(host, slice(seeds_at_once))
    federation = host._replace(**tables)
    carry = run.shapes_of_group(problem, laid_out)
    images = memory.array_bytes(federation) - memory.array_bytes(tables)
    groups, share = plan.mesh.devices.shape
    cohort = seeds_at_once // groups * plan.num_places
    jobs = -(-cohort // share)
    together = min(plan.clients_at_once or jobs, jobs)
    model_bytes = plan.trainer.model.size * BYTES_PER_FLOAT
    part, positions = Segment(*[jnp.int32(0)] * 3), jnp.arange(plan.trainer.work.batch_size)
    batch = jax.eval_shape(lambda federation: fed.gather(federation, part, positions), federation)
    weights = jax.eval_shape(plan.trainer.model.init, jax_settings.key(0))
    step = memory.intermediate_bytes(partial(_gradient, plan), weights, *batch)
    return (
        images
        + (memory.array_bytes(tables) + layout.COPIES * memory.array_bytes(carry)) // groups
        + (jobs + cohort) * model_bytes
        + together * (3 * model_bytes + step)
    )


def _gradient(plan: Plan, weights: Weights, inputs: Any, targets: Any) -> Any:
    trainer, unmasked = plan.trainer, jnp.ones((plan.trainer.work.batch_size,), bool)

    def loss(trained: Any) -> jax.Array:
        moved = weights._replace(trained=trained)
        return client.mean_loss(trainer.model, trainer.task, moved, inputs, targets, unmasked)

    return jax.grad(loss)(weights.trained)
