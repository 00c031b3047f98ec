"""Pictures of an entry's runs."""

import dataclasses

import numpy as np
import pytest

from studies.papers import curves
from studies.papers.entry import Cell
from tests.studies.papers import made_up


def lines_of(results):
    figure = curves.by_round(results, lambda result: result.measured["test_accuracy"], "accuracy")
    return figure.axes[0]


def test_a_measure_of_every_fifth_round_is_a_line():
    accuracy = np.full((2, 100), np.nan)
    accuracy[:, 4::5] = np.linspace(0.1, 0.9, 20)
    axis = lines_of({Cell("mnist", "random"): made_up.result(accuracy)})
    (line,) = axis.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), np.arange(5, 101, 5))
    np.testing.assert_allclose(line.get_ydata(), np.linspace(0.1, 0.9, 20))


def test_a_run_that_ended_early_is_averaged_over_as_many_rounds():
    steps = np.arange(200.0)[None] / 200
    whole = made_up.result(steps)
    early = made_up.result(steps[:, :60])
    early = dataclasses.replace(early, config=whole.config)
    axis = lines_of({Cell("mnist", "random"): whole, Cell("mnist", "fl_dp3s"): early})
    one, other = (line.get_ydata() for line in axis.get_lines())
    np.testing.assert_allclose(one[:60], other)
    assert one[10] == pytest.approx(steps[0, 7:11].mean())  # 2 % of 200 rounds
    assert axis.get_ylabel() == "accuracy, running mean of 4 rounds"


def test_what_was_never_measured_is_no_line():
    axis = lines_of({Cell("mnist", "random"): made_up.result(np.full((1, 3), np.nan))})
    assert not axis.get_lines()
