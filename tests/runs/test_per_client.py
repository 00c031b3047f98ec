"""How each client fares under a result's models: with the seeds of the result, and of no other experiment."""

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Dataset, Experiment, UserError, models

X = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
DATA = Dataset.from_arrays(train=(X[:48], X[:48, 0]), test=(X[48:], X[48:, 0]))


def linear():
    return models.from_functions(lambda key: {"w": jax.random.normal(key, (4,))}, lambda params, x: x @ params["w"])


def line(**changes):
    """Of iid clients, whom a seed deals."""
    settings = {"num_clients": 4, "num_selected": 2, "rounds": 1, "chunk": 1, "local_steps": 1, "batch_size": 4}
    parts = {"dataset": DATA, "model": linear(), "task": "regression", "partition": "iid", "algo": "random"}
    return Experiment.of(**{**parts, **settings, **changes})


@pytest.fixture(scope="module")
def result():
    return fedjax_sel.run(line(seeds=(3, 5)))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"seeds": 1}, {"seeds": 4, "seeds_at_once": 2}, {"data_seed": 9}, {"rounds": 7}])
def test_the_clients_are_those_of_the_result(result, changes):
    usual = fedjax_sel.per_client(result, line(seeds=(3, 5)))
    found = fedjax_sel.per_client(result, line(**changes))
    assert usual["loss"].shape == (2, 4)
    np.testing.assert_array_equal(found["loss"], usual["loss"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes,words",
    [
        ({"num_clients": 6}, "num_clients is 6 in the experiment and 4 in the result;"),
        ({"partition": [list(range(first, 48, 4)) for first in range(4)]}, "partition is 'value:by-hand' .* and 'iid'"),
        ({"holdout": 0.25}, "holdout is 0.25 in the experiment and 0.0"),
        ({"dataset": "digits"}, "dataset is 'digits' in the experiment and 'value:arrays'"),
        ({"task": "next_token"}, "task is 'next_token'"),
        ({"algo": "fl_dp3s"}, "algo is 'fl_dp3s' in the experiment and 'random'"),
    ],
)
def test_another_experiment_is_refused(result, changes, words):
    with pytest.raises(UserError, match=f"^per_client: {words}") as caught:
        fedjax_sel.per_client(result, line(**changes))
    name = words.split(" is ")[0]
    assert str(caught.value).endswith(f"; give the experiment of this result (experiment.replace({name}=...))")


@pytest.mark.slow
def test_names_of_values_tell_them_apart_where_both_have_one(result):
    assert result.config.model.model == "value:"
    fedjax_sel.per_client(result, line(names={"model": "line-1"}))
    named = fedjax_sel.run(line(names={"model": "line-1"}))
    with pytest.raises(UserError, match=r"^per_client: model is 'value:line-2' in the experiment and 'value:line-1'"):
        fedjax_sel.per_client(named, line(names={"model": "line-2"}))


@pytest.mark.slow
def test_the_share_that_the_server_kept_is_the_results():
    kept = fedjax_sel.run(line(server_validation=0.25))
    found = fedjax_sel.per_client(kept, line(algo="pow_d"))
    np.testing.assert_array_equal(found["loss"], fedjax_sel.per_client(kept, line(server_validation=0.25))["loss"])
