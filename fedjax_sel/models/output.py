"""What a model returns."""

from typing import NamedTuple

import jax


class Output(NamedTuple):
    """Logits, and the first fully-connected layer before its activation (a client's profile in FL-DP3S)."""

    logits: jax.Array  # [B, C]
    first_dense: jax.Array  # [B, Q]
