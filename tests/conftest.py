"""Two CPU devices for every test, and caches of decoded data and of compiled programs that belong to the tests."""

import functools
import gc
import os
import signal
import subprocess
import sys

import pytest

from tests import programs_kept


def knows_flags(flags: str) -> bool:
    """Return whether the installed jaxlib knows all flags in a value of XLA_FLAGS; XLA aborts on an unknown flag."""
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


os.environ.setdefault("MPLBACKEND", "Agg")
# A shell's `&` ignores Ctrl-C, and `nohup` a closed terminal, for all that they start: tests send both, to processes of
# their own too.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)
# Most of the tests' time is compilation: the same programs, with less work spent on their machine code.
QUICK_TO_COMPILE = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
KNOWN_FLAGS = "FEDJAX_SEL_KNOWN_FLAGS"  # those flags or none, for the workers and the processes that tests start
if KNOWN_FLAGS not in os.environ:
    os.environ[KNOWN_FLAGS] = QUICK_TO_COMPILE if knows_flags(QUICK_TO_COMPILE) else ""
os.environ["XLA_FLAGS"] = f"{os.environ[KNOWN_FLAGS]} {os.environ.get('XLA_FLAGS', '')}"
# Many tests compile the same programs: the workers, and the processes that tests start, share them.
_programs = None if "JAX_COMPILATION_CACHE_DIR" in os.environ else programs_kept.begin()
if _programs is not None:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _programs
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"
    # Else the name of the session's folder is part of every key, and the next session finds nothing.
    os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"

import jax  # noqa: E402 (what is above has to be known before)
from jax._src.interpreters import mlir  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
# JAX makes an MLIR context for each of thousands of small programs, which takes longer than the program's lowering.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDJAX_SEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items):
    """Of a family of cases that says `fast_cases(n)`, mark all but n, evenly spaced, as slow."""
    families: dict[object, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("fast_cases") and not item.get_closest_marker("slow"):
            families.setdefault(item.nodeid.split("[")[0], []).append(item)
    for cases in families.values():
        marker = cases[0].get_closest_marker("fast_cases")
        assert marker is not None
        kept = {round(place * len(cases) / marker.args[0]) for place in range(marker.args[0])}
        for place, item in enumerate(cases):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Exclude all objects so far from garbage collection, which would take a twentieth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure():
    """The process that made the cache ends it; workers have it from their environment."""
    if _programs is not None:
        programs_kept.end(_programs)
