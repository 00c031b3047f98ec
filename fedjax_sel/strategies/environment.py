"""The environment: the facts that every strategy receives before the first round.

Shapes: N clients, K selected, C classes, P parameters of the model.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax

from fedjax_sel.errors import UserError

Path = tuple[Any, ...]  # keys from the top of a pytree to a leaf, such as ("Dense_1", "bias")


class OutputLayer(NamedTuple):
    """The paths of the logit layer's weights in a model's parameters; store it in a state as `Static(layer)`."""

    weight: Path  # path of the matrix, C x inputs or inputs x C
    bias: Path | None  # path of the vector [C]; None: the layer has no bias

    def weight_of(self, tree: Any) -> Any:
        """Return the weight's leaf of a tree like `params`; for `outcome.updates` it has a leading axis [K]."""
        return _at(tree, self.weight)

    def bias_of(self, tree: Any) -> Any:
        """Return the bias's leaf of a tree like `params`; for `outcome.updates` it is [K, C].

        Raises:
            UserError: the layer has no bias.
        """
        if self.bias is None:
            raise UserError("bias: the model's output layer has no bias; choose a model whose output layer has one")
        return _at(tree, self.bias)


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = getattr(tree, key) if isinstance(key, str) and hasattr(tree, "_fields") else tree[key]
    return tree


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Env:
    """The facts that every strategy receives before the first round. Counts, shapes and paths are static."""

    num_clients: int
    num_selected: int
    num_rounds: int
    num_classes: int
    num_params: int
    sizes: jax.Array  # training examples per client, int32 [N]
    importance: jax.Array  # p_k = n_k / sum n, float32 [N]
    all_sizes: Any = None  # examples per client, including held-out ones, int32 [N]; None: no examples are held out
    params: Any = None  # shapes of the trained weights, a pytree like `outcome.updates`; None: not provided
    output_layer: OutputLayer | None = None  # None: the model has no such layer, or it is not provided

    def __post_init__(self):
        if self.all_sizes is None:
            object.__setattr__(self, "all_sizes", self.sizes)

    def entries(self, path: Path) -> tuple[int, int]:
        """Return the start and end of a leaf of `params` in the flat vectors of the facts `update` and `gradient`."""
        start = 0
        for own, leaf in jax.tree_util.tree_leaves_with_path(self.params):
            size = math.prod(leaf.shape)
            if tuple(_key(key) for key in own) == tuple(path):
                return start, start + size
            start += size
        raise UserError(f"entries: the model has no weights at {path}; give a path such as env.output_layer.bias")

    def tree_flatten(self):
        """Return the arrays as leaves and everything else as static data."""
        shapes, structure = jax.tree.flatten(self.params)
        counts = (self.num_clients, self.num_selected, self.num_rounds, self.num_classes, self.num_params)
        return (self.sizes, self.importance, self.all_sizes), (counts, tuple(shapes), structure, self.output_layer)

    @classmethod
    def tree_unflatten(cls, static, arrays):
        """Rebuild an Env from the output of `tree_flatten`."""
        counts, shapes, structure, output_layer = static
        return cls(*counts, *arrays, params=jax.tree.unflatten(structure, shapes), output_layer=output_layer)


def _key(key: Any) -> Any:
    """Return the plain key of one entry of a JAX key path."""
    return next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name))
