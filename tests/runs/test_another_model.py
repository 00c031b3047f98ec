"""A model that was changed under its old name: its folder is not taken for the new one's."""

import flax.linen as nn
import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, callbacks
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint
from tests.experiment.test_values import of


class Line(nn.Module):
    width: int = 8
    deeper: bool = False

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(x)) if self.deeper else x)[:, 0]


WIDER, DEEPER = Line(16), Line(deeper=True)


def run(out, model, **changes):
    return fedjax_sel.run(of(model=model, names={"model": "line-1"}, rounds=9, **changes), out=str(out))


@pytest.fixture(scope="module", params=["finished", "unfinished"])
def folder(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "run"
    stop = [callbacks.StopAtTarget(np.inf)] if request.param == "unfinished" else []
    result = fedjax_sel.run(of(model=Line(), names={"model": "line-1"}, rounds=9), out=str(out), callbacks=stop)
    assert result.finished == (not stop)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "model,words",
    [
        (WIDER, r"'trained/Dense_0/bias' has shape \[.*8\], this model \[.*16\]"),
        (DEEPER, "'trained/Dense_2/bias' is missing in one of them"),
    ],
)
def test_the_folder_of_another_model_of_that_name_is_refused(folder, model, words):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}
    finished = fedjax_sel.load(folder).finished
    message = rf"^--out: the run in .* has a different model named line-1 \({words}.*; change the name or the folder$"
    kind = UserError if finished else fedjax_sel.DamagedRunError
    with pytest.raises(kind, match=message if finished else "checkpoint .* cannot be used: .* this run") as caught:
        run(folder, model)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_the_same_model_goes_on_and_fits(folder):
    result = run(folder, Line())
    assert result.finished and result.model is not None and result.weights is not None
    shapes = jax.eval_shape(result.model.init, jax.random.key(0))
    assert jax.tree.map(lambda leaf: leaf.shape, shapes) == jax.tree.map(lambda leaf: leaf.shape[1:], result.weights)


def test_weights_have_the_shapes_of_their_places():
    own = Weights({"a": np.zeros((3, 2))}, ())
    for shape in ((3, 2), (5, 3, 2)):
        assert checkpoint.like(own, Weights({"a": np.ones(shape)}, ())).trained["a"].shape == shape
    for shape in ((2, 3), (5, 2, 3), (4, 5, 3, 2), (2,)):
        with pytest.raises(UserError, match=r"^the weights do not match this model: 'trained/a' has shape \["):
            checkpoint.like(own, Weights({"a": np.ones(shape)}, ()))
