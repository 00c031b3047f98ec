"""The weights of a model."""

from typing import Any, NamedTuple


class Weights(NamedTuple):
    """The weights of one model, as clients receive and return them.

    Attributes:
        trained: weights that gradients update, a pytree of float32 arrays.
        carried: state that training updates without a gradient, such as the running statistics of batch normalization.
            A pytree of float32 arrays, which the server averages like the weights. Empty for most models.
    """

    trained: Any
    carried: Any = ()
