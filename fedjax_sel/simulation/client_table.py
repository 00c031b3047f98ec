"""The client table: state that clients keep between rounds, N rows of about the model's size.

It lives on the devices, or in host memory if it does not fit there, with equal results. In host memory, a compiled
round reads the rows of its training clients through callbacks and writes them back at its end. Data dependencies alone
order these callbacks: each write returns a new version number, each read takes the version as an argument, and a write
waits for all other results of the round. All devices of a group of seeds write the same rows.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback

from fedjax_sel.training.client import OptimizerState


class Kept(NamedTuple):
    """One client's row; as a table, leaves [S, N, ...]."""

    optimizer: OptimizerState | None  # state of the client's own optimizer; None if it restarts each round
    own: Any  # the federated optimizer's client memory (`Memory.own`)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class HostStore:
    """The client table of all seeds in host memory. Static under jit, although its arrays change."""

    arrays: tuple[np.ndarray, ...]  # leaves of the table, [seeds, N, ...]
    structure: Any

    def read(self, slots: Any, version: Any, clients: Any) -> tuple[np.ndarray, ...]:
        """Return the rows of the given clients; all arguments have the same shape."""
        del version
        slots, clients = np.asarray(slots), np.asarray(clients)
        return tuple(array[slots, clients] for array in self.arrays)

    def write(self, slots: Any, version: Any, clients: Any, kept: Any, *rows: Any) -> np.ndarray:
        """Write the rows [S, K, ...] of the clients [S, K] that `kept` [S, K] marks; return the new version [S]."""
        kept, clients = np.asarray(kept), np.asarray(clients)
        of_seed = np.broadcast_to(np.asarray(slots)[:, None], clients.shape)
        for array, values in zip(self.arrays, rows):
            array[of_seed[kept], clients[kept]] = np.asarray(values)[kept]
        return np.asarray(version) + np.int32(1)

    def copy(self) -> Kept:
        """Return a copy of the whole table, [seeds, N, ...]."""
        return jax.tree.unflatten(self.structure, [array.copy() for array in self.arrays])

    def load(self, seeds: slice, table: Kept) -> None:
        """Set the rows of some seeds, so far zero, to [seeds, N, ...], or [seeds, 1, ...] for equal rows."""
        for array, values in zip(self.arrays, jax.tree.leaves(table), strict=True):
            if np.any(values):  # most systems allocate the memory of zeros at the first write
                array[seeds] = values


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HostTable:
    """Reference to a table in host memory, in the carry's place for the table."""

    slots: Any  # each replicate's index in the store, int32 [S]
    version: Any  # number of writes so far, int32 [S]
    store: HostStore = dataclasses.field(metadata={"static": True})


def write_rows(
    table: Kept | HostTable, clients: jax.Array, kept: jax.Array, rows: Kept, after: Any
) -> Kept | HostTable:
    """Return the table with the new rows [S, K, ...] of the clients [S, K] where `kept` [S, K] is True; distinct there.

    The write waits for `after`, which holds every result that may depend on a read of the table.
    """
    if isinstance(table, HostTable):
        version, _ = lax.optimization_barrier((table.version, after))
        shape = jax.ShapeDtypeStruct(version.shape, jnp.int32)
        arguments = (table.slots, version, clients, kept, *jax.tree.leaves(rows))
        return dataclasses.replace(table, version=io_callback(table.store.write, shape, *arguments))

    def write_leaf(leaf: jax.Array, values: jax.Array) -> jax.Array:
        places = jnp.where(kept, clients, leaf.shape[1])  # row N does not exist: dropped
        return jax.vmap(lambda old, places, new: old.at[places].set(new, mode="drop"))(leaf, places, values)

    return jax.tree.map(write_leaf, table, rows)


def read_row(table: Kept | HostTable, replicate: jax.Array, client: jax.Array) -> Kept:
    """Return a client's row, from either place."""
    if not isinstance(table, HostTable):
        return jax.tree.map(lambda leaf: leaf[replicate, client], table)
    store = table.store
    shapes = tuple(jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for array in store.arrays)
    where = (table.slots[replicate], table.version[replicate], client)
    leaves = jax.pure_callback(store.read, shapes, *where, vmap_method="broadcast_all")
    return jax.tree.unflatten(store.structure, leaves)
