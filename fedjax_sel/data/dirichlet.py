"""Dirichlet partitions: with sizes from a quadratic programme (FedCor), and the two common ones without."""

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
    """Deal label proportions ~ Dir(alpha * label frequencies), sizes as even as using up every label allows.

    Args:
        rng: source of randomness.
        labels: int ``[n]``.
        num_clients: N.
        alpha: concentration, spread over the labels by their frequency: 0.2 means 0.02 a label for ten labels.
        min_size: every client gets at least so many examples.
        rounding: ``largest-remainder`` leaves no example over and adds no label to a client that has no share of it;
            ``scatter`` gives the rounded-off examples to random clients, as the reference code does.

    Returns:
        The assignment; no example is left over.

    Raises:
        UserError: a value out of range, or 100 draws of proportions without sizes that fit.

    Source: FedCor section 5; ``src/sampling.py``.
    """
    alpha = schemes.positive_number("alpha", alpha)
    min_size = schemes.whole_number("min_size", min_size, 0)
    if rounding not in _ROUNDINGS:
        raise UserError(f"unknown rounding {rounding!r}: {did_you_mean(str(rounding), _ROUNDINGS)}")
    if min_size * num_clients > len(labels):
        raise UserError(
            f"{num_clients} clients of at least {min_size} examples need more than the {len(labels)} there are: lower "
            "num_clients or the smallest size allowed"
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
    # Clients with one label alone have equal shares up to the last bits, which differ between machines; rounded, their
    # ties are exact and are broken by the client's number everywhere.
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
    """Deal Dirichlet proportions with ``alpha`` for each label (or client), as most other libraries have it.

    Args:
        rng: source of randomness.
        labels: int ``[n]``.
        num_clients: N.
        alpha: concentration per label (``hsu``) or per client (``yurochkin``); ``dirichlet_qp`` with ten equally
            frequent labels divides its alpha by ten.
        form: ``hsu``: each client draws its proportions of labels, and all have ``n // N`` examples;
            ``yurochkin``: each label draws its proportions of clients, and sizes vary.
        min_size: for ``yurochkin``: redrawn, at most 10 times, until every client has so many.

    Returns:
        The assignment; ``yurochkin`` leaves nothing over.

    Raises:
        UserError: a value out of range, or clients that stay too small.

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
        # Cuts at rounded cumulative shares: every example has an owner, and no label is off by more than one.
        cuts = np.rint(np.cumsum(shares, axis=0)).astype(np.int64)
        cuts[-1] = totals
        counts = np.diff(cuts, axis=0, prepend=0)
        if counts.sum(axis=1).min() >= min_size:
            return schemes.deal(counts, label_pools)
    raise UserError(
        f"some of {num_clients} clients still have fewer than {min_size} examples after {_YUROCHKIN_REDRAWS} redraws "
        f"at alpha {alpha:g}: raise alpha, or lower num_clients or the smallest size allowed"
    )


def dirichlet_rows(rng: np.random.Generator, concentration: np.ndarray, num_rows: int) -> np.ndarray:
    """Draw from a Dirichlet law, with rows that stay proper for concentrations near zero.

    Args:
        rng: source of randomness.
        concentration: float ``[C]``, positive.
        num_rows: number of draws.

    Returns:
        float64 ``[num_rows, C]``, rows sum to one.

    Source: Gamma(a) is Gamma(a + 1) * U^(1/a); taken in logarithms, no row underflows to all zeros.
    """
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
    """Move single examples to clients that rounding has left below the floor, from where rounding gave most."""
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
    """Fill clients in random order; where a label has run out, its share goes to the labels that have not."""
    counts = np.zeros(proportions.shape, np.int64)
    left = totals.copy()
    for client in rng.permutation(len(proportions)):
        missing = size
        while missing:
            weights = np.where(left > 0, proportions[client], 0.0)
            total = weights.sum()
            # All labels that the client wants are used up: it takes what there is, as it comes.
            weights = weights / total if total > 0.0 else left / left.sum()
            drawn = np.minimum(rng.multinomial(missing, weights), left)
            counts[client] += drawn
            left -= drawn
            missing -= int(drawn.sum())
    return counts
