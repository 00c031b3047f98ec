"""LEAF's model of Shakespeare's plays: which character comes next."""

from typing import Any

import flax.linen as nn
import jax


class CharLSTM(nn.Module):
    """An embedding of 8, two LSTM layers of 256 units and a fully-connected layer (LEAF, Caldas et al. 2018).

    Initialised as Flax does by default, but for the recurrent weights: Glorot's uniform ones, as TensorFlow's cell has
    them. Flax's orthogonal ones are decomposed gate by gate, and many such decompositions at once, of several seeds,
    can take minutes on a CPU.

    P = 817,872 with 80 characters: 640 in the embedding, 271,360 and 525,312 in the LSTM layers (one bias for each
    gate, as TensorFlow's cell has), 20,560 in the last.

    Attributes:
        num_classes: characters.
        every_position: whether to predict the character after each one, or after the last only, as LEAF does.
        features: of a character.
        units: of an LSTM layer.
    """

    num_classes: int = 80
    every_position: bool = False
    features: int = 8
    units: int = 256

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map tokens, int32 [B, L], to logits of the next character [B, C], or [B, L, C] of every position's."""
        x: Any = nn.Embed(self.num_classes, self.features)(tokens)
        for _ in range(2):
            cell = nn.OptimizedLSTMCell(self.units, recurrent_kernel_init=nn.initializers.glorot_uniform())
            x = nn.RNN(cell)(x)
        return nn.Dense(self.num_classes)(x if self.every_position else x[:, -1])
