"""What is kept of every client between the rounds in which it trains: a table of N rows, of a model's size each.

It lies on the devices, or in host memory where they would not hold it. Then the compiled rounds read the rows of those
who train, and write them back when the round is over. Every write gives a new version, every read names the version
that it wants, and a write waits for all that the round computed: so no read is early or late, though nothing else
orders them. All devices of a group of seeds write the same rows. What is computed is the same in both places.

Shapes: S replicates, N clients, K selected.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from fedjax_sel.training.client import OptimizerState


class Kept(NamedTuple):
    """What is kept of one client; as a table, leaves [S, N, ...]."""

    optimizer: OptimizerState | None  # where its own optimizer stands; None where that starts anew in every round
    own: Any  # what the federated optimizer has it remember


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class HostStore:
    """The rows of all seeds in host memory. Static; its arrays change."""

    arrays: tuple[np.ndarray, ...]  # leaves of the table, [seeds, N, ...]
    structure: Any

    def read(self, slots: Any, version: Any, clients: Any) -> tuple[np.ndarray, ...]:
        """Return the rows of some clients; all arguments have the same shape."""
        del version
        slots, clients = np.asarray(slots), np.asarray(clients)
        return tuple(array[slots, clients] for array in self.arrays)

    def write(self, slots: Any, version: Any, clients: Any, kept: Any, *rows: Any) -> np.ndarray:
        """Write the rows [S, K, ...] of those clients [S, K] who keep what they have now; return the version [S]."""
        kept, clients = np.asarray(kept), np.asarray(clients)
        of_seed = np.broadcast_to(np.asarray(slots)[:, None], clients.shape)
        for array, values in zip(self.arrays, rows):
            array[of_seed[kept], clients[kept]] = np.asarray(values)[kept]
        return np.asarray(version) + np.int32(1)

    def copy(self) -> Kept:
        """Return a copy of the whole table, [seeds, N, ...]."""
        return jax.tree.unflatten(self.structure, [array.copy() for array in self.arrays])

    def load(self, seeds: slice, table: Kept) -> None:
        """Replace the rows of some seeds."""
        for array, values in zip(self.arrays, jax.tree.leaves(table), strict=True):
            array[seeds] = values

    def fill(self, seeds: slice, rows: Kept) -> None:
        """Give all clients of some seeds the same row, [seeds, ...]."""
        for array, values in zip(self.arrays, jax.tree.leaves(rows), strict=True):
            if np.any(values):
                array[seeds] = np.asarray(values)[:, None]

    def shapes(self) -> Kept:
        """Return the shapes and dtypes of the whole table."""
        return jax.tree.unflatten(self.structure, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.arrays])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HostTable:
    """Stands in the carry where the table would stand."""

    slots: jax.Array  # each replicate's place in the store, int32 [S]
    version: jax.Array  # writes so far, int32 [S]
    store: HostStore = dataclasses.field(metadata={"static": True})


def make_store(row: Kept, num_seeds: int, num_clients: int) -> HostStore:
    """Make a store of zeros; on most systems memory that is never written is never taken.

    Args:
        row: shapes and dtypes of what is kept of one client.
        num_seeds: of the run.
        num_clients: N.
    """
    leaves, structure = jax.tree.flatten(row)
    return HostStore(tuple(np.zeros((num_seeds, num_clients, *a.shape), a.dtype) for a in leaves), structure)


def on_devices(init: Callable[[Any], Kept], params: Any, num_clients: int) -> Kept:
    """Make a table on the devices, where every client has what `init` gives.

    Args:
        init: params -> what is kept of one client.
        params: the models, [S, ...].
        num_clients: N.
    """
    fresh = jax.vmap(init)(params)
    return jax.tree.map(
        lambda leaf: jnp.zeros((leaf.shape[0], num_clients, *leaf.shape[1:]), leaf.dtype) + leaf[:, None], fresh
    )


def on_host(store: HostStore, slots: Any) -> HostTable:
    """Make a table in host memory, for the replicates that have these places in the store, int32 [S]."""
    return HostTable(slots, jnp.zeros(slots.shape, jnp.int32), store)


def row(table: Kept | HostTable, replicate: jax.Array, client: jax.Array) -> Kept:
    """Return what is kept of one client, of a table of either kind."""
    if not isinstance(table, HostTable):
        return jax.tree.map(lambda leaf: leaf[replicate, client], table)
    store = table.store
    shapes = tuple(jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for array in store.arrays)
    where = (table.slots[replicate], table.version[replicate], client)
    leaves = jax.pure_callback(store.read, shapes, *where, vmap_method="broadcast_all")
    return jax.tree.unflatten(store.structure, leaves)


def write(table: Kept | HostTable, clients: jax.Array, kept: jax.Array, rows: Kept, after: Any) -> Kept | HostTable:
    """Return the table with new rows.

    Args:
        table: of either kind.
        clients: int32 [S, K]; none twice among those that are kept.
        kept: whose rows are written, bool [S, K].
        rows: [S, K, ...].
        after: what must be computed first: all that may have read the table.

    Returns:
        The table.
    """
    if isinstance(table, HostTable):
        version, _ = lax.optimization_barrier((table.version, after))
        shape = jax.ShapeDtypeStruct(version.shape, jnp.int32)
        arguments = (table.slots, version, clients, kept, *jax.tree.leaves(rows))
        return dataclasses.replace(table, version=io_callback(table.store.write, shape, *arguments))

    def write_leaf(leaf: jax.Array, values: jax.Array) -> jax.Array:
        places = jnp.where(kept, clients, leaf.shape[1])  # beyond the end: dropped
        return jax.vmap(lambda old, places, new: old.at[places].set(new, mode="drop"))(leaf, places, values)

    return jax.tree.map(write_leaf, table, rows)
