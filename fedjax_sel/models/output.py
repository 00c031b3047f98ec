"""The output of a model."""

from typing import Any, NamedTuple

import jax


class Output(NamedTuple):
    """The output of a model for a batch.

    Attributes:
        prediction: predictions [B, ...], such as the logits [B, C] of a classifier.
        profile: outputs of the profile layer before the activation, [B, Q]. A client's profile is their mean over its
            data (FL-DP3S Eq. 11). None if the model has no such layer.
        carried: `Weights.carried`, updated by a training pass and unchanged in evaluation.
    """

    prediction: jax.Array
    profile: jax.Array | None = None
    carried: Any = ()
