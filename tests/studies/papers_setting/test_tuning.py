"""The same tuning for every strategy."""

import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import checks
from studies.boards.series import Setting as Held
from studies.papers_setting import grids, tuning, tuning_page
from studies.papers_setting.grids import GRIDS
from studies.papers_setting.settings import ALGOS, SEEDS, SETTINGS
from tests.studies.papers_setting import made_up


@pytest.mark.slow
def test_every_draw_is_a_strategy_and_always_the_same():
    assert set(tuning.RANGES) == set(ALGOS) - {"full"}
    assert not tuning.drawn("random") and not list(tuning.numbers("random"))  # its variants are other strategies
    for algo in ALGOS[1:-1]:
        drawn = tuning.drawn(algo)
        tuning.drawn.cache_clear()
        assert drawn == tuning.drawn(algo)
        count = 1 if algo == "delta" else tuning.DRAWS  # its only parameter has two values
        assert len(drawn) == len({str(sorted(one.items())) for one in drawn}) == count and {} not in drawn
        defaults = {name: parameter.default for name, parameter in strategies.parameters(algo).items()}
        for one in drawn:
            assert all(defaults[name] != value for name, value in one.items())  # else two might be one
            strategy = strategies.make(algo, **one)
            for name in grids.TUNED:  # what a strategy can only refuse once it knows the cohort
                selected = SETTINGS[name].config.selection.num_selected
                checks.traced(strategy, (100, selected, 150), everyone_available=True)
            assert set(one) <= set(strategies.parameters(algo))
    assert tuning.arguments("fedgp", 1) != tuning.arguments("fedcor", 1)
    assert tuning.arguments("fedgp", tuning.USUAL) == {}


def test_no_draw_has_what_has_no_effect():
    for one in tuning.drawn("fedsae"):
        assert one.get("variant") != "greedy" or "temperature" not in one
    for one in tuning.drawn("clustered"):
        assert "unseen" not in one or "distance" not in one  # who is unseen is grouped by angles alone
        assert one.get("variant") != "size" or len(one) == 1


def test_the_best_draw_is_compared_with_todays_default():
    """The draws of GPFL start from another scale than its present default."""
    rows = {"random": made_up.level(0.5), "gpfl": made_up.level(0.6)}
    about = made_up.about(rows)
    about["rows"]["gpfl"]["algo_args"] = {"scale": "update", "rho": 2.0}
    board = {"random": rows["random"], "gpfl": made_up.level(0.3), "gpfl scale=update": made_up.level(0.55)}
    found = tuning_page.gains("tuned-x", {"tuned-x": Held(rows, about), "x": Held(board, made_up.about(board))})
    assert found["gpfl"].difference == pytest.approx(0.3, abs=1e-3)


def test_who_keeps_the_usual_settings_is_compared_with_nobody():
    """A difference of zeros would take power from the others."""
    rows = {"random": made_up.level(0.5), "afl": made_up.level(0.6, up=3_000_000), "pow_d": made_up.level(0.7)}
    about = made_up.about(rows)
    about["rows"]["afl"]["algo_args"] = {"alpha1": 0.5}
    usual = Held({**rows, "afl": made_up.level(0.5, up=2_000_000)}, made_up.about(rows))
    text = tuning_page.of_best("tuned-x", {"tuned-x": Held(rows, about), "x": usual})[-1]
    lines = {line.split(" | ")[0].strip("| "): line.split(" | ")[4:] for line in text.splitlines()[2:]}
    assert lines["afl"][0].startswith("**+0.100") and lines["afl"][1:] == ["80", "60 |"]
    short = tuning_page.in_short({"tuned-x": Held(rows, about), "x": usual})
    assert short.splitlines() == ["| strategy | Made up |", "|---|---|", "| afl | **+0.100 better** |"]
    assert tuning_page.in_short({"tuned-x": usual, "x": usual}) == ""
    assert lines["pow_d"] == ["", "40", " |"] and lines["random"] == ["", "40", " |"]
    del usual.rows["afl"], usual.about["rows"]["afl"]  # not run with the usual settings, or not yet
    text = tuning_page.of_best("tuned-x", {"tuned-x": Held(rows, about), "x": usual})[-1]
    assert "| afl | alpha1=0.5 |  | 0.600 |  | 80 |  |" in text
    about["planned"] = [algo for algo in tuning.RANGES if algo != "oort"]
    found = {"tuned-x": Held(rows, about), "x": usual, "tuned-x-draws": Held({}, made_up.about({}))}
    assert "Without a row, because all draws failed or were not run: oort." in tuning_page.of_best("tuned-x", found)[1]
    assert "p = 0.002)" in lines["afl"][0] or "p = 0.002:" in lines["afl"][0]  # a family of one


@pytest.mark.parametrize(
    "given,low,high", [(tuning.Uniform(0.5, 0.9), 0.5, 0.9), (tuning.LogUniform(0.01, 100.0), 0.01, 100.0)]
)
def test_draws_are_within_their_ranges(given, low, high):
    rng = np.random.default_rng(0)
    values = np.array([given.draw(rng) for _ in range(4000)])
    assert values.min() >= low and values.max() <= high
    middle = np.sqrt(low * high) if isinstance(given, tuning.LogUniform) else (low + high) / 2
    assert (values < middle).mean() == pytest.approx(0.5, abs=0.03)


def test_whole_numbers_and_choices():
    rng = np.random.default_rng(0)
    whole = {tuning.LogUniform(2, 5, whole=True).draw(rng) for _ in range(200)}
    assert whole == {2, 3, 4, 5} and all(isinstance(one, int) for one in whole)
    assert {tuning.Choice(("a", None)).draw(rng) for _ in range(50)} == {"a", None}


def held(best):
    """Draws of which one of each strategy is the best."""
    rows = {
        tuning.row_of_draw(algo, number): made_up.level(0.6 if number == best else 0.5, seeds=3)
        for algo in tuning.RANGES
        for number in tuning.numbers(algo)
    }
    about = made_up.about(rows)
    for algo in tuning.RANGES:
        for number in tuning.numbers(algo):
            about["rows"][tuning.row_of_draw(algo, number)]["algo_args"] = tuning.arguments(algo, number)
    return Held(rows, about)


def test_the_best_draw_is_measured_on_other_seeds():
    setting = SETTINGS["fmnist-2spc"]
    drawn, tuned = GRIDS["tuned-fmnist-2spc-draws"], GRIDS["tuned-fmnist-2spc"]
    assert len(drawn.rows) == sum(len(tuning.numbers(algo)) for algo in tuning.RANGES) and tuned.after == drawn.name
    assert {config.run.seeds for config in drawn.rows.values()} == {tuning.TUNING_SEEDS}
    found = tuned.choose(held(best=3))
    assert list(found) == list(tuning.RANGES)
    for algo, config in found.items():
        assert config.run.seeds == tuple(range(SEEDS)) and not set(config.run.seeds) & set(tuning.TUNING_SEEDS)
        best = 3 if 3 in tuning.numbers(algo) else tuning.USUAL
        assert dict(config.selection.algo_args) == tuning.arguments(algo, best)
        assert config.replace(algo="random", algo_args={}) == setting.config.replace(algo="random")


def test_equal_draws_and_missing_ones():
    few = held(best=0)
    for row, one in list(few.rows.items()):
        few.rows[row] = one._replace(test_accuracy=np.full_like(one.test_accuracy, 0.5))
    assert tuning.best(few, "afl") == tuning.USUAL and tuning.best(few, "random") == tuning.USUAL
    del few.rows[tuning.row_of_draw("afl", 8)]
    with pytest.raises(UserError, match=r"^PART: 8 of 9 draws of afl are there; "):
        grids.GRIDS["tuned-fmnist-2spc"].choose(few)
    few.about["failed"][tuning.row_of_draw("afl", 8)] = "another process was writing"
    with pytest.raises(UserError, match=r"^PART: 8 of 9 draws of afl are there; "):  # it was not tried
        grids.GRIDS["tuned-fmnist-2spc"].choose(few)
    few.about["failed_for_good"].append(tuning.row_of_draw("afl", 8))
    assert grids.GRIDS["tuned-fmnist-2spc"].choose(few)["afl"].selection.algo_args == ()
    failed = held(best=3)
    for number in tuning.numbers("afl"):
        row = tuning.row_of_draw("afl", number)
        if number % 2:
            failed.rows[row] = failed.rows[row]._replace(test_accuracy=np.full((3, 12), np.nan))
        else:
            del failed.rows[row]
            failed.about["failed_for_good"].append(row)
    kept = grids.GRIDS["tuned-fmnist-2spc"].choose(failed)  # the others are not held up by it
    assert tuning.best(failed, "afl") is None and list(kept) == [algo for algo in tuning.RANGES if algo != "afl"]
    few.about["rows"][tuning.row_of_draw("afl", 3)]["algo_args"] = {"alpha1": 0.5}
    with pytest.raises(
        UserError, match=r"^PART: afl draw=3 was run with other hyperparameters than this version draws"
    ):
        tuning.best(few, "afl")
