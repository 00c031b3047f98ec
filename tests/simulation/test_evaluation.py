"""What evaluation on the devices hands to the measures of a run."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from fedjax_sel import devices, metrics, tasks
from fedjax_sel.models.core import Output
from fedjax_sel.simulation import evaluation


def evaluated(size, correct, block, task=None):
    """Accuracies that the devices find for made-up models with so many correct answers on `size` images."""
    numbers = np.arange(size)
    images = np.stack([numbers // 256, numbers % 256], axis=1).astype(np.uint8).reshape(size, 1, 2, 1)
    labels = jnp.zeros(size, jnp.int32)

    def apply(threshold, pixels, draws):
        number = 256 * pixels[:, 0, 0, 0] + pixels[:, 0, 1, 0]
        right = number < threshold
        return Output(jnp.stack([right, ~right], axis=1).astype(jnp.float32), jnp.zeros((len(pixels), 1)))

    model = SimpleNamespace(apply=apply)
    federation = SimpleNamespace(scale=jnp.float32(1), shift=jnp.float32(0))
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), (devices.SEEDS, devices.CLIENTS))

    def all_models(thresholds, images, labels):
        trainer = SimpleNamespace(model=model, task=task or tasks.classification())
        plan = SimpleNamespace(mesh=mesh, trainer=trainer, evaluation_block=block, blocks_at_once=0)
        return evaluation.means(plan, evaluation.per_example(plan, federation, thresholds, images, labels))

    specs = (devices.PER_SEED, devices.WHOLE, devices.WHOLE)
    program = jax.jit(devices.over_seeds(mesh, all_models, specs, devices.PER_SEED))
    return jax.device_get(program(jnp.asarray(correct, jnp.float32), images, labels))


@pytest.mark.parametrize("size,percents", [(10_000, 99), (360, 19), (100, 99)])
def test_a_target_that_is_hit_exactly_on_the_devices_is_reached(size, percents):
    targets = [percent for percent in range(1, 100) if percent * size % 100 == 0]
    correct = [percent * size // 100 for percent in targets]
    assert len(targets) == percents
    found = evaluated(size, correct + [count - 1 for count in correct], block=50)
    np.testing.assert_array_equal(found.correct[:percents], correct)
    accuracies = found.measures["accuracy"]
    for percent, hit, missed in zip(targets, accuracies[:percents], accuracies[percents:]):
        assert metrics.rounds_to_target([[hit]], percent / 100) == 1, percent
        assert np.isnan(metrics.rounds_to_target([[missed]], percent / 100)), percent


def test_a_measure_that_is_a_share_is_added_up_as_one():
    halves = tasks.Measure("half", lambda prediction, targets: 0.5 * prediction[:, 0])
    found = evaluated(200, [60], 50, tasks.classification()._replace(measures=(halves,)))
    assert found.correct.tolist() == [30.0] and found.measures["half"].tolist() == [pytest.approx(0.15)]


def test_a_diverged_model_has_the_worst_value_since_nan_is_a_missing_evaluation():
    gain = tasks.Measure("gain", lambda prediction, targets: targets - prediction)
    task = tasks.regression()
    plan: Any = SimpleNamespace(trainer=SimpleNamespace(task=task._replace(measures=(gain, *task.measures))))
    broken = jnp.asarray([[1.0, jnp.nan], [1.0, 3.0]])
    found = evaluation.means(plan, ({each.name: broken for each in plan.trainer.task.measures}, broken))
    np.testing.assert_array_equal(found.measures.pop("gain"), [-np.inf, 2.0])
    for mean in (*found.measures.values(), found.loss):
        np.testing.assert_array_equal(mean, [np.inf, 2.0])
