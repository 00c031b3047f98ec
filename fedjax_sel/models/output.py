"""What a model returns."""

from typing import Any, NamedTuple

import jax


class Output(NamedTuple):
    """What a model makes of a batch.

    Attributes:
        prediction: what a task compares with the targets, [B, ...]; the logits [B, C] of a classifier.
        profile: output of the layer whose mean over a client's data is its profile (FL-DP3S Eq. 11), before the
            activation, [B, Q]; None where a model has no such layer.
        carried: `Weights.carried` after a training pass; as it was otherwise.
    """

    prediction: jax.Array
    profile: jax.Array | None = None
    carried: Any = ()
