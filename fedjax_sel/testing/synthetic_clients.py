"""Synthetic federations for the conformance kit: clients' answers without training.

A world is a table over (round, client), drawn on the host, so that relabeling the clients is a gather.

Shapes: T rounds, N clients, Q profile floats, P parameters, C classes, S probes.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.strategies.base import Evaluation, Request, ServerMetrics, Strategy, always
from fedjax_sel.strategies.contract import COUNTS, MODEL, OUTPUT_LAYER
from fedjax_sel.strategies.facts import KINDS, shape

LARGEST_LOSS = 1e6  # the simulator's upper bound of losses
RANK = 9  # rank of the clients' updates


class World(NamedTuple):
    """A synthetic federation, in NumPy arrays; leaves of `facts` and `updates` are [T, N, ...]."""

    sizes: Any  # training examples, int32 [N]
    facts: dict[str, Any]  # kind -> float32 [T, N, ...]
    missing: Any  # whether a measured loss is not finite, bool [T, N]
    updates: Any  # updates, a pytree like the model
    losses_after: Any  # losses after local training, float32 [T, N]
    finite: Any  # whether the update is finite, bool [T, N]
    available: Any  # availability, bool [T, N]; None: all available
    metrics: ServerMetrics  # the server's evaluations, leaves [T]


def ordinary(strategy: Strategy, num_clients: int, num_rounds: int, seed: int) -> World:
    """Return a world of clients with unequal sizes and label mixtures, which determine the requested answers."""
    rng = np.random.default_rng(seed)
    n, t = num_clients, num_rounds
    sizes = rng.permutation(np.linspace(10, 40, n).astype(np.int32))
    mixture = rng.dirichlet(np.full(COUNTS.num_classes, 0.3), n)  # [N, C]

    def of_mixture(entry: tuple[int, ...], noise: float) -> np.ndarray:
        length = math.prod(entry)
        features = mixture @ rng.normal(size=(COUNTS.num_classes, length))
        values = (features + noise * rng.normal(size=(t, n, length))).astype(np.float32)
        return values.reshape(t, n, *entry)

    losses = (np.exp(of_mixture((), 0.2)) * 0.9 ** np.arange(t)[:, None] + 0.1).astype(np.float32)
    own = np.random.default_rng([seed, COUNTS.num_params])
    flat = of_mixture((RANK,), 0.3) @ own.normal(0, RANK**-0.5, (RANK, COUNTS.num_params)).astype(np.float32)
    updates = _unflattened(flat)
    # The output layer's bias moves towards a client's labels, like the gradient of cross-entropy.
    OUTPUT_LAYER.bias_of(updates)[...] *= 0.1
    OUTPUT_LAYER.bias_of(updates)[...] += (mixture - 1 / COUNTS.num_classes).astype(np.float32)
    histogram = np.round(mixture * sizes[:, None])
    facts = {
        "loss": losses,
        "training_loss": losses * np.float32(0.9),
        "update": flat,
        "update_norm": np.linalg.norm(flat, axis=2),
        "label_histogram": np.broadcast_to(histogram, (t, n, COUNTS.num_classes)).astype(np.float32),
    }
    bought = {request.kind: request for request in strategy.requests}
    for kind in KINDS:  # all other kinds, bought or not, so that every strategy has the same world
        if KINDS[kind].has_table and kind not in facts:
            request = bought.get(kind, Request(kind, KINDS[kind].who[0], always()))
            facts[kind] = of_mixture(shape(request, COUNTS), 0.1 if kind == "profile" else 0.3)
    facts["seconds"] = np.exp(facts["seconds"])
    accuracy = np.linspace(0.1, 0.9, t + 1)

    def evaluation(part: slice) -> Evaluation:
        share = accuracy[part].astype(np.float32)
        values: Any = ((100 * share).astype(np.int32), share, 1 - share)
        return Evaluation(*values)

    return World(
        sizes=sizes,
        facts={kind: value for kind, value in facts.items() if kind in bought},
        missing=np.zeros((t, n), bool),
        updates=updates,
        losses_after=losses * np.float32(0.8),
        finite=np.ones((t, n), bool),
        available=None,
        metrics=ServerMetrics(evaluation(slice(0, t)), evaluation(slice(1, t + 1))),
    )


def _unflattened(flat: np.ndarray) -> Any:
    """Return views of vectors [T, N, P] as the model's pytree."""
    leaves, structure = jax.tree.flatten(MODEL)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    parts = np.split(flat, ends[:-1], axis=2)
    shaped = [part.reshape(*part.shape[:2], *leaf.shape) for part, leaf in zip(parts, leaves)]
    return jax.tree.unflatten(structure, shaped)


def relabelled(world: World, order: np.ndarray) -> World:
    """Return the same federation with relabeled clients: the new client j is the old client order[j]."""
    return _of_clients(world, lambda table: table[:, order])


def alike(world: World) -> World:
    """Return a world in which every client is a copy of the first one."""
    return _of_clients(world, lambda table: np.repeat(table[:, :1], table.shape[1], axis=1))


def twins(world: World) -> World:
    """Return a world in which the second half of the clients are copies of the first."""
    n = world.sizes.shape[0]
    first = [*range(n // 2), *range(n - n // 2)]
    return _of_clients(world, lambda table: table[:, first])


def extreme(world: World) -> World:
    """Return a world with losses at the simulator's bounds, and large vectors."""
    t, n = world.missing.shape
    pattern = (np.arange(t)[:, None] + np.arange(n)) % 4
    losses = np.array([LARGEST_LOSS, 0.0, LARGEST_LOSS, 1.0], np.float32)[pattern]

    def of_kind(kind: str, value: np.ndarray) -> np.ndarray:
        if KINDS[kind].is_loss and value.ndim == 2:
            return losses
        if KINDS[kind].is_loss:
            return np.broadcast_to(np.where(pattern == 1, -1, 1)[..., None] * losses[..., None], value.shape).copy()
        return value if kind == "label_histogram" else value * np.float32(1e4)

    return world._replace(
        facts={kind: of_kind(kind, value) for kind, value in world.facts.items()},
        updates=jax.tree.map(lambda value: value * np.float32(1e4), world.updates),
        losses_after=losses[::-1].copy(),
    )


def diverging(world: World) -> World:
    """Return a world in which a third of the updates are not finite, and in one round all of them."""
    t, n = world.missing.shape
    broken = (np.arange(t)[:, None] + np.arange(n)) % 3 == 0
    broken[t // 2] = True
    # Half of these clients also answer with a nonfinite loss.
    missing = broken & ((np.arange(t)[:, None] + np.arange(n)) % 2 == 0)
    bad = np.where(np.arange(n) % 2 == 0, np.nan, np.inf).astype(np.float32)

    def spoil(table: np.ndarray) -> np.ndarray:
        shape = (t, n) + (1,) * (table.ndim - 2)
        return np.where(broken.reshape(shape), bad.reshape((1, n, *shape[2:])), table)

    return world._replace(
        updates=jax.tree.map(spoil, world.updates),
        losses_after=np.where(broken, np.float32(LARGEST_LOSS), world.losses_after),
        finite=~broken,
        missing=missing,
    )


def sparse(world: World, num_selected: int) -> World:
    """Return a world with few available clients: in turn N, N / 2, K, K - 1, N - 1, 1, 0 and K + 1."""
    t, n = world.missing.shape
    rng = np.random.default_rng(n)
    counts = [n, n // 2, num_selected, num_selected - 1, n - 1, 1, 0, num_selected + 1]
    rows = [rng.permutation(n) < counts[round % len(counts)] for round in range(t)]
    return world._replace(available=np.array(rows))


def _of_clients(world: World, change: Any) -> World:
    """Return a world with `change` applied to all tables [T, N, ...]."""
    tables = world._replace(sizes=world.sizes[None], metrics=None)
    changed = jax.tree.map(change, tables)
    return changed._replace(sizes=changed.sizes[0], metrics=world.metrics)
