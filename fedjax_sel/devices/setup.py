"""What is said to JAX before it starts its devices, and whether it can."""

import contextlib
import os

import jax

from fedjax_sel.core import jax_settings, xla_flags
from fedjax_sel.data import cache
from fedjax_sel.errors import UserError


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_every_core() -> None:
    """Make each CPU core a JAX device, unless JAX has already started.

    XLA does not split batched matmuls of this size over the threads of one CPU device; as devices the cores work side
    by side, on the same mesh that GPUs and TPUs form.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    try:
        jax.config.update("jax_num_cpu_devices", num_cores())
    except RuntimeError:  # started already
        return


def check_that_jax_starts() -> None:
    """Start JAX's devices, and the CPU with them: what is decomposed once before a run is decomposed there.

    Raises:
        UserError: it cannot, or is set to something with which nothing runs.
    """
    jax_settings.check()
    platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    alone = bool(platforms) and "cpu" not in platforms.split(",")
    try:
        if alone:
            jax.config.update("jax_platforms", f"{platforms},cpu")
        jax.devices()
        if alone and jax.default_backend() == "cpu":  # JAX passes over "cuda" where it sees no GPU
            raise RuntimeError(f"JAX finds no device of {platforms}")
    except (RuntimeError, AssertionError) as error:  # the latter without a word, where a plug-in of JAX is missing
        if alone:
            jax.config.update("jax_platforms", platforms)
        lines = str(error).strip().splitlines()
        platforms = platforms or os.environ.get("JAX_PLATFORMS")
        reason = lines[0] if lines else type(error).__name__
        raise UserError(
            f"JAX cannot start its devices ({f'JAX_PLATFORMS={platforms}: ' if platforms else ''}{reason}); mend the "
            "driver or install JAX for it, or set JAX_PLATFORMS=cpu"
        ) from error
    jax_settings.cpu()


def be_deterministic() -> None:
    """Make a GPU choose operations that repeat to the bit; before JAX starts its devices.

    Where XLA does not know the flag for it, nothing is set, and `check_deterministic` decides.

    Raises:
        UserError: it has started them, and there are others than CPUs.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if DETERMINISTIC in flags or not xla_flags.known([DETERMINISTIC]):
        return
    os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()
    cores = jax.config.values["jax_num_cpu_devices"]
    try:  # another number is refused once the devices are there, after which the variable comes too late
        jax.config.update("jax_num_cpu_devices", max(cores, 0) + 1)
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError as error:
        if jax.default_backend() != "cpu":  # where everything repeats anyway
            raise UserError(
                f"--deterministic: JAX has already started; set XLA_FLAGS={DETERMINISTIC} before, or leave it out"
            ) from error


DETERMINISTIC = "--xla_gpu_deterministic_ops=true"


def check_deterministic() -> None:
    """Refuse devices on which operations may not repeat to the bit; after everything else was said to JAX.

    Raises:
        UserError: XLA was not told to repeat, and there are other devices than CPUs.
    """
    if DETERMINISTIC not in os.environ.get("XLA_FLAGS", "") and jax.default_backend() != "cpu":
        raise UserError(
            f"--deterministic: the installed jaxlib does not know {DETERMINISTIC}, without which a "
            f"{jax.default_backend().upper()} does not repeat to the bit; install a jaxlib that does, or leave it out"
        )


def keep_programs() -> None:
    """Keep compiled programs on disk for the next start, on GPUs and TPUs, unless JAX was told where or not to.

    Programs for a CPU are compiled in seconds, and fit that CPU alone.
    """
    setting = "jax_compilation_cache_dir"
    if jax.default_backend() != "cpu" and jax.config.values[setting] is None:
        with contextlib.suppress(UserError):  # there is nowhere to keep them
            jax.config.update(setting, str(cache.root() / "programs"))
