"""Whether a strategy plans for the number of rounds: then a finished run cannot be made longer."""

import re

import jax

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
                texts.append(str(jax.make_jaxpr(function)(*shapes)))
        return [re.sub(r"0x[0-9a-f]+", "", text) for text in texts]  # of functions that a program mentions

    return programs(one) != programs(other)
