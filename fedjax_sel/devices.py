"""Distribution of independent jobs over all devices.

The devices form a mesh with two axes. The first axis holds groups of replicates (seeds). The state of a group is only
on its own devices, and groups do not communicate. Along the second axis, the devices of a group share its jobs, which
are pairs (replicate, client) or (replicate, block of examples). Jobs form one axis, padded to a multiple of the
devices, and their results are gathered. All other computations are replicated within a group.
"""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedjax_sel.core import jax_settings, parsing
from fedjax_sel.data import cache
from fedjax_sel.errors import UserError

SEEDS, CLIENTS = "seeds", "clients"
WHOLE, PER_SEED = PartitionSpec(), PartitionSpec(SEEDS)  # replicated on all devices; split along the leading axis [S]


def make_mesh(num_seeds: int, num_places: int, num_blocks: int, wanted: tuple[int, int] | None = None) -> Mesh:
    """Make the mesh, groups of seeds x shares of their clients; `wanted` is an explicit shape.

    The default shape minimizes the number of sequential jobs per device in a round; ties go to the most groups. It
    omits devices that would not reduce that number. A round trains K clients per seed, and evaluates `num_blocks`
    blocks of examples.
    """
    available = jax.devices()
    if wanted is not None:
        check_shape(wanted, num_seeds, num_places, len(available))
        groups, share = wanted
    else:
        groups, share = _best_shape(num_seeds, num_places, num_blocks, len(available))
    return Mesh(np.array(available[: groups * share]).reshape(groups, share), (SEEDS, CLIENTS))


def in_words(mesh: Mesh) -> str:
    """Return the number and kind of a mesh's devices, e.g. "4 x TPU v4"."""
    return f"{mesh.size} x {mesh.devices.flat[0].device_kind}"


def _best_shape(num_seeds: int, num_places: int, num_blocks: int, most: int) -> tuple[int, int]:
    """Return the number of groups and of devices per group."""

    def turns(groups: int, jobs: int) -> int:
        return -(-(num_seeds // groups) * jobs // (most // groups))

    groups = min((g for g in _divisors(num_seeds) if g <= most), key=lambda g: (turns(g, num_places), -g))
    jobs = max(num_places, num_blocks)
    return groups, -(-(num_seeds // groups) * jobs // turns(groups, jobs))


def check_shape(shape: tuple[int, int], num_seeds: int, num_places: int, num_devices: int) -> None:
    """Check the shape of a mesh, (devices along seeds, along clients).

    Raises:
        UserError: the shape is invalid; the message names the nearest valid shape.
    """
    groups, share = shape
    problems = []
    if num_seeds % groups:
        problems.append(f"{num_seeds} seeds cannot be split into {groups} equal groups")
    if num_places % share:
        problems.append(f"{num_places} clients per round cannot be split into {share} equal shares")
    if groups * share > num_devices:
        problems.append(f"{groups * share} devices exceed the {num_devices} available")
    if problems:
        fitting = [(g, c) for g in _divisors(num_seeds) for c in _divisors(num_places) if g * c <= num_devices]
        nearest = min(fitting, key=lambda s: (abs(s[0] - groups) + abs(s[1] - share), -s[0] * s[1]))
        raise UserError(
            f"--mesh seeds={groups},clients={share}: {' and '.join(problems)}; "
            f"give seeds={nearest[0]},clients={nearest[1]}, or leave it out"
        )


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def over_seeds(mesh: Mesh, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Map a function of a group's replicates over all groups of devices.

    The specs are WHOLE or PER_SEED per argument or result, or pytrees of them. `spread` inside the function shares
    work among the devices of a group.
    """
    # check_vma=False: JAX cannot infer that gathered results are equal on all devices of a group.
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def place(mesh: Mesh, tree: Any, specs: Any) -> Any:
    """Put a pytree of arrays on the devices; `specs` is WHOLE or PER_SEED, or a prefix pytree of them."""
    return jax.device_put(tree, jax.tree.map(partial(NamedSharding, mesh), specs))


def spread(mesh: Mesh, function: Callable[[Any, Any], Any], shared: Any, jobs: Any, at_once: int) -> Any:
    """Run a function (shared, job) -> result on each job of a group, shared by its devices; only inside `over_seeds`.

    Args:
        mesh: the devices.
        function: pure function.
        shared: a pytree that all jobs receive.
        jobs: a pytree of arrays with leading axis [J].
        at_once: number of jobs per `vmap` on a device; 0 for all of its share, 1 for sequential execution.

    Returns:
        The results with leading axis [J], on all devices of the group.
    """
    own, places, num_jobs = _own_share(mesh, jobs)
    one_job = jax_settings.traced_once(partial(function, shared))
    if at_once == 1 or len(places) == 1:
        one_place = _unless_empty(mesh, one_job, own, num_jobs)
        results = lax.map(lambda one: one_place(*one), (places, own))
    else:
        results = _together(one_job, own, at_once)
    return _gather(mesh, results, num_jobs)


def spread_and_add(
    mesh: Mesh, function: Callable[[Any, Any], tuple[Any, Any]], shared: Any, jobs: Any, at_once: int, weights: Any
) -> tuple[Any, Any]:
    """Run a function (shared, job) -> (result, addend) as in `spread`, and sum the weighted addends of each replicate.

    Each device sums the addends of its own jobs before communication. If jobs run sequentially, a device holds only
    one addend at a time. Addends must be finite. The jobs are ordered by replicate with equal numbers, as from
    `pairs`; the weights are float32 [S, jobs per replicate], or a tuple of such arrays, one for each part of a tuple
    of addends.

    Returns:
        The results with leading axis [J], and the sums with leading axis [S], on all devices of the group.
    """
    num_owners, items = jax.tree.leaves(weights)[0].shape
    own, places, num_jobs = _own_share(mesh, jobs)
    owners = places % num_jobs // items
    own_weights = jax.tree.map(
        lambda leaf: jnp.where(places < num_jobs, leaf.reshape(-1)[places % num_jobs], 0.0), weights
    )

    one_job = jax_settings.traced_once(partial(function, shared))
    if at_once == 1 or len(places) == 1:
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


def _shapes(function: Callable[[Any], Any], jobs: Any) -> Any:
    """Return the shapes of one job's result."""
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
    """Return all (replicate, item) pairs as two arrays, int32 [S * items] each; items are [items] or [S, items]."""
    items = jnp.broadcast_to(per_replicate, (num_replicates, per_replicate.shape[-1]))
    replicates = jnp.repeat(jnp.arange(num_replicates), items.shape[1])
    return replicates, items.reshape(-1)


def unflatten(tree: Any, num_replicates: int) -> Any:
    """Reshape each leaf from [S * items, ...] to [S, items, ...]."""
    return jax.tree.map(lambda leaf: leaf.reshape(num_replicates, -1, *leaf.shape[1:]), tree)


def stacked(*leaves: Any) -> Any:
    """Stack a leaf of all replicates in host memory, [...] -> [S, ...]; random keys are stacked by JAX."""
    return jnp.stack(leaves) if jax_settings.is_key(leaves[0]) else np.stack(leaves)


def replicate_slice(tree: Any, replicate: jax.Array | int) -> Any:
    """Return the replicate's slice of each leaf: [S, ...] -> [...]."""
    return jax.tree.map(lambda leaf: leaf[replicate], tree)


def num_cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_every_core() -> None:
    """Make each CPU core a JAX device, unless JAX has already started.

    XLA does not split batched matmuls of this size over the threads of one CPU device.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # JAX has already started
            jax.config.update("jax_num_cpu_devices", num_cores())


def check_that_jax_starts() -> None:
    """Start JAX's devices, including the CPU, which computes the one-time decompositions before a run."""
    jax_settings.check()
    platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    alone = bool(platforms) and "cpu" not in platforms.split(",")
    try:
        if alone:
            jax.config.update("jax_platforms", f"{platforms},cpu")
        jax.devices()
        if alone and jax.default_backend() == "cpu":  # JAX ignores "cuda" if it finds no GPU
            raise RuntimeError(f"JAX finds no device of {platforms}")
    except (RuntimeError, AssertionError) as error:  # a missing JAX plug-in is an AssertionError without a message
        if alone:
            jax.config.update("jax_platforms", platforms)
        platforms = platforms or os.environ.get("JAX_PLATFORMS")
        reason = parsing.first_line(error) or type(error).__name__
        raise UserError(
            f"JAX cannot start its devices ({f'JAX_PLATFORMS={platforms}: ' if platforms else ''}{reason}); fix the "
            "driver, install JAX for it, or set JAX_PLATFORMS=cpu"
        ) from error
    jax_settings.cpu()


def be_deterministic() -> None:
    """Make GPU operations bitwise reproducible; call this before JAX starts its devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    if DETERMINISTIC in flags:
        return
    os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    cores = jax.config.values["jax_num_cpu_devices"]
    try:  # JAX rejects a new number once its devices have started, and XLA_FLAGS has no effect then
        jax.config.update("jax_num_cpu_devices", max(cores, 0) + 1)
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError as error:
        if jax.default_backend() != "cpu":  # CPUs are deterministic anyway
            raise UserError(
                f"--deterministic: JAX has already started; set XLA_FLAGS={DETERMINISTIC} before, or remove the flag"
            ) from error


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def keep_programs() -> None:
    """Enable JAX's compilation cache on GPUs and TPUs, unless the user has configured it.

    Programs for a CPU compile in seconds, and are specific to its model.
    """
    setting = "jax_compilation_cache_dir"
    if jax.default_backend() != "cpu" and jax.config.values[setting] is None:
        jax.config.update(setting, str(cache.root() / "programs"))
