"""Whether a strategy plans for the number of rounds: then a finished run cannot be made longer."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedjax_sel.core.jax_versions import enable_x64
from fedjax_sel.strategies import contract
from fedjax_sel.strategies.base import Strategy


def depends_on_num_rounds(
    strategy: Strategy, num_clients: int, num_selected: int, one: int, other: int, everyone_available: bool
) -> bool:
    """Return whether a strategy computes something else in a run of another length.

    Args:
        strategy: which.
        num_clients: N.
        num_selected: K.
        one: rounds T.
        other: another T.
        everyone_available: as for `contract.traced`.

    Returns:
        Whether the programs of any of its functions differ.
    """

    def programs(num_rounds: int) -> list[str]:
        hooks = contract.traced(strategy, num_clients, num_selected, num_rounds, everyone_available)
        texts = []
        for name, (function, shapes) in hooks.items():
            with enable_x64(name == "prepare"):  # as in a run
                program = jax.make_jaxpr(function)(*shapes)
            texts.append(f"{program} {sorted(_digests(program))}")
        return [re.sub(r"0x[0-9a-f]+", "", text) for text in texts]  # of functions that a program mentions

    return programs(one) != programs(other)


def _digests(program: Any) -> Iterator[str]:
    """Yield what tells the arrays of a program apart, at any depth: its text has no numbers of theirs."""
    inner = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    arrays = list(program.consts) if isinstance(program, ClosedJaxpr) else []
    for equation in inner.eqns:
        arrays += [variable.val for variable in equation.invars if isinstance(variable, Literal)]
        for value in jax.tree.leaves(equation.params, is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr | Jaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from _digests(value)
    for array in arrays:
        if hasattr(array, "dtype") and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        yield hashlib.sha256(np.asarray(array).tobytes()).hexdigest()
