"""The skewness partition of FL-DP3S: one main label per client, with a given share of the client's examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedjax_sel.core.names import did_you_mean
from fedjax_sel.data import schemes
from fedjax_sel.data.schemes import Assignment
from fedjax_sel.errors import UserError

_MAINS = ("balanced", "random")


class _Plan(NamedTuple):
    """Labels of each client: the main label, the others in order of preference, and the second label under "H"."""

    main: np.ndarray
    others: np.ndarray
    partner: np.ndarray


def skewness(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    skewness: float | str = 1.0,
    main: str = "balanced",
) -> Assignment:
    """Give each client a share of examples of its main label, and spread the rest evenly over the other labels.

    Args:
        rng: random generator.
        labels: int ``[n]``.
        num_clients: N.
        skewness: share of the main label, in (0, 1] (1, 0.8 and 0.5 in the paper); or ``"H"``, half of each of two
            labels.
        main: ``balanced``: labels are main labels equally often (to within one client), label totals are balanced, and
            clients share no examples. All clients have the largest size, at most ``n // N``, for which no label is
            exhausted (542 instead of 600 for MNIST with N = 100 and skewness 1).
            ``random``: main labels are drawn at random; exhausted labels are reused, so clients share examples.

    Returns:
        The assignment; all clients have one size, and the remaining examples are unassigned.

    Raises:
        UserError: a value is out of range, or there are too few examples.

    Source: FL-DP3S section 4; flsim's ``load_data.py``.
    """
    if main not in _MAINS:
        raise UserError(f"unknown main {main!r} of scheme 'skewness': {did_you_mean(str(main), _MAINS)}")
    share = _parse(skewness)
    label_pools = schemes.pools(rng, labels)
    available = np.array([len(pool) for pool in label_pools])
    if len(available) == 1 and share != 1.0:
        raise UserError(f"skewness {skewness} needs at least two labels, but the data set has one: use skewness 1")
    plan = (_balanced_plan if main == "balanced" else _random_plan)(rng, num_clients, len(available), share is None)

    def fits(size: int) -> bool:
        counts = _counts(plan, size, share)
        # With random main labels clients may share examples, but no client may hold one twice.
        return bool((counts.sum(axis=0) <= available).all() if main == "balanced" else (counts <= available).all())

    size = _largest(fits, len(labels) // num_clients)
    if size < 1 or (share is None and size < 2):
        raise UserError(
            f"{num_clients} clients of skewness {skewness} need more than the {available.min()} examples of the "
            "rarest label: lower num_clients, or set main to 'random'"
        )
    return schemes.deal(_counts(plan, size, share), label_pools)


def _parse(skewness: float | str) -> float | None:
    """Return the share as a float, or None for "H"."""
    if isinstance(skewness, str) and skewness.strip().upper() == "H":
        return None
    try:
        share = float(skewness)
    except (TypeError, ValueError):
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise UserError(f"skewness must be above 0 and at most 1, or 'H', not {skewness!r}")
    return share


def _balanced_plan(rng: np.random.Generator, num_clients: int, num_labels: int, halves: bool) -> _Plan:
    """Plan groups of one client per main label, in which the i-th preferences of the clients are all distinct.

    Within each full group all labels therefore have equal totals, for any number of preferences in use.
    """
    num_rounds = -(-num_clients // num_labels)
    positions = np.arange(num_labels)
    names = rng.permuted(np.tile(positions, (num_rounds, 1)), axis=1)
    offsets = 1 + rng.permuted(np.tile(positions[:-1], (num_rounds, 1)), axis=1)
    turned = (positions[None, :, None] + offsets[:, None, :]) % num_labels
    others = names[np.arange(num_rounds)[:, None, None], turned]
    partner = names
    if halves:
        derangements = np.stack([_derangement(rng, num_labels) for _ in range(num_rounds)])
        partner = np.take_along_axis(names, derangements, axis=1)
    # The last group may be incomplete, and clients must not be sorted by group.
    chosen = rng.permutation(num_clients)
    flat = (names.reshape(-1), others.reshape(names.size, num_labels - 1), partner.reshape(-1))
    return _Plan(*(part[chosen] for part in flat))


def _random_plan(rng: np.random.Generator, num_clients: int, num_labels: int, halves: bool) -> _Plan:
    del halves  # under "H" the first preference, already a random other label, is the second label
    main = rng.integers(num_labels, size=num_clients)
    offsets = 1 + rng.permuted(np.tile(np.arange(num_labels - 1), (num_clients, 1)), axis=1)
    others = (main[:, None] + offsets) % num_labels
    return _Plan(main, others, others[:, 0] if num_labels > 1 else main)


def _derangement(rng: np.random.Generator, size: int) -> np.ndarray:
    """Draw a uniformly random permutation without fixed points, by rejection (about e tries)."""
    while True:
        permutation = rng.permutation(size)
        if (permutation != np.arange(size)).all():
            return permutation


def _counts(plan: _Plan, size: int, share: float | None) -> np.ndarray:
    """Return the number of examples per client and label, int64 ``[N, C]``; rows sum to ``size``."""
    num_clients, num_others = plan.others.shape
    clients = np.arange(num_clients)
    counts = np.zeros((num_clients, num_others + 1), np.int64)
    if share is None:
        counts[clients, plan.main] = size // 2
        counts[clients, plan.partner] += size - size // 2
        return counts
    num_main = int(share * size + 1e-9)
    each, extra = divmod(size - num_main, max(num_others, 1))
    counts[:] = each
    counts[clients[:, None], plan.others[:, :extra]] += 1
    counts[clients, plan.main] = num_main
    return counts


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest size up to ``most`` that fits, by bisection, or 0; larger sizes need more examples."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
