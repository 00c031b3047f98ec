"""Many independent pieces of work over all devices: the one place that knows how many there are.

The devices form a mesh with two axes. Groups of replicates (seeds) live along the first: each group's state is on its
own devices alone, and groups never talk to each other. Along the second, the devices of a group share its pairs
(replicate, client), or (replicate, block of examples): the pairs are laid out as one axis, padded to a multiple of the
devices and dealt out, and the results are gathered. Everything else is done by every device of a group alike.
"""

from fedjax_sel.devices.mesh import (
    CLIENTS,
    PER_SEED,
    SEEDS,
    WHOLE,
    check_shape,
    fetch,
    in_words,
    make_mesh,
    of_all_seeds,
    over_seeds,
    place,
    sharding,
)
from fedjax_sel.devices.setup import (
    DETERMINISTIC,
    be_deterministic,
    check_deterministic,
    check_that_jax_starts,
    keep_programs,
    num_cores,
    use_every_core,
)
from fedjax_sel.devices.spreading import of_replicate, pairs, spread, spread_and_add, stacked, unflatten

__all__ = [
    "CLIENTS", "DETERMINISTIC", "PER_SEED", "SEEDS", "WHOLE", "be_deterministic", "check_deterministic",
    "check_shape", "check_that_jax_starts", "fetch", "in_words", "keep_programs", "make_mesh", "num_cores",
    "of_all_seeds", "of_replicate", "over_seeds", "pairs", "place", "sharding", "spread", "spread_and_add", "stacked",
    "unflatten", "use_every_core",
]  # fmt: skip
