"""What a model is made of: what gradients move, and what travels with it."""

from typing import Any, NamedTuple


class Weights(NamedTuple):
    """The weights of one model, as clients receive and return them.

    Attributes:
        trained: what gradients move; a pytree of float32 arrays.
        carried: what training changes without a gradient, such as the running statistics of batch normalisation; a
            pytree of float32 arrays, averaged with the trained ones. Empty for most models.
    """

    trained: Any
    carried: Any = ()
