"""Which flags for XLA the installed jaxlib knows: one that it does not know ends the process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

VARIABLE = "FEDJAX_SEL_XLA_FLAGS"
"""Environment variable with the answers so far, a JSON object flag -> bool: child processes need not ask again."""

# The options of a compilation hold what XLA read from XLA_FLAGS; where they should not, starting a device reads it.
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
    """Return those of some flags that the installed jaxlib knows.

    It is asked in a process of its own, since XLA ends a process on a flag that it does not know. Answers are kept in
    the environment variable VARIABLE, for this process and those that it starts.

    Args:
        flags: as they would stand in XLA_FLAGS, such as "--xla_gpu_deterministic_ops=true".

    Returns:
        The known ones, in their order.
    """
    answers = _answers()
    unasked = [flag for flag in flags if flag not in answers]
    if unasked:
        all_known = _parses(unasked)  # the usual case takes one process
        answers |= {flag: all_known or (len(unasked) > 1 and _parses([flag])) for flag in unasked}
        os.environ[VARIABLE] = json.dumps(answers)
    return tuple(flag for flag in flags if answers[flag])


def _answers() -> dict[str, bool]:
    try:
        answers = json.loads(os.environ.get(VARIABLE, "{}"))
    except ValueError:
        return {}
    return answers if isinstance(answers, dict) else {}


def _parses(flags: Sequence[str]) -> bool:
    """Return whether a process with these flags in XLA_FLAGS gets past the reading of them."""
    environment = {**os.environ, "XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu"}
    try:
        process = subprocess.run(
            [sys.executable, "-c", _PARSE], env=environment, capture_output=True, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0
