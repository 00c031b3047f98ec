"""Partition schemes: the functions that assign a data set's training examples to clients, and their table."""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from fedjax_sel.core.parsing import kind_and_number
from fedjax_sel.core.plugins import Count, CountOrZero, Positive
from fedjax_sel.errors import UserError


class Assignment(NamedTuple):
    """Pairs of an example (its position in the training set, int ``[m]``) and its client, int ``[m]``."""

    examples: np.ndarray
    owners: np.ndarray


def shards(
    rng: np.random.Generator, labels: np.ndarray, num_clients: int, *, shards_per_client: Count = 1
) -> Assignment:
    """Assign s label-sorted shards to each client, at random without replacement (1SPC, 2SPC).

    Each of the N * s shards has ``n // (N s)`` examples, and the remainder is unassigned.

    Source: FedCor's ``src/sampling.py``.
    """
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


def iid(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    sizes: str = "equal",
    min_size: CountOrZero = 5,
    small_clients: SmallClients = "redraw",
) -> Assignment:
    """Assign random examples to each client; ``n // N`` by default, and the remainder is unassigned.

    With unequal `sizes` all examples are assigned: quantity skew.

    Source: Li, Diao, Chen, He 2022 (NIID-Bench, arXiv 2102.02079), for ``dirichlet:ALPHA``.
    """
    own = _sizes(rng, sizes, len(labels), num_clients, min_size, small_clients)
    return Assignment(rng.permutation(len(labels))[: own.sum()], np.repeat(np.arange(num_clients), own))


def natural(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    client_ids: np.ndarray | None = None,
    min_size: Count = 5,
) -> Assignment:
    """Use the natural clients of the data set, such as the writers of FEMNIST.

    N clients with at least `min_size` examples are drawn at random; the examples of all others are unassigned.

    Source: LEAF.
    """
    if client_ids is None or np.shape(client_ids) != labels.shape:
        raise UserError(
            "partition scheme 'natural' needs client_ids, one per training example, which this data set lacks: choose "
            "another scheme, or a data set with clients such as 'shakespeare', 'synthetic:num_writers=100' or "
            "'leaf:FOLDER'"
        )
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
    """Return the positions of each label's examples in random order, one int array per label that occurs, ascending."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, counts = np.unique(labels, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def deal(counts: np.ndarray, label_pools: list[np.ndarray]) -> Assignment:
    """Assign given numbers of examples per client and label, int ``[N, C]``.

    An exhausted pool is reused from its start, so clients may share examples. A client receives an example twice only
    if its count exceeds the pool.
    """
    clients = np.arange(len(counts))
    owners = [np.repeat(clients, counts[:, label]) for label in range(len(label_pools))]
    examples = [pool[np.arange(len(own)) % len(pool)] for pool, own in zip(label_pools, owners, strict=True)]
    return Assignment(np.concatenate(examples), np.concatenate(owners))


SIZES = ("lognormal", "dirichlet")
"""Laws of unequal client sizes: exp(sigma * normal) and Dir(alpha), normalized to the number of examples."""
SmallClients = Literal["redraw", "top-up"]
_REDRAWS = 10


def _weights(rng: np.random.Generator, sizes: str, num_clients: int) -> np.ndarray:
    """Draw the clients' shares of the examples, float64 ``[N]``, from ``equal`` or one of `SIZES` and its parameter."""
    if sizes == "equal":
        return np.full(num_clients, 1.0 / num_clients)
    if (law := kind_and_number(sizes, SIZES)) is None:
        raise UserError(f"sizes must be 'equal', 'lognormal:SIGMA' or 'dirichlet:ALPHA', not {sizes!r}")
    if law[0] == "dirichlet":
        return dirichlet_rows(rng, np.full(num_clients, law[1]), 1)[0]
    weights = np.exp(law[1] * rng.standard_normal(num_clients))
    return weights / weights.sum()


def _sizes(
    rng: np.random.Generator, sizes: str, num_examples: int, num_clients: int, min_size: int, small_clients: str
) -> np.ndarray:
    """Draw the numbers of examples per client, int64 ``[N]``; unequal ones add up to all examples."""
    if sizes == "equal":
        return np.full(num_clients, num_examples // num_clients)

    def draw() -> np.ndarray:
        return _weights(rng, sizes, num_clients)[:, None] * num_examples

    return _large_enough(draw, min_size, small_clients)[:, 0]


def _large_enough(draw: Callable[[], np.ndarray], min_size: int, small_clients: str) -> np.ndarray:
    """Draw shares of examples, float ``[N, C]``, and return counts of at least `min_size` per client.

    Columns of the shares add up to whole numbers. ``redraw`` draws at most 10 times again, then tops up; ``top-up``
    keeps the first draw.
    """
    for _ in range(1 + _REDRAWS * (small_clients == "redraw")):
        shares = draw()
        # Rounding the cumulative shares assigns each example, and changes no count by more than one.
        counts = np.diff(np.rint(np.cumsum(shares, axis=0)).astype(np.int64), axis=0, prepend=0)
        sizes = counts.sum(axis=1)
        if sizes.min() >= min_size:
            return counts
    _check_room(len(sizes), min_size, int(sizes.sum()))
    if small_clients == "redraw":
        warnings.warn(
            f"{np.count_nonzero(sizes < min_size)} of {len(sizes)} clients have fewer than {min_size} examples after "
            f"{_REDRAWS} redraws, and are topped up from the largest clients",
            stacklevel=3,
        )
    return _topped_up(counts, shares, min_size)


def _topped_up(counts: np.ndarray, shares: np.ndarray, min_size: int) -> np.ndarray:
    """Raise clients below `min_size`, in place, from the client with most examples of a label that they share."""
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes < min_size):
        while (missing := min_size - sizes[client]) > 0:
            can_give = np.where((sizes > min_size)[:, None], counts, 0)
            own = np.where(shares[client] > 0, can_give, 0)
            if not own.any():  # all holders of its labels are as small
                own = can_give
            giver, label = np.unravel_index(np.argmax(own), own.shape)
            moved = min(missing, counts[giver, label], sizes[giver] - min_size)
            counts[[giver, client], label] += [-moved, moved]
            sizes[[giver, client]] += [-moved, moved]
    return counts


def _check_room(num_clients: int, min_size: int, num_examples: int) -> None:
    if min_size * num_clients > num_examples:
        raise UserError(
            f"{num_clients} clients of at least {min_size} examples need more than the {num_examples} training "
            "examples: lower num_clients or min_size"
        )


def classes(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    classes_per_client: Count = 2,
    sizes: str = "equal",
    min_size: CountOrZero = 5,
    small_clients: SmallClients = "redraw",
) -> Assignment:
    """Give each client k random labels, and divide each label among its clients.

    To within one, all labels have equally many clients. Clients divide a label equally, or in proportion to weights
    drawn from `sizes`. A label without clients (N * k below the number of labels) is unassigned.

    Source: Li, Diao, Chen, He 2022 (NIID-Bench, arXiv 2102.02079), "#C = k", with equal weights.
    """

    def divide(held: np.ndarray) -> np.ndarray:
        return held * _weights(rng, sizes, num_clients)[:, None]

    return _by_class(rng, labels, num_clients, classes_per_client, divide, min_size, small_clients)


def extended_dirichlet(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    classes_per_client: Count = 2,
    alpha: Positive = 0.5,
    min_size: CountOrZero = 5,
    small_clients: SmallClients = "redraw",
) -> Assignment:
    """Give each client k random labels, and divide each label by Dir(alpha) among its clients.

    The labels are chosen as in ``classes``, to which a large alpha converges. The authors' code (convergence)
    draws each client's labels uniformly, and gives no more labels to clients that have n / N examples.

    Source: Li, Lyu 2023 (arXiv 2311.03154), the extended Dirichlet strategy.
    """

    def divide(held: np.ndarray) -> np.ndarray:
        weights = np.zeros(held.shape)
        for own, column in zip(held.T, weights.T):
            column[own] = dirichlet_rows(rng, np.full(own.sum(), alpha), 1)[0] if own.any() else 0.0
        return weights

    return _by_class(rng, labels, num_clients, classes_per_client, divide, min_size, small_clients)


def _by_class(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    classes_per_client: int,
    divide: Callable[[np.ndarray], np.ndarray],
    min_size: int,
    small_clients: str,
) -> Assignment:
    """Choose each client's labels, bool ``[N, C]``, and divide each label by the weights that `divide` draws."""
    label_pools = pools(rng, labels)
    totals = np.array([len(pool) for pool in label_pools])
    if classes_per_client > len(totals):
        raise UserError(f"classes_per_client {classes_per_client} exceeds the {len(totals)} labels: lower it")

    def draw() -> np.ndarray:
        held, clients_of = np.zeros((num_clients, len(totals)), bool), np.zeros(len(totals), np.int64)
        for client in held:  # each takes the labels with the fewest clients so far; ties are broken at random
            client[np.lexsort((rng.random(len(totals)), clients_of))[:classes_per_client]] = True
            clients_of += client
        weights = divide(held)
        return weights * (totals / np.where(clients_of, weights.sum(axis=0), 1.0))

    return deal(_large_enough(draw, min_size, small_clients), label_pools)


_MAX_ITERATIONS = 100
_FEASIBLE = 1e-6
_EXACT = 1e-12
_SMALLEST_STEP = 1e-10


def solve(proportions: np.ndarray, totals: np.ndarray, lower: float) -> np.ndarray | None:
    """Minimize ``|x|^2 / 2`` subject to ``proportions @ x = totals`` and ``x >= lower``.

    The minimizer is ``x = max(lower, proportions.T @ multipliers)``, where the multipliers maximize a concave,
    piecewise quadratic dual. Newton's method with backtracking solves only C x C systems, so N may be large.

    Args:
        proportions: float ``[C, N]``, label distribution of each client; columns sum to one.
        totals: float ``[C]``, number of examples per label.
        lower: smallest size, at least 0.

    Returns:
        Sizes, float64 ``[N]``, or None if no sizes satisfy the constraints.
    """
    num_labels, num_clients = proportions.shape
    total = float(totals.sum())
    if lower * num_clients > total * (1.0 + _FEASIBLE):
        return None
    scale = float(totals.max())
    ridge = 1e-12 * float(np.einsum("cn,cn->", proportions, proportions)) / num_labels * np.eye(num_labels)
    # Columns sum to one, so feasible sizes sum to the total, and their cost is at most half its square. By weak duality
    # a larger dual value proves infeasibility; exactly then the dual is unbounded.
    infeasible_above = 0.5 * total**2 * (1.0 + _FEASIBLE)

    def sizes_at(multipliers: np.ndarray) -> np.ndarray:
        return np.maximum(lower, proportions.T @ multipliers)

    def residual_at(multipliers: np.ndarray) -> np.ndarray:
        return totals - proportions @ sizes_at(multipliers)

    def dual(multipliers: np.ndarray) -> float:
        slopes = proportions.T @ multipliers
        costs = np.where(slopes > lower, slopes**2 / 2, lower * slopes - lower**2 / 2)
        return float(totals @ multipliers - costs.sum())

    multipliers = np.linalg.solve(proportions @ proportions.T + ridge, totals)
    for _ in range(_MAX_ITERATIONS):
        value, residual = dual(multipliers), residual_at(multipliers)
        error = np.abs(residual).max()
        if error < _EXACT * scale or value > infeasible_above:
            break
        active = proportions[:, sizes_at(multipliers) > lower]
        direction = np.linalg.solve(active @ active.T + ridge, residual)
        slope, step = float(residual @ direction), 1.0
        while step > _SMALLEST_STEP:
            candidate = multipliers + step * direction
            # Near the solution the dual is flat up to rounding, so a smaller residual also counts as progress.
            if dual(candidate) >= value + 1e-4 * step * slope or np.abs(residual_at(candidate)).max() < error / 2:
                break
            step /= 2
        else:
            break
        multipliers = candidate
    sizes = sizes_at(multipliers)
    error = np.abs(proportions @ sizes - totals).max()
    return sizes if np.isfinite(error) and error < _FEASIBLE * scale else None


def nearest_sizes(proportions: np.ndarray, totals: np.ndarray, lower: float) -> np.ndarray:
    """Minimize ``|proportions @ x - totals|^2 + 1e-6 |x|^2`` subject to ``x >= lower``; arguments as in `solve`."""
    from scipy.optimize import nnls  # imported here, because partitions must import quickly

    num_clients = proportions.shape[1]
    ridge = 1e-3 * np.eye(num_clients)  # the small term makes the sizes unique and even
    floor = np.full(num_clients, lower)
    stacked = np.vstack([proportions, ridge])
    return floor + nnls(stacked, np.concatenate([totals - proportions @ floor, -ridge @ floor]))[0]


_QP_REDRAWS = 100


def dirichlet_qp(
    rng: np.random.Generator, labels: np.ndarray, num_clients: int, *, alpha: Positive = 0.2, min_size: CountOrZero = 5
) -> Assignment:
    """Draw label proportions ~ Dir(alpha * label frequencies), with the most even sizes that assign all examples.

    The labels split `alpha` by frequency: 0.2 gives 0.02 per label for ten equally frequent labels. Each client has at
    least `min_size` examples. Examples left by rounding go to the largest remainders, so no client receives a label of
    which it has no share; the reference code gives them to random clients.

    Few clients rarely have such sizes, at any alpha: with C = 10 labels and a large alpha, in 0.002 of draws for N = 10
    and 0.68 for N = 20 (Wendel's theorem: 2^(1-N) * sum_{k>=C-1} binom(N-1, k)). If 100 draws have none, the last draw
    has the sizes whose label totals are nearest in least squares. Each label is then divided in proportion to size
    times drawn proportion. All examples are assigned, and clients' labels differ from their drawn proportions.

    Source: FedCor section 5; ``src/sampling.py``.
    """
    _check_room(num_clients, min_size, len(labels))
    label_pools = pools(rng, labels)
    totals = np.array([len(pool) for pool in label_pools], np.float64)
    for _ in range(_QP_REDRAWS):
        proportions = dirichlet_rows(rng, alpha * totals / totals.sum(), num_clients)
        sizes = solve(proportions.T, totals, float(min_size))
        if sizes is not None:
            break
    else:
        warnings.warn(
            f"no client sizes fit the label proportions of {num_clients} clients at alpha {alpha:g} in {_QP_REDRAWS} "
            "draws; sizes are fitted by least squares, and clients' proportions differ from those drawn",
            stacklevel=3,
        )
        sizes = nearest_sizes(proportions.T, totals, float(min_size))
        proportions = np.maximum(proportions, 1e-300)  # divides a label that underflowed everywhere
    shares = sizes[:, None] * proportions
    # Shares of single-label clients differ only in their last bits, which depend on the machine. Rounding makes these
    # ties exact, so that all machines break them by client ID.
    shares = np.round(shares * (totals / shares.sum(axis=0)), 6)
    counts = _rounded(shares, totals.astype(np.int64))
    return deal(_with_floor(counts, shares, min_size), label_pools)


def dirichlet(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    alpha: Positive = 0.5,
    form: Literal["hsu", "yurochkin"] = "hsu",
    sizes: str = "equal",
    min_size: CountOrZero = 5,
    small_clients: SmallClients = "redraw",
) -> Assignment:
    """Draw Dirichlet proportions with concentration ``alpha`` per label (or client), as most libraries do.

    By contrast, ``dirichlet_qp`` divides its alpha by ten for ten equally frequent labels. In the form ``hsu`` each
    client draws its label proportions, and all clients have ``n // N`` examples unless `sizes` differ. In the form
    ``yurochkin`` each label draws its proportions over clients, sizes vary, and all examples are assigned. It redraws
    at most 10 times until each client has at least `min_size` examples, then tops up from the largest clients.

    In the form ``hsu`` each example draws its label, without replacement, so counts vary at any alpha, most for clients
    that draw last: from 0 to 28 where 14 are expected. With a large alpha, ``yurochkin`` gives 14.

    Source: Hsu, Qi, Brown 2019 (arXiv 1909.06335); Yurochkin et al. 2019 (ICML).
    """
    label_pools = pools(rng, labels)
    totals = np.array([len(pool) for pool in label_pools], np.int64)
    if form == "hsu":
        proportions = dirichlet_rows(rng, np.full(len(totals), alpha), num_clients)
        own = _sizes(rng, sizes, len(labels), num_clients, min_size, small_clients)
        return deal(_filled(rng, proportions, totals, own), label_pools)

    def draw() -> np.ndarray:
        return dirichlet_rows(rng, np.full(num_clients, alpha), len(totals)).T * totals

    return deal(_large_enough(draw, min_size, small_clients), label_pools)


def dirichlet_rows(rng: np.random.Generator, concentration: np.ndarray, num_rows: int) -> np.ndarray:
    """Draw rows from a Dirichlet distribution, float64 ``[num_rows, C]``, from a float ``[C]`` concentration."""
    # Gamma(a) is Gamma(a + 1) * U^(1/a). In logarithms, no row underflows to all zeros.
    shape = (num_rows, len(concentration))
    logs = np.log(rng.standard_gamma(concentration + 1.0, shape)) - rng.standard_exponential(shape) / concentration
    rows = np.exp(logs - logs.max(axis=1, keepdims=True))
    return rows / rows.sum(axis=1, keepdims=True)


def _rounded(shares: np.ndarray, totals: np.ndarray) -> np.ndarray:
    counts = np.floor(shares).astype(np.int64)
    for label, left_over in enumerate(totals - counts.sum(axis=0)):
        remainders = shares[:, label] - counts[:, label]
        counts[np.argsort(-remainders, kind="stable")[:left_over], label] += 1
    return counts


def _with_floor(counts: np.ndarray, shares: np.ndarray, min_size: int) -> np.ndarray:
    """Raise clients below `min_size` by single examples from the clients that rounding favored most, in place."""
    sizes = counts.sum(axis=1)
    for client in np.flatnonzero(sizes < min_size):
        while sizes[client] < min_size:
            label = int(np.argmax(shares[client] - counts[client]))
            can_give = (sizes > min_size) & (counts[:, label] > 0)
            surplus = np.where(can_give, counts[:, label] - shares[:, label], -np.inf)
            giver = int(np.argmax(surplus))
            if surplus[giver] == -np.inf:
                giver = int(np.argmax(sizes))
                label = int(np.argmax(counts[giver]))
            counts[[giver, client], label] += [-1, 1]
            sizes[[giver, client]] += [-1, 1]
    return counts


def _filled(rng: np.random.Generator, proportions: np.ndarray, totals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Fill clients in random order; the share of an exhausted label goes to the remaining labels."""
    counts = np.zeros(proportions.shape, np.int64)
    left = totals.copy()
    for client in rng.permutation(len(proportions)):
        missing = int(sizes[client])
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


class _Plan(NamedTuple):
    main: np.ndarray  # label of each client
    others: np.ndarray  # other labels, in order of preference
    partner: np.ndarray  # second label under "H"


def skewness(
    rng: np.random.Generator,
    labels: np.ndarray,
    num_clients: int,
    *,
    skewness: float | str = 1.0,
    main: Literal["balanced", "random"] = "balanced",
) -> Assignment:
    """Give each client a share of examples of its main label, and spread the rest evenly over the other labels.

    `skewness` is the share of the main label, in (0, 1] (1, 0.8 and 0.5 in the paper); or ``"H"``, half of each of two
    labels. All clients have one size, and the remaining examples are unassigned.

    With `main` ``balanced``, labels are main labels equally often (to within one client), label totals are balanced,
    and clients share no examples. The size is the largest, at most ``n // N``, for which no label is exhausted (542
    instead of 600 for MNIST with N = 100 and skewness 1). With ``random``, main labels are drawn at random; exhausted
    labels are reused, so clients share examples.

    Source: FL-DP3S section 4; flsim's ``load_data.py``.
    """
    share = None if str(skewness).strip().upper() == "H" else skewness
    if isinstance(share, str) or (share is not None and not 0.0 < share <= 1.0):
        raise UserError(f"skewness must be above 0 and at most 1, or 'H', not {skewness!r}")
    label_pools = pools(rng, labels)
    available = np.array([len(pool) for pool in label_pools])
    if len(available) == 1 and share != 1.0:
        raise UserError(f"skewness {skewness} needs at least two labels, but the data set has one: use skewness 1")
    plan = (_balanced_plan if main == "balanced" else _random_plan)(rng, num_clients, len(available), share is None)

    def fits(size: int) -> bool:
        counts = _counts(plan, size, share)
        # With random main labels clients may share examples, but no client may hold one twice.
        return bool((counts.sum(axis=0) <= available).all() if main == "balanced" else (counts <= available).all())

    # The largest size that fits, by bisection, or 0: larger sizes need more examples.
    size = bisect.bisect_left(range(1, len(labels) // num_clients + 1), True, key=lambda size: not fits(size))
    if size < 1 or (share is None and size < 2):
        raise UserError(
            f"{num_clients} clients of skewness {skewness} need more than the {available.min()} examples of the "
            "rarest label: lower num_clients, or set main to 'random'"
        )
    return deal(_counts(plan, size, share), label_pools)


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
        # Random permutations without fixed points, by rejection (about e tries).
        derangements = np.tile(positions, (num_rounds, 1))
        for row in derangements:
            while (row == positions).any():
                row[:] = rng.permutation(num_labels)
        partner = np.take_along_axis(names, derangements, axis=1)
    # The last group may be incomplete, and clients must not be sorted by group.
    chosen = rng.permutation(num_clients)
    flat = (names.reshape(-1), others.reshape(names.size, num_labels - 1), partner.reshape(-1))
    return _Plan(*(part[chosen] for part in flat))


def _random_plan(rng: np.random.Generator, num_clients: int, num_labels: int, halves: bool) -> _Plan:
    # Under "H" the first preference, already a random other label, is the second label.
    main = rng.integers(num_labels, size=num_clients)
    offsets = 1 + rng.permuted(np.tile(np.arange(num_labels - 1), (num_clients, 1)), axis=1)
    others = (main[:, None] + offsets) % num_labels
    return _Plan(main, others, others[:, 0] if num_labels > 1 else main)


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


TABLE: dict[str, Callable[..., Assignment]] = {
    "shards": shards, "dirichlet_qp": dirichlet_qp, "skewness": skewness, "dirichlet": dirichlet,
    "extended_dirichlet": extended_dirichlet, "classes": classes, "iid": iid, "natural": natural,
}  # fmt: skip
"""Functions (rng, labels int [n], number of clients, *, options) -> Assignment, by the scheme's name."""

WITHOUT_LABELS: tuple[str, ...] = ("iid", "natural")
"""Schemes that ignore labels, and therefore accept any targets."""
