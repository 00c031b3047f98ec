"""Detection of strategies that depend on the number of rounds, whose finished runs cannot be extended."""

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
    """Return whether any hook of a strategy compiles to a different program in a run of another length.

    Args:
        strategy: the strategy.
        num_clients: N.
        num_selected: K.
        one: number of rounds T.
        other: another T.
        everyone_available: as for `contract.traced`.
    """

    def programs(num_rounds: int) -> list[str]:
        hooks = contract.traced(strategy, num_clients, num_selected, num_rounds, everyone_available)
        texts = []
        for name, (function, shapes) in hooks.items():
            with enable_x64(name == "prepare"):  # as in a run
                program = jax.make_jaxpr(function)(*shapes)
            texts.append(f"{program} {sorted(_digests(program))}")
        return [re.sub(r"0x[0-9a-f]+", "", text) for text in texts]  # addresses of functions differ between traces

    return programs(one) != programs(other)


def _digests(program: Any) -> Iterator[str]:
    """Yield digests of a program's constant arrays at any depth, because its text omits their values."""
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
