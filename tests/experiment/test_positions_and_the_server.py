"""Positions of each client's examples, where the strategy has the server keep some of the training set."""

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Dataset, Experiment, UserError, strategies
from fedjax_sel.data import Partition
from fedjax_sel.experiment import problem

X, LABELS = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32), np.arange(120) % 3
DATA = Dataset.from_arrays(train=(X[:100], LABELS[:100]), test=(X[100:], LABELS[100:]))
LISTS = [list(range(first, 90, 6)) for first in range(6)]
SETTINGS = {"num_selected": 2, "rounds": 1, "chunk": 1, "local_steps": 1, "batch_size": 4, "algo": "gpfl"}


def of(partition, **changes):
    return Experiment.of(dataset=DATA, partition=partition, **{**SETTINGS, **changes})


def counted(size):
    return Partition.from_indices(LISTS, size)


@pytest.mark.parametrize(
    "partition,algo", [(LISTS, "gpfl"), (np.reshape(LISTS, (6, 15)), strategies.make("gpfl")), (counted(100), "gpfl")]
)
def test_positions_that_would_shift_are_refused(partition, algo):
    with pytest.raises(UserError) as caught:
        problem.pose(of(partition, algo=algo))
    assert str(caught.value).startswith("partition: gpfl")
    assert " reserves 5 % of the training examples for the server, and positions refer to the rest; give " in str(
        caught.value
    )


@pytest.mark.parametrize(
    "partition,changes",
    [
        (LISTS, {"server_validation": 0.05}),
        (LISTS, {"algo": "random"}),
        (counted(95), {}),
        (counted(100), {"algo": "random"}),
        (lambda dataset, num_clients, seed: [own[:8] for own in LISTS], {"num_clients": 6}),
    ],
)
def test_positions_that_say_what_they_count_in(partition, changes):
    (dealt,) = problem.pose(of(partition, **changes)).partitions
    np.testing.assert_array_equal(dealt.indices[1][:8], LISTS[1][:8])


def test_a_comparison_of_positions_says_what_the_server_keeps(tmp_path):
    """All strategies would have the same clients, and none those that the lists name."""
    with pytest.raises(UserError, match=r"^--algos gpfl: partition: gpfl reserves 5 % of the training"):
        fedjax_sel.run_comparison(["random", "gpfl"], of(LISTS, algo="random", seeds=2), out=tmp_path / "a")
    assert not (tmp_path / "a" / "random").exists()


@pytest.mark.slow
def test_a_comparison_whose_server_keeps_what_was_said(tmp_path):
    both = of(LISTS, algo="random", seeds=2, server_validation=0.05)
    found = fedjax_sel.run_comparison(["random", "gpfl"], both, out=tmp_path / "b")
    assert {row.algo for row in found.rows} == {"random", "gpfl"}
