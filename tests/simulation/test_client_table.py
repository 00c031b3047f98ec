"""What is kept of clients in host memory gives the run that tables on the devices give."""

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.core import memory
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import experiment, reading
from fedjax_sel.simulation import layout, run
from fedjax_sel.simulation.client_table import HostTable, Kept

CONFIG = fedjax_sel.preset("quickstart").replace(
    dataset="synthetic:train_size=300,test_size=40,num_classes=4,image_size=4", num_clients=12, num_selected=3,
    partition="dirichlet", alpha=1.0, dirichlet_form="yurochkin", optimizer="scaffold", algo="random", local_epochs=2,
    rounds=7, chunk=2, momentum=0.5, momentum_buffer="persistent", report_failure_rate=0.2,
)  # fmt: skip
PROBES = {"algo": "fedcor", "algo_args": {"warmup": 2, "interval": 2, "warmup_steps": 2, "steps": 2}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": 4, "mesh": "seeds=2"},
        {"seeds": 1, "cohort_batch": 0, "num_selected": 4, "mesh": "clients=2"},
        # groups that take turns share one store
        {"seeds": 2, "seeds_at_once": 1},
        # trains at the round's model without keeping what that changes
        {"seeds": 2, **PROBES},
        # not zero at first
        {"seeds": 1, "optimizer": "fedavg", "client_optimizer": "adagrad", "momentum": 0.0},
    ],
    ids=["groups", "shares", "turns", "probes", "adagrad"],
)
def test_the_run_is_the_same(changes):
    config = CONFIG.replace(**changes)
    on_device, on_host = (fedjax_sel.run(config.replace(host_client_state=where)) for where in (False, True))
    for name in ("cohorts", "test_accuracy", "test_loss"):
        np.testing.assert_array_equal(getattr(on_host, name), getattr(on_device, name))
    for one, other in zip(on_host.ledger, on_device.ledger):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_no_row_lies_on_a_device_and_a_checkpoint_holds_them_all():
    problem = pose(CONFIG.replace(host_client_state=True, seeds=2))
    laid_out = layout.lay_out(problem, 2)
    store = laid_out.plan.store
    assert store is not None
    programs = run.prepare_groups(problem, laid_out)
    assert isinstance(programs[0].carry.clients, HostTable)
    largest = max(array.nbytes for array in store.arrays)
    assert all(leaf.nbytes < largest for leaf in jax.tree.leaves(programs[0].carry))
    for chunk in run.chunks(*programs):
        state = chunk.copy_state()
        assert isinstance(state.carry.clients, Kept)
        # the server's variate is the mean of the clients', of the same round
        for own, shared in zip(jax.tree.leaves(state.carry.clients.own), jax.tree.leaves(state.carry.shared)):
            np.testing.assert_allclose(own.mean(axis=1), shared, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"seeds": 2}, {"seeds": 2, "seeds_at_once": 1}], ids=["together", "turns"])
def test_a_run_goes_on_in_either_place(changes, tmp_path):
    config = CONFIG.replace(checkpoint_every=2, out=str(tmp_path / "run"), host_client_state=True, **changes)
    whole = fedjax_sel.run(config.replace(out=None, host_client_state=False))

    class Dying(experiment.Writer):
        def checkpoint(self, state, result, ends):
            super().checkpoint(state, result, ends)
            if state.rounds == 4:
                raise KeyboardInterrupt

    for where in (True, False):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(experiment, "Writer", Dying)
            fedjax_sel.run(config.replace(resume="never"))
        result = fedjax_sel.run(config.replace(host_client_state=where))
        for name in ("cohorts", "test_loss"):
            np.testing.assert_array_equal(getattr(result, name), getattr(whole, name))
    assert reading.load(tmp_path / "run").num_rounds == 7


def test_what_devices_do_not_hold_stays_with_the_host(monkeypatch):
    problem = pose(CONFIG)
    params = problem.model.num_params
    table = 4 * 12 * 2 * params  # variates and momentum
    for limit, stays in ((table, True), (100 * table, False), (None, False)):
        monkeypatch.setattr(memory, "device_memory", lambda limit=limit: limit)
        assert (layout.lay_out(problem, 1).plan.store is not None) == stays
    monkeypatch.setattr(memory, "device_memory", lambda: 8 * table)
    two_seeds = pose(CONFIG.replace(seeds=2, mesh="seeds=1"))
    assert layout.lay_out(two_seeds, 2).plan.store is not None  # 6 copies are more than 0.7 of 8
    assert layout.lay_out(two_seeds, 1).plan.store is None  # in turns, 3 are not
    nothing = pose(CONFIG.replace(optimizer="fedavg", momentum_buffer="reset", host_client_state=True))
    assert layout.lay_out(nothing, 1).plan.store is None
