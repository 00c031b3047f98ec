"""JAX clients for the Flower example: a pytree of weights and pure functions."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import setting as settings
from setting import Examples, Setting

from fedjax_sel.adapters.jax_client import JaxClient, arrays_of, params_of

PROFILE_SIZE = 64
SIZES = (PROFILE_SIZE, 30)


def first_layer(params, inputs):
    """Return the first layer's outputs, float32 [n, 64]."""
    return inputs.reshape(len(inputs), -1) @ params[0]["kernel"] + params[0]["bias"]


def apply(params, inputs):
    """Return the logits, float32 [n, C]."""
    x = first_layer(params, inputs)
    for layer in params[1:]:
        x = jax.nn.relu(x) @ layer["kernel"] + layer["bias"]
    return x


@jax.jit
def step(params, inputs, targets):
    """Return the weights after one SGD step."""

    def mean(params):
        return optax.softmax_cross_entropy_with_integer_labels(apply(params, inputs), targets).mean()

    return jax.tree.map(lambda w, g: w - 0.05 * g, params, jax.grad(mean)(params))


class Digits(JaxClient):
    """A client that trains two passes of SGD."""

    generator: np.random.Generator

    def fit(self, params, config):
        """Return the trained weights."""
        for _ in range(2):
            order = self.generator.permutation(len(self.targets))
            for start in range(0, len(order), 10):
                batch = order[start : start + 10]
                params = step(params, self.inputs[batch], self.targets[batch])
        return params


@functools.cache
def client(setting: Setting, number: int) -> Digits:
    """Return the client with this number; each Ray actor builds it once."""
    own, classes = settings.of_client(setting, number), settings.problem(setting).dataset.num_classes
    like = params(setting)
    made = Digits(str(number), apply, like, own.inputs, own.labels, profile=first_layer, num_classes=classes)
    made.generator = np.random.default_rng([setting.seed, number])
    return made


def params(setting: Setting):
    """Return the initial weights as a pytree."""
    data = settings.problem(setting).dataset
    widths = (int(np.prod(data.train_images.shape[1:])), *SIZES, data.num_classes)
    rng = np.random.default_rng(setting.seed)
    layers = []
    for inputs, units in itertools.pairwise(widths):
        kernel = rng.uniform(-1, 1, (inputs, units)) / np.sqrt(inputs)
        layers.append({"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.zeros(units)})
    return layers


def initial(setting: Setting) -> dict[str, np.ndarray]:
    """Return the initial weights."""
    return arrays_of(params(setting))


def evaluate(setting: Setting, weights: dict[str, np.ndarray], examples: Examples) -> dict[str, float]:
    """Evaluate a model on examples."""
    outputs = apply(params_of(weights, params(setting)), examples.inputs)
    losses = optax.softmax_cross_entropy_with_integer_labels(outputs, examples.labels)
    return settings.measures(np.asarray(losses), np.asarray(outputs.argmax(axis=1)), examples.labels)
