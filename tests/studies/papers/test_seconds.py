"""Seconds on pages are those of rounds at full speed; what the compiler takes stands apart."""

import dataclasses

import numpy as np

from fedjax_sel.runs.run_files import Result
from studies.papers.entries import fedcor
from studies.papers.entry import Cell
from tests.studies.papers import made_up


def timed(first, steady, rounds=10):
    """A run whose first round waits for the compiler."""
    result: Result = made_up.result(np.zeros((2, rounds)))
    each = np.array([first] + [steady] * (rounds - 1))
    known = np.array([np.nan] + [steady] * (rounds - 1))
    return dataclasses.replace(result, elapsed_seconds=np.cumsum(each), round_seconds=known)


def test_compilation_is_no_part_of_what_runs_took():
    """Two runs of ten rounds of a minute, the first of which waits half a minute longer."""
    results = {Cell("a", "x"): timed(90.0, 60.0), Cell("a", "y"): timed(90.0, 60.0)}
    assert fedcor.about(results) == ["1.0 minutes of the runs' time were compilation."]
    unknown = dataclasses.replace(timed(90.0, 60.0), round_seconds=np.full(10, np.nan))
    assert fedcor.about({Cell("a", "x"): unknown}) == []
    assert fedcor.about({}) == []
