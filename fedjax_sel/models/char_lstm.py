"""LEAF's next-character model of Shakespeare's plays."""

from typing import Any

import flax.linen as nn
import jax


class CharLSTM(nn.Module):
    """An embedding of 8, two LSTM layers of 256 units and a fully-connected layer (LEAF, Caldas et al. 2018).

    The initialization is Flax's default, except that recurrent weights are Glorot-uniform as in TensorFlow's cell.
    Flax's orthogonal initializer decomposes one matrix per gate, which can take minutes for several seeds on a CPU.

    P = 817,872 with 80 characters: 640 in the embedding, 271,360 and 525,312 in the LSTM layers (one bias per gate, as
    in TensorFlow's cell), and 20,560 in the last layer.

    Attributes:
        num_classes: number of characters.
        every_position: True to predict the character after each position; False for the last position only, as in
            LEAF.
        features: width of the embedding.
        units: units per LSTM layer.
    """

    num_classes: int = 80
    every_position: bool = False
    features: int = 8
    units: int = 256

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map tokens, int32 [B, L], to logits of the next character, [B, C], or [B, L, C] for all positions."""
        x: Any = nn.Embed(self.num_classes, self.features)(tokens)
        for _ in range(2):
            cell = nn.OptimizedLSTMCell(self.units, recurrent_kernel_init=nn.initializers.glorot_uniform())
            x = nn.RNN(cell)(x)
        return nn.Dense(self.num_classes)(x if self.every_position else x[:, -1])
