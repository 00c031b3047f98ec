"""The multi-layer perceptron of FedCor's Fashion-MNIST experiments."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_sel.models.layers import Dense, Dropout
from fedjax_sel.models.output import Output


class MLP(nn.Module):
    """Fully-connected layers 64-30, with dropout before each ReLU as in FedCor's code.

    Attributes:
        num_classes: C.
        dropout: dropout probability.
        initializer: one of `layers.INITIALIZERS`.
        precision: one of `products.PRECISIONS`.
        hidden: units per hidden layer.
    """

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    precision: str = "float32"
    hidden: tuple[int, ...] = (64, 30)

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool = False) -> Output:
        """Map inputs [B, ...], such as images [B, H, W, channels], to logits [B, C] and the first layer [B, 64]."""
        dense = partial(Dense, initializer=self.initializer, precision=self.precision)
        x = first = dense(self.hidden[0])(inputs.reshape(inputs.shape[0], -1).astype(jnp.float32))
        x = nn.relu(Dropout(self.dropout)(x, train))
        for units in self.hidden[1:]:
            x = nn.relu(Dropout(self.dropout)(dense(units)(x), train))
        return Output(dense(self.num_classes)(x), first)
