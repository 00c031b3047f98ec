"""JAX's setup before the first computation, and the memory of its devices."""

import contextlib
import math
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedjax_sel.core import jax_settings
from fedjax_sel.data import cache
from fedjax_sel.errors import UserError


def num_cores() -> int:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_every_core() -> None:
    """Make each CPU core a JAX device, unless JAX has already started.

    XLA does not split batched matmuls of this size over the threads of one CPU device. As separate devices the cores
    work in parallel, on the same kind of mesh as GPUs and TPUs.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", num_cores())
    except RuntimeError:  # JAX has already started
        return


def check_that_jax_starts() -> None:
    """Start JAX's devices, including the CPU, which computes the one-time decompositions before a run.

    Raises:
        UserError: the devices do not start, or a setting of JAX is not supported.
    """
    jax_settings.check()
    platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    alone = bool(platforms) and "cpu" not in platforms.split(",")
    try:
        if alone:
            jax.config.update("jax_platforms", f"{platforms},cpu")
        jax.devices()
        if alone and jax.default_backend() == "cpu":  # JAX ignores "cuda" if it finds no GPU
            raise RuntimeError(f"JAX finds no device of {platforms}")
    except (RuntimeError, AssertionError) as error:  # a missing JAX plug-in is an AssertionError without a message
        if alone:
            jax.config.update("jax_platforms", platforms)
        lines = str(error).strip().splitlines()
        platforms = platforms or os.environ.get("JAX_PLATFORMS")
        reason = lines[0] if lines else type(error).__name__
        raise UserError(
            f"JAX cannot start its devices ({f'JAX_PLATFORMS={platforms}: ' if platforms else ''}{reason}); fix the "
            "driver, install JAX for it, or set JAX_PLATFORMS=cpu"
        ) from error
    jax_settings.cpu()


def be_deterministic() -> None:
    """Make GPU operations bitwise reproducible; call this before JAX starts its devices.

    If XLA does not know the flag, nothing is set, and `check_deterministic` reports it.

    Raises:
        UserError: JAX has already started devices other than CPUs.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if DETERMINISTIC in flags or not jax_settings.known([DETERMINISTIC]):
        return
    os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    cores = jax.config.values["jax_num_cpu_devices"]
    try:  # JAX rejects a new number once its devices have started, and XLA_FLAGS has no effect then
        jax.config.update("jax_num_cpu_devices", max(cores, 0) + 1)
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError as error:
        if jax.default_backend() != "cpu":  # CPUs are deterministic anyway
            raise UserError(
                f"--deterministic: JAX has already started; set XLA_FLAGS={DETERMINISTIC} before, or remove the flag"
            ) from error


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def check_deterministic() -> None:
    """Reject devices whose operations may not be bitwise reproducible; call this after all other configuration.

    Raises:
        UserError: the XLA flag is not set, and there are devices other than CPUs.
    """
    if DETERMINISTIC not in os.environ.get("XLA_FLAGS", "") and jax.default_backend() != "cpu":
        raise UserError(
            f"--deterministic: the installed jaxlib does not know {DETERMINISTIC}, which a "
            f"{jax.default_backend().upper()} needs for bitwise reproducibility; install a jaxlib that does, or remove "
            "the flag"
        )


def keep_programs() -> None:
    """Enable JAX's compilation cache on GPUs and TPUs, unless the user has configured it.

    Programs for a CPU compile in seconds, and are specific to its model.
    """
    setting = "jax_compilation_cache_dir"
    if jax.default_backend() != "cpu" and jax.config.values[setting] is None:
        with contextlib.suppress(UserError):  # there is no cache folder
            jax.config.update(setting, str(cache.root() / "programs"))


def of_arrays(tree: Any) -> int:
    """Return the bytes of all arrays in a pytree.

    Args:
        tree: a pytree of arrays or `jax.ShapeDtypeStruct`.
    """
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def of_program(compiled: Any) -> int:
    """Return the memory of a compiled program: arguments, results without donated buffers, and temporaries.

    Args:
        compiled: result of `jitted.lower(...).compile()`.
    """
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )


def of_program_text(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the bytes of all intermediate results of a function, an upper bound of its compiled program's memory.

    Args:
        function: traceable function.
        *arguments: arguments of the function, as arrays or shapes.
    """
    equations = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    return sum(of_arrays([variable.aval for variable in equation.outvars]) for equation in equations)


def of_device() -> int | None:
    """Return the smallest memory of a device on any machine, in bytes; None if a device does not report it.

    The result is equal on all machines, since it decides the layout of the work. The cores of a CPU share its memory.
    """
    own = _of_own_device()
    if jax.process_count() == 1:
        return own
    megabytes = np.asarray(multihost_utils.process_allgather(np.int32((own or 0) // 2**20)))
    return int(megabytes.min()) * 2**20 or None


def _of_own_device() -> int | None:
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // jax.local_device_count()
    return None
