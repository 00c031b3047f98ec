"""Networks in plain Flax, by name, as a run trains them."""

import pytest

import fedjax_sel
from fedjax_sel import UserError, strategies
from fedjax_sel.experiment import problem

SMALL = fedjax_sel.preset("quickstart").replace(
    num_clients=6, num_selected=2, local_steps=1, batch_size=4, rounds=2, chunk=2, server_validation=0.1,
)  # fmt: skip
PICTURES = "synthetic:train_size=120,test_size=20,num_classes=4,image_size=32,channels=3"


@pytest.mark.slow
@pytest.mark.parametrize("algo", strategies.names())
def test_resnet8_trains_under_every_strategy(algo):
    result = fedjax_sel.run(SMALL.replace(algo=algo, model="resnet8", dataset=PICTURES))
    assert result.finished and (result.test_loss > 0).all() and result.model.num_params == 77_652


@pytest.mark.fast_cases(1)
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
    with pytest.raises(UserError, match="'lenet' is written in plain Flax and has it not"):
        problem.pose(SMALL.replace(model="lenet", **changes))


def test_images_that_are_too_small():
    with pytest.raises(UserError, match="'lenet' needs images of at least 12x12 pixels"):
        problem.pose(SMALL.replace(model="lenet"))
