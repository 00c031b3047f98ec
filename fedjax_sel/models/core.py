"""What the simulator asks of a model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedjax_sel.core import jax_settings
from fedjax_sel.models.output import Output
from fedjax_sel.models.output_layer import Paths
from fedjax_sel.models.weights import Weights

Params = Any  # a pytree of float32 arrays
Draws = Any  # a pytree of arrays: what one training pass draws, mostly [B, ...], for each of its examples


class Model(NamedTuple):
    """A model for inputs of one shape. Static.

    Attributes:
        name: for messages.
        init: key -> weights.
        draw: (key, B) -> what a training pass over B examples draws.
        apply: (weights, inputs [B, ...], draws or None outside training) -> Output.
        num_params: P, the numbers that gradients move.
        num_carried: the numbers beside them that travel with the model.
        profile_size: Q, units of the layer that profiles are taken of; 0 without one.
        cpu_block: examples that a CPU core evaluates at once.
        cpu_micro_batch: examples whose gradient it computes at once.
        output_layer: paths of the weight and the bias of the layer that gives the predictions; None without one.
    """

    name: str
    init: Callable[[jax.Array], Weights]
    draw: Callable[[jax.Array, int], Draws]
    apply: Callable[[Weights, Any, Draws | None], Output]
    num_params: int
    num_carried: int
    profile_size: int
    cpu_block: int
    cpu_micro_batch: int
    output_layer: Paths | None = None

    def shapes(self) -> Params:
        """Return the shapes of the trained weights."""
        return jax.eval_shape(self.init, jax_settings.key(0)).trained

    @property
    def size(self) -> int:
        """Numbers that a client receives with a model, and sends back."""
        return self.num_params + self.num_carried
