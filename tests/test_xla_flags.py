"""Flags of XLA: of `--deterministic`, and of these tests."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import fedjax_sel
from fedjax_sel import devices
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import experiment_of
from fedjax_sel.runs import sweep

REPOSITORY = Path(__file__).parents[1]
KNOWN = "--xla_backend_optimization_level=0"


@pytest.mark.slow
def test_the_tests_set_what_is_known():
    """By the conftest itself, with the flags of another jaxlib."""
    code = "import runpy, os; runpy.run_path('tests/conftest.py'); print(os.environ['XLA_FLAGS'])"
    environment = os.environ | {"XLA_FLAGS": "--mine=1", "FEDJAX_SEL_KNOWN_FLAGS": KNOWN}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, env=environment)
    assert done.stdout.split() == [KNOWN, "--mine=1"], done.stderr


def test_deterministic_sets_its_flag(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", KNOWN)
    devices.be_deterministic()
    assert os.environ["XLA_FLAGS"] == f"{KNOWN} {devices.DETERMINISTIC}"


def test_a_comparison_sets_it_before_jax_starts(monkeypatch):
    done = []
    monkeypatch.setattr(devices, "be_deterministic", lambda: done.append("flags"))
    monkeypatch.setattr(devices, "use_every_core", lambda: done.append("JAX"))
    monkeypatch.setattr(sweep, "check_alone", lambda experiment: 1 / 0)
    config = fedjax_sel.preset("quickstart").replace(deterministic=True)
    with pytest.raises(ZeroDivisionError):
        sweep.check([sweep.Job("quickstart", "random", experiment_of(config))])
    assert done == ["flags", "JAX"]


def test_deterministic_comes_too_late_once_a_gpu_is_started(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", KNOWN)
    jax.devices()
    cores = jax.config.values["jax_num_cpu_devices"]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(UserError, match="--deterministic: JAX has already started"):
        devices.be_deterministic()
    assert jax.config.values["jax_num_cpu_devices"] == cores


def test_the_cpu_is_started_beside_what_is_asked_for(monkeypatch):
    for asked, started in (("", ""), ("cpu", "cpu"), ("cpu,cuda", "cpu,cuda")):
        before = jax.config.jax_platforms
        jax.config.update("jax_platforms", asked)
        try:
            devices.check_that_jax_starts()
            assert jax.config.jax_platforms == started
        finally:
            jax.config.update("jax_platforms", before)
