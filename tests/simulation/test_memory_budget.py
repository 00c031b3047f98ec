"""Seeds that take turns give what seeds together give."""

import logging

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import layout, run

CONFIG = fedjax_sel.preset("quickstart").replace(
    rounds=5, chunk=2, num_clients=12, num_selected=4, local_epochs=1, seeds=4, train_metrics_every=2
)


@pytest.mark.parametrize(
    "algo", [pytest.param("fl_dp3s", marks=pytest.mark.slow), pytest.param("oort", marks=pytest.mark.slow)]
)
def test_turns_change_nothing(algo):
    together = fedjax_sel.run(CONFIG.replace(algo=algo))
    in_turns = fedjax_sel.run(CONFIG.replace(algo=algo, seeds_at_once=2))
    np.testing.assert_array_equal(in_turns.cohorts, together.cohorts)
    np.testing.assert_allclose(in_turns.test_loss, together.test_loss, rtol=1e-4)
    np.testing.assert_allclose(in_turns.train_loss, together.train_loss, rtol=1e-4)
    for name, column in in_turns.ledger._asdict().items():
        np.testing.assert_array_equal(column, getattr(together.ledger, name))


@pytest.mark.slow
def test_groups_share_images_and_compiled_rounds(caplog):
    problem = pose(CONFIG.replace(algo="random"))
    first, second = run.prepare_groups(problem, layout.lay_out(problem, 2))
    assert first.chunk is second.chunk and first.federation.images is second.federation.images
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for _ in run.chunks(first, second):
            pass
    messages = [record.getMessage() for record in caplog.records]
    assert len([text for text in messages if text.startswith("Compiling jit(chunk)")]) == 1


@pytest.mark.parametrize("together,near", [(3, 2), (0, 1), (8, 4)])
def test_groups_that_are_not_equal(together, near):
    with pytest.raises(UserError, match=f"--seeds-at-once: {together} does not divide the 4 seeds .*; give {near}, or"):
        fedjax_sel.run(CONFIG.replace(seeds_at_once=together))
