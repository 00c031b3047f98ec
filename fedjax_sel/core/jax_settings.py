"""Settings of JAX that change draws or arithmetic: fixed here, rejected, or recorded with a run."""

from typing import Any, NamedTuple

import jax

from fedjax_sel.errors import UserError

PRNG = "threefry2x32"
"""The generator of all random numbers, independent of `jax_default_prng_impl`."""


class Needed(NamedTuple):
    """The value of a setting that runs need."""

    value: Any  # JAX's default
    why: str
    rejected: tuple[Any, ...] = ()  # values; empty: all but `value`
    of_runs: bool = False  # whether a Selector, outside the simulator's compiled rounds, works with any value


_OTHER_DRAWS = "with which random draws differ from those of other runs"
_NOTHING_RUNS = "with which strategies and models do not run"
_NO_TRANSFERS = "and settings and results travel between host and devices"

NEEDED = {
    "jax_enable_x64": Needed(False, "and runs are of 32 bits"),
    "jax_threefry_partitionable": Needed(True, _OTHER_DRAWS),
    "jax_random_seed_offset": Needed(0, _OTHER_DRAWS),
    "jax_high_dynamic_range_gumbel": Needed(False, _OTHER_DRAWS),
    "jax_numpy_rank_promotion": Needed("allow", _NOTHING_RUNS, ("raise",)),
    "jax_numpy_dtype_promotion": Needed("standard", _NOTHING_RUNS, ("strict",)),
    **{
        f"jax_transfer_guard{direction}": Needed("allow", _NO_TRANSFERS, ("disallow", "disallow_explicit"))
        for direction in ("", "_host_to_device", "_device_to_host", "_device_to_device")
    },
    **{
        f"jax_error_checking_behavior_{kind}": Needed("ignore", _NOTHING_RUNS, ("raise",))
        for kind in ("nan", "divide", "oob")
    },
    "jax_debug_nans": Needed(False, "and a round without an evaluation has NaN in its place", of_runs=True),
    "jax_disable_jit": Needed(False, "and a run consists of compiled programs", of_runs=True),
}
"""Settings that end a run, or change it by more than rounding; one that JAX does not know counts as set."""

RECORDED = {
    "jax_default_matmul_precision": None,
    "jax_disable_most_optimizations": False,
    "jax_optimization_level": "UNKNOWN",
    "jax_softmax_custom_jvp": False,
    "jax_use_direct_linearize": True,
}
"""Settings that change a run by rounding, with JAX's defaults."""


def check(of_runs: bool = True) -> None:
    """Reject settings with which no run, or no Selector, gives what it should.

    Args:
        of_runs: whether the simulator's rounds follow; False: a Selector.

    Raises:
        UserError: a setting has another value than it needs.
    """
    for name, needed in NEEDED.items():
        value = _value(name, needed.value)
        wrong = value in needed.rejected if needed.rejected else value != needed.value
        if wrong and (of_runs or not needed.of_runs):
            state = ("on" if value else "off") if isinstance(value, bool) else repr(value)
            usual = f'"{needed.value}"' if isinstance(needed.value, str) else needed.value
            raise UserError(
                f"{name} is {state}, {needed.why}; leave {name.upper()} out, or say "
                f'jax.config.update("{name}", {usual}) before a run'
            )


def recorded() -> dict[str, str]:
    """Return the settings in RECORDED that differ from JAX's defaults, as text."""
    found = {name: _value(name, usual) for name, usual in RECORDED.items()}
    return {name: str(value) for name, value in found.items() if value != RECORDED[name]}


def key(seed: Any) -> jax.Array:
    """Return a key of the generator of all random numbers.

    Args:
        seed: a whole number, or a traced one.
    """
    return jax.random.key(seed, impl=PRNG)


def _value(name: str, usual: Any) -> Any:
    value = getattr(jax.config, name, jax.config.values.get(name, usual))  # some are no attributes
    return str(value) if isinstance(value, str) else value  # without the name of an enumeration


def cpu() -> Any:
    """Return a CPU device of this machine: work before a run is done there, in float64.

    Raises:
        UserError: JAX has started without the CPU.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            f"JAX_PLATFORMS: JAX has started with {platforms!r} and without the CPU, on which strategies prepare; set "
            f"JAX_PLATFORMS={platforms},cpu"
        ) from error
