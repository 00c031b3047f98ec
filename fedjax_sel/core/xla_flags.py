"""Detection of the XLA flags that the installed jaxlib supports; an unknown flag aborts the process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

VARIABLE = "FEDJAX_SEL_XLA_FLAGS"
"""Environment variable that caches the results for child processes: a JSON object flag -> bool."""

# Reading the compile options parses XLA_FLAGS; if this jaxlib lacks them, starting a device parses it.
_PARSE = """
try:
    from jaxlib import _jax
    _jax.CompileOptions().executable_build_options.debug_options
except (ImportError, AttributeError):
    import jax
    jax.devices()
"""
_TIMEOUT_SECONDS = 60.0


def known(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that the installed jaxlib supports, in their order.

    Each test runs in a child process, because XLA aborts on an unknown flag. The environment variable VARIABLE caches
    the results for this process and its children.

    Args:
        flags: flags in the syntax of XLA_FLAGS, such as "--xla_gpu_deterministic_ops=true".
    """
    supported = _cached()
    untested = [flag for flag in flags if flag not in supported]
    if untested:
        all_supported = _parses(untested)  # the usual case takes one process
        supported |= {flag: all_supported or (len(untested) > 1 and _parses([flag])) for flag in untested}
        os.environ[VARIABLE] = json.dumps(supported)
    return tuple(flag for flag in flags if supported[flag])


def _cached() -> dict[str, bool]:
    try:
        supported = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    return supported if isinstance(supported, dict) else {}


def _parses(flags: Sequence[str]) -> bool:
    """Return whether XLA accepts the flags, tested in a child process."""
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
    try:
        process = subprocess.run(
            [sys.executable, "-c", _PARSE], env=environment, capture_output=True, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0
