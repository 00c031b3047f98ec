"""Where a user's program has set JAX to something with which nothing here is right, or runs, a sentence says so."""

import jax
import pytest

import fedjax_sel
from fedjax_sel.errors import UserError
from fedjax_sel.training import buffer_reuse


@pytest.fixture
def of_64_bits():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def test_a_run_is_refused(of_64_bits):
    with pytest.raises(UserError, match=r"^jax_enable_x64 is on, and runs are of 32 bits; leave JAX_ENABLE_X64 out"):
        fedjax_sel.run(fedjax_sel.preset("quickstart").replace(rounds=1))


def test_a_selector_is_refused(of_64_bits):
    with pytest.raises(UserError, match=r"^jax_enable_x64 is on"):
        fedjax_sel.Selector("random", 4, 2, 3, sizes=[1] * 4)


@pytest.mark.parametrize(
    "name,refuses,usual",
    [("jax_numpy_rank_promotion", "raise", "allow"), ("jax_numpy_dtype_promotion", "strict", "standard")],
)
def test_settings_that_refuse_unlike_arrays_are_refused(name, refuses, usual):
    words = (
        rf"^{name} is '{refuses}', .* leave {name.upper()} out, or say jax\.config\.update\(\"{name}\", \"{usual}\"\)"
    )
    jax.config.update(name, refuses)
    try:
        with pytest.raises(UserError, match=words):
            fedjax_sel.run(fedjax_sel.preset("quickstart").replace(rounds=1, algo="fl_dp3s"))
        with pytest.raises(UserError, match=words):
            fedjax_sel.Selector("random", 4, 2, 3, sizes=[1] * 4)
    finally:
        jax.config.update(name, usual)


def test_a_step_size_stays_what_it_is(of_64_bits):
    assert buffer_reuse.after(jax.numpy.float64(0.05), {"weights": jax.numpy.ones(3)}) == jax.numpy.float32(0.05)
