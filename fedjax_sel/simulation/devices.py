"""Many independent pieces of work over all devices: the one place that knows how many there are.

The devices form a mesh with two axes. Groups of replicates (seeds) live along the first: each group's state is on its
own devices alone, and groups never talk to each other. Along the second, the devices of a group share its pairs
(replicate, client), or (replicate, block of examples): the pairs are laid out as one axis, padded to a multiple of the
devices and dealt out, and the results are gathered. Everything else is done by every device of a group alike.
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
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedjax_sel import xla_flags
from fedjax_sel.data import cache
from fedjax_sel.errors import UserError

SEEDS, CLIENTS = "seeds", "clients"
WHOLE, PER_SEED = PartitionSpec(), PartitionSpec(SEEDS)  # the same on all devices; split along the leading axis [S]


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


def check_that_jax_starts() -> None:
    """Start JAX's devices.

    Raises:
        UserError: it cannot.
    """
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter without a word, where a plug-in of JAX is missing
        lines = str(error).strip().splitlines()
        platforms = os.environ.get("JAX_PLATFORMS")
        reason = lines[0] if lines else type(error).__name__
        raise UserError(
            f"JAX cannot start its devices ({f'JAX_PLATFORMS={platforms}: ' if platforms else ''}{reason}); mend the "
            "driver or install JAX for it, or set JAX_PLATFORMS=cpu"
        ) from error


def be_deterministic() -> None:
    """Makes a GPU choose operations that repeat to the bit; before JAX starts its devices.

    Where XLA does not know the flag for it, nothing is set, and `check_deterministic` decides.

    Raises:
        UserError: it has started them, and there are others than CPUs.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if DETERMINISTIC in flags or not xla_flags.known([DETERMINISTIC]):
        return
    os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    try:  # refused once the devices are there, after which the variable comes too late
        jax.config.update("jax_num_cpu_devices", jax.config.values["jax_num_cpu_devices"])
    except RuntimeError as error:
        if jax.default_backend() != "cpu":  # where everything repeats anyway
            raise UserError(
                f"--deterministic: JAX has already started; set XLA_FLAGS={DETERMINISTIC} before, or leave it out"
            ) from error


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def check_deterministic() -> None:
    """Refuse devices on which operations may not repeat to the bit; after everything else was said to JAX.

    Raises:
        UserError: XLA was not told to repeat, and there are other devices than CPUs.
    """
    if DETERMINISTIC not in os.environ.get("XLA_FLAGS", "") and jax.default_backend() != "cpu":
        raise UserError(
            f"--deterministic: the installed jaxlib does not know {DETERMINISTIC}, without which a "
            f"{jax.default_backend().upper()} does not repeat to the bit; install a jaxlib that does, or leave it out"
        )


def keep_programs() -> None:
    """Keeps compiled programs on disk for the next start, on GPUs and TPUs, unless JAX was told where or not to.

    Programs for a CPU are compiled in seconds, and fit that CPU alone.
    """
    setting = "jax_compilation_cache_dir"
    if jax.default_backend() != "cpu" and jax.config.values[setting] is None:
        with contextlib.suppress(UserError):  # there is nowhere to keep them
            jax.config.update(setting, str(cache.root() / "programs"))


def make_mesh(num_seeds: int, num_selected: int, num_blocks: int, wanted: tuple[int, int] | None = None) -> Mesh:
    """The devices as groups of seeds x shares of their clients.

    By default the shape in which a round takes the fewest turns, and of those the one with the most groups; no more
    devices than end the work in as many turns.

    Args:
        num_seeds: S.
        num_selected: K; a round trains S K clients.
        num_blocks: blocks of examples that a round evaluates for each seed.
        wanted: an explicit shape.

    Raises:
        UserError: the explicit shape cannot be had.
    """
    available = jax.devices()
    if wanted is not None:
        check_shape(wanted, num_seeds, num_selected, len(available))
        groups, share = wanted
    else:
        groups, share = _best_shape(num_seeds, num_selected, num_blocks, len(available), jax.process_count() > 1)
    return Mesh(np.array(available[: groups * share]).reshape(groups, share), (SEEDS, CLIENTS))


def _best_shape(num_seeds: int, num_selected: int, num_blocks: int, most: int, need_all: bool) -> tuple[int, int]:
    """Groups of seeds, and devices of a group; `need_all`: every machine must take part, so every device does."""

    def turns(groups: int, jobs: int) -> int:
        return -(-(num_seeds // groups) * jobs // (most // groups))

    groups = min(
        (g for g in _divisors(num_seeds) if g <= most and not (need_all and most % g)),
        key=lambda g: (turns(g, num_selected), -g),
    )
    if need_all:
        return groups, most // groups
    jobs = max(num_selected, num_blocks)
    return groups, -(-(num_seeds // groups) * jobs // turns(groups, jobs))


def check_shape(shape: tuple[int, int], num_seeds: int, num_selected: int, num_devices: int | None = None) -> None:
    """Refuses a mesh that cannot be had.

    Args:
        shape: devices along seeds and along clients.
        num_seeds: S.
        num_selected: K.
        num_devices: how many there are; None: not known yet.

    Raises:
        UserError: with the nearest shape that works.
    """
    groups, share = shape
    why = []
    if num_seeds % groups:
        why.append(f"{num_seeds} seeds cannot be split into {groups} equal groups")
    if num_selected % share:
        why.append(f"{num_selected} clients a round cannot be split into {share} equal shares")
    if num_devices is not None and groups * share > num_devices:
        why.append(f"{groups * share} devices are more than the {num_devices} there are")
    if why:
        most = groups * share if num_devices is None else num_devices
        fitting = [(g, c) for g in _divisors(num_seeds) for c in _divisors(num_selected) if g * c <= most]
        nearest = min(fitting, key=lambda s: (abs(s[0] - groups) + abs(s[1] - share), -s[0] * s[1]))
        raise UserError(
            f"--mesh seeds={groups},clients={share}: {' and '.join(why)}; "
            f"give seeds={nearest[0]},clients={nearest[1]}, or leave it out"
        )


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def over_seeds(mesh: Mesh, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """A function of some replicates as one of all of them: each group of devices runs it on its own.

    Args:
        mesh: the devices.
        function: pure; within it `spread` shares work among the devices of a group.
        in_specs: for each argument WHOLE or PER_SEED, or a pytree of them.
        out_specs: likewise for its result.
    """
    # check_vma=False: the compiler cannot see that gathered results are the same on all devices of a group
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def place(mesh: Mesh, tree: Any, specs: Any) -> Any:
    """Puts arrays on the devices.

    Args:
        mesh: the devices.
        tree: arrays.
        specs: WHOLE or PER_SEED, or a pytree of them that is a prefix of `tree`.
    """
    return jax.device_put(tree, jax.tree.map(partial(sharding, mesh), specs))


def sharding(mesh: Mesh, spec: PartitionSpec) -> NamedSharding:
    """Where arrays lie."""
    return NamedSharding(mesh, spec)


def fetch(tree: Any) -> Any:
    """Arrays of all devices, also of other machines', in host memory: on every machine the same."""
    leaves = jax.tree.leaves(tree)
    if all(leaf.is_fully_addressable for leaf in leaves if isinstance(leaf, jax.Array)):
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def of_all_seeds(mesh: Mesh, tree: Any, axis: int) -> Any:
    """Within `over_seeds`: what the groups hold, one after another along an axis, on every device."""
    return lax.all_gather(tree, SEEDS, axis=axis, tiled=True) if mesh.shape[SEEDS] > 1 else tree


def spread(mesh: Mesh, function: Callable[[Any, Any], Any], shared: Any, jobs: Any, at_once: int) -> Any:
    """Within `over_seeds`: runs a function on every job of the group, shared among the group's devices.

    Args:
        mesh: the devices.
        function: (shared, job) -> result, pure.
        shared: a pytree that every job sees whole.
        jobs: a pytree of arrays with leading axis [J].
        at_once: jobs that a device runs as one `vmap`; 0 for all of its share, 1 for one after another.

    Returns:
        The results with leading axis [J], whole on every device of the group.
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
    """The same where of a part of each result only the weighted sum over a replicate's jobs is wanted.

    Each device adds up those of its own jobs before any of it travels, and where jobs run one after another it never
    holds two of them.

    Args:
        mesh: the devices.
        function: (shared, job) -> (result, addend), pure; addends must be finite.
        shared: as for `spread`.
        jobs: as for `spread`; those of a replicate lie together, as many for each, as `pairs` lays them out.
        at_once: as for `spread`.
        weights: float32 [S, jobs of a replicate], or a tuple of such arrays where addends are tuples of as many parts.

    Returns:
        The results with leading axis [J], and the sums with leading axis [S]: whole on every device of the group.
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
    """This device's jobs; their places among all, from J on where the place is empty and a job repeated; and J."""
    num_jobs, share = jax.tree.leaves(jobs)[0].shape[0], mesh.shape[CLIENTS]
    if share == 1:
        return jobs, jnp.arange(num_jobs), num_jobs
    each = -(-num_jobs // share)
    places = lax.axis_index(CLIENTS) * each + jnp.arange(each)
    return jax.tree.map(lambda leaf: leaf[places % num_jobs], jobs), places, num_jobs


def _gather(mesh: Mesh, results: Any, num_jobs: int) -> Any:
    """What the devices of a group hold, on all of them, without the padding."""
    if mesh.shape[CLIENTS] == 1:
        return results
    return jax.tree.map(lambda leaf: leaf[:num_jobs], lax.all_gather(results, CLIENTS, tiled=True))


def _in_turn(places: jax.Array, at_once: int) -> bool:
    return at_once == 1 or len(places) == 1


def _shapes(function: Callable[[Any], Any], jobs: Any) -> Any:
    """Of the result of one job."""
    return jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], jobs))


def _unless_empty(
    mesh: Mesh, function: Callable[[Any], Any], jobs: Any, num_jobs: int
) -> Callable[[jax.Array, Any], Any]:
    """(place, job) -> the result; in an empty place, which a device only has where jobs are dealt unevenly, zeros."""
    if num_jobs % mesh.shape[CLIENTS] == 0:
        return lambda place, job: function(job)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _shapes(function, jobs))
    return lambda place, job: lax.cond(place < num_jobs, function, lambda job: nothing, job)


def _together(function: Callable[[Any], Any], jobs: Any, at_once: int) -> Any:
    num_jobs = jax.tree.leaves(jobs)[0].shape[0]
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
