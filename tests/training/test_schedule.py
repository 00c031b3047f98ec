"""Which examples a step takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.errors import UserError
from fedjax_sel.training import schedule


def taken(work, size, key=0):
    """What a client takes in each step: a list of arrays of positions."""
    drawn = schedule.orders(work, jax.random.key(key), jnp.int32(size))
    steps = int(schedule.num_steps(work, jnp.int32(size), schedule.epochs(work, jax.random.key(key))))
    one = jax.jit(lambda step: schedule.batch(work, drawn, step, jnp.int32(size)))
    return [np.asarray(positions)[np.asarray(counts)] for positions, counts in map(one, range(steps))]


@pytest.mark.parametrize("size", [5, 8, 21, 24])
def test_epochs_take_every_example_once_a_pass_and_keep_the_last_partial_batch(size):
    work = schedule.plan(np.array([5, 8, 21, 24]), batch_size=8, steps=None, epochs=3, full_batch=False)
    batches = taken(work, size)
    a_pass = -(-size // 8)
    assert len(batches) == 3 * a_pass
    passes = [np.concatenate(batches[i : i + a_pass]) for i in range(0, len(batches), a_pass)]
    for order in passes:
        assert (np.sort(order) == np.arange(size)).all()
    assert any((passes[0] != passes[i]).any() for i in (1, 2))
    assert [len(b) for b in batches[:a_pass]] == [8] * (size // 8) + ([size % 8] if size % 8 else [])
    assert sum(map(len, batches)) == schedule.num_examples(
        work, jnp.int32(size), schedule.epochs(work, jax.random.key(0))
    )


@pytest.mark.parametrize("size", [3, 8, 13, 20])
def test_steps_cycle_through_shuffled_data_and_a_small_client_uses_all_it_has(size):
    work = schedule.plan(np.array([3, 8, 13, 20]), batch_size=8, steps=7, epochs=None, full_batch=False)
    batches = taken(work, size)
    assert len(batches) == 7 and all(len(b) == min(8, size) for b in batches)
    stream = np.concatenate(batches)
    for start in range(0, len(stream) - size + 1, size):
        assert (np.sort(stream[start : start + size]) == np.arange(size)).all()
    rest = stream[len(stream) // size * size :]
    assert len(set(rest)) == len(rest)
    assert len(stream) == schedule.num_examples(work, jnp.int32(size), schedule.epochs(work, jax.random.key(0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [{"steps": 7}, {"epochs": 3}, {"steps": 2, "full_batch": True}], ids=["steps", "epochs", "full batch"]
)
def test_what_fills_a_batch_up_repeats_the_clients_examples_in_turn(kind):
    """Batch statistics see it: nobody else's examples, and all of the batch's nearly equally often."""
    work = schedule.plan(np.array([3, 5, 60]), 10, **{"steps": None, "epochs": None, "full_batch": False, **kind})
    for size in (3, 5, 60):
        drawn = schedule.orders(work, jax.random.key(size), jnp.int32(size))
        steps = int(schedule.num_steps(work, jnp.int32(size), schedule.epochs(work, jax.random.key(0))))
        for step in range(steps):
            positions, counts = schedule.batch(work, drawn, jnp.int32(step), jnp.int32(size))
            positions, counts = np.asarray(positions), np.asarray(counts)
            assert positions.min() >= 0 and positions.max() < size
            times = np.bincount(positions, minlength=size)[positions[counts]]
            assert set(positions) == set(positions[counts]) and np.ptp(times) <= 1


def test_full_batch_takes_everything_in_every_step():
    work = schedule.plan(np.array([4, 9]), batch_size=2, steps=None, epochs=3, full_batch=True)
    for size in (4, 9):
        batches = taken(work, size)
        assert len(batches) == 3 and all((np.sort(b) == np.arange(size)).all() for b in batches)


def test_more_examples_than_can_be_counted_are_refused():
    assert schedule.plan([60_000], 60_000, 35_000, None, True).steps == 35_000
    with pytest.raises(UserError, match=r"--local-steps: 40000 steps are more than 2\^31"):
        schedule.plan([60_000], 60_000, 40_000, None, True)


def test_equal_steps_are_known_beforehand_and_unequal_ones_are_not():
    def equal(sizes, **kind):
        return schedule.plan(
            np.array(sizes), 8, **{"steps": None, "epochs": None, "full_batch": False, **kind}
        ).equal_steps

    assert equal([16, 16], epochs=2) == 4
    assert equal([16, 13], epochs=2) == 4  # both two batches a pass
    assert equal([16, 17], epochs=2) is None
    assert equal([3, 100], steps=5) == 5


def test_different_clients_and_passes_get_different_orders():
    work = schedule.plan(np.array([32]), batch_size=32, steps=None, epochs=2, full_batch=False)
    (one, two), (other, _) = taken(work, 32, key=0), taken(work, 32, key=1)
    assert (one != two).any() and (one != other).any()


@pytest.mark.slow
def test_a_range_of_epochs_draws_each_clients_work_anew():
    work = schedule.plan(np.array([4, 9]), batch_size=4, steps=None, epochs=(1, 3), full_batch=False)
    assert work.varies and work.max_passes == 3 and work.equal_steps is None
    keys = jax.random.split(jax.random.key(0), 600)
    drawn = np.asarray(jax.vmap(lambda key: schedule.epochs(work, key))(keys))
    counts = np.bincount(drawn, minlength=5)
    assert counts[0] == counts[4] == 0 and (np.abs(counts[1:4] - 200) < 5 * np.sqrt(200)).all()
    for key in range(6):
        passes = int(schedule.epochs(work, jax.random.key(key)))
        assert len(taken(work, 9, key)) == passes * 3
        assert schedule.num_examples(work, jnp.int32(9), passes) == 9 * passes


def test_a_range_of_one_number_is_that_number():
    settings = dict(batch_size=4, steps=None, full_batch=False)
    sizes = np.array([4, 9])
    assert schedule.plan(sizes, epochs=(2, 2), **settings) == schedule.plan(sizes, epochs=2, **settings)
