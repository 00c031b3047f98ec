"""Settings of JAX that change draws or arithmetic, or end a run: fixed, rejected in one line, or recorded."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import chex
import flax.linen as nn
import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import models
from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.simulation import keys
from fedjax_sel.training import client


@contextlib.contextmanager
def setting(name, value):
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


@pytest.fixture
def of_64_bits():
    with setting("jax_enable_x64", True):
        yield


def test_a_run_is_refused(of_64_bits):
    with pytest.raises(UserError, match=r"^jax_enable_x64 is on, but runs use 32-bit arithmetic; unset JAX_ENABLE_X64"):
        fedjax_sel.run(fedjax_sel.preset("quickstart").replace(rounds=1))


def test_a_selector_is_refused(of_64_bits):
    with pytest.raises(UserError, match=r"^jax_enable_x64 is on"):
        fedjax_sel.Selector("random", 4, 2, 3, sizes=[1] * 4)


@pytest.mark.parametrize(
    "name,refuses,usual",
    [
        ("jax_threefry_partitionable", False, "True"),
        ("jax_debug_nans", True, "False"),
        ("jax_disable_jit", True, "False"),
    ],
)
def test_settings_that_stop_or_change_runs_are_rejected(name, refuses, usual):
    shown = "on" if refuses else "off"
    words = rf"^{name} is {shown}, .* unset {name.upper()}, or call jax\.config\.update\(\"{name}\", {usual}\)"
    with setting(name, refuses):
        with pytest.raises(UserError, match=words):
            fedjax_sel.run(fedjax_sel.preset("quickstart").replace(rounds=1, algo="fl_dp3s"))
        expected = contextlib.nullcontext()
        if name not in ("jax_debug_nans", "jax_disable_jit"):  # with which a Selector works
            expected = pytest.raises(UserError, match=words)
        with expected:
            fedjax_sel.Selector("random", 4, 2, 3, sizes=[1] * 4)


class Dropping(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


def test_draws_do_not_depend_on_the_usual_generator():
    """The environment may name another one for the program's own keys."""
    inputs = np.ones((2, 4), np.float32)

    def drawn():
        key = keys.streams(keys.roots([3], {})).training[0]
        model = models.from_flax(Dropping()).build(inputs)
        weights = model.init(key)
        return jax.random.key_data(key), weights, model.apply(weights, inputs, model.draw(key, 2)).prediction

    expected = drawn()
    with setting("jax_default_prng_impl", "rbg"):
        chex.assert_trees_all_equal(drawn(), expected)


def test_keys_name_their_generator():
    """A key of the usual one is what the environment says."""
    package = Path(fedjax_sel.__file__).parent
    unnamed = re.compile(r"random\.(PRNGKey|key)\(|wrap_key_data\((?!.*impl=)")
    found = {
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if unnamed.search(line) and "impl=PRNG" not in line
    }
    assert not found


@pytest.mark.parametrize("name,value,text", [("jax_default_matmul_precision", "highest", "highest")])
def test_settings_that_change_rounding_are_recorded(monkeypatch, name, value, text):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert jax_settings.recorded() == {}  # so that the record of a usual run is what it was
    with setting(name, value):
        assert jax_settings.recorded() == {name: text}
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2 --xla_cpu_enable_fast_math=true")
    assert jax_settings.recorded() == {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}


SMALL = [
    "--dataset", "synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", "--num-clients", "12",
    "--num-selected", "3", "--local-epochs", "1", "--chunk", "2", "--algo", "oort",
]  # fmt: skip


def train(out, rounds, **environment):
    command = [sys.executable, "-m", "fedjax_sel.train", *SMALL, "--rounds", str(rounds), "--out", str(out)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    assert train(out, 4).returncode == 0
    return np.load(out / "cohorts.npy")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,value,answer",
    [
        ("JAX_DEFAULT_PRNG_IMPL", "rbg", None),
        ("JAX_DEFAULT_MATMUL_PRECISION", "highest", "jax_default_matmul_precision was unset, is highest"),
        ("JAX_DISABLE_MOST_OPTIMIZATIONS", "1", "jax_disable_most_optimizations was unset, is True"),
        ("JAX_THREEFRY_PARTITIONABLE", "0", "error: jax_threefry_partitionable is off"),
        ("JAX_RANDOM_SEED_OFFSET", "1", "error: jax_random_seed_offset is 1"),
        ("JAX_DISABLE_JIT", "1", "error: jax_disable_jit is on"),
        ("JAX_TRANSFER_GUARD", "disallow", "error: jax_transfer_guard is 'disallow'"),
    ],
)
def test_a_run_continues_with_the_same_cohorts_or_is_rejected(tmp_path, whole, name, value, answer):
    out = tmp_path / "run"
    assert train(out, 2).returncode == 0
    done = train(out, 4, COLUMNS="1000", **{name: value})
    assert answer is None or answer in done.stderr
    if answer and answer.startswith("error"):
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    else:
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(out / "cohorts.npy"), whole)


def test_a_step_size_stays_what_it_is(of_64_bits):
    assert client.depend_on(jax.numpy.float64(0.05), {"weights": jax.numpy.ones(3)}) == jax.numpy.float32(0.05)
