"""The cost of shuffling a client's examples: sorting random numbers, or the swap-or-not shuffle.

    python benchmarks/shuffle.py

Both shuffle 480 examples (the Fashion-MNIST presets) for three epochs of ten clients, inside one jitted loop as in a
round. The two alternate. Prints microseconds per permutation and the ratio.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.training import schedule

SIZE, ORDERS, TURNS, REPEATS = 480, 30, 50, 9


def by_sorting(key: jax.Array, size: jax.Array) -> jax.Array:
    """Draw a random permutation by sorting random numbers, as JAX does."""
    return jax.random.permutation(key, SIZE)


def by_swapping(key: jax.Array, size: jax.Array) -> jax.Array:
    """Draw a random permutation with the swap-or-not shuffle, each position computed independently."""
    return schedule.position(schedule.order(key, size), jnp.arange(SIZE), size)


def timed(function):
    """Return a function that times many permutations and returns the seconds of one."""

    @jax.jit
    def many(key, size):
        def turn(total, t):
            keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.fold_in(key, t), i))(jnp.arange(ORDERS))
            return total + jax.vmap(lambda k: function(k, size))(keys).sum(), None

        return jax.lax.scan(turn, jnp.int32(0), jnp.arange(TURNS))[0]

    arguments = jax.random.key(0), jnp.int32(SIZE)
    jax.block_until_ready(many(*arguments))

    def once() -> float:
        started = time.perf_counter()
        jax.block_until_ready(many(*arguments))
        return (time.perf_counter() - started) / (ORDERS * TURNS)

    return once


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sorting, swapping = timed(by_sorting), timed(by_swapping)
    pairs = np.array([(sorting(), swapping()) for _ in range(REPEATS)])
    sort, swap = np.median(pairs, axis=0) * 1e6
    print(f"sorting {sort:.1f} us, swap-or-not {swap:.1f} us per permutation of {SIZE}: ratio {sort / swap:.1f}")


if __name__ == "__main__":
    main()
