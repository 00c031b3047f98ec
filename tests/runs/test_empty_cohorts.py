"""Rounds in which nobody can be reached: no GEMD, in memory, on disk, in tables and in pictures."""

import csv
import warnings

import numpy as np
import pytest
from matplotlib.axes import Axes

import fedjax_sel
from fedjax_sel.cli import command_line, report
from fedjax_sel.reporting import comparison, plots
from fedjax_sel.runs import reading

SMALL = fedjax_sel.preset("quickstart").replace(
    algo="random", rounds=12, chunk=3, seeds=2, num_clients=10, num_selected=3, local_epochs=1, available=0.05,
    target_accuracy=0.99,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "random"
    return out, fedjax_sel.run(SMALL.replace(out=str(out)), progress=True)


@pytest.mark.slow
def test_an_empty_cohort_is_not_measured(run):
    _, result = run
    empty = (result.cohorts < 0).all(axis=2)
    assert 0 < empty.sum() < empty.size
    np.testing.assert_array_equal(np.isnan(result.gemd), empty)
    assert (result.gemd[~empty] > 0.5).all()  # one or two labels of ten
    assert np.isfinite(result.test_accuracy).all()


@pytest.mark.slow
def test_its_cell_is_empty_and_is_read_back_as_nan(run):
    out, result = run
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    cells = np.array([row["gemd"] for row in rows]).reshape(12, 2).T
    np.testing.assert_array_equal(cells == "", np.isnan(result.gemd))
    np.testing.assert_array_equal(reading.load(out).gemd, result.gemd)


@pytest.mark.slow
def test_a_run_goes_on_over_such_rounds(run, tmp_path):
    out = str(tmp_path / "shorter")
    first = fedjax_sel.run(SMALL.replace(rounds=6, out=out))
    assert np.isnan(first.gemd).any()
    np.testing.assert_array_equal(fedjax_sel.run(SMALL.replace(out=out)).gemd, run[1].gemd)
    np.testing.assert_array_equal(reading.load(tmp_path / "shorter").gemd, run[1].gemd)


@pytest.mark.slow
def test_means_are_over_the_rounds_that_have_one(run):
    _, result = run
    expected = np.nanmean(result.gemd, axis=1)
    np.testing.assert_allclose(dict(result.summary())["mean GEMD of the cohorts"], expected, rtol=1e-6)
    np.testing.assert_allclose(comparison.row("s", "a", result).gemd.mean, expected.mean(), rtol=1e-6)
    assert f"{expected.mean():.4f}" in report.markdown({"random": result})
    assert f"{expected.mean():.4f}" in comparison.as_markdown([comparison.row("s", "a", result)])


@pytest.fixture
def drawn(monkeypatch):
    """The lines that are drawn: (x, y)."""
    lines, draw = [], Axes.plot

    def plot(axis, x, y, *arguments, **named):
        lines.append((np.asarray(x), np.asarray(y)))
        return draw(axis, x, y, *arguments, **named)

    monkeypatch.setattr(Axes, "plot", plot)
    return lines


@pytest.mark.slow
def test_pictures_leave_it_out(run, tmp_path, drawn):
    _, result = run
    rounds = np.flatnonzero(~np.isnan(result.gemd).all(axis=0)) + 1
    assert 0 < len(rounds) < 12
    mean = np.nanmean(result.gemd[:, rounds - 1], axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.curves({"random": result}, tmp_path / "curves.png")
        plots.draw_comparison([comparison.row("s", "a", result)], [result], tmp_path)
    found = [y for x, y in drawn if len(x) == len(rounds) and (x == rounds).all() and np.allclose(y, mean)]
    assert len(found) == 1
    assert all(np.isfinite(y).all() for _, y in drawn)


@pytest.mark.slow
def test_a_run_without_a_single_report_has_no_gemd_at_all(tmp_path, capsys):
    out = tmp_path / "nobody"
    result = fedjax_sel.run(SMALL.replace(rounds=3, report_failure_rate=0.999999, out=str(out)))
    assert np.isnan(result.gemd).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert command_line.guarded(report.main, [str(out), "--out", str(tmp_path / "curves.png")]) == 0
        plots.draw_comparison([comparison.row("s", "a", result)], [result], tmp_path)
    assert "N/A (0 of 2 seeds)" in capsys.readouterr().out
