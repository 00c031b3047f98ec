"""The same tuning for every strategy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.errors import UserError
from fedjax_sel.leaderboard import grids, tuning
from fedjax_sel.leaderboard.grids import GRIDS
from fedjax_sel.leaderboard.series import Setting as Held
from fedjax_sel.leaderboard.settings import ALGOS, SEEDS, SETTINGS
from fedjax_sel.strategies.base import Env
from tests.leaderboard import made_up


def test_every_draw_is_a_strategy_and_always_the_same():
    assert set(tuning.RANGES) == set(ALGOS)
    for algo in ALGOS:
        drawn = [tuning.draw(algo, number) for number in range(1, tuning.DRAWS + 1)]
        assert drawn == [tuning.draw(algo, number) for number in range(1, tuning.DRAWS + 1)]
        assert len({str(one) for one in drawn}) > 1, algo
        for one in drawn:
            strategy = strategies.make(algo, **one)
            for name in grids.TUNED:  # what a strategy can only refuse once it knows the cohort
                selected = SETTINGS[name].config.selection.num_selected
                env = Env(100, selected, 150, 10, 1000, jnp.full(100, 600), jnp.full(100, 0.01))
                jax.eval_shape(strategy.init, jax.random.key(0), env)
            assert set(one) <= set(strategies.parameters(algo))
    assert tuning.draw("fedgp", 1) != tuning.draw("fedcor", 1)


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
        for algo in ALGOS
        for number in range(1, tuning.DRAWS + 1)
    }
    return Held(rows, made_up.about(rows))


def test_the_best_draw_is_measured_on_other_seeds():
    setting = SETTINGS["fmnist-2spc"]
    drawn, tuned = GRIDS["tuned-fmnist-2spc-draws"], GRIDS["tuned-fmnist-2spc"]
    assert len(drawn.rows) == len(ALGOS) * tuning.DRAWS and tuned.after == drawn.name
    assert {config.run.seeds for config in drawn.rows.values()} == {tuning.TUNING_SEEDS}
    found = tuned.choose(held(best=3))
    assert list(found) == list(ALGOS)
    for algo, config in found.items():
        assert config.run.seeds == tuple(range(SEEDS)) and not set(config.run.seeds) & set(tuning.TUNING_SEEDS)
        assert dict(config.selection.algo_args) == tuning.draw(algo, 3)
        assert config.replace(algo="random", algo_args={}) == setting.config.replace(algo="random")


def test_equal_draws_and_missing_ones():
    few = held(best=0)
    for row, one in list(few.rows.items()):
        few.rows[row] = one._replace(test_accuracy=np.full_like(one.test_accuracy, 0.5))
    assert tuning.best(few, "afl") == 1
    del few.rows[tuning.row_of_draw("afl", 8)]
    with pytest.raises(UserError, match=r"^PART: 7 of 8 draws of afl are there; "):
        grids.GRIDS["tuned-fmnist-2spc"].choose(few)
