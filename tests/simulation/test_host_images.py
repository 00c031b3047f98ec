"""Images in host memory give the run that images on the devices give."""

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.core import memory
from fedjax_sel.data.federation import HostImages, image_block, take
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import layout, run

CONFIG = fedjax_sel.preset("quickstart").replace(
    algo="fl_dp3s", rounds=3, chunk=2, num_clients=12, num_selected=4, local_epochs=1, train_metrics_every=1
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": 2, "cohort_batch": 0},
        {"seeds": 1, "cohort_batch": 1},
        {"seeds": 3, "cohort_batch": 2, "algo": "fedcor"},
    ],
)  # fmt: skip
def test_the_run_is_the_same(changes):
    config = CONFIG.replace(**changes)
    on_device, on_host = (fedjax_sel.run(config.replace(host_images=where)) for where in (False, True))
    for name in ("cohorts", "test_accuracy", "test_loss", "train_accuracy", "train_loss"):
        np.testing.assert_array_equal(getattr(on_host, name), getattr(on_device, name))


@pytest.mark.slow
def test_no_image_lies_on_a_device():
    program = run.prepare(pose(CONFIG.replace(host_images=True)))
    assert isinstance(program.federation.images, HostImages)
    images = program.federation.images.array
    on_devices = [leaf for leaf in jax.tree.leaves((program.federation, program.carry)) if leaf is not images]
    assert not any(leaf.size >= images.size and leaf.shape[:1] == images.shape[:1] for leaf in on_devices)
    kept = run.prepare(pose(CONFIG.replace(host_images=False))).federation
    assert any(leaf.size >= images.size and leaf.shape[:1] == images.shape[:1] for leaf in jax.tree.leaves(kept))


def test_what_a_device_does_not_hold_stays_with_the_host(monkeypatch):
    problem = pose(CONFIG)
    size = problem.dataset.train_images.nbytes
    for limit, stays in ((size, True), (2 * size, False), (None, False)):
        monkeypatch.setattr(memory, "device_memory", lambda limit=limit: limit)
        assert layout.images_stay_on_host(problem) == stays


def test_rows_and_blocks(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (9, 3, 2, 1), np.uint8)
    np.save(tmp_path / "images.npy", images)
    mapped = HostImages(np.load(tmp_path / "images.npy", mmap_mode="r"))
    rows = np.array([[8, 0], [3, 3], [1, 7]])
    for given in (jax.numpy.asarray(images), mapped):
        np.testing.assert_array_equal(take(given, jax.numpy.asarray(rows)), images[rows])
        np.testing.assert_array_equal(jax.jit(jax.vmap(lambda r, g=given: take(g, r)))(rows), images[rows])
        np.testing.assert_array_equal(jax.jit(lambda s, g=given: image_block(g, s, 4))(3), images[3:7])
