"""Who holds what: invariants of every scheme, and what each promises."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from fedjax_sel import Config
from fedjax_sel.cli import command_line, data
from fedjax_sel.data import partition, schemes
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import problem

EVEN = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
# As uneven as MNIST, and with a label that does not occur (4).
UNEVEN = np.random.default_rng(1).permutation(
    np.repeat([0, 1, 2, 3, 5, 6, 7, 8, 9], [592, 674, 596, 613, 542, 592, 626, 585, 595])
)
WRITERS = np.random.default_rng(2).integers(150, size=6000)
CASES = [
    ("shards", {}),
    ("shards", {"shards_per_client": 3}),
    *[("dirichlet_qp", {"alpha": alpha}) for alpha in (0.05, 0.2, 1.0, 100.0)],
    *[("skewness", {"skewness": xi}) for xi in (1, 0.8, 0.5, "H")],
    *[("dirichlet", {"alpha": alpha, "form": "hsu"}) for alpha in (0.001, 0.1, 10.0)],
    ("dirichlet", {"alpha": 0.5, "form": "yurochkin"}),
    ("dirichlet", {"alpha": 0.5, "sizes": "lognormal:0.5"}),
    ("extended_dirichlet", {"alpha": 2.0, "classes_per_client": 3}),
    ("classes", {"classes_per_client": 3}),
    ("classes", {"sizes": "lognormal:0.5"}),
    ("iid", {}),
    ("iid", {"sizes": "dirichlet:2"}),
    ("natural", {"client_ids": WRITERS}),
]
NAMES = [f"{scheme}-{'-'.join(map(str, o.values())) if scheme != 'natural' else ''}" for scheme, o in CASES]
NOTHING_OVER = ("dirichlet_qp", "yurochkin", "classes", "extended_dirichlet")


def cut(options: dict, size: int) -> dict:
    return {key: value[:size] if key == "client_ids" else value for key, value in options.items()}


@pytest.mark.parametrize("labels", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("scheme", "options"), CASES, ids=NAMES)
def test_every_example_has_one_place(scheme, options, labels):
    options = cut(options, len(labels))
    for seed in range(3):
        parts = partition.make(scheme, labels, 100, seed, **options)
        everything = np.concatenate([*parts.indices, parts.remainder])
        assert sorted(everything.tolist()) == list(range(len(labels)))
        assert parts.num_clients == 100 and parts.sizes.min() >= 1 and parts.num_examples == len(labels)
        assert all(own.dtype == np.int64 for own in parts.indices)
        counts = parts.label_counts(labels, 10)
        for client in (0, 57, 99):
            np.testing.assert_array_equal(counts[client], np.bincount(labels[parts.indices[client]], minlength=10))
        if scheme in NOTHING_OVER or options.get("form") in NOTHING_OVER or "sizes" in options:
            assert len(parts.remainder) == 0 and parts.sizes.min() >= 5
        elif scheme != "natural":
            assert len(set(parts.sizes)) == 1


@pytest.mark.parametrize(("scheme", "options"), CASES, ids=NAMES)
def test_the_seed_decides(scheme, options):
    np.random.seed(0)
    first = partition.make(scheme, EVEN, 50, 7, **options)
    np.random.seed(1)
    again = partition.make(scheme, EVEN.astype(np.int64), 50, np.int32(7), **options)
    other = partition.make(scheme, EVEN, 50, 8, **options)
    assert first.digest() == again.digest() != other.digest()


@pytest.mark.parametrize(("scheme", "options"), CASES, ids=NAMES)
def test_examples_are_shuffled_inside_the_client(scheme, options):
    parts = partition.make(scheme, EVEN, 50, 0, **options)
    ascending = [np.mean(np.diff(own) > 0) for own in parts.indices if len(own) > 40]
    assert 0.4 < np.mean(ascending) < 0.6


def test_the_digest_sees_every_part():
    parts = partition.make("iid", EVEN, 7, 0)
    swapped = [parts.indices[1], parts.indices[0], *parts.indices[2:]]
    turned = [parts.indices[0][::-1], *parts.indices[1:]]
    seen = {
        partition.Partition(indices, remainder, "iid", size).digest()
        for indices, remainder, size in (
            (parts.indices, parts.remainder, 6000),
            (swapped, parts.remainder, 6000),
            (turned, parts.remainder, 6000),
            (parts.indices, parts.remainder[:-1], 6000),
            (parts.indices, parts.remainder, 6001),
        )
    }
    assert len(seen) == 5


GOLDEN = {
    ("shards", 0): "1116568199b0fe77",
    ("dirichlet_qp", 0): "fc6516315be5e3ff",
    ("skewness", 1): "4cc6478eaf63d79f",
    ("dirichlet", 2): "d713f44b73a7c81b",
    ("iid", 3): "8cf1022e4effc793",
    ("extended_dirichlet", 4): "93fefb870d7d1697",
    ("classes", 5): "c3c92ac0bdf07616",
}


@pytest.mark.parametrize(("scheme", "seed"), GOLDEN)
def test_golden_digests(scheme, seed):
    """Published results name these partitions: a change here is a change of every result, not a refactoring."""
    labels = np.arange(6000) * 7 % 10
    assert partition.make(scheme, labels, 60, seed).digest()[:16] == GOLDEN[scheme, seed]


# Shards.


def test_shards_are_pure_where_labels_divide():
    one = partition.make("shards", EVEN, 100, 0, shards_per_client=1).label_counts(EVEN, 10)
    assert (one.max(axis=1) == 60).all() and ((one > 0).sum(axis=0) == 10).all()
    two = partition.make("shards", EVEN, 100, 0, shards_per_client=2).label_counts(EVEN, 10)
    assert (two.sum(axis=1) == 60).all() and (two % 30 == 0).all()
    twice = [
        (partition.make("shards", EVEN, 100, seed, shards_per_client=2).label_counts(EVEN, 10) == 60).any(axis=1).mean()
        for seed in range(40)
    ]
    assert 0.07 < np.mean(twice) < 0.12, "about one client in ten gets the same label twice"


def test_shards_drop_the_end_of_the_sorted_examples():
    labels = np.sort(EVEN)
    parts = partition.make("shards", labels, 70, 0, shards_per_client=1)
    np.testing.assert_array_equal(parts.remainder, np.arange(70 * (6000 // 70), 6000))


# Dirichlet with sizes from a quadratic programme.


@pytest.mark.parametrize("lower", [0.0, 10.0, 15.0])
def test_the_programme_agrees_with_scipy(lower):
    optimize = pytest.importorskip("scipy.optimize")
    totals, feasible, active = np.array([100.0, 150.0, 90.0]), 0, 0
    for seed in range(15):
        proportions = schemes.dirichlet_rows(np.random.default_rng(seed), np.full(3, 0.4), 12).T
        sizes = schemes.solve(proportions, totals, lower)
        possible = optimize.linprog(np.zeros(12), A_eq=proportions, b_eq=totals, bounds=[(lower, None)] * 12)
        assert (sizes is not None) == possible.success
        if sizes is None:
            continue
        feasible += 1
        active += (sizes <= lower + 1e-9).any()
        constraint = {"type": "eq", "fun": lambda x, q=proportions: q @ x - totals, "jac": lambda x, q=proportions: q}
        best = optimize.minimize(
            lambda x: x @ x / 2,
            possible.x,
            jac=lambda x: x,
            bounds=[(lower, None)] * 12,
            constraints=constraint,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(sizes, best.x, atol=1e-5)
    assert feasible >= 5 and active >= (0 if lower == 0 else 2), "the cases must be worth testing"


def test_without_active_bounds_the_programme_is_a_pseudo_inverse():
    proportions = schemes.dirichlet_rows(np.random.default_rng(3), np.full(10, 0.02), 100).T
    totals = np.full(10, 6000.0)
    expected = proportions.T @ np.linalg.solve(proportions @ proportions.T, totals)
    assert expected.min() > 0
    np.testing.assert_allclose(schemes.solve(proportions, totals, 0.0), expected, rtol=1e-9)


@pytest.mark.slow
def test_sizes_lie_where_fedcors_do():
    """Over 50 seeds the specification measured 196 to 2,846; medians 567 (client), 370 (smallest), 1,085 (largest)."""
    labels = np.repeat(np.arange(10), 6000)
    sizes = np.array([partition.make("dirichlet_qp", labels, 100, seed, alpha=0.2).sizes for seed in range(50)])
    assert (sizes.sum(axis=1) == 60000).all()
    assert 100 < sizes.min() < 350 and 1500 < sizes.max() < 4500
    assert abs(np.median(np.median(sizes, axis=1)) - 567) < 30
    assert abs(np.median(sizes.min(axis=1)) - 370) < 40
    assert abs(np.median(sizes.max(axis=1)) - 1085) < 200


def test_alpha_is_spread_over_the_labels():
    def mean_labels(alpha):
        parts = partition.make("dirichlet_qp", EVEN, 100, 0, alpha=alpha)
        return (parts.label_counts(EVEN, 10) > 0).sum(axis=1).mean()

    assert mean_labels(0.01) < 1.3 < mean_labels(0.2) < 3 < mean_labels(2.0) < mean_labels(1000.0) == 10


def test_the_floor_holds_after_rounding_too():
    for seed in range(5):
        parts = partition.make("dirichlet_qp", EVEN, 1000, seed, min_size=5)
        assert parts.sizes.min() >= 5 and parts.sizes.sum() == 6000
    assert partition.make("dirichlet_qp", EVEN, 100, 0, min_size=40).sizes.min() >= 40


def test_largest_remainders_follow_the_program():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(4, 0.1), 30) * rng.uniform(5, 50, (30, 1))
    totals = np.rint(shares.sum(axis=0)).astype(int)
    shares *= totals / shares.sum(axis=0)
    exact = schemes._rounded(shares, totals)
    np.testing.assert_array_equal(exact.sum(axis=0), totals)
    assert np.abs(exact - shares).max() < 1 and (exact[shares < 1e-9] == 0).all()


def test_last_bits_decide_nothing(monkeypatch):
    """Sizes from another linear-algebra library differ in the last bits, and must give the same partition."""
    # With so small an alpha, many clients have one label alone, and their exact shares are equal.
    before = partition.make("dirichlet_qp", EVEN, 100, 0, alpha=0.01).digest()
    solve, noise = schemes.solve, np.random.default_rng(0)

    def solve_elsewhere(*arguments):
        return solve(*arguments) * (1 + 1e-13 * noise.standard_normal(100))

    monkeypatch.setattr(schemes, "solve", solve_elsewhere)
    assert partition.make("dirichlet_qp", EVEN, 100, 0, alpha=0.01).digest() == before


@pytest.mark.parametrize(("num_labels", "num_clients", "alpha"), [(10, 10, 0.2), (10, 10, 1e4), (30, 30, 0.001)])
def test_proportions_without_sizes_are_fitted(num_labels, num_clients, alpha):
    labels = np.arange(6000) % num_labels
    with pytest.warns(UserWarning, match=f"no client sizes fit the label proportions of {num_clients} clients"):
        parts = partition.make("dirichlet_qp", labels, num_clients, 0, alpha=alpha)
    assert parts.sizes.min() >= 5 and len(np.unique(np.concatenate(parts.indices))) == 6000


def test_fitted_sizes_are_the_nearest():
    from scipy.optimize import lsq_linear

    totals = np.array([100.0, 150.0, 90.0, 60.0])
    for seed in range(5):
        proportions = schemes.dirichlet_rows(np.random.default_rng(seed), np.full(4, 0.3), 3).T
        sizes = schemes.nearest_sizes(proportions, totals, 10.0)
        best = lsq_linear(proportions, totals, (10.0, np.inf), tol=1e-14).x
        assert schemes.solve(proportions, totals, 10.0) is None
        np.testing.assert_allclose(sizes, best, rtol=1e-3)
    proportions = schemes.dirichlet_rows(np.random.default_rng(3), np.full(4, 1.0), 40).T
    expected = schemes.solve(proportions, totals, 1.0)
    np.testing.assert_allclose(schemes.nearest_sizes(proportions, totals, 1.0), expected, atol=1e-3)


@pytest.mark.slow
def test_sizes_fit_as_often_as_wendels_theorem_says():
    """Sizes exist if the label frequencies are in the cone of N random proportions."""
    rng, totals = np.random.default_rng(0), np.full(4, 100.0)
    for num_clients, share in ((4, 1 / 8), (6, 1 / 2), (8, 99 / 128)):
        drawn = (schemes.dirichlet_rows(rng, np.full(4, 1e4), num_clients) for _ in range(400))
        assert abs(np.mean([schemes.solve(rows.T, totals, 0.0) is not None for rows in drawn]) - share) < 0.1


def test_tiny_concentrations_underflow_nothing():
    rows = schemes.dirichlet_rows(np.random.default_rng(0), np.full(10, 1e-5), 1000)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    assert np.bincount(rows.argmax(axis=1), minlength=10).min() > 50


def test_dirichlet_rows_have_the_moments_of_the_law():
    concentration = np.array([0.2, 0.5, 1.3])
    rows = schemes.dirichlet_rows(np.random.default_rng(0), concentration, 100_000)
    mean = concentration / concentration.sum()
    np.testing.assert_allclose(rows.mean(axis=0), mean, atol=0.005)
    np.testing.assert_allclose(rows.var(axis=0), mean * (1 - mean) / (concentration.sum() + 1), atol=0.003)


# Dirichlet without.


def test_hsu_proportions_follow_the_law_while_labels_last():
    labels = np.repeat(np.arange(4), 50_000)
    # A few clients of equal size cannot use up any label here, so their counts are multinomial.
    rng = np.random.default_rng(0)
    proportions = schemes.dirichlet_rows(rng, np.full(4, 0.3), 200)
    counts = schemes._filled(rng, proportions, np.bincount(labels), np.full(200, 100))
    assert (counts.sum(axis=1) == 100).all()
    assert np.abs(counts / 100 - proportions).mean() < 0.03


def test_yurochkin_splits_labels_over_clients():
    parts = partition.make("dirichlet", EVEN, 20, 0, alpha=0.5, form="yurochkin")
    counts = parts.label_counts(EVEN, 10)
    assert (counts.sum(axis=0) == 600).all() and parts.sizes.std() > 20


@pytest.mark.parametrize(("num_clients", "alpha"), [(500, 0.1), (100, 0.05)])
def test_clients_below_the_minimum_are_topped_up(num_clients, alpha):
    made = {}
    with pytest.warns(UserWarning, match=rf"of {num_clients} clients have fewer than 5 examples after 10 redraws"):
        made["redraw"] = partition.make("dirichlet", EVEN, num_clients, 0, alpha=alpha, form="yurochkin")
    options = {"alpha": alpha, "form": "yurochkin", "small_clients": "top-up"}
    made["top-up"] = partition.make("dirichlet", EVEN, num_clients, 0, **options)
    drawn = partition.make("dirichlet", EVEN, num_clients, 0, **options, min_size=0).sizes
    for parts in made.values():
        assert parts.sizes.min() == 5 and len(np.unique(np.concatenate(parts.indices))) == 6000
    topped_up = made["top-up"].sizes
    assert (topped_up[drawn < 5] == 5).all() and (topped_up[drawn >= 5] <= drawn[drawn >= 5]).all()
    assert (topped_up[(drawn >= 5) & (drawn < 9)] == drawn[(drawn >= 5) & (drawn < 9)]).all(), "large ones give"


def test_topping_up_keeps_to_the_labels_of_a_client():
    shares = np.array([[9.0, 9, 0], [0.2, 0, 0], [0, 0.4, 8], [0, 0, 0.1]])
    counts = schemes._topped_up(np.array([[9, 9, 0], [0, 0, 0], [0, 0, 8], [0, 0, 0]]), shares, 3)
    assert counts.tolist() == [[6, 9, 0], [3, 0, 0], [0, 0, 5], [0, 0, 3]]


# A number of classes per client.


@pytest.mark.parametrize("scheme", ["classes", "extended_dirichlet"])
def test_each_client_has_k_classes_and_each_class_as_many_clients(scheme):
    for num_clients, chosen in ((20, 1), (25, 2), (30, 3), (7, 10)):
        options = {"alpha": 50.0} if scheme == "extended_dirichlet" else {}
        parts = partition.make(scheme, EVEN, num_clients, 0, classes_per_client=chosen, **options)
        held = parts.label_counts(EVEN, 10) > 0
        assert (held.sum(axis=1) == chosen).all() and np.ptp(held.sum(axis=0)) <= 1
    parts = partition.make(scheme, EVEN, 3, 0, classes_per_client=2)
    assert len(parts.remainder) == 4 * 600, "the examples of four classes have no client"


def test_pairs_of_classes_are_equally_likely():
    labels = np.repeat(np.arange(4), 30)
    pairs: dict = {}
    for seed in range(600):
        held = partition.make("classes", labels, 6, seed).label_counts(labels, 4)[0] > 0
        pairs[tuple(np.flatnonzero(held))] = pairs.get(tuple(np.flatnonzero(held)), 0) + 1
    assert len(pairs) == 6 and all(abs(count - 100) < 40 for count in pairs.values()), "4 standard deviations"


def test_clients_divide_their_classes_equally_or_by_size():
    counts = partition.make("classes", EVEN, 50, 0).label_counts(EVEN, 10)
    assert set(counts[counts > 0]) == {60}
    counts = partition.make("classes", EVEN, 50, 0, sizes="lognormal:0.5", min_size=0).label_counts(EVEN, 10)
    held, logs = counts > 0, np.log(np.maximum(counts, 1))
    # A count is size times class factor: the logarithms are a client's term plus a class's.
    clients, labels = np.nonzero(held)
    design = np.zeros((len(clients), 60))
    design[np.arange(len(clients)), clients] = design[np.arange(len(clients)), 50 + labels] = 1.0
    found, *_ = np.linalg.lstsq(design, logs[held], rcond=None)
    assert np.abs(design @ found - logs[held]).max() < 0.03 and 0.35 < found[:50].std() < 0.65


def test_extended_dirichlet_divides_classes_by_its_law():
    labels = np.repeat([0, 1], 500)
    counts = [
        partition.make("extended_dirichlet", labels, 4, seed, classes_per_client=1, alpha=0.7, min_size=0)
        .label_counts(labels, 2).max(axis=0) for seed in range(400)
    ]  # fmt: skip
    larger = np.concatenate(counts) / 500  # of each class's two clients, whose shares are Beta(0.7, 0.7)
    assert abs((larger - 0.5).std(ddof=0) ** 2 + (larger.mean() - 0.5) ** 2 - 1 / (4 * (2 * 0.7 + 1))) < 0.01


# Unequal sizes.


def test_sizes_have_the_laws_that_their_names_say():
    rng = np.random.default_rng(0)
    sizes = np.stack([schemes._sizes(rng, "lognormal:0.8", 100_000, 50, 5, "redraw") for _ in range(100)])
    assert (sizes.sum(axis=1) == 100_000).all() and abs(np.log(sizes).std(axis=1, ddof=1).mean() - 0.8) < 0.03
    sizes = np.stack([schemes._sizes(rng, "dirichlet:2", 100_000, 50, 0, "redraw") for _ in range(100)])
    assert (sizes.sum(axis=1) == 100_000).all() and abs(np.var(sizes / 1e5) / (0.02 * 0.98 / 101) - 1) < 0.1


def test_dirichlet_clients_of_unequal_sizes_keep_their_proportions():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(4), 5000))
    parts = partition.make("dirichlet", labels, 40, 0, alpha=1e6, sizes="lognormal:1")
    assert parts.sizes.sum() == 20_000 and parts.sizes.max() > 5 * parts.sizes.min()
    shares = parts.label_counts(labels, 4) / parts.sizes[:, None]
    assert np.median(np.abs(shares - 0.25)) < 0.05


# How much clients differ.


def test_heterogeneity_of_known_proportions():
    found = partition.heterogeneity(np.array([[8, 0], [0, 3]]), np.array([5, 5]))
    share = 1 - np.sqrt(0.5)
    divergence = 0.5 * np.log2(1 / 0.75) + 0.25 * np.log2(0.5 / 0.75) + 0.25 * np.log2(0.5 / 0.25)
    np.testing.assert_allclose(found, [0.5, 1.0, np.sqrt(share), np.sqrt(divergence), 1.0])
    even = partition.heterogeneity(np.array([[4, 4], [1, 1]]), np.array([5, 5]))
    np.testing.assert_allclose(even, [0, 0, 0, 0, 2], atol=1e-7)


# Skewness.


@pytest.mark.parametrize(("xi", "num_main", "others"), [(1, 60, {0}), (0.8, 48, {1, 2}), ("0.5", 30, {3, 4})])
def test_skewness_is_exact_and_balanced(xi, num_main, others):
    for seed in range(3):
        parts = partition.make("skewness", EVEN, 100, seed, skewness=xi)
        counts = parts.label_counts(EVEN, 10)
        main = counts.argmax(axis=1)
        assert (counts.max(axis=1) == num_main).all() and (np.bincount(main) == 10).all()
        assert set(counts[counts < num_main]) == others
        assert len(parts.remainder) == 0


def test_skewness_h_is_two_halves():
    pairs = set()
    for seed in range(5):
        counts = partition.make("skewness", EVEN, 100, seed, skewness="H").label_counts(EVEN, 10)
        assert ((counts == 30).sum(axis=1) == 2).all() and ((counts > 0).sum(axis=1) == 2).all()
        assert (counts.sum(axis=0) == 600).all()
        pairs |= {tuple(np.flatnonzero(row)) for row in counts}
    assert len(pairs) == 45, "every pair of labels must be possible"


def test_skewness_of_uneven_labels_takes_the_largest_size_that_fits():
    parts = partition.make("skewness", UNEVEN, 90, 0, skewness=1)
    assert set(parts.sizes) == {54} and ((parts.label_counts(UNEVEN, 10) > 0).sum(axis=1) == 1).all()


@pytest.mark.parametrize("xi", [1, 0.8, 0.5, "H"])
@pytest.mark.parametrize("num_clients", [1, 3, 10, 37, 95, 1003])
def test_skewness_of_clients_that_do_not_divide(num_clients, xi):
    parts = partition.make("skewness", EVEN, num_clients, 0, skewness=xi)
    used = np.concatenate(parts.indices)
    assert len(set(parts.sizes)) == 1 and len(np.unique(used)) == len(used)
    size = int(parts.sizes[0])
    expected = size // 2 if xi == "H" else int(xi * size + 1e-9)
    counts = parts.label_counts(EVEN, 10)
    if num_clients <= 100:
        mains = np.bincount(counts.argmax(axis=1), minlength=10)
        assert xi == "H" or mains.max() - mains.min() <= 1
        assert (counts.max(axis=1) == (size - size // 2 if xi == "H" else expected)).all()


@pytest.mark.parametrize("main", ["balanced", "random"])
def test_skewness_of_a_single_label_is_equal_sizes(main):
    labels = np.zeros(60, np.int32)
    parts = partition.make("skewness", labels, 7, 0, skewness=1, main=main)
    assert (parts.sizes == 8).all()
    held = np.concatenate(parts.indices)
    assert len(np.unique(held)) == len(held) or main == "random"
    for xi in (0.8, "H"):
        with pytest.raises(UserError, match="needs at least two labels, but the data set has one: use skewness 1"):
            partition.make("skewness", labels, 7, 0, skewness=xi, main=main)


def test_random_mains_share_examples_but_no_client_has_one_twice():
    parts = partition.make("skewness", EVEN, 100, 0, skewness=1, main="random")
    counts = parts.label_counts(EVEN, 10)
    assert (parts.sizes == 60).all() and (counts.max(axis=1) == 60).all()
    assert counts.sum(axis=0).max() > 600, "some label is the main one of more than ten clients"
    assert all(len(np.unique(own)) == len(own) for own in parts.indices)
    held = np.unique(np.concatenate(parts.indices))
    np.testing.assert_array_equal(np.sort(np.concatenate([held, parts.remainder])), np.arange(6000))


# Natural.


def test_natural_clients_are_whole_writers():
    sizes = np.bincount(WRITERS)
    threshold = int(np.median(sizes))
    parts = partition.make("natural", EVEN, 40, 0, client_ids=WRITERS, min_size=threshold)
    whose = [set(WRITERS[own]) for own in parts.indices]
    assert all(len(writers) == 1 for writers in whose) and len(set.union(*whose)) == 40
    for own, (writer,) in zip(parts.indices, whose, strict=True):
        assert len(own) == sizes[writer] >= threshold
    available = int((sizes >= threshold).sum())
    with pytest.raises(UserError, match=f"only {available} of 150"):
        partition.make("natural", EVEN, 150, 0, client_ids=WRITERS, min_size=threshold)


# Hold-out.


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.29, 0.5, 0.999, 1 - 1e-13])
def test_holdout_is_a_floor_and_leaves_one(fraction):
    parts = partition.make("dirichlet_qp", EVEN, 100, 0)
    single = partition.Partition([*parts.indices, np.array([5])], parts.remainder, "test", 6000)
    for own, (train, held_out) in zip(single.indices, partition.split_holdout(single, fraction, 3), strict=True):
        exact = round(fraction * 1000) * len(own) // 1000
        assert len(held_out) == min(exact, len(own) - 1) and len(train) >= 1
        assert sorted([*train, *held_out]) == sorted(own)


def test_holdout_is_seeded_and_random():
    parts = partition.make("shards", EVEN, 100, 0)
    first, again, other = (np.concatenate([h for _, h in partition.split_holdout(parts, 0.2, s)]) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert len(first) == 1200 and 0.1 < np.isin(first, other).mean() < 0.3


# Refusals, and size.


@pytest.mark.parametrize(
    ("scheme", "num_clients", "options", "words"),
    [
        ("shard", 10, {}, "did you mean 'shards'"),
        ("shards", 10, {"shard_per_client": 2}, "did you mean 'shards_per_client'"),
        ("iid", 10, {"alpha": 1.0}, "options of scheme 'iid': unknown 'alpha'"),
        ("iid", 10, {"sizes": "normal:1"}, "lognormal:SIGMA"),
        ("classes", 10, {"sizes": "lognormal:0"}, "lognormal:SIGMA"),
        ("classes", 10, {"classes_per_client": 11}, "exceeds the 10 labels"),
        ("classes", 100, {"min_size": 61, "small_clients": "top-up"}, "at least 61"),
        ("extended_dirichlet", 10, {"alpha": 0}, "alpha"),
        ("extended_dirichlet", 10, {"small_clients": "drop"}, "small_clients"),
        ("shards", 0, {}, "num_clients"),
        ("shards", -3, {}, "num_clients"),
        ("shards", 2.5, {}, "num_clients"),
        ("iid", 6001, {}, "6001 clients"),
        ("shards", 100, {"shards_per_client": 61}, "6100 shards"),
        ("shards", 100, {"shards_per_client": 0}, "shards_per_client"),
        *[(s, 100, {"alpha": a}, "alpha") for s in ("dirichlet", "dirichlet_qp") for a in (0, -1, np.nan, np.inf, "x")],
        ("dirichlet_qp", 100, {"min_size": 61}, "at least 61"),
        ("dirichlet", 100, {"form": "hsy"}, "did you mean 'hsu'"),
        ("skewness", 100, {"skewness": 1.2}, "skewness"),
        ("skewness", 100, {"skewness": 0}, "skewness"),
        ("skewness", 100, {"skewness": "G"}, "skewness"),
        ("skewness", 100, {"main": "balance"}, "did you mean 'balanced'"),
        ("natural", 10, {}, "client_ids"),
        ("natural", 10, {"client_ids": WRITERS[:-1]}, "client_ids"),
    ],
)
def test_wrong_input_is_one_sentence(scheme, num_clients, options, words):
    with pytest.raises(UserError, match=words) as caught:
        partition.make(scheme, EVEN, num_clients, 0, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "labels,words",
    [
        (np.zeros((3, 2), int), "labels"),
        (np.zeros(3), "labels"),
        (np.zeros(0, int), "cannot share 0 training examples"),
    ],
)
def test_labels_that_are_none(labels, words):
    with pytest.raises(UserError, match=words):
        partition.make("shards", labels, 1, 0)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_seeds_that_are_none(seed):
    with pytest.raises(UserError, match="seed"):
        partition.make("iid", EVEN, 10, seed)


def test_an_option_of_none_keeps_the_default():
    plain, none = (partition.make("dirichlet_qp", EVEN, 100, 0, **o) for o in ({}, {"alpha": None}))
    assert plain.digest() == none.digest()


def test_dealing_from_a_pool_that_is_too_small_goes_round():
    dealt = schemes.deal(np.array([[2], [3], [2]]), [np.array([10, 11, 12])])
    assert dealt.examples.tolist() == [10, 11, 12, 10, 11, 12, 10]
    assert dealt.owners.tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize(("scheme", "options"), CASES, ids=NAMES)
def test_ten_thousand_clients_take_seconds(scheme, options):
    if options.get("form") == "yurochkin":
        options = options | {"min_size": 0}
    if scheme == "shards":
        options = {"shards_per_client": 2}
    if scheme == "natural":
        options = {"client_ids": np.arange(60000) // 6}
    started = time.process_time()  # also of a busy machine
    parts = partition.make(scheme, np.tile(EVEN, 10), 10_000, 0, **options)
    assert time.process_time() - started < 5 and parts.num_clients == 10_000


# The command.


def preview(tmp_path, *flags):
    command = [sys.executable, "-m", "fedjax_sel", "data", "--out", str(tmp_path / "figure.png"), *flags]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_the_preview_prints_and_draws(tmp_path):
    done = preview(tmp_path, "--partition", "skewness", "--skewness", "H", "--num-clients", "30", "--holdout", "0.2")
    assert done.returncode == 0, done.stderr
    digits = __import__("fedjax_sel.data").data.load("digits")
    parts = partition.make("skewness", digits.train_labels, 30, 0, skewness="H")
    assert parts.digest() in done.stdout and "30 clients" in done.stdout
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_preview_leaves_the_server_what_a_run_does(tmp_path, capsys):
    flags = ["--server-validation", "0.25", "--num-clients", "10", "--data-seed", "3", "--out", str(tmp_path / "a.png")]
    assert command_line.guarded(data.main, flags) == 0
    out = capsys.readouterr().out
    asked = Config().replace(server_validation=0.25, num_clients=10, data_seed=3, algo="random")
    posed = problem.pose(asked)
    assert posed.partitions[0].digest() in out and len(posed.dataset.server_labels) == 360
    assert "1,082 training examples" in out and "360 examples" in out
    asked = asked.replace(server_validation=None, data_seed=None, seeds=(4, 5), algo="gpfl")
    (tmp_path / "run.json").write_text(json.dumps(asked.to_json()))
    flags = ["--config", str(tmp_path / "run.json"), "--out", str(tmp_path / "b.png")]
    assert command_line.guarded(data.main, flags) == 0
    posed, out = problem.pose(asked), capsys.readouterr().out
    assert len(posed.dataset.server_labels) == 72 and "72 examples" in out
    assert "seed 4" in out and posed.partitions[0].digest() in out
    assert command_line.guarded(data.main, ["--alpha", "3"]) == 2
    assert "--alpha 3" in capsys.readouterr().err
