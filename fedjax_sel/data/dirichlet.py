"""Dirichlet partitions: FedCor's, with sizes from a quadratic program, and the two common ones without."""

from __future__ import annotations

import numpy as np

from fedjax_sel.core.names import did_you_mean
from fedjax_sel.data import quadratic_programme, schemes
from fedjax_sel.data.schemes import Assignment
from fedjax_sel.errors import UserError

_QP_REDRAWS = 100
_YUROCHKIN_REDRAWS = 10
_ROUNDINGS = ("largest-remainder", "scatter")
_FORMS = ("hsu", "yurochkin")


def dirichlet_qp(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    alpha: float = 0.2,
    min_size: int = 5,
    rounding: str = "largest-remainder",
) -> Assignment:
    """Draw label proportions ~ Dir(alpha * label frequencies), with the most even sizes that assign all examples.

    Args:
        rng: random generator.
        labels: int ``[n]``.
        num_clients: N.
        alpha: total concentration, split over the labels by frequency: 0.2 gives 0.02 per label for ten equally
            frequent labels.
        min_size: smallest number of examples per client.
        rounding: ``largest-remainder`` gives examples left by rounding to the largest remainders, so no client receives
            a label of which it has no share. ``scatter`` gives them to random clients, as the reference code does.

    Returns:
        The assignment of all examples.

    Raises:
        UserError: a value is out of range, or 100 draws of proportions admit no sizes.

    Source: FedCor section 5; ``src/sampling.py``.
    """
    alpha = schemes.positive_number("alpha", alpha)
    min_size = schemes.whole_number("min_size", min_size, 0)
    if rounding not in _ROUNDINGS:
        raise UserError(f"unknown rounding {rounding!r}: {did_you_mean(str(rounding), _ROUNDINGS)}")
    if min_size * num_clients > len(labels):
        raise UserError(
            f"{num_clients} clients of at least {min_size} examples need more than the {len(labels)} training "
            "examples: lower num_clients or min_size"
        )
    label_pools = schemes.pools(rng, labels)
    totals = np.array([len(pool) for pool in label_pools], np.float64)
    for _ in range(_QP_REDRAWS):
        proportions = dirichlet_rows(rng, alpha * totals / totals.sum(), num_clients)
        sizes = quadratic_programme.solve(proportions.T, totals, float(min_size))
        if sizes is not None:
            break
    else:
        raise UserError(
            f"no client sizes fit the label proportions of {num_clients} clients at alpha {alpha:g} in "
            f"{_QP_REDRAWS} draws: raise alpha or num_clients"
        )
    shares = sizes[:, None] * proportions
    # Shares of single-label clients differ only in their last bits, which depend on the machine. Rounding makes these
    # ties exact, so that all machines break them by client ID.
    shares = np.round(shares * (totals / shares.sum(axis=0)), 6)
    counts = _rounded(rng, shares, totals.astype(np.int64), rounding)
    return schemes.deal(_with_floor(counts, shares, min_size), label_pools)


def dirichlet(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    alpha: float = 0.5,
    form: str = "hsu",
    min_size: int = 5,
) -> Assignment:
    """Draw Dirichlet proportions with concentration ``alpha`` per label (or client), as most libraries do.

    Args:
        rng: random generator.
        labels: int ``[n]``.
        num_clients: N.
        alpha: concentration per label (``hsu``) or per client (``yurochkin``). By contrast, ``dirichlet_qp`` divides
            its alpha by ten for ten equally frequent labels.
        form: ``hsu``: each client draws its label proportions, and all clients have ``n // N`` examples.
            ``yurochkin``: each label draws its proportions over clients, and sizes vary.
        min_size: smallest number of examples per client for ``yurochkin``, which redraws at most 10 times to reach it.

    Returns:
        The assignment; ``yurochkin`` assigns all examples.

    Raises:
        UserError: a value is out of range, or a client stays smaller than `min_size`.

    Source: Hsu, Qi, Brown 2019 (arXiv 1909.06335); Yurochkin et al. 2019 (ICML).
    """
    alpha = schemes.positive_number("alpha", alpha)
    min_size = schemes.whole_number("min_size", min_size, 0)
    if form not in _FORMS:
        raise UserError(f"unknown form {form!r} of scheme 'dirichlet': {did_you_mean(str(form), _FORMS)}")
    label_pools = schemes.pools(rng, labels)
    totals = np.array([len(pool) for pool in label_pools], np.int64)
    if form == "hsu":
        proportions = dirichlet_rows(rng, np.full(len(totals), alpha), num_clients)
        return schemes.deal(_filled(rng, proportions, totals, len(labels) // num_clients), label_pools)
    for _ in range(1 + _YUROCHKIN_REDRAWS):
        shares = dirichlet_rows(rng, np.full(num_clients, alpha), len(totals)).T * totals
        # Rounding the cumulative shares assigns each example, and changes no count by more than one.
        cuts = np.rint(np.cumsum(shares, axis=0)).astype(np.int64)
        cuts[-1] = totals
        counts = np.diff(cuts, axis=0, prepend=0)
        if counts.sum(axis=1).min() >= min_size:
            return schemes.deal(counts, label_pools)
    raise UserError(
        f"some of {num_clients} clients still have fewer than {min_size} examples after {_YUROCHKIN_REDRAWS} redraws "
        f"at alpha {alpha:g}: raise alpha, or lower num_clients or min_size"
    )


def dirichlet_rows(rng: np.random.Generator, concentration: np.ndarray, num_rows: int) -> np.ndarray:
    """Draw from a Dirichlet distribution, without underflow for concentrations near zero.

    Args:
        rng: random generator.
        concentration: float ``[C]``, positive.
        num_rows: number of draws.

    Returns:
        float64 ``[num_rows, C]``, rows sum to one.
    """
    # Gamma(a) is Gamma(a + 1) * U^(1/a). In logarithms, no row underflows to all zeros.
    shape = (num_rows, len(concentration))
    logs = np.log(rng.standard_gamma(concentration + 1.0, shape)) - rng.standard_exponential(shape) / concentration
    rows = np.exp(logs - logs.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True)


def _rounded(rng: np.random.Generator, shares: np.ndarray, totals: np.ndarray, rounding: str) -> np.ndarray:
    counts = np.floor(shares).astype(np.int64)
    for label, left_over in enumerate(totals - counts.sum(axis=0)):
        if rounding == "scatter":
            counts[:, label] += np.bincount(rng.integers(len(counts), size=left_over), minlength=len(counts))
        else:
            remainders = shares[:, label] - counts[:, label]
            counts[np.argsort(-remainders, kind="stable")[:left_over], label] += 1
    return counts


def _with_floor(counts: np.ndarray, shares: np.ndarray, min_size: int) -> np.ndarray:
    """Raise clients below `min_size` by single examples from the clients that rounding favored most."""
    counts = counts.copy()
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes < min_size):
        while sizes[client] < min_size:
            label = int(np.argmax(shares[client] - counts[client]))
            surplus = np.where(
                (sizes > min_size) & (counts[:, label] > 0), counts[:, label] - shares[:, label], -np.inf
            )
            giver = int(np.argmax(surplus))
            if surplus[giver] == -np.inf:
                giver = int(np.argmax(sizes))
                label = int(np.argmax(counts[giver]))
            counts[giver, label] -= 1
            counts[client, label] += 1
            sizes[giver] -= 1
            sizes[client] += 1
    return counts


def _filled(rng: np.random.Generator, proportions: np.ndarray, totals: np.ndarray, size: int) -> np.ndarray:
    """Fill clients in random order; the share of an exhausted label goes to the remaining labels."""
    counts = np.zeros(proportions.shape, np.int64)
    left = totals.copy()
    for client in rng.permutation(len(proportions)):
        missing = size
        while missing:
            weights = np.where(left > 0, proportions[client], 0.0)
            total = weights.sum()
            # If all labels of the client are exhausted, draw from the remaining examples.
            weights = weights / total if total > 0.0 else left / left.sum()
            drawn = np.minimum(rng.multinomial(missing, weights), left)
            counts[client] += drawn
            left -= drawn
            missing -= int(drawn.sum())
    return counts
