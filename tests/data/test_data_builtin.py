"""Digits and synthetic blobs."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedjax_sel import data
from fedjax_sel.errors import UserError


def test_digits_are_scikit_learns_and_split_by_label():
    digits = data.load("digits")
    assert digits.train_images.dtype == np.uint8 and digits.train_labels.dtype == np.int32
    assert digits.image_shape == (8, 8, 1)
    original = load_digits()
    # Every original image is in exactly one split, stretched so that 16 becomes 255.
    stretched = np.rint(original.images * 255 / 16).astype(np.uint8).reshape(-1, 64)
    ours = np.concatenate([digits.train_images, digits.test_images]).reshape(-1, 64)
    assert sorted(map(bytes, ours)) == sorted(map(bytes, stretched))
    assert ours.max() == 255
    assert 0.19 < len(digits.test_labels) / 1797 < 0.21
    shares = np.bincount(digits.test_labels) / np.bincount(original.target)
    assert shares.min() > 0.18 and shares.max() < 0.21


def test_normalization_of_digits_whitens_the_training_pixels():
    digits = data.load("digits")
    scaled = (digits.train_images / 255.0 - digits.mean[0]) / digits.std[0]
    assert abs(scaled.mean()) < 1e-9 and abs(scaled.std() - 1) < 1e-9


def test_synthetic_obeys_its_options_and_is_seeded():
    name = "synthetic:train_size=300,test_size=60,num_classes=7,image_size=5,channels=3,seed=4"
    first, second = data.load(name), data.load(name)
    assert first.train_images.shape == (300, 5, 5, 3) and first.test_images.shape == (60, 5, 5, 3)
    assert first.num_classes == 7 and len(first.mean) == 3 and first.client_ids is None
    counts = np.bincount(first.train_labels, minlength=7)
    assert counts.max() - counts.min() <= 1
    np.testing.assert_array_equal(first.train_images, second.train_images)
    other = data.load(name.replace("seed=4", "seed=5"))
    assert (first.train_images != other.train_images).mean() > 0.5


def test_synthetic_test_set_can_be_learnt_from_the_training_set():
    blobs = data.load("synthetic")
    centers = np.stack([blobs.train_images[blobs.train_labels == c].mean(axis=0).ravel() for c in range(10)])
    distances = ((blobs.test_images.reshape(500, 1, -1) - centers) ** 2).sum(-1)
    assert (distances.argmin(1) == blobs.test_labels).mean() > 0.6


def test_synthetic_is_the_same_across_chunks():
    long = data.load("synthetic:train_size=20000,image_size=2")
    assert np.bincount(long.train_labels).tolist() == [2000] * 10
    per_label = [long.train_images[long.train_labels == c].mean() for c in range(10)]
    first = [long.train_images[:8192][long.train_labels[:8192] == c].mean() for c in range(10)]
    np.testing.assert_allclose(first, per_label, atol=5)


def test_writers_have_varied_sizes_and_styles():
    blobs = data.load("synthetic:train_size=20000,num_writers=50")
    sizes = np.bincount(blobs.client_ids, minlength=50)
    assert sizes.sum() == 20000 and 0.2 < sizes.std() / sizes.mean() < 0.7
    brightness = [blobs.train_images[blobs.client_ids == writer].mean() for writer in range(50)]
    assert np.std(brightness) > 5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mnits", "'mnist'"),
        ("fashion-mnist", "'fashion_mnist'"),
        ("synthetic:num_clases=3", "'num_classes'"),
        ("synthetic:num_classes=0", "num_classes"),
        ("synthetic:seed=x", "seed"),
        ("synthetic:seed", "seed"),
        ("digits:seed=1", "'digits'"),
        ("../mnist", "unknown data set"),
        ("mnist/../../etc", "unknown data set"),
    ],
)
def test_wrong_names_are_refused_with_the_nearest(name, words):
    with pytest.raises(UserError, match=words) as caught:
        data.load(name)
    assert "\n" not in str(caught.value)


def test_names_lists_what_needs_no_preparation():
    assert data.names() == ("digits", "shakespeare", "synthetic", "mnist", "fashion_mnist", "cifar10", "cifar100")
