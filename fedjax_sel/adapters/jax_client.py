"""A client that trains with JAX: all but `fit` is here.

    class Phone(JaxClient):
        def fit(self, params, config):
            for inputs, targets in batches(self.inputs, self.targets):
                params = step(params, inputs, targets)
            return params

    phone = Phone("phone 7", apply, params, inputs, targets)

`arrays_of(params)` are the weights by name, as they travel.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_sel.adapters.clients import Arrays
from fedjax_sel.adapters.data_client import DataClient, Passes
from fedjax_sel.errors import UserError


def arrays_of(params: Any) -> Arrays:
    """Return the leaves of a pytree by their paths, such as "dense.kernel", in the pytree's order."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def params_of(weights: Mapping[str, Any], like: Any) -> Any:
    """Return a pytree with the weights in the places of its leaves.

    Args:
        weights: by the names that `arrays_of` gives.
        like: a pytree of that structure.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree.unflatten(structure, [jnp.asarray(weights[_name(path)]) for path, _ in paths])


class JaxClient(DataClient):
    """See above."""

    def __init__(
        self,
        name: str,
        apply: Callable[[Any, jax.Array], jax.Array],
        params: Any,
        inputs: Any,
        targets: Any,
        *,
        profile: Callable[[Any, jax.Array], jax.Array] | None = None,
        holdout: tuple[Any, Any] | None = None,
        num_classes: int | None = None,
    ):
        """Make a client.

        Args:
            name: by which the server knows it.
            apply: (params, inputs [n, ...]) -> outputs [n, C] outside training.
            params: a pytree of the federation's weights, for their structure.
            inputs: training examples, [n, ...].
            targets: their labels, integers [n].
            profile: (params, inputs [n, ...]) -> outputs of the first fully-connected layer, [n, Q].
            holdout: inputs and targets that it keeps from training.
            num_classes: C; needed where label histograms are asked for.
        """
        self.name, self.apply, self.params, self.inputs, self.targets = name, apply, params, inputs, targets
        self.profile, self.holdout, self.num_classes = profile, holdout, num_classes

    def fit(self, params: Any, config: Mapping[str, Any]) -> Any:
        """Train from `params` on `self.inputs` and `self.targets`.

        Returns:
            The new params; or, for strategies that buy training losses, (params, losses): of each pass a list of each
            mini-batch's losses, before its step.
        """
        raise UserError(f"fit: {type(self).__name__} does not say how it trains; write this method")

    def losses(self, outputs: jax.Array, targets: jax.Array) -> jax.Array:
        """Return the loss of each example, [n]; cross-entropy, unless this method is overridden."""
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)

    def losses_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the loss of each example outside training, [n], nats."""
        return np.asarray(self.losses(self.apply(params_of(weights, self.params), inputs), targets))

    def profile_of(self, weights: Arrays, inputs: Any, relu: bool) -> np.ndarray:
        """Return the mean output of the first fully-connected layer, [Q]."""
        if self.profile is None:
            raise UserError(f"profile: client {self.name!r} has none; give (params, inputs) -> outputs of the layer")
        first = self.profile(params_of(weights, self.params), inputs)
        return np.asarray((jax.nn.relu(first) if relu else first).mean(axis=0))

    def gradient_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the gradient of the mean loss, flat, [P]."""

        def mean(params: Any) -> jax.Array:
            return self.losses(self.apply(params, inputs), targets).mean()

        gradient = jax.grad(mean)(params_of(weights, self.params))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])

    def fitted(self, weights: Arrays, config: Mapping[str, Any]) -> tuple[Arrays, Passes | None]:
        """Train from the weights; return those that come of it, and losses if `fit` returns any.

        Raises:
            UserError: `fit` returns something else.
        """
        started = params_of(weights, self.params)
        found = self.fit(started, config)
        if _alike(found, started):
            return arrays_of(found), None
        if isinstance(found, tuple | list) and len(found) == 2 and _alike(found[0], started):
            return arrays_of(found[0]), found[1]
        size = f" of {len(found)}" if isinstance(found, tuple | list | dict) else ""
        raise UserError(
            f"fit: that of client {self.name!r} returns a value of type {type(found).__name__}{size}; return params in "
            "the pytree that it got, or (params, losses)"
        )

    def flat(self, weights: Arrays) -> np.ndarray:
        """Return the weights as one vector, [P]."""
        return np.concatenate([np.ravel(weights[name]) for name in arrays_of(self.params)])

    def joined(self, first: Any, second: Any) -> Any:
        """Return examples one after another."""
        return np.concatenate([first, second])


def _alike(one: Any, other: Any) -> bool:
    return jax.tree.structure(one) == jax.tree.structure(other)


def _name(path: Any) -> str:
    return ".".join(str(getattr(part, "key", getattr(part, "name", getattr(part, "idx", part)))) for part in path)
