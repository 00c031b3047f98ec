"""Distribution of independent jobs over all devices.

The devices form a mesh with two axes. The first axis holds groups of replicates (seeds). The state of a group is only
on its own devices, and groups do not communicate. Along the second axis, the devices of a group share its jobs, which
are pairs (replicate, client) or (replicate, block of examples). Jobs form one axis, padded to a multiple of the
devices, and their results are gathered. All other computations are replicated within a group.
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
