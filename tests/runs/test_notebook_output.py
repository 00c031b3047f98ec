"""Progress in a notebook: one output that is replaced, and nothing on standard error."""

import os
import signal
import sys

import numpy as np
import pytest
import rich.console

import fedjax_sel
from fedjax_sel.runs import terminal
from fedjax_sel.runs.terminal import Reporter

IPython = pytest.importorskip("IPython")

SMALL = fedjax_sel.Config().replace(
    algo="random", num_clients=6, num_selected=2, rounds=4, chunk=1, local_epochs=None, local_steps=1
)


class Cell:
    """What a cell shows: a list of outputs, each a list of what it was one after another."""

    def __init__(self):
        self.outputs = []

    def display(self, bundle, raw, display_id):
        assert raw and display_id
        self.outputs.append([bundle])
        return Handle(self.outputs[-1])


class Handle:
    def __init__(self, output):
        self.output = output

    def update(self, bundle, raw):
        assert raw
        self.output.append(bundle)


@pytest.fixture
def cell(monkeypatch):
    """A cell of a notebook, as far as Reporter can tell."""
    shown = Cell()
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(IPython.display, "display", shown.display)
    return shown


@pytest.mark.slow
def test_a_run_has_one_output_that_moves_and_standard_error_stays_empty(cell, capfd, tmp_path):
    result = fedjax_sel.run(SMALL, out=str(tmp_path / "run"), progress=True)
    (output,) = cell.outputs
    assert "compiling" in output[0]["text/plain"]
    assert any("round 2/4" in shown["text/plain"] and "<progress" in shown["text/html"] for shown in output)
    last = output[-1]
    assert f"random: round 4/4  accuracy {result.test_accuracy[0, -1]:.3f}" in last["text/plain"]
    assert "<b>random</b>: round 4/4" in last["text/html"] and "<progress" not in last["text/html"]
    fedjax_sel.run(SMALL, out=str(tmp_path / "run"), progress=True)
    assert "all 4 rounds are finished" in cell.outputs[1][-1]["text/plain"]
    assert capfd.readouterr() == ("", "")


def test_messages_stay_above_the_line_that_moves(cell, capfd):
    with Reporter(SMALL.replace(rounds=10, algo="a<b"), 0.0) as reporter:
        reporter.say("resuming after round 4 & no other")
        reporter.resume_after(4)
        for done in (6, 8):
            reporter.chunk(done, np.array([[0.5]]), np.array([[1.0]]))
    (output,) = cell.outputs
    first, second = output[-1]["text/plain"].splitlines()
    assert first == "a<b: resuming after round 4 & no other" and second.startswith("a<b: round 8/10")
    assert "resuming after round 4 &amp; no other<br><b>a&lt;b</b>: " in output[-1]["text/html"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_an_interrupted_cell_says_how_to_go_on(cell, capfd, tmp_path):
    class Impatient:
        def chunk(self, rounds, first):
            if first == 0:
                os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "run"
    result = fedjax_sel.run(SMALL, out=str(out), callbacks=[Impatient()], progress=True)
    assert not result.finished and result.stopped_by == signal.SIGINT
    last = cell.outputs[0][-1]["text/plain"]
    assert f"stopped after round {result.num_rounds} of 4; the same cell resumes from there ({out})" in last
    fedjax_sel.run(SMALL, out=str(out), progress=True)
    assert f"resuming after round {result.num_rounds}" in cell.outputs[1][-1]["text/plain"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_who_asks_for_no_progress_sees_none(cell, capfd):
    fedjax_sel.run(SMALL)
    assert cell.outputs == [] and capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_outside_of_a_notebook_ipython_is_not_imported(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    fedjax_sel.run(SMALL, progress=True)
    assert "round 4/4" in capfd.readouterr().err
