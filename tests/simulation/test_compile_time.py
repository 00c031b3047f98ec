"""Users' programs compile in a bounded time with XLA's full optimization, which `tests/conftest.py` switches off."""

import json
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
CASES = {
    "default": {},
    "local steps": {"local_steps": 5},
    "convolutions": {
        "algo": "gpfl", "model": "cnn_small", "dataset": "synthetic:train_size=600,image_size=16",
        "num_clients": 10, "num_selected": 3,
    },
    "fedcor": {"algo": "fedcor"},
    "clock": {"timing": "tiers", "timing_args": {"jitter": 0.2}, "deadline": "q0.8", "over_select": 1.3},
    "absence": {"algo": "clustered", "available": 0.7, "optimizer": "fedyogi"},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_chunk_compiles_in_a_bounded_multiple_of_a_tiny_programs_time(case):
    """In a process of its own, because a compiler that hangs cannot be interrupted, and one that crashes ends it."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    environment |= {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, json.dumps(CASES[case])]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        tiny = float(child.stdout.readline())
        try:
            assert child.wait(timeout=BUDGET * tiny) == 0
        except subprocess.TimeoutExpired:
            pytest.fail(f"not compiled after {BUDGET} times the {tiny:.2f} s of a tiny program")
        finally:
            child.kill()


def compile_chunk(settings):
    """Print the seconds in which a tiny program compiles, then compile the chunk."""
    import fedjax_sel
    from tests.simulation.test_export import programs

    (chunk,) = (
        program.lower(*arguments)
        for name, program, arguments in programs(fedjax_sel.Config().replace(**settings))
        if name == "chunk"
    )
    loss = jax.jit(jax.grad(lambda weights, inputs: jax.nn.logsumexp(jnp.tanh(inputs @ weights))))
    tiny = loss.lower(jnp.ones(30), jnp.ones((64, 30)))
    started = time.perf_counter()
    tiny.compile()
    print(time.perf_counter() - started, flush=True)
    chunk.compile()


if __name__ == "__main__":
    compile_chunk(json.loads(sys.argv[1]))
