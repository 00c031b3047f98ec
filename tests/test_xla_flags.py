"""Only flags that the installed XLA knows are set: it ends a process on any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import fedjax_sel
from fedjax_sel import devices
from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.runs import experiment

REPOSITORY = Path(__file__).parents[1]
KNOWN, UNKNOWN = "--xla_backend_optimization_level=0", "--xla_no_such_flag=true"


@pytest.fixture
def nothing_asked(monkeypatch):
    monkeypatch.delenv(jax_settings.VARIABLE, raising=False)


def test_the_flags_that_jaxlib_knows_are_told_from_the_others(nothing_asked, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", UNKNOWN)  # what the environment says already has no part in it
    assert jax_settings.supported_flags([UNKNOWN, KNOWN]) == (KNOWN,)
    assert json.loads(os.environ[jax_settings.VARIABLE]) == {UNKNOWN: False, KNOWN: True}


@pytest.mark.slow
def test_what_was_asked_once_is_not_asked_again_by_it_or_by_a_child(nothing_asked, monkeypatch):
    asked = []
    monkeypatch.setattr(jax_settings, "_parses", lambda flags: asked.append(list(flags)) or True)
    assert jax_settings.supported_flags([KNOWN]) == jax_settings.supported_flags([KNOWN]) == (KNOWN,)
    assert jax_settings.supported_flags([KNOWN, "--another=1"]) == (KNOWN, "--another=1")
    assert asked == [[KNOWN], ["--another=1"]]
    code = (
        "from fedjax_sel.core import jax_settings; jax_settings._parses = None; "
        f"print(*jax_settings.supported_flags(['--another=1', {KNOWN!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout == f"--another=1 {KNOWN}\n", done.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_damaged_answer_is_asked_again(monkeypatch, text):
    monkeypatch.setenv(jax_settings.VARIABLE, text)
    monkeypatch.setattr(jax_settings, "_parses", lambda flags: True)
    assert jax_settings.supported_flags([KNOWN]) == (KNOWN,)


@pytest.mark.slow
def test_the_tests_set_what_is_known():
    """By the conftest itself, with the answers of another jaxlib."""
    answers = {"--xla_backend_optimization_level=0": True, "--xla_cpu_use_fusion_emitters=false": False}
    code = "import runpy, os; runpy.run_path('tests/conftest.py'); print(os.environ['XLA_FLAGS'])"
    environment = os.environ | {"XLA_FLAGS": "--mine=1", jax_settings.VARIABLE: json.dumps(answers)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, env=environment)
    assert done.stdout.split() == ["--xla_backend_optimization_level=0", "--mine=1"], done.stderr


def test_no_flag_of_these_tests_is_unknown():
    flags = os.environ["XLA_FLAGS"].split()
    assert flags and jax_settings._parses(flags)


def test_deterministic_sets_what_is_known(nothing_asked, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", KNOWN)
    devices.be_deterministic()
    assert os.environ["XLA_FLAGS"] == f"{KNOWN} {devices.DETERMINISTIC}"


def test_deterministic_comes_too_late_once_a_gpu_is_started(nothing_asked, monkeypatch):
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


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_deterministic_where_xla_does_not_know_the_flag(nothing_asked, monkeypatch, backend):
    monkeypatch.setenv("XLA_FLAGS", KNOWN)
    monkeypatch.setattr(devices, "DETERMINISTIC", UNKNOWN)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    config = fedjax_sel.preset("quickstart").replace(deterministic=True)
    if backend == "cpu":  # where everything repeats anyway
        experiment.start_jax(config)
    else:
        with pytest.raises(UserError, match="--deterministic: the installed jaxlib does not know --xla_no_such_flag"):
            experiment.start_jax(config)
    assert os.environ["XLA_FLAGS"] == KNOWN
