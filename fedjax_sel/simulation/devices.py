"""Many independent pieces of work over all devices: the one place that knows how many there are.

The unit of parallel work is a pair (replicate, client), or (replicate, block of examples). The pairs are laid out as
one axis, padded to a multiple of the devices and sharded; what they share (models, data) is replicated.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "devices"


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_every_core() -> None:
    """Makes each CPU core a JAX device, unless JAX has already started.

    XLA does not split batched matmuls of this size over the threads of one CPU device; as devices the cores work side
    by side, on the same mesh that GPUs and TPUs form.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", num_cores())
    except RuntimeError:  # started already
        return


def make_mesh(num_jobs: int) -> Mesh:
    """The devices in one row: no more of them than end the jobs in the same number of turns.

    Args:
        num_jobs: (replicate, client) pairs of a round.
    """
    available = jax.devices()
    turns = -(-num_jobs // len(available))
    return Mesh(np.array(available[: -(-num_jobs // turns)]), (AXIS,))


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of what every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def spread(mesh: Mesh, function: Callable[[Any, Any], Any], shared: Any, jobs: Any, at_once: int) -> Any:
    """Runs a function on every job, over all devices of the mesh.

    Args:
        mesh: the devices.
        function: (shared, job) -> result, pure; must not touch the mesh itself.
        shared: a pytree that every job sees whole.
        jobs: a pytree of arrays with leading axis [J].
        at_once: jobs that a device runs as one `vmap`; 0 for all of its share, 1 for one after another.

    Returns:
        The results with leading axis [J], whole on every device.
    """
    num_jobs = jax.tree.leaves(jobs)[0].shape[0]
    padded = -(-num_jobs // mesh.size) * mesh.size
    jobs = jax.tree.map(lambda leaf: leaf[jnp.arange(padded) % num_jobs], jobs)  # the padding repeats the first jobs

    def on_one_device(shared, share):
        results = _map(partial(function, shared), share, at_once)
        return lax.all_gather(results, AXIS, tiled=True) if mesh.size > 1 else results

    whole = PartitionSpec()
    # check_vma=False: the compiler cannot see that gathered results are the same everywhere
    run = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=(whole, PartitionSpec(AXIS)), out_specs=whole, check_vma=False
    )
    return jax.tree.map(lambda leaf: leaf[:num_jobs], run(shared, jobs))


def _map(function: Callable[[Any], Any], jobs: Any, at_once: int) -> Any:
    num_jobs = jax.tree.leaves(jobs)[0].shape[0]
    if num_jobs == 1 or at_once == 1:
        return lax.map(function, jobs)
    if at_once == 0 or at_once >= num_jobs:
        return jax.vmap(function)(jobs)
    return lax.map(function, jobs, batch_size=at_once)


def pairs(num_replicates: int, per_replicate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All (replicate, item) pairs as two flat axes, int32 [S * items] each.

    Args:
        num_replicates: S.
        per_replicate: the items, [items] for all replicates or [S, items].
    """
    items = jnp.broadcast_to(per_replicate, (num_replicates, per_replicate.shape[-1]))
    replicates = jnp.repeat(jnp.arange(num_replicates), items.shape[1])
    return replicates, items.reshape(-1)


def unflatten(tree: Any, num_replicates: int) -> Any:
    """[S * items, ...] -> [S, items, ...] on every leaf."""
    return jax.tree.map(lambda leaf: leaf.reshape(num_replicates, -1, *leaf.shape[1:]), tree)


def of_replicate(tree: Any, replicate: jax.Array | int) -> Any:
    """The replicate's slice of every leaf: [S, ...] -> [...]."""
    return jax.tree.map(lambda leaf: leaf[replicate], tree)
