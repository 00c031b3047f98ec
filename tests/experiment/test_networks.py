"""Networks in plain Flax, by name, as a run trains them."""

import re

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Dataset, Experiment, UserError, strategies
from fedjax_sel.experiment import problem

SMALL = fedjax_sel.preset("quickstart").replace(
    num_clients=6, num_selected=2, local_steps=1, batch_size=4, rounds=2, chunk=2, server_validation=0.1,
)  # fmt: skip
PICTURES = "synthetic:train_size=120,test_size=20,num_classes=4,image_size=32,channels=3"


@pytest.mark.slow
@pytest.mark.parametrize("algo", strategies.names())
def test_resnet8_trains_under_every_strategy(algo):
    timing = "tiers" if strategies.make(algo).needs_clock else "none"
    result = fedjax_sel.run(SMALL.replace(algo=algo, model="resnet8", dataset=PICTURES, timing=timing))
    assert result.finished and (result.test_loss > 0).all() and result.model.num_params == 77_652


@pytest.mark.slow
@pytest.mark.parametrize("name,rate", [("logistic", 0.5), ("lenet", 0.1)])
def test_small_networks_learn(name, rate):
    digits = "synthetic:train_size=400,test_size=100,num_classes=4,image_size=14"
    config = SMALL.replace(
        model=name, dataset=digits, algo="random", learning_rate=rate, local_steps=10, batch_size=20, rounds=12,
        chunk=12, partition="iid",
    )  # fmt: skip
    result = fedjax_sel.run(config)
    assert result.test_loss[0, -1] < 0.8 * result.test_loss[0, 0]


@pytest.mark.parametrize(
    "changes", [{"model_dropout": 0.5}, {"initializer": "kaiming-normal"}, {"precision": "bfloat16"}]
)
def test_what_plain_networks_lack_is_refused(changes):
    with pytest.raises(UserError, match="'lenet' is a plain Flax module without this setting"):
        problem.pose(SMALL.replace(model="lenet", **changes))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["fl_dp3s", "fedcor", "gpfl"])
def test_the_mlp_sees_rows_of_a_table_as_it_sees_pictures(algo):
    """The same numbers in another shape are the same run."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    pictures = (rng.normal(size=(120, 4, 5)) + labels[:, None, None]).astype(np.float32)
    config = SMALL.replace(algo=algo, algo_args={"warmup": 1} if algo == "fedcor" else {})

    def trained(inputs):
        dataset = Dataset.from_arrays(train=(inputs[:100], labels[:100]), test=(inputs[100:], labels[100:]))
        return fedjax_sel.run(Experiment.of(config, dataset=dataset))

    flat, with_channels, without = trained(pictures.reshape(120, 20)), trained(pictures[..., None]), trained(pictures)
    np.testing.assert_array_equal(flat.test_loss, with_channels.test_loss)
    np.testing.assert_array_equal(flat.test_loss, without.test_loss)
    np.testing.assert_array_equal(flat.cohorts, with_channels.cohorts)


@pytest.mark.slow
def test_the_mlp_sees_whole_numbers_and_predicts_numbers():
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 3, (120, 4))
    data = {"train": (inputs, inputs[:, :2] / 1.0), "test": (inputs, inputs[:, :2] / 1.0)}
    config = SMALL.replace(algo="random", task="regression", partition="iid", rounds=20, learning_rate=0.1)
    losses = fedjax_sel.run(Experiment.of(config, dataset=Dataset.from_arrays(**data))).test_loss[0]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "shape,advice",
    [
        ((28, 28), r"add an axis of channels with inputs\[\.\.\., None\], or choose --model mlp"),
        ((3, 28, 28), r"move channels last with np\.moveaxis\(inputs, 1, -1\)"),
        ((784,), "choose --model mlp or logistic, which accept inputs of any shape"),
    ],
)
def test_pictures_of_another_shape(shape, advice):
    pictures = np.zeros((60, *shape))
    dataset = Dataset.from_arrays(train=(pictures, np.zeros(60, int)), test=(pictures[:1], [0]))
    with pytest.raises(UserError, match=rf"'cnn' needs images .* an input is {re.escape(str(shape))}; {advice}"):
        problem.pose(Experiment.of(SMALL, model="cnn", dataset=dataset, partition="iid"))


def test_images_that_are_too_small():
    with pytest.raises(UserError, match="'lenet' needs images of at least 12x12 pixels"):
        problem.pose(SMALL.replace(model="lenet"))
