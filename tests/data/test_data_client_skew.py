"""Feature skew and label noise: what changes, by how much, and what stays."""

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, UserError, data
from fedjax_sel.config import validate
from fedjax_sel.data import Dataset, client_skew, partition
from fedjax_sel.experiment import experiment_of, problem

DIGITS = data.load("digits")
PARTS = partition.make("classes", DIGITS.train_labels, 20, 0, classes_per_client=3)


def changed(partitions=(PARTS,), seeds=(0,), feature_skew="none", **noise):
    """Return the changed data set, the partitions of it, and per partition and client its old and new images."""
    dataset, made = client_skew.transformed(DIGITS, partitions, seeds, feature_skew)
    if noise:
        dataset = client_skew.mislabeled(dataset, made, seeds, **noise)
    pairs = [
        [(DIGITS.train_images[old], dataset.train_images[new]) for old, new in zip(before.indices, after.indices)]
        for before, after in zip(partitions, made)
    ]
    return dataset, made, pairs


def test_each_partition_has_a_copy_of_its_own():
    parts = [PARTS, partition.make("skewness", DIGITS.train_labels, 20, 1, main="random")]
    dataset, made, _ = changed(parts, (0, 1), feature_skew="turns", label_noise=0.2)
    everything = np.concatenate([own for part in made for own in (*part.indices, part.remainder)])
    assert sorted(everything) == list(range(dataset.num_train_examples)), "also clients that share examples"
    for before, after in zip(parts, made):
        np.testing.assert_array_equal(before.sizes, after.sizes)
        left_over = DIGITS.train_images[before.remainder], dataset.train_images[after.remainder]
        np.testing.assert_array_equal(*left_over)
    assert dataset.test_images is DIGITS.test_images and dataset.mean == DIGITS.mean
    alone, _, _ = changed(parts[1:], (1,), feature_skew="turns", label_noise=0.2)
    np.testing.assert_array_equal(alone.train_images, dataset.train_images[-len(alone.train_images) :])
    np.testing.assert_array_equal(alone.train_labels, dataset.train_labels[-len(alone.train_labels) :])
    other, _, _ = changed(parts[1:], (2,), feature_skew="turns", label_noise=0.2)
    assert (other.train_images != alone.train_images).any() and (other.train_labels != alone.train_labels).any()


def test_turns_are_quarters_of_a_circle():
    _, _, (pairs,) = changed(feature_skew="turns")
    quarters = [
        next(k for k in range(4) if np.array_equal(np.rot90(before, k, (1, 2)), after)) for before, after in pairs
    ]
    assert set(quarters) == {0, 1, 2, 3}


def test_rotations_are_small_and_one_per_client():
    _, _, (pairs,) = changed(feature_skew="rotation:90")
    _, _, (small,) = changed(feature_skew="rotation:10")
    for (before, after), (_, near) in zip(pairs, small):
        assert after.shape == before.shape and after.dtype == np.uint8
        assert np.abs(near - before.astype(float)).mean() <= np.abs(after - before.astype(float)).mean() + 1
    assert any((after != before).any() for before, after in small)


def test_noise_grows_with_the_client():
    gray = Dataset.from_arrays(
        train=(np.full((400, 8, 8), 128, np.uint8), np.arange(400) % 4),
        test=(np.full((4, 8, 8), 128, np.uint8), np.arange(4)), name="gray",
    )  # fmt: skip
    parts = partition.make("iid", gray.train_labels, 10, 0)
    made, (new,) = client_skew.transformed(gray, [parts], [0], "noise:0.1")
    levels = np.array([made.train_images[own].std() for own in new.indices])
    np.testing.assert_allclose(levels, 25.5 * np.arange(1, 11) / 10, rtol=0.06)


def test_contrast_scales_about_the_mean_of_an_image():
    _, _, (pairs,) = changed(feature_skew="contrast:0.5")
    factors = np.array([after.std() / before.std() for before, after in pairs])
    assert 0.6 < factors.min() < 0.85 and 1.05 < factors.max() < 1.51, "below 1.5, for pixels are clipped at 0 and 255"


@pytest.mark.parametrize(("share", "clients"), [(0.5, 0.001), (0.001, 1.0)])
def test_label_noise_that_rounds_to_nothing_is_rejected(share, clients):
    with pytest.raises(UserError, match=r"--label-noise: .* rounds to no wrong label; raise it or --noisy-clients"):
        changed(label_noise=share, noisy_clients=clients)


@pytest.mark.parametrize(("share", "clients"), [(0.3, 1.0), (0.5, 0.25)])
def test_label_noise_is_exact_per_client(share, clients):
    dataset, (made,), pairs = changed(label_noise=share, noisy_clients=clients)
    wrong = [
        (DIGITS.train_labels[old] != dataset.train_labels[new]).sum() for old, new in zip(PARTS.indices, made.indices)
    ]
    expected = [round(share * size) for size in PARTS.sizes]
    assert sum(count > 0 for count in wrong) == 20 * clients and all(w in (0, e) for w, e in zip(wrong, expected))
    assert all(np.array_equal(before, after) for before, after in pairs[0])


def test_wrong_labels_are_equally_likely():
    labels = np.zeros(30_000, np.int64)
    images = np.zeros((30_000, 1, 1), np.uint8)
    zeros = Dataset.from_arrays(
        train=(images, labels), test=(images[:9], np.arange(9) % 4), num_classes=4, name="zeros"
    )
    made = client_skew.mislabeled(zeros, [partition.make("iid", labels, 3, 0)], [0], label_noise=0.5)
    np.testing.assert_allclose(np.bincount(made.train_labels) / 15_000, [1, 1 / 3, 1 / 3, 1 / 3], atol=0.015)


@pytest.mark.parametrize(
    ("dataset", "settings", "words"),
    [
        ("digits", {"feature_skew": "noise"}, "--feature-skew: 'noise' is not none, turns"),
        ("digits", {"feature_skew": "blur:1"}, "--feature-skew: 'blur:1' is not none, turns"),
        ("digits", {"label_noise": 1.0}, "--label-noise: 1.0 must be from 0 to 1"),
        ("digits", {"partition": "iid", "client_sizes": "lognormal"}, "--client-sizes: 'lognormal' is not equal"),
        ("floats", {"feature_skew": "turns"}, "--feature-skew: turns changes images"),
        ("oblong", {"feature_skew": "turns"}, "--feature-skew: turns needs square images"),
        ("floats", {"label_noise": 0.5}, "--label-noise: 0.5 needs at least two classes"),
    ],
)  # fmt: skip
def test_wrong_settings_are_one_sentence(dataset, settings, words):
    floats, images = np.zeros((60, 3), np.float32), np.zeros((60, 4, 6), np.uint8)
    own = {
        "floats": Dataset.from_arrays(train=(floats, floats), test=(floats, floats)),
        "oblong": Dataset.from_arrays(train=(images, np.arange(60) % 3), test=(images, np.arange(60) % 3)),
        "digits": DIGITS,
    }[dataset]
    config = Config().replace(**{"partition": "iid", "num_clients": 6, "num_selected": 2, **settings})
    with pytest.raises(UserError, match=words):
        validate(config)
        problem.partitioned(experiment_of(config), own)


def test_tests_of_clients_are_transformed_and_have_true_labels():
    config = Config().replace(
        partition="iid", num_clients=20, client_test=0.25, unseen_clients=0.1, label_noise=0.5, feature_skew="turns",
        seeds=(4, 5),
    )  # fmt: skip
    dataset, parts, tests = problem.partitioned(experiment_of(config), DIGITS)
    _, clean_parts, clean_tests = problem.partitioned(
        experiment_of(config.replace(label_noise=0, feature_skew="none")), DIGITS
    )
    assert tests is not None and clean_tests is not None
    turned = 0
    for part, clean_part, test, clean in zip(parts, clean_parts, tests, clean_tests):
        np.testing.assert_array_equal(part.sizes, clean_part.sizes)
        for new, old in zip(test.positions, clean.positions, strict=True):
            np.testing.assert_array_equal(dataset.train_labels[new], DIGITS.train_labels[old])
            turned += (dataset.train_images[new] != DIGITS.train_images[old]).any()
    assert 20 < turned < 40


@pytest.mark.slow
def test_runs_train_on_the_changed_examples():
    """Seeds differ unless they share a data seed; evaluations on all training data see each seed's own copy."""
    base = Config().replace(
        num_clients=10, num_selected=5, rounds=2, chunk=2, algo="random", seeds=2, model="logistic", local_epochs=1,
        train_metrics_every=1, partition="iid", learning_rate=0.01, training_seed=0, selection_seed=0, model_seed=0,
    )  # fmt: skip
    noisy = base.replace(label_noise=0.5, feature_skew="noise:0.2", data_seed=3)
    assert problem.pose(noisy).dataset.num_train_examples == len(DIGITS.train_labels)
    shared, apart, clean = map(fedjax_sel.run, (noisy, noisy.replace(data_seed=None, seeds=(3, 5)), base))
    np.testing.assert_array_equal(shared.train_loss[0], shared.train_loss[1])
    np.testing.assert_array_equal(shared.test_loss[0], apart.test_loss[0])
    np.testing.assert_allclose(shared.train_loss[0], apart.train_loss[0], rtol=1e-6)
    assert (apart.train_loss[1] != apart.train_loss[0]).all()
    assert clean.train_accuracy.min() > shared.train_accuracy.max() and shared.train_accuracy.max() < 0.6
