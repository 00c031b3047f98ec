"""Told the simulator's facts, a Selector names the simulator's cohorts, and bills what its ledger counts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedjax_sel import strategies
from tests.selector.recording import Recording

ADAM = ("fedgp", "fedcor")
"""Adam makes much of a last bit. Two programs have the same one as XLA compiles for users, and not with the flags by
which the suite compiles quickly: these run in a process without them."""


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("algo", ["afl", "gpfl", "pow_d"])
def test_a_few_rounds(algo):
    recording = Recording(algo, 4, available="0.7", lost=0.2)
    recording.play(recording.selector())


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
        ("gpfl", {"preset": "gpfl-ref"}),
        ("gpfl", {"start": "all-clients"}),
        ("clustered", {}),
    ],
    ids=str,
)
def test_their_variants(algo, parameters):
    recording = Recording(algo, 12, available="0.7", lost=0.2, **parameters)
    recording.play(recording.selector())
