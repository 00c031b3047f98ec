"""The plain partition schemes (shards, iid, natural), and what all schemes share."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.errors import UserError


class Assignment(NamedTuple):
    """Which client holds which example, as two arrays of one length.

    Attributes:
        examples: int ``[m]``, positions in the training set.
        owners: int ``[m]``, the client that holds each.
    """

    examples: np.ndarray
    owners: np.ndarray


def shards(rng: np.random.Generator, labels: np.ndarray, num_clients: int, *, shards_per_client: int = 1) -> Assignment:
    """Deal label-sorted shards: s of them a client, at random without replacement (1SPC, 2SPC).

    Args:
        rng: source of randomness.
        labels: int ``[n]``.
        num_clients: N.
        shards_per_client: s; the N * s shards have ``n // (N s)`` examples each, and the rest is left over.

    Returns:
        The assignment.

    Raises:
        UserError: more shards than examples.

    Source: FedCor's ``src/sampling.py``.
    """
    shards_per_client = whole_number("shards_per_client", shards_per_client, 1)
    num_shards = num_clients * shards_per_client
    if num_shards > len(labels):
        raise UserError(
            f"{num_clients} clients with shards_per_client {shards_per_client} need {num_shards} shards, but there "
            f"are only {len(labels)} training examples: lower num_clients or shards_per_client"
        )
    shard_size = len(labels) // num_shards
    by_label = np.argsort(labels, kind="stable")[: num_shards * shard_size].reshape(num_shards, shard_size)
    examples = by_label[rng.permutation(num_shards)].ravel()
    return Assignment(examples, np.repeat(np.arange(num_clients), shards_per_client * shard_size))


def iid(rng: np.random.Generator, labels: np.ndarray, num_clients: int) -> Assignment:
    """Deal equal random parts of ``n // N`` examples; the rest is left over.

    Args:
        rng: source of randomness.
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
    """Deal to the clients that the data set itself names, such as the writers of FEMNIST.

    Args:
        rng: source of randomness.
        labels: int ``[n]``.
        num_clients: how many of them to take, at random.
        client_ids: int ``[n]``, required: whose each example is.
        min_size: clients with fewer examples are never taken.

    Returns:
        The assignment; the examples of all others are left over.

    Raises:
        UserError: no client ids, or fewer clients than asked for.

    Source: LEAF.
    """
    if client_ids is None or np.shape(client_ids) != labels.shape:
        raise UserError(
            "partition scheme 'natural' needs client_ids, one a training example, which this data set does not have: "
            "choose another scheme, or a data set with clients such as 'synthetic:num_writers=100' or 'leaf:FOLDER'"
        )
    min_size = whole_number("min_size", min_size, 1)
    _, whose, sizes = np.unique(np.asarray(client_ids), return_inverse=True, return_counts=True)
    large_enough = np.flatnonzero(sizes >= min_size)
    if num_clients > len(large_enough):
        raise UserError(
            f"{num_clients} clients were asked for, but only {len(large_enough)} of {len(sizes)} have at least "
            f"{min_size} examples: lower num_clients or the smallest size allowed"
        )
    owner_of = np.full(len(sizes), -1)
    owner_of[rng.choice(large_enough, num_clients, replace=False)] = np.arange(num_clients)
    owners = owner_of[whose]
    examples = np.flatnonzero(owners >= 0)
    return Assignment(examples, owners[examples])


def pools(rng: np.random.Generator, labels: np.ndarray) -> list[np.ndarray]:
    """Return the examples of each label that occurs, in random order.

    Args:
        rng: source of randomness.
        labels: int ``[n]``.

    Returns:
        One int array a label, by ascending label.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, counts = np.unique(labels, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def deal(counts: np.ndarray, label_pools: list[np.ndarray]) -> Assignment:
    """Deal so many examples of each label to each client.

    Args:
        counts: int ``[N, C]``.
        label_pools: one array a label. Where a pool is too small it is gone through again from its start, so that
            clients share examples; a client never gets an example twice unless it takes more than the whole pool.

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
        name: the option, for the message.
        value: what was given.
        least: the smallest value allowed.

    Returns:
        The value as an int.

    Raises:
        UserError: not an integer, or too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise UserError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return number


def positive_number(name: str, value: Any) -> float:
    """Check a real option that must be above zero.

    Args:
        name: the option, for the message.
        value: what was given.

    Returns:
        The value as a float.

    Raises:
        UserError: not a finite number above zero.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise UserError(f"{name} must be a finite number above 0, not {value!r}")
    return number
