"""Client for JAX models, complete except for `fit`.

    class Phone(JaxClient):
        def fit(self, params, config):
            for inputs, targets in batches(self.inputs, self.targets):
                params = step(params, inputs, targets)
            return params

    phone = Phone("phone 7", apply, params, inputs, targets)

`arrays_of(params)` returns the weights by name, as the messages carry them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_sel.adapters.rounds import Arrays, DataClient, Passes
from fedjax_sel.errors import UserError


def arrays_of(params: Any) -> Arrays:
    """Return the leaves of a pytree by path, such as "dense.kernel", in the pytree's order."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def params_of(weights: Mapping[str, Any], like: Any) -> Any:
    """Return weights by name, as from `arrays_of`, as a pytree with the structure of `like`."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    return jax.tree.unflatten(structure, [jnp.asarray(weights[_name(path)]) for path, _ in paths])


class JaxClient(DataClient):
    """Client for JAX models; subclasses implement `fit`."""

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
        """Create a client.

        Args:
            name: unique name of the client.
            apply: evaluation-mode model, (params, inputs [n, ...]) -> outputs [n, C].
            params: a pytree with the structure of the federation's weights.
            inputs: training inputs, [n, ...].
            targets: training labels, integers [n].
            profile: (params, inputs [n, ...]) -> outputs of the first fully-connected layer, [n, Q].
            holdout: held-out inputs and labels.
            num_classes: number of classes, C; required for label histograms.
        """
        self.name, self.apply, self.params, self.inputs, self.targets = name, apply, params, inputs, targets
        self.profile, self.holdout, self.num_classes = profile, holdout, num_classes

    def fit(self, params: Any, config: Mapping[str, Any]) -> Any:
        """Train from `params` on `self.inputs` and `self.targets`.

        Returns:
            The new params; or (params, losses) for strategies that request training losses. The losses are one list per
            pass over the data, with one array of per-example losses per mini-batch, taken before its step.
        """
        raise UserError(f"fit: {type(self).__name__} does not implement it; write this method")

    def losses(self, outputs: jax.Array, targets: jax.Array) -> jax.Array:
        """Return the per-example losses, [n]; cross-entropy by default."""
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)

    def losses_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the per-example losses in evaluation mode, [n], nats."""
        return np.asarray(self.losses(self.apply(params_of(weights, self.params), inputs), targets))

    def profile_of(self, weights: Arrays, inputs: Any, relu: bool) -> np.ndarray:
        """Return the mean output of the first fully-connected layer, [Q]."""
        if self.profile is None:
            raise UserError(
                f"profile: client {self.name!r} has no profile function; pass (params, inputs) -> outputs of the layer"
            )
        first = self.profile(params_of(weights, self.params), inputs)
        return np.asarray((jax.nn.relu(first) if relu else first).mean(axis=0))

    def gradient_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the gradient of the mean loss, flat, [P]."""

        def mean(params: Any) -> jax.Array:
            return self.losses(self.apply(params, inputs), targets).mean()

        gradient = jax.grad(mean)(params_of(weights, self.params))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])

    def fitted(self, weights: Arrays, config: Mapping[str, Any]) -> tuple[Arrays, Passes | None]:
        """Train from the weights; return the trained weights, and the losses if `fit` returns them."""
        initial = params_of(weights, self.params)
        structure, result = jax.tree.structure(initial), self.fit(initial, config)
        if jax.tree.structure(result) == structure:
            return arrays_of(result), None
        if isinstance(result, tuple | list) and len(result) == 2 and jax.tree.structure(result[0]) == structure:
            return arrays_of(result[0]), result[1]
        size = f" of {len(result)}" if isinstance(result, tuple | list | dict) else ""
        raise UserError(
            f"fit: `fit` of client {self.name!r} returns a value of type {type(result).__name__}{size}; return params "
            "in the pytree of its input, or (params, losses)"
        )

    def flat(self, weights: Arrays) -> np.ndarray:
        """Return the weights as one vector, [P]."""
        return np.concatenate([np.ravel(weights[name]) for name in arrays_of(self.params)])

    def joined(self, first: Any, second: Any) -> Any:
        """Return the concatenated examples."""
        return np.concatenate([first, second])


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
