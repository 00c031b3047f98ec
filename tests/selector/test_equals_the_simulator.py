"""Told the simulator's facts, a Selector names the simulator's cohorts, and bills what its ledger counts."""

import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, strategies
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import ALL, Request, every
from tests.selector.recording import K, N, Recording

ADAM = ("fedgp", "fedcor")
"""Adam makes much of a last bit. Two programs have the same one as XLA compiles for users, and not with the flags by
which the suite compiles quickly: these run in a process without them."""


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("algo", ["afl", "gpfl", "pow_d"])
def test_a_few_rounds(algo):
    recording = Recording(algo, 4, available="0.7", lost=0.2)
    recording.play(recording.selector())


def by_duration():
    """Selects clients with short durations, of queries and of past reports."""

    def init(key, now):
        assert now.env.has_clock
        return jnp.zeros((now.env.num_clients,))

    def select(key, state, now):
        seconds = state + now.info.seconds.value
        ids = jnp.argsort(seconds if now.available is None else jnp.where(now.available, seconds, jnp.inf))[:K]
        return Selection(ids.astype(jnp.int32), None, jnp.ones((K,), bool))

    def update(state, now, selection, outcome):
        return state.at[selection.ids].add(jnp.where(outcome.reported, outcome.seconds, 10.0))

    return Strategy("by_duration", select, (Request("seconds", ALL, every(2)),), init=init, update=update)


@pytest.mark.slow
def test_the_simulators_durations_give_its_cohorts(tmp_path):
    recording = Recording(by_duration(), 6, available="0.7", lost=0.2)
    seconds = [outcome.seconds[mask] for _, mask, outcome in recording.answered["update"].values()]
    assert all((one > 0).all() for one in seconds) and len(np.unique(np.concatenate(seconds))) > 6
    first, resumed = recording.selector(), recording.selector()
    recording.play(first, last=3)
    first.save(tmp_path / "selector.npz")
    resumed.load(tmp_path / "selector.npz")
    recording.play(resumed, first=3)
    with pytest.raises(UserError, match=r"another Selector \(.*has_clock\)"):
        fedjax_sel.Selector("random", N, K, 6, sizes=[1] * N).load(tmp_path / "selector.npz")


@pytest.mark.slow
def test_probes_are_told_as_values():
    parameters = {"warmup": 2, "interval": 2, "warmup_steps": 3, "steps": 2, "dimension": 2}
    recording = Recording("fedcor", 5, **parameters)
    recording.play(recording.selector())


@pytest.mark.slow
@pytest.mark.parametrize("available", ["1", "0.7"])
@pytest.mark.parametrize("algo", strategies.names())
def test_all_strategies_over_thirty_rounds(algo, available):
    if algo not in ADAM:
        recording = Recording(algo, 30, available=available)
        recording.play(recording.selector())
        return
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "tests.selector.recording", algo, available, "30"]
    subprocess.run(command, check=True, env=own, cwd=Path(__file__).parents[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo,parameters",
    [
        ("pow_d", {"variant": "rpow-d"}),
        ("pow_d", {"variant": "train-first"}),
        ("random", {"variant": "md"}),
        ("random", {"variant": "pps-wor"}),
        ("osmd", {}),
        ("delta", {"score": "share-diversity"}),
        ("gpfl", {"preset": "gpfl-ref"}),
        ("gpfl", {"start": "all-clients"}),
        ("clustered", {}),
    ],
    ids=str,
)
def test_their_variants(algo, parameters):
    recording = Recording(algo, 12, available="0.7", lost=0.2, **parameters)
    recording.play(recording.selector())
