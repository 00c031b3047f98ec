"""The model interface of the simulator."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedjax_sel.core import jax_settings
from fedjax_sel.models.output import Output
from fedjax_sel.models.output_layer import Paths
from fedjax_sel.models.weights import Weights

Params = Any  # a pytree of float32 arrays
Draws = Any  # a pytree of arrays: the random draws of one training pass, usually [B, ...]


class Model(NamedTuple):
    """A model for inputs of one shape. Static.

    Attributes:
        name: name of the model in messages.
        init: key -> weights.
        draw: (key, B) -> random draws of a training pass over B examples.
        apply: (weights, inputs [B, ...], draws in training or None in evaluation) -> Output.
        num_params: number of trained parameters, P.
        num_carried: number of carried values, such as batch statistics.
        profile_size: units of the profile layer, Q; 0 without a profile layer.
        cpu_block: examples per evaluation on a CPU core.
        cpu_micro_batch: examples per gradient on a CPU core.
        output_layer: paths of the output layer's weight and bias; None if there is no such layer.
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
        """Number of values in one transfer of the model, P + carried."""
        return self.num_params + self.num_carried
