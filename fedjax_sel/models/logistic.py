"""Multinomial logistic regression, the usual convex model in federated learning."""

import flax.linen as nn
import jax


class Logistic(nn.Module):
    """One fully-connected layer with Flax's default initialization.

    P = inputs * C + C, which is 7,850 on 28x28 images of 10 classes.

    Attributes:
        num_classes: C.
    """

    num_classes: int

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map inputs [B, ...] to logits [B, C]."""
        return nn.Dense(self.num_classes)(inputs.reshape(inputs.shape[0], -1))
