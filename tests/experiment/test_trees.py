"""Inputs and targets that are several arrays: a whole run, from the data to the table."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import tasks
from fedjax_sel.data import partition
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.experiment import problem


class Net(nn.Module):
    @nn.compact
    def __call__(self, inputs):
        ward = nn.Embed(5, 3)(inputs["ward"])
        return nn.Dense(2)(nn.relu(nn.Dense(8)(jnp.concatenate([inputs["table"], ward], axis=-1))))


def patients():
    rng = np.random.default_rng(0)
    table, ward = rng.normal(size=(360, 4)).astype(np.float32), np.arange(360) % 5
    targets = np.stack([table[:, 0] + ward, table[:, 1] - table[:, 2]], axis=1).astype(np.float32)
    parts = [({"table": table[part], "ward": ward[part]}, targets[part]) for part in (slice(0, 300), slice(300, None))]
    return Dataset.from_arrays(train=parts[0], test=parts[1], name="patients")


def experiment(**changes):
    given = {
        "dataset": patients(), "model": Net(), "task": tasks.regression(), "partition": "iid", "num_clients": 6,
        "num_selected": 2, "rounds": 20, "chunk": 10, "local_steps": 5, "learning_rate": 0.05, "seeds": 2,
    }  # fmt: skip
    return fedjax_sel.Experiment.of(**given | changes)


@pytest.mark.slow
def test_a_run_on_them_learns():
    found = fedjax_sel.run(experiment())
    assert found.finished and found.test_measure == "test_absolute_error"
    errors = found.measured[found.test_measure]
    assert (errors[:, -1] < 0.6 * errors[:, 0]).all()


def test_a_client_without_examples_is_refused():
    indices = [np.arange(60 * k, 60 * k + 60) for k in range(5)] + [np.arange(0)]
    own = partition.Partition(indices, np.arange(0), "mine", 300)
    with pytest.raises(fedjax_sel.UserError, match="partition: client 5 has no example; "):
        problem.pose(experiment(partition=own))
