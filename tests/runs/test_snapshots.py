"""What a strategy knows between its rounds: copied out, and nothing else changed."""

import chex
import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.callbacks import Snapshots, StopAtTarget
from studies.papers import state as stored

SMALL = fedjax_sel.Config().replace(
    algo="afl", num_clients=6, num_selected=2, rounds=4, chunk=1, seeds=2, local_epochs=None, local_steps=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A run in a folder with snapshots after every round, and they."""
    inside = Snapshots()
    return fedjax_sel.run(SMALL, out=str(tmp_path_factory.mktemp("watched") / "run"), callbacks=[inside]), inside


@pytest.mark.slow
def test_snapshots_come_before_the_first_round_and_after_each(watched):
    result, inside = watched
    assert inside.rounds == [0, 1, 2, 3, 4] and len(inside.states) == len(inside.facts) == 5
    # afl asks all clients at the start, and the cohort in every round
    ages = [facts.loss.age for facts in inside.facts]
    assert (ages[0] == 0).all()
    for rounds, age in enumerate(ages[1:], start=1):
        for seed, cohort in enumerate(result.cohorts[:, rounds - 1]):
            assert (age[seed, cohort] == 1).all()
    losses = [facts.loss.value for facts in inside.facts]
    assert losses[0].shape == (2, 6) and (losses[0] != losses[4]).any()


@pytest.mark.slow
def test_the_last_snapshot_is_what_the_checkpoint_holds(watched):
    result, inside = watched
    kept = stored.checkpointed(result, result.num_rounds)
    for path, leaf in jax.tree_util.tree_leaves_with_path(inside.states[-1]):
        np.testing.assert_array_equal(leaf, kept[".strategy" + jax.tree_util.keystr(path)])
    np.testing.assert_array_equal(inside.facts[-1].loss.value, kept[".info[<flat index 0>].value"])


@pytest.mark.slow
def test_a_run_is_the_same_with_and_without(watched):
    without = fedjax_sel.run(SMALL)
    np.testing.assert_array_equal(without.cohorts, watched[0].cohorts)
    np.testing.assert_array_equal(without.test_loss, watched[0].test_loss)


@pytest.mark.slow
def test_seeds_that_take_turns_stand_in_their_order(watched):
    inside = Snapshots()
    fedjax_sel.run(SMALL.replace(seeds_at_once=1, mesh="clients=1"), callbacks=[inside])
    assert inside.rounds == watched[1].rounds
    for one, two in zip(inside.facts, watched[1].facts):
        np.testing.assert_allclose(one.loss.value, two.loss.value, rtol=1e-4)


@pytest.mark.slow
def test_snapshots_come_at_the_ends_of_chunks():
    inside = Snapshots()
    fedjax_sel.run(SMALL.replace(chunk=2, rounds=7), callbacks=[inside])
    assert inside.rounds == [0, 2, 4, 6, 7]


@pytest.mark.slow
@pytest.mark.parametrize("answer,rounds", [(np.True_, 2), (np.False_, 5), (1, 2), (None, 5)])
def test_a_callback_ends_a_run_by_saying_true(answer, rounds):
    class Answers:
        def chunk(self, chunk, first):
            return answer

    found = fedjax_sel.run(SMALL.replace(chunk=1, rounds=5), callbacks=[Answers()])
    assert found.num_rounds == rounds  # the device is one chunk ahead


@pytest.mark.slow
def test_a_run_that_goes_on_begins_where_it_was(tmp_path):
    inside = Snapshots()
    first = fedjax_sel.run(SMALL, out=str(tmp_path / "run"), callbacks=[StopAtTarget(1e-9), inside])
    assert not first.finished
    before = list(inside.states)
    fedjax_sel.run(SMALL, out=str(tmp_path / "run"), callbacks=[inside])
    assert inside.rounds == list(range(first.num_rounds, 5))
    chex.assert_trees_all_equal(inside.states[0], before[-1])
    fedjax_sel.run(SMALL, out=str(tmp_path / "run"), callbacks=[inside])  # finished: it is read
    assert inside.rounds == list(range(first.num_rounds, 5))
