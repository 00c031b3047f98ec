"""Seconds on pages are those of rounds at full speed; what the compiler takes stands apart."""

import dataclasses

import numpy as np

from fedjax_sel.runs.run_files import Result
from studies.papers import verdicts
from studies.papers.entries import ENTRIES, fedcor
from studies.papers.entries.gpfl import COLUMNS
from studies.papers.entry import Cell, Scale
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


def test_power_of_choice_is_not_slower_for_training_its_cohort_twice():
    """It chooses by its candidates' training, which a client would not repeat: up to a random run's time less."""

    def judged(**seconds):
        results = {Cell(column, row): timed(steady, steady) for column in COLUMNS for row, steady in seconds.items()}
        rows = ENTRIES["gpfl/fig6"].judge(results, Scale()).rows
        return {row.what: row.verdict for row in rows if row.verdict}

    found = judged(random=5.0, gpfl=7.0, pow_d=10.0, fedcor=7.0)  # between 5 and 10
    assert (
        found["gpfl takes less time than pow_d"] == found["pow_d takes less time than fedcor"] == verdicts.INCONCLUSIVE
    )
    found = judged(random=5.0, gpfl=4.0, pow_d=10.0, fedcor=20.0)
    assert found["gpfl takes less time than pow_d"] == found["pow_d takes less time than fedcor"] == verdicts.REPRODUCED
    assert judged(random=5.0, pow_d=20.0, fedcor=4.0)["pow_d takes less time than fedcor"] == verdicts.CONTRADICTED
