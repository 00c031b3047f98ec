"""Two CPU devices for every test, and a cache of decoded data that belongs to the tests."""

import os

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")
# Most of the tests' time is compilation: the same programs, with less work spent on their machine code.
os.environ["XLA_FLAGS"] = (
    f"--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false {os.environ.get('XLA_FLAGS', '')}"
)

import jax

jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDJAX_SEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
