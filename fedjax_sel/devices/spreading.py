"""Distribution of a group's jobs (training of a client, evaluation of a block of examples) among its devices."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from fedjax_sel.devices.mesh import CLIENTS


def spread(mesh: Mesh, function: Callable[[Any, Any], Any], shared: Any, jobs: Any, at_once: int) -> Any:
    """Run a function on each job of a group, distributed among the group's devices; for use inside `over_seeds`.

    Args:
        mesh: the devices.
        function: (shared, job) -> result, pure.
        shared: a pytree that all jobs receive.
        jobs: a pytree of arrays with leading axis [J].
        at_once: number of jobs per `vmap` on a device; 0 for all of its share, 1 for sequential execution.

    Returns:
        The results with leading axis [J], on all devices of the group.
    """
    own, places, num_jobs = _own_share(mesh, jobs)
    one_job = partial(function, shared)
    if _in_turn(places, at_once):
        one_place = _unless_empty(mesh, one_job, own, num_jobs)
        results = lax.map(lambda one: one_place(*one), (places, own))
    else:
        results = _together(one_job, own, at_once)
    return _gather(mesh, results, num_jobs)


def spread_and_add(
    mesh: Mesh,
    function: Callable[[Any, Any], tuple[Any, Any]],
    shared: Any,
    jobs: Any,
    at_once: int,
    weights: Any,
) -> tuple[Any, Any]:
    """Run a function on each job as `spread` does, and compute weighted sums of its addends over each replicate's jobs.

    Each device sums the addends of its own jobs before communication. If jobs run sequentially, a device holds only one
    addend at a time.

    Args:
        mesh: the devices.
        function: (shared, job) -> (result, addend), pure; addends must be finite.
        shared: a pytree that all jobs receive.
        jobs: a pytree of arrays with leading axis [J], ordered by replicate with equal numbers, as from `pairs`.
        at_once: number of jobs per `vmap`, as in `spread`.
        weights: float32 [S, jobs per replicate], or a tuple of such arrays, one for each part of a tuple of addends.

    Returns:
        The results with leading axis [J], and the sums with leading axis [S], on all devices of the group.
    """
    num_owners, items = jax.tree.leaves(weights)[0].shape
    own, places, num_jobs = _own_share(mesh, jobs)
    owners = places % num_jobs // items
    own_weights = jax.tree.map(
        lambda leaf: jnp.where(places < num_jobs, leaf.reshape(-1)[places % num_jobs], 0.0), weights
    )

    def one_job(job: Any) -> tuple[Any, Any]:
        return function(shared, job)

    if _in_turn(places, at_once):
        one_place = _unless_empty(mesh, one_job, own, num_jobs)
        _, addend = _shapes(one_job, own)

        def add(sums: Any, one: Any) -> tuple[Any, Any]:
            place, job, owner, weights = one
            result, addend = one_place(place, job)

            def add_part(weight: jax.Array, totals: Any, parts: Any) -> Any:
                return jax.tree.map(lambda total, part: total.at[owner].add(weight * part), totals, parts)

            return jax.tree.map(add_part, weights, sums, addend), result

        zeros = jax.tree.map(lambda leaf: jnp.zeros((num_owners, *leaf.shape), leaf.dtype), addend)
        sums, results = lax.scan(add, zeros, (places, own, owners, own_weights))
    else:
        results, addends = _together(one_job, own, at_once)

        def add_up(weights: jax.Array, addends: Any) -> Any:
            share = jnp.where(owners == jnp.arange(num_owners)[:, None], weights, 0.0)
            return jax.tree.map(
                lambda leaf: jnp.matmul(share, leaf.reshape(len(places), -1), precision=lax.Precision.HIGHEST).reshape(
                    num_owners, *leaf.shape[1:]
                ),
                addends,
            )

        sums = jax.tree.map(add_up, own_weights, addends)
    if mesh.shape[CLIENTS] > 1:
        sums = lax.psum(sums, CLIENTS)
    return _gather(mesh, results, num_jobs), sums


def _own_share(mesh: Mesh, jobs: Any) -> tuple[Any, jax.Array, int]:
    """Return this device's jobs, their positions among all jobs, and J; positions from J on are repeated padding."""
    num_jobs, share = jax.tree.leaves(jobs)[0].shape[0], mesh.shape[CLIENTS]
    if share == 1:
        return jobs, jnp.arange(num_jobs), num_jobs
    each = -(-num_jobs // share)
    places = lax.axis_index(CLIENTS) * each + jnp.arange(each)
    return jax.tree.map(lambda leaf: leaf[places % num_jobs], jobs), places, num_jobs


def _gather(mesh: Mesh, results: Any, num_jobs: int) -> Any:
    """Gather the results of a group's devices on all of them, without the padding."""
    if mesh.shape[CLIENTS] == 1:
        return results
    return jax.tree.map(lambda leaf: leaf[:num_jobs], lax.all_gather(results, CLIENTS, tiled=True))


def _in_turn(places: jax.Array, at_once: int) -> bool:
    return at_once == 1 or len(places) == 1


def _shapes(function: Callable[[Any], Any], jobs: Any) -> Any:
    """Return the shapes and dtypes of one job's result."""
    return jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], jobs))


def _unless_empty(
    mesh: Mesh, function: Callable[[Any], Any], jobs: Any, num_jobs: int
) -> Callable[[jax.Array, Any], Any]:
    """Return (place, job) -> the job's result, or zeros for padding."""
    if num_jobs % mesh.shape[CLIENTS] == 0:
        return lambda place, job: function(job)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _shapes(function, jobs))
    return lambda place, job: lax.cond(place < num_jobs, function, lambda job: zeros, job)


def _together(function: Callable[[Any], Any], jobs: Any, at_once: int) -> Any:
    num_jobs = jax.tree.leaves(jobs)[0].shape[0]
    if at_once == 0 or at_once >= num_jobs:
        return jax.vmap(function)(jobs)
    return lax.map(function, jobs, batch_size=at_once)


def pairs(num_replicates: int, per_replicate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return all (replicate, item) pairs as two flat arrays, int32 [S * items] each.

    Args:
        num_replicates: S.
        per_replicate: items, [items] for all replicates or [S, items].
    """
    items = jnp.broadcast_to(per_replicate, (num_replicates, per_replicate.shape[-1]))
    replicates = jnp.repeat(jnp.arange(num_replicates), items.shape[1])
    return replicates, items.reshape(-1)


def unflatten(tree: Any, num_replicates: int) -> Any:
    """Reshape each leaf from [S * items, ...] to [S, items, ...]."""
    return jax.tree.map(lambda leaf: leaf.reshape(num_replicates, -1, *leaf.shape[1:]), tree)


def stacked(*leaves: Any) -> Any:
    """Stack a leaf of all replicates in host memory, [...] -> [S, ...]; random keys are stacked by JAX."""
    are_keys = jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key)
    return jnp.stack(leaves) if are_keys else np.stack(leaves)


def of_replicate(tree: Any, replicate: jax.Array | int) -> Any:
    """Return the replicate's slice of each leaf: [S, ...] -> [...]."""
    return jax.tree.map(lambda leaf: leaf[replicate], tree)
