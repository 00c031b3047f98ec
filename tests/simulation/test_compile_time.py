"""Users' programs compile in a bounded time with XLA's full optimization, which `tests/conftest.py` switches off."""

import faulthandler
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).parents[2]
NOT_INHERITED = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
BUDGET = 400  # times a tiny program's compile time; the programs below take 30 to 90 times that
PROGRAMS = {
    "default": {},
    "convolutions": {
        "algo": "gpfl", "model": "cnn_small", "dataset": "synthetic:train_size=600,image_size=16",
        "num_clients": 10, "num_selected": 3,
    },
    "fedcor, local steps": {"algo": "fedcor", "local_steps": 5},
    "clock, absence": {
        "algo": "clustered", "available": 0.7, "timing": "tiers", "timing_args": {"jitter": 0.2}, "deadline": "q0.8",
        "over_select": 1.3, "optimizer": "fedyogi",
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("names", [("default",), ("fedcor, local steps", "convolutions", "clock, absence")])
def test_a_chunk_compiles_in_a_bounded_multiple_of_a_tiny_programs_time(names):
    """In a process of its own: a compiler that hangs cannot be interrupted, and one that crashes ends its process."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    environment |= {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    child = subprocess.run(
        [sys.executable, __file__, *names], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.splitlines() == [f"{name}: compiled" for name in names]


def compile_chunks(names):
    """Compile a tiny program, then the chunk of each; end the process if one takes longer than its budget."""
    import fedjax_sel
    from tests.simulation.test_export import programs

    loss = jax.jit(jax.grad(lambda weights, inputs: jax.nn.logsumexp(jnp.tanh(inputs @ weights))))
    tiny = loss.lower(jnp.ones(30), jnp.ones((64, 30)))
    started = time.perf_counter()
    tiny.compile()
    seconds = time.perf_counter() - started
    for name in names:
        found = {kind: (one, given) for kind, one, given in programs(fedjax_sel.Config().replace(**PROGRAMS[name]))}
        program, given = found["chunk"]
        chunk = program.lower(*given)
        print(f"{name}: ", end="", flush=True)
        faulthandler.dump_traceback_later(BUDGET * seconds, exit=True)
        chunk.compile()
        faulthandler.cancel_dump_traceback_later()
        print("compiled", flush=True)


if __name__ == "__main__":
    compile_chunks(sys.argv[1:])
