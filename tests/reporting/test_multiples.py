"""Of many strategies each has a panel of its own, with its band and the baseline."""

import io

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedjax_sel.reporting import comparison, plots
from studies.boards.series import Series
from studies.papers import page
from studies.papers_setting import multiples, pictures
from tests.reporting import made_up

NAMES = plots.KNOWN[: multiples.MANY + 1]


@pytest.mark.parametrize("seconds", [None, 2.0])
def test_a_clock_adds_pictures_over_seconds(tmp_path, monkeypatch, seconds):
    labels = []
    monkeypatch.setattr(
        plots, "save", lambda figure, path, look: labels.extend(one.get_xlabel() for one in figure.axes)
    )
    monkeypatch.setattr(
        plots, "save", lambda figure, path, look: labels.extend(one.get_xlabel() for one in figure.axes)
    )
    names = ("random", "fedcor")
    results = [made_up.result(0.6, algo=name, seconds=seconds) for name in names]
    plots.draw_comparison([comparison.row("s", *one) for one in zip(names, results)], results, tmp_path)
    plots.curves(dict(zip(names, results)), tmp_path / "curves.png")
    timed = [label for label in labels if "seconds" in label]
    assert timed == ([] if seconds is None else ["simulated seconds", "simulated seconds"])


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    curves = {name: plots.Curve(np.arange(1.0, 41), rng.uniform(0, 1, (5, 40))) for name in NAMES}
    figure = Figure(figsize=multiples.size(len(curves)), layout="constrained")
    multiples.draw_multiples(
        figure, curves, plots.styles_of(NAMES), "random", ("round", "test accuracy"), "a setting", 1.0
    )
    return figure, curves


def test_a_panel_shows_its_strategy_with_a_band_the_baseline_and_all_others(drawn):
    figure, curves = drawn
    looks = plots.styles_of(NAMES)
    assert [axis.get_title() for axis in figure.axes] == list(NAMES[1:])
    for axis in figure.axes:
        (own,) = [line for line in axis.lines if line.get_label() == axis.get_title()]
        assert own.get_color() == looks[axis.get_title()].color
        np.testing.assert_allclose(own.get_ydata(), curves[axis.get_title()].values.mean(axis=0))
        assert len(axis.collections) == 1
        assert [line.get_color() for line in axis.lines].count(multiples.OTHERS) == len(NAMES) - 2
        assert [line.get_color() for line in axis.lines].count(looks["random"].color) == 1


def test_the_lowest_panel_of_every_column_has_numbers_and_no_words_overlap(drawn):
    figure, _ = drawn
    figure.canvas.draw()
    lowest = figure.axes[-multiples.COLUMNS :]
    assert all(axis.xaxis.get_ticklabels()[0].get_visible() for axis in lowest)
    places = [axis.title.get_window_extent() for axis in figure.axes] + [axis.get_window_extent() for axis in lowest]
    places += [text.get_window_extent() for text in (figure._suptitle, figure._supxlabel, figure._supylabel)]
    for place, one in enumerate(places):
        assert not any(one.overlaps(other) for other in places[place + 1 :])


def test_the_leaderboard_draws_a_strategy_as_comparisons_do_and_another_optimizer_by_its_line(monkeypatch):
    looks, plot = {}, Axes.plot

    def noted(axis, *points, **named):
        looks.setdefault(named.get("label"), (named["color"], named["linestyle"]))
        return plot(axis, *points, **named)

    monkeypatch.setattr(Axes, "plot", noted)
    accuracy, sent = np.full((2, 20), 0.5, np.float32), np.full((2, 20), 10**6)
    rows = dict.fromkeys(("random", "fedcor", "fedcor + fedyogi"), Series((0, 1), accuracy, accuracy, sent, sent))
    figure = pictures.of_setting("a setting", rows, "megabytes")
    own = plots.styles_of(["fedcor"])["fedcor"]
    assert looks["fedcor"] == (own.color, own.line)
    assert looks["fedcor + fedyogi"][0] == own.color and looks["fedcor + fedyogi"][1] != own.line
    picture = Image.open(io.BytesIO(page.png_bytes(figure)))
    assert picture.mode == "P" and len(picture.getcolors()) <= page.PNG_COLORS


@pytest.mark.slow
def test_a_small_file_has_the_colors_of_the_styles(drawn):
    figure, _ = drawn
    colors = [style.color for style in plots.styles_of(NAMES).values()]
    wanted = np.array([[int(color[place : place + 2], 16) for place in (1, 3, 5)] for color in colors])
    there = np.asarray(Image.open(io.BytesIO(page.png_bytes(figure))).convert("RGB")).reshape(-1, 3).astype(int)
    assert all(np.abs(there - color).max(axis=1).min() <= 2 for color in wanted)
