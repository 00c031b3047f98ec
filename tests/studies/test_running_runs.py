"""Runs that go on are read as far as they got."""

import dataclasses

import numpy as np
import pytest

from fedjax_sel.runs import run_files
from fedjax_sel.runs.run_files import csv_text
from studies import grid
from tests.reporting import made_up


def write(folder, rounds, cohorts):
    """Write a run that has so many rounds in its rows and in its cohorts."""
    result = made_up.result(0.8, rounds=made_up.ROUNDS)
    folder.mkdir()
    run_files.write_json(folder / run_files.CONFIG, result.config.to_json())
    part = dataclasses.replace(
        result, cohorts=result.cohorts[:, :rounds], elapsed_seconds=result.elapsed_seconds[:rounds],
        round_seconds=result.round_seconds[:rounds],
    )  # fmt: skip
    if rounds:  # a run that has just started has no rows
        (folder / run_files.METRICS).write_text(csv_text(part, 0, header=True))
    if cohorts:
        np.save(folder / run_files.COHORTS, result.cohorts[:, :cohorts])
    return result


@pytest.mark.parametrize("rows,cohorts", [(0, 0), (3, 0), (7, 4), (20, 20)])
def test_a_run_is_read_as_far_as_it_got(tmp_path, rows, cohorts):
    whole = write(tmp_path / "run", rows, cohorts)
    found = grid.so_far(tmp_path / "run")
    assert found.num_rounds == rows
    if rows:
        np.testing.assert_allclose(found.test_accuracy, whole.test_accuracy[:, :rows], rtol=1e-6)
    np.testing.assert_array_equal(found.cohorts[:, :cohorts], whole.cohorts[:, :cohorts])
    assert (found.cohorts[:, cohorts:] == -1).all()


def test_half_a_row_is_not_yet_a_round(tmp_path):
    write(tmp_path / "run", 3, 0)
    table = tmp_path / "run" / run_files.METRICS
    table.write_text(table.read_text()[:-20])
    assert grid.so_far(tmp_path / "run").num_rounds == 2
