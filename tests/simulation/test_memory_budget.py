"""Seeds that take turns give what seeds together give, and the estimate of their memory is a fair one."""

import logging

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.core import memory
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import layout, run, seed_groups

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"algo": "random"},
        {"algo": "divfl", "num_clients": 50},  # N x P facts
        {"algo": "random", "model": "cnn_small", "dataset": "mnist"},
        {"algo": "fedcor", "num_selected": 10, "num_clients": 50},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_the_estimate_is_not_below_what_the_compiler_says_nor_far_above(changes):
    problem = pose(CONFIG.replace(**changes))
    program = run.prepare(problem)
    compiled = program.chunk.lower(program.carry, np.int32(0), program.federation, program.streams).compile()
    actual, estimate = memory.program_bytes(compiled), seed_groups.needed_bytes(problem, 4)
    assert actual * 0.8 <= estimate <= actual * 4


@pytest.mark.slow
def test_as_many_as_fit_in_equal_groups():
    problem = pose(CONFIG.replace(algo="random"))
    one, two, four = (seed_groups.needed_bytes(problem, count) for count in (1, 2, 4))
    assert one < two < four
    for limit, together in ((four, 4), (four - 1, 2), (two - 1, 1), (None, 4)):
        assert seed_groups.seeds_that_fit(problem, limit)[0] == together
    assert seed_groups.seeds_that_fit(problem, two) == (2, two, four)
    with pytest.raises(UserError, match=r"--seeds: one seed needs about .* GB of a device's memory, which has"):
        seed_groups.seeds_that_fit(problem, one - 1)


@pytest.mark.slow
def test_groups_of_seeds_are_dealt_out_among_those_of_the_mesh():
    problem = pose(CONFIG.replace(algo="random", seeds=6, mesh="seeds=2"))
    two, six = (seed_groups.needed_bytes(problem, count) for count in (2, 6))
    assert seed_groups.seeds_that_fit(problem, six - 1)[0] == 2  # not 3, of which two groups get no equal parts
    with pytest.raises(UserError, match=r"--seeds: 2 seeds, one for each part of --mesh seeds=2, need about"):
        seed_groups.seeds_that_fit(problem, two - 1)


@pytest.mark.slow
def test_a_run_splits_its_seeds_by_itself_and_says_so(monkeypatch, capsys):
    config = CONFIG.replace(algo="random", rounds=2)
    limit = seed_groups.needed_bytes(pose(config), 2)
    monkeypatch.setattr(memory, "device_memory", lambda: limit)
    result = fedjax_sel.run(config, progress=True)
    assert result.finished and result.test_accuracy.shape == (4, 2)
    assert "running 2 at a time" in capsys.readouterr().err


@pytest.mark.parametrize("together,near", [(3, 2), (0, 1), (8, 4)])
def test_groups_that_are_not_equal(together, near):
    with pytest.raises(UserError, match=f"--seeds-at-once: {together} does not divide the 4 seeds .*; give {near}, or"):
        fedjax_sel.run(CONFIG.replace(seeds_at_once=together))


def test_memory_of_this_machine():
    assert memory.device_memory() * jax.local_device_count() > 1e8
