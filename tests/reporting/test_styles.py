"""A strategy looks the same in every picture, and every curve that has seeds has a band."""

import dataclasses

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedjax_sel import strategies
from fedjax_sel.reporting import comparison, plots
from tests.reporting import made_up


def test_every_strategy_of_the_package_has_a_style_of_its_own():
    assert set(plots.KNOWN) == set(strategies.TABLE)
    assert len(set(plots.styles_of(plots.KNOWN).values())) == len(plots.KNOWN)


def test_a_strategy_has_one_style_among_whatever_others():
    alone = plots.styles_of(["fedcor"])["fedcor"]
    others = plots.styles_of(["mine:factory", "fedcor[warmup=3]", "oort", "fedcor"])
    assert others["fedcor"] == alone and len(set(others.values())) == 4
    related = others["fedcor[warmup=3]"]
    assert (related.color, related.on_black) == (alone.color, alone.on_black) and related.line != alone.line


def test_styles_do_not_end():
    names = [*plots.KNOWN, *(f"mine{i}:factory" for i in range(100))]
    assert list(plots.styles_of(names)) == names


@pytest.fixture
def bands(monkeypatch):
    """The bands that are drawn, by axis."""
    found, draw = {}, Axes.fill_between

    def fill_between(axis, x, low, high, **named):
        found.setdefault(axis, []).append((low, high))
        return draw(axis, x, low, high, **named)

    monkeypatch.setattr(Axes, "fill_between", fill_between)
    return found


@pytest.mark.slow
def test_every_curve_of_a_comparison_has_a_band_that_stays_where_the_measure_can_be(tmp_path, bands):
    results = [made_up.result(0.97), made_up.result(0.99, algo="fedcor")]
    rows = [comparison.row("s", name, result) for name, result in zip(("random", "fedcor"), results)]
    plots.draw_comparison(rows, results, tmp_path)
    assert sorted(map(len, bands.values())) == [2] * 3
    for axis, drawn in bands.items():
        for low, high in drawn:
            assert (low >= 0).all() and (low <= high).all()
            assert "accuracy" in axis.get_ylabel() and (high <= 1).all()


@pytest.mark.slow
def test_a_single_seed_has_no_band(tmp_path, bands):
    result = made_up.result(0.9, seeds=1)
    plots.draw_comparison([comparison.row("s", "random", result)], [result], tmp_path)
    plots.curves({"random": result}, tmp_path / "curves.png")
    assert not bands


@pytest.mark.parametrize("has_gemd", [True, False])
def test_a_run_that_ended_before_its_first_test_has_a_picture(tmp_path, has_gemd):
    result = made_up.result(seeds=2)
    missing = dict.fromkeys(result.measured, np.full((2, result.num_rounds), np.nan))
    result = dataclasses.replace(result, measured=missing | ({"gemd": result.gemd} if has_gemd else {}))
    plots.curves({"random": result}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_run_has_the_same_color_in_its_own_picture(tmp_path, monkeypatch):
    drawn, plot = [], Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda axis, *a, **named: drawn.append(named) or plot(axis, *a, **named))
    result = made_up.result(0.9, algo="oort")
    for results in ({"oort": result}, {"random": result, "oort": result}):
        plots.curves(results, tmp_path / "curves.png")
    found = {(one["color"], one["linestyle"]) for one in drawn if one["label"] == "oort"}
    style = plots.styles_of(["oort"])["oort"]
    assert found == {(style.color, style.line)}
    assert np.unique([one["label"] for one in drawn]).tolist() == ["oort", "random"]


def test_a_curve_that_ends_at_infinity_is_labelled_at_its_last_finite_value():
    axis = Figure().subplots()
    axis.plot([1, 2, 3], [1.0, 2.0, np.inf], label="diverged")
    axis.plot([1, 2, 3], [np.nan, np.inf, np.inf], label="never finite")
    axis.plot([1, 2, 3], [1.0, 1.5, 1.5], label="usual")
    plots.label_ends(axis, 3.0)
    assert [(text.get_text(), text.xy[0]) for text in axis.texts] == [("usual", 3), ("diverged", 2)]


def test_a_measure_above_its_usual_range_has_its_whole_band():
    band = plots.band(np.array([[80.0], [82.0]]), 1.0)
    assert band.high > 81 and plots.band(np.array([[0.9], [1.0]]), 1.0).high == 1.0
