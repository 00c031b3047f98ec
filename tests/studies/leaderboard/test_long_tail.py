"""The partition of a population with long-tailed labels."""

import numpy as np

from fedjax_sel.data import Dataset
from studies.leaderboard import long_tail


def test_each_class_keeps_a_fraction_of_the_one_before():
    labels = np.repeat(np.arange(5), 1000)
    images = np.zeros((len(labels), 2, 2, 1), np.uint8)
    data = Dataset.from_arrays(train=(images, labels), test=(images, labels))
    parts = [long_tail.dirichlet(ratio=16.0, alpha=1.0)(data, 10, seed) for seed in (0, 0, 1)]
    held = [np.bincount(labels[np.concatenate(part.indices)], minlength=5) for part in parts]
    assert parts[0].digest() == parts[1].digest() != parts[2].digest()
    for counts in held:  # ten equal clients leave at most nine examples
        np.testing.assert_allclose(np.sort(counts)[::-1], [1000, 500, 250, 125, 62], atol=9)
    assert (held[0] != held[2]).any()  # the order of the classes differs
