"""The partition schemes shards, iid and natural, and helpers of all schemes."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.errors import UserError


class Assignment(NamedTuple):
    """Pairs of an example and its client.

    Attributes:
        examples: int ``[m]``, positions in the training set.
        owners: int ``[m]``, client of each example.
    """

    examples: np.ndarray
    owners: np.ndarray


def shards(rng: np.random.Generator, labels: np.ndarray, num_clients: int, *, shards_per_client: int = 1) -> Assignment:
    """Assign s label-sorted shards to each client, at random without replacement (1SPC, 2SPC).

    Args:
        rng: random generator.
        labels: int ``[n]``.
        num_clients: N.
        shards_per_client: s; each of the N * s shards has ``n // (N s)`` examples, and the remainder is unassigned.

    Returns:
        The assignment.

    Raises:
        UserError: there are more shards than examples.

    Source: FedCor's ``src/sampling.py``.
    """
    shards_per_client = whole_number("shards_per_client", shards_per_client, 1)
    num_shards = num_clients * shards_per_client
    if num_shards > len(labels):
        raise UserError(
            f"{num_clients} clients with shards_per_client {shards_per_client} need {num_shards} shards, but there "
            f"are {len(labels)} training examples: lower num_clients or shards_per_client"
        )
    shard_size = len(labels) // num_shards
    by_label = np.argsort(labels, kind="stable")[: num_shards * shard_size].reshape(num_shards, shard_size)
    examples = by_label[rng.permutation(num_shards)].ravel()
    return Assignment(examples, np.repeat(np.arange(num_clients), shards_per_client * shard_size))


def iid(rng: np.random.Generator, labels: np.ndarray, num_clients: int) -> Assignment:
    """Assign ``n // N`` random examples to each client; the remainder is unassigned.

    Args:
        rng: random generator.
        labels: int ``[n]``.
        num_clients: N.

    Returns:
        The assignment.
    """
    size = len(labels) // num_clients
    return Assignment(rng.permutation(len(labels))[: num_clients * size], np.repeat(np.arange(num_clients), size))


def natural(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    client_ids: np.ndarray | None = None,
    min_size: int = 5,
) -> Assignment:
    """Use the natural clients of the data set, such as the writers of FEMNIST.

    Args:
        rng: random generator.
        labels: int ``[n]``.
        num_clients: number of natural clients to draw at random.
        client_ids: int ``[n]``, natural client of each example; required.
        min_size: smallest number of examples per drawn client.

    Returns:
        The assignment; the examples of all other clients are unassigned.

    Raises:
        UserError: `client_ids` is missing, or there are fewer than `num_clients` clients.

    Source: LEAF.
    """
    if client_ids is None or np.shape(client_ids) != labels.shape:
        raise UserError(
            "partition scheme 'natural' needs client_ids, one per training example, which this data set lacks: choose "
            "another scheme, or a data set with clients such as 'synthetic:num_writers=100' or 'leaf:FOLDER'"
        )
    min_size = whole_number("min_size", min_size, 1)
    _, client_of_example, sizes = np.unique(np.asarray(client_ids), return_inverse=True, return_counts=True)
    large_enough = np.flatnonzero(sizes >= min_size)
    if num_clients > len(large_enough):
        raise UserError(
            f"{num_clients} clients were requested, but only {len(large_enough)} of {len(sizes)} have at least "
            f"{min_size} examples: lower num_clients or min_size"
        )
    owner_of = np.full(len(sizes), -1)
    owner_of[rng.choice(large_enough, num_clients, replace=False)] = np.arange(num_clients)
    owners = owner_of[client_of_example]
    examples = np.flatnonzero(owners >= 0)
    return Assignment(examples, owners[examples])


def pools(rng: np.random.Generator, labels: np.ndarray) -> list[np.ndarray]:
    """Return the positions of each label's examples, in random order.

    Args:
        rng: random generator.
        labels: int ``[n]``.

    Returns:
        One int array per label that occurs, by ascending label.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, counts = np.unique(labels, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def deal(counts: np.ndarray, label_pools: list[np.ndarray]) -> Assignment:
    """Assign given numbers of examples per client and label.

    Args:
        counts: int ``[N, C]``, number of examples per client and label.
        label_pools: positions of each label's examples, one array per label. An exhausted pool is reused from its
            start, so clients may share examples. A client receives an example twice only if its count exceeds the pool.

    Returns:
        The assignment.
    """
    clients = np.arange(len(counts))
    owners = [np.repeat(clients, counts[:, label]) for label in range(len(label_pools))]
    examples = [pool[np.arange(len(own)) % len(pool)] for pool, own in zip(label_pools, owners, strict=True)]
    return Assignment(np.concatenate(examples), np.concatenate(owners))


def whole_number(name: str, value: Any, least: int) -> int:
    """Check an integer option.

    Args:
        name: name of the option in messages.
        value: the user's value.
        least: smallest valid value.

    Returns:
        The value as an int.

    Raises:
        UserError: the value is not an integer, or is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise UserError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def positive_number(name: str, value: Any) -> float:
    """Check a positive option.

    Args:
        name: name of the option in messages.
        value: the user's value.

    Returns:
        The value as a float.

    Raises:
        UserError: the value is not a finite number above zero.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise UserError(f"{name} must be a finite number above 0, not {value!r}")
    return number
