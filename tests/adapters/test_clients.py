"""Clients made of a model and examples answer what the catalogue says, in JAX and in PyTorch alike."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import UserError
from fedjax_sel.adapters.jax_client import JaxClient, arrays_of, params_of
from fedjax_sel.adapters.rounds import Order, Question

rng = np.random.default_rng(0)
INPUTS, TARGETS = rng.normal(size=(7, 3)).astype(np.float32), np.array([0, 1, 1, 0, 1, 1, 1])
HELD = rng.normal(size=(2, 3)).astype(np.float32), np.array([0, 2])
PARAMS = [{"weight": rng.normal(size=(4, 3)), "bias": rng.normal(size=4)},
          {"weight": rng.normal(size=(3, 4)), "bias": rng.normal(size=3)}]  # fmt: skip
PARAMS = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), PARAMS)
WEIGHTS = arrays_of(PARAMS)


def first(params, inputs):
    return inputs @ params[0]["weight"].T + params[0]["bias"]


def apply(params, inputs):
    return jax.nn.relu(first(params, inputs)) @ params[1]["weight"].T + params[1]["bias"]


class Halving(JaxClient):
    """Its training halves the weights, in two passes of two mini-batches."""

    passes = [[np.array([1.0, 3.0]), np.array([5.0])], [np.array([2.0, 2.0]), np.array([8.0])]]  # noqa: RUF012

    def fit(self, params, config):
        return jax.tree.map(lambda leaf: leaf / 2, params), self.passes


def make(kind=Halving, **others):
    return kind(
        "phone", apply, PARAMS, INPUTS, TARGETS, **{"profile": first, "holdout": HELD, "num_classes": 4} | others
    )


def plain_losses(inputs, targets):
    hidden = np.maximum(inputs @ np.asarray(PARAMS[0]["weight"]).T + np.asarray(PARAMS[0]["bias"]), 0)
    logits = (hidden @ np.asarray(PARAMS[1]["weight"]).T + np.asarray(PARAMS[1]["bias"])).astype(np.float64)
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(targets)), targets]


def ask(client, kind, **options):
    return client.answer(Question(kind, options, None if kind == "label_histogram" else WEIGHTS, 3))


def torch_client():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    from fedjax_sel.adapters.torch_client import TorchClient

    class TorchHalving(TorchClient):
        def fit(self, config):
            with torch.no_grad():
                for weight in self.module.parameters():
                    weight /= 2
            return [[torch.tensor(batch, requires_grad=True) for batch in one] for one in Halving.passes]

    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    examples = torch.from_numpy(INPUTS), torch.from_numpy(TARGETS)
    held = tuple(map(torch.from_numpy, HELD))
    client = TorchHalving("phone", module, *examples, holdout=held, num_classes=4)
    client.answer_as = lambda question: client.answer(
        question._replace(
            weights=question.weights and {name.replace("1.", "2."): w for name, w in question.weights.items()}
        )
    )
    return client


def test_labels_of_another_device():
    class OnGPU:
        """PyTorch's tensors refuse this conversion on a GPU."""

        def cpu(self):
            return TARGETS

        def __array__(self, *_, **__):
            raise TypeError

    client = make(holdout=None, num_classes=2)
    client.targets = OnGPU()
    assert ask(client, "label_histogram").tolist() == [2, 5]


@pytest.mark.slow
def test_facts():
    client, both = make(), (np.concatenate([INPUTS, HELD[0]]), np.concatenate([TARGETS, HELD[1]]))
    assert (client.num_examples, client.num_all_examples) == (7, 9)
    for on, part in (("train", (INPUTS, TARGETS)), ("holdout", HELD), ("all", both)):
        losses = plain_losses(*part)
        assert ask(client, "loss", on=on) == pytest.approx(losses.mean(), rel=1e-5)
        assert ask(client, "loss", on=on, statistic="rms") == pytest.approx(np.sqrt((losses**2).mean()), rel=1e-5)
    assert ask(client, "loss") == ask(client, "loss", on="train") == ask(client, "loss", batch_size=7)
    some = ask(client, "loss", batch_size=3)
    assert some == ask(client, "loss", batch_size=3) != ask(client, "loss")  # asked again it is the same
    np.testing.assert_allclose(ask(client, "profile"), np.asarray(first(PARAMS, both[0])).mean(axis=0), rtol=1e-5)
    relu = np.maximum(np.asarray(first(PARAMS, both[0])), 0).mean(axis=0)
    np.testing.assert_allclose(ask(client, "profile", relu=True), relu, rtol=1e-5)
    assert ask(client, "label_histogram").tolist() == [3, 5, 1, 0]
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(PARAMS)])
    np.testing.assert_allclose(ask(client, "update"), -flat / 2, rtol=1e-6)
    assert ask(client, "gradient").shape == flat.shape


def test_training_losses():
    client = make()
    assert ask(client, "training_loss") == pytest.approx((2 + 5 + 2 + 8) / 4)
    assert ask(client, "training_loss", statistic="last-pass") == 5
    assert ask(client, "training_loss", statistic="rms-first-pass") == pytest.approx(np.sqrt((1 + 9 + 25) / 3))
    wanted = {"training_loss": {"statistic": "last-pass"}, "loss": {"on": "holdout"}}
    report = client.train(Order(WEIGHTS, 3, wanted=wanted, losses=("losses_before", "losses_after")))
    assert report.facts == {"training_loss": 5, "loss": ask(client, "loss", on="holdout")}
    assert 0 < ask(client, "seconds") < 600
    assert report.losses["losses_before"] == ask(client, "loss") != report.losses["losses_after"]
    assert report.num_examples == 7 and set(report.weights) == set(WEIGHTS)


def test_pytorch_answers_as_jax():
    client, ours = torch_client(), make()
    for kind, options in (
        ("loss", {}), ("loss", {"on": "all", "statistic": "rms"}), ("profile", {}), ("profile", {"relu": True}),
        ("label_histogram", {}), ("training_loss", {"statistic": "rms-first-pass"}),
    ):  # fmt: skip
        theirs = client.answer_as(Question(kind, options, None if kind == "label_histogram" else WEIGHTS, 3))
        np.testing.assert_allclose(theirs, ask(ours, kind, **options), rtol=1e-4, atol=1e-6)
    for kind in ("gradient", "update"):  # in the module's order: weight before bias
        theirs = client.answer_as(Question(kind, {}, WEIGHTS, 3))
        np.testing.assert_allclose(np.sort(theirs), np.sort(ask(ours, kind)), rtol=1e-4, atol=1e-6)
    report = client.train(Order({name: value.numpy() for name, value in client.module.state_dict().items()}, 0))
    assert set(report.weights) == set(client.module.state_dict())


def test_frozen_weights_of_pytorch_are_not_sent_as_trained():
    client = torch_client()
    for weight in client.module[0].parameters():
        weight.requires_grad_(False)
    trained = sum(np.size(leaf) for leaf in jax.tree.leaves(PARAMS[1]))
    weights = {name: value.numpy(force=True).copy() for name, value in client.module.state_dict().items()}
    for kind in ("gradient", "update"):
        assert client.answer(Question(kind, {}, weights, 3)).shape == (trained,)


def test_weights_by_name_and_back():
    assert list(WEIGHTS) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    chex.assert_trees_all_equal(params_of(dict(reversed(WEIGHTS.items())), PARAMS), PARAMS)


class Mute(JaxClient):
    def fit(self, params, config):
        return params


def returns(answer):
    """Clients whose `fit` returns what a function makes of the params."""
    return type("Own", (JaxClient,), {"fit": lambda self, params, config: answer(params)})


def test_what_fit_may_return():
    for answer in (lambda p: p, lambda p: (p, None), lambda p: [p, Halving.passes]):
        np.testing.assert_array_equal(ask(make(returns(answer)), "update"), 0)


@pytest.mark.parametrize(
    "what,words",
    [
        (
            lambda: ask(make(returns(lambda p: None)), "update"),
            "fit: `fit` of client 'phone' returns a value of type NoneType; return",
        ),
        (
            lambda: ask(make(returns(lambda p: {"params": p})), "update"),
            "returns a value of type dict of 1; return params",
        ),
        (
            lambda: ask(make(returns(lambda p: (p, [], 3))), "update"),
            "returns a value of type tuple of 3; return params",
        ),
        (lambda: ask(make(returns(lambda p: (p[0], []))), "update"), "pytree of its input, or (params, losses)"),
        (lambda: ask(make(returns(lambda p: p[0]["bias"])), "update"), "or (params, losses)"),
        (lambda: ask(make(JaxClient), "update"), "fit: JaxClient does not implement it"),
        (lambda: ask(make(Mute), "training_loss"), "`fit` of client 'phone' returns no losses"),
        (lambda: ask(make(profile=None), "profile"), "profile: client 'phone' has no profile function"),
        (lambda: ask(make(num_classes=None), "label_histogram"), "num_classes: client 'phone' has no value"),
        (lambda: ask(make(holdout=None), "loss", on="holdout"), "holdout: client 'phone' holds out no examples"),
        (lambda: ask(make(), "loss_change"), "does not support 'loss_change'"),
    ],
)
def test_what_a_client_cannot_is_one_sentence(what, words):
    with pytest.raises(UserError) as found:
        what()
    assert words in str(found.value) and ". " not in str(found.value)


def test_flower_is_asked_for_in_one_sentence(monkeypatch):
    import sys

    from fedjax_sel.adapters import flower

    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.delitem(sys.modules, "flwr.serverapp.strategy", raising=False)
    for name in flower.__all__:
        monkeypatch.delitem(vars(flower), name, raising=False)
        with pytest.raises(UserError, match=r"install it with pip install 'fedjax-sel\[flower\]'"):
            getattr(flower, name)
    with pytest.raises(AttributeError):
        flower.other  # noqa: B018
