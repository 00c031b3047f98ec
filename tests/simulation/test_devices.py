"""The same run on one device and on eight: the same cohorts, and the same numbers within rounding."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import fedjax_sel
from fedjax_sel import devices
from fedjax_sel.errors import UserError
from fedjax_sel.runs import reading

# Few steps of Adam, whose many would amplify rounding until another client is ahead.
ARGUMENTS = [
    "--algo", "fedcor", "--algo-args", "warmup=2", "interval=2", "warmup_steps=5", "steps=3", "--rounds", "5",
    "--chunk", "2", "--num-clients", "12", "--num-selected", "4", "--local-epochs", "1", "--train-metrics-every", "2",
]  # fmt: skip


def start(out, *more, cores=1, **environment):
    """The command in a process of its own with so many CPU devices."""
    code = (
        "import sys, jax; from fedjax_sel import devices; "
        f"devices.num_cores = lambda: {cores}; from fedjax_sel.cli import command_line, train; "
        "sys.exit(command_line.guarded(train.main))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *ARGUMENTS, "--out", str(out), *more],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process, out):
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, output + error
    return reading.load(Path(out))


def assert_same(found, expected):
    np.testing.assert_array_equal(found.cohorts, expected.cohorts)
    np.testing.assert_allclose(found.test_loss, expected.test_loss, rtol=1e-4)
    np.testing.assert_allclose(found.train_loss, expected.train_loss, rtol=1e-4)
    np.testing.assert_allclose(found.test_accuracy, expected.test_accuracy, atol=0.006)  # two of 355 images
    for name, column in found.ledger._asdict().items():
        np.testing.assert_array_equal(column, getattr(expected.ledger, name))


@pytest.mark.parametrize("share,at_once,num_replicates,items", [(1, 0, 1, 5), (2, 2, 3, 3), (2, 1, 2, 1)])
def test_devices_add_up_what_belongs_to_a_replicate(share, at_once, num_replicates, items):
    if share > len(jax.devices()):
        pytest.skip(f"{len(jax.devices())} devices")
    mesh = Mesh(np.array(jax.devices()[:share]).reshape(1, share), (devices.SEEDS, devices.CLIENTS))
    weights = np.arange(num_replicates * items, dtype=np.float32).reshape(num_replicates, items)
    values = np.linspace(-1, 1, num_replicates * items * 4, dtype=np.float32).reshape(-1, 2, 2)

    def all_jobs(values, weights):
        return devices.spread_and_add(
            mesh, lambda shared, job: (job.sum(), {"a": shared * job, "b": job[0, 0]}), 2.0, values, at_once, weights
        )

    run = jax.jit(devices.over_seeds(mesh, all_jobs, (devices.WHOLE, devices.WHOLE), devices.WHOLE))
    results, sums = run(values, weights)
    np.testing.assert_allclose(results, values.sum(axis=(1, 2)), rtol=1e-6, atol=1e-6)
    grouped = values.reshape(num_replicates, items, 2, 2)
    expected = np.einsum("sk,skij->sij", weights, grouped)
    np.testing.assert_allclose(sums["a"], 2 * expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums["b"], expected[:, 0, 0], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Four seeds on one device."""
    out = tmp_path_factory.mktemp("alone") / "run"
    return result(start(out, "--seeds", "4"), out)


@pytest.mark.parametrize(
    "layout",
    [
        ["--mesh", "seeds=2,clients=4"],
        ["--mesh", "clients=2"],
        ["--mesh", "seeds=4"],
        [],
    ],
    ids=lambda layout: " ".join(layout) or "default",
)
@pytest.mark.slow
def test_eight_devices_give_the_run_of_one(alone, layout, tmp_path):
    out = tmp_path / "run"
    assert_same(result(start(out, "--seeds", "4", *layout, cores=8), out), alone)


@pytest.mark.parametrize(
    "seeds,selected,num_devices,shape",
    [
        (1, 5, 2, (1, 2)),
        (2, 5, 2, (2, 1)),
        (5, 5, 2, (1, 2)),
        (20, 5, 8, (4, 2)),
        (1, 1, 8, (1, 1)),
        (1, 10, 8, (1, 5)),  # two turns: five devices do what eight would
        (3, 2, 8, (3, 2)),
        (8, 10, 8, (8, 1)),
    ],
)
def test_the_default_layout_takes_the_fewest_turns(monkeypatch, seeds, selected, num_devices, shape):
    monkeypatch.setattr(jax, "devices", lambda: list(range(num_devices)))
    monkeypatch.setattr(devices, "Mesh", lambda rows, axes: rows)
    assert devices.make_mesh(seeds, selected, 0).shape == shape
    per_group = seeds // shape[0] * selected
    assert -(-per_group // shape[1]) <= -(-seeds * selected // num_devices)


@pytest.mark.parametrize(
    "shape,message",
    [
        ((2, 4), r"8 devices exceed the 2 available; give seeds=1,clients=2"),
        ((3, 1), r"4 seeds cannot be split into 3 equal groups and 3 devices exceed .*; give seeds=2,clients=1"),
        ((1, 3), r"10 clients per round cannot be split into 3 equal shares .*; give seeds=1,clients=2"),
    ],
)  # fmt: skip
def test_a_mesh_that_cannot_be_had(shape, message):
    with pytest.raises(UserError, match=message):
        devices.check_shape(shape, 4, 10, 2)


@pytest.mark.parametrize("text", ["", "2", "seeds", "seeds=0", "seeds=2,seeds=2", "rows=2", "seeds=-1", "seeds=1.5"])
def test_a_mesh_that_is_none(text):
    with pytest.raises(UserError, match=re.escape(f"--mesh: {text!r} is not of the form seeds=2,clients=4")):
        fedjax_sel.run(fedjax_sel.preset("quickstart").replace(mesh=text))


@pytest.mark.parametrize("backend,kept", [("cpu", False), ("gpu", True), ("tpu", True)])
def test_programs_of_accelerators_are_kept(monkeypatch, tmp_path, backend, kept):
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path))
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    setting, told = "jax_compilation_cache_dir", {}
    before = jax.config.values[setting]
    jax.config.update(setting, None)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(jax.config, "update", told.__setitem__)
            devices.keep_programs()
    finally:
        jax.config.update(setting, before)
    assert told == ({setting: str(tmp_path / "programs")} if kept else {})
