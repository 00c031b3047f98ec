"""Settings beside a value that stands in their part's place: refused, or gone with the name whose they were."""

import numpy as np
import pytest

from fedjax_sel import Experiment, UserError, strategies, tasks
from fedjax_sel.config import Config
from fedjax_sel.experiment import problem
from fedjax_sel.training import optimizers
from tests.experiment.test_values import DATA, PARTS, Net, of

POW_D = strategies.make("pow_d", num_candidates=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"algo": POW_D, "algo_args": {"num_candidates": 4}},
        {"algo_args": {"num_candidates": 4}, "algo": POW_D},
        {"optimizer": optimizers.make("fedprox"), "optimizer_args": {"mu": 0.5}},
        {"task": tasks.regression(), "task_args": {"slope": 2}},
        {"model": Net(), "model_args": {"rate": 0}},
        {"dataset": DATA, "dataset_args": {"size": 3}},
        {"partition": PARTS, "partition_args": {"clients": 3}},
        {"model": Net(), "model_dropout": 0.5},
        {"model": Net(), "precision": "bfloat16"},
        {"model": Net(), "initializer": "kaiming-normal"},
    ],
)
def test_what_a_value_does_not_look_at_is_refused(changes):
    (part,) = {name.removesuffix("_args").partition("_")[0] for name in changes} - {"precision", "initializer"}
    (setting,) = changes.keys() - {part}
    with pytest.raises(UserError, match=rf"^{setting}: .* has no effect, since {part} is given as a value"):
        Experiment.of(**changes)
    with pytest.raises(UserError, match=f"^{setting}: "):  # beside a value that was there before
        Experiment.of(**{part: changes[part]}).replace(**{setting: changes[setting]})


@pytest.mark.parametrize(
    "changes", [{"alpha": 0.3}, {"partition": PARTS, "client_sizes": "lognormal:1"}, {"deadline": 2.0}]
)
def test_what_has_no_effect_is_refused(changes):
    with pytest.raises(UserError, match=rf"^{[*changes][-1]}: .* has no effect without .*; add that, or omit"):
        Experiment.of(**changes)


def test_a_list_does_not_refer_to_a_part_of_the_examples():
    with pytest.raises(UserError, match="partition: tuning_share takes examples away, and positions refer to the rest"):
        problem.pose(of(partition=[range(10 * i, 10 * i + 10) for i in range(3)], num_selected=1, tuning_share=0.1))


def test_a_value_takes_the_place_of_a_name_and_its_parameters():
    named = Config().replace(algo="pow_d", algo_args={"num_candidates": 40}, optimizer="fedprox", optimizer_args="mu=1")
    made = Experiment.of(named, algo=POW_D)
    assert not made.config.selection.algo_args and dict(made.config.training.optimizer_args) == {"mu": "1"}
    assert (
        made.config.fingerprint()
        == Experiment.of(named.replace(algo="random", algo_args={}), algo=POW_D).config.fingerprint()
    )
    again = made.replace(algo="pow_d", algo_args={"num_candidates": 40})
    assert again.config == named and again.strategy is None


def test_values_that_stay_can_be_named():
    made = of(available=np.ones((3, 5)))
    named = made.replace(names={"model": "net-1", "available": "all"}, out="runs/x")
    assert named.config.model.model == "value:net-1" and named.config.selection.available == "value:all"
    assert named.model is made.model and problem.pose(named).model.name == "Net"
    for changes in ({}, {"task": "regression"}):
        with pytest.raises(UserError, match=r"^names: 'task' is not given as a value"):
            made.replace(names={"task": "mine"}, **changes)
