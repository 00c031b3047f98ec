"""The device mesh, groups of seeds x shares of their clients, and the placement of arrays on it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedjax_sel.errors import UserError

SEEDS, CLIENTS = "seeds", "clients"
WHOLE, PER_SEED = PartitionSpec(), PartitionSpec(SEEDS)  # replicated on all devices; split along the leading axis [S]


def make_mesh(num_seeds: int, num_selected: int, num_blocks: int, wanted: tuple[int, int] | None = None) -> Mesh:
    """Make the mesh, groups of seeds x shares of their clients.

    The default shape minimizes the number of sequential jobs per device in a round; ties go to the most groups. It
    omits devices that would not reduce that number.

    Args:
        num_seeds: S.
        num_selected: K; a round trains S * K clients.
        num_blocks: blocks of examples that a round evaluates per seed.
        wanted: explicit shape, or None for the default.

    Raises:
        UserError: the explicit shape is invalid.
    """
    available = jax.devices()
    if wanted is not None:
        check_shape(wanted, num_seeds, num_selected, len(available))
        groups, share = wanted
    else:
        groups, share = _best_shape(num_seeds, num_selected, num_blocks, len(available), jax.process_count() > 1)
    return Mesh(np.array(available[: groups * share]).reshape(groups, share), (SEEDS, CLIENTS))


def in_words(mesh: Mesh) -> str:
    """Return the number and kind of a mesh's devices, e.g. "4 x TPU v4"."""
    return f"{mesh.size} x {mesh.devices.flat[0].device_kind}"


def _best_shape(num_seeds: int, num_selected: int, num_blocks: int, most: int, need_all: bool) -> tuple[int, int]:
    """Return the number of groups and of devices per group; `need_all` (several machines) uses all devices."""

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
    """Check the shape of a mesh.

    Args:
        shape: numbers of devices along seeds and along clients.
        num_seeds: S.
        num_selected: K.
        num_devices: number of available devices; None if not known yet.

    Raises:
        UserError: the shape is invalid; the message names the nearest valid shape.
    """
    groups, share = shape
    problems = []
    if num_seeds % groups:
        problems.append(f"{num_seeds} seeds cannot be split into {groups} equal groups")
    if num_selected % share:
        problems.append(f"{num_selected} clients per round cannot be split into {share} equal shares")
    if num_devices is not None and groups * share > num_devices:
        problems.append(f"{groups * share} devices exceed the {num_devices} available")
    if problems:
        most = groups * share if num_devices is None else num_devices
        fitting = [(g, c) for g in _divisors(num_seeds) for c in _divisors(num_selected) if g * c <= most]
        nearest = min(fitting, key=lambda s: (abs(s[0] - groups) + abs(s[1] - share), -s[0] * s[1]))
        raise UserError(
            f"--mesh seeds={groups},clients={share}: {' and '.join(problems)}; "
            f"give seeds={nearest[0]},clients={nearest[1]}, or leave it out"
        )


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def over_seeds(mesh: Mesh, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
    """Map a function of a group's replicates over all groups of devices.

    Args:
        mesh: the devices.
        function: pure function; `spread` inside it shares work among the devices of a group.
        in_specs: WHOLE or PER_SEED per argument, or a pytree of them.
        out_specs: WHOLE or PER_SEED for the result, or a pytree of them.
    """
    # check_vma=False: JAX cannot infer that gathered results are equal on all devices of a group.
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def place(mesh: Mesh, tree: Any, specs: Any) -> Any:
    """Put arrays on the devices.

    Args:
        mesh: the devices.
        tree: a pytree of arrays.
        specs: WHOLE or PER_SEED, or a pytree of them that is a prefix of `tree`.
    """
    return jax.device_put(tree, jax.tree.map(partial(sharding, mesh), specs))


def sharding(mesh: Mesh, spec: PartitionSpec) -> NamedSharding:
    """Return the sharding of a partition spec on the mesh."""
    return NamedSharding(mesh, spec)


def fetch(tree: Any) -> Any:
    """Fetch arrays from the devices of all machines into the host memory of each machine."""
    leaves = jax.tree.leaves(tree)
    if all(leaf.is_fully_addressable for leaf in leaves if isinstance(leaf, jax.Array)):
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def of_all_seeds(mesh: Mesh, tree: Any, axis: int) -> Any:
    """Concatenate the arrays of all groups along an axis, on all devices; for use inside `over_seeds`."""
    return lax.all_gather(tree, SEEDS, axis=axis, tiled=True) if mesh.shape[SEEDS] > 1 else tree
