"""A true answer ends a run, whatever it is of."""

import signal

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import callbacks
from fedjax_sel.runs import checkpoint, reading, run_files
from fedjax_sel.runs.experiment import run_experiment
from tests.experiment.test_values import of

TRUE = [True, np.bool_(True), np.asarray(True), jnp.array(True), jnp.ones(1) > 0, 1, "done"]
FALSE = [None, False, np.bool_(False), np.asarray(False), jnp.array(False), 0, 0.0]


class Answers:
    def __init__(self, answer):
        self.answer = answer

    def chunk(self, *_):
        return self.answer

    start = snapshot = end = resume = chunk


@pytest.mark.parametrize("method", ["chunk", "resume"])
def test_an_answer_is_as_true_as_it_is(method):
    assert all(callbacks.call((Answers(answer),), method) is True for answer in TRUE)
    assert all(callbacks.call((Answers(answer),), method) is False for answer in FALSE)
    assert callbacks.call((Answers(None), Answers(np.asarray(True)), Answers(0)), method)


def test_methods_that_are_not_asked_answer_what_they_like():
    for method in ("start", "snapshot", "end"):
        assert callbacks.call((Answers(True), Answers(np.zeros(2))), method) is False


@pytest.mark.slow
def test_an_array_ends_a_run():
    class Enough:
        def chunk(self, rounds, first):
            return jnp.asarray(rounds.test_loss).min() < np.inf

    result = fedjax_sel.run(of(rounds=9), callbacks=Enough())
    assert result.num_rounds == 2 and not result.finished  # the device is one chunk ahead


class Interrupting:
    """As a callback that is a debugger, or that asks a person; its third call is interrupted."""

    def __init__(self, method):
        self.calls = 0
        setattr(self, method, self.call)

    def call(self, *_):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("method", ["chunk", "snapshot", "weights"])
def test_an_interruption_by_a_callback_loses_no_round(tmp_path, method):
    experiment = of(rounds=9, chunk=1, names={"model": "line-1"}, out=str(tmp_path / "run"))
    result = run_experiment(experiment, watching=[Interrupting(method)])
    assert result.stopped_by == signal.SIGINT and 0 < result.num_rounds < 9
    assert reading.load(tmp_path / "run").num_rounds == result.num_rounds
    assert checkpoint.list_all(tmp_path / "run" / run_files.CHECKPOINTS), "it can go on"
