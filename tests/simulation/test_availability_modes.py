"""Modes of availability: their frequencies, their draws, and their tables as traces."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, timing
from fedjax_sel.cli import data
from fedjax_sel.config import MODES
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.checking import MODES as REGISTRY
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import availability, layout
from studies.selection_cost import problem_setting

ROUNDS = 4000
SMALL = Config().replace(
    algo="random", dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12,
    num_selected=4, local_epochs=1, rounds=6, chunk=3, seeds=2, available="markov",
    available_args="share=0.5 rounds_off=3", model="logistic",
)  # fmt: skip


class World(NamedTuple):
    """The fields of a federation that a mode reads."""

    train_sizes: np.ndarray
    label_counts: np.ndarray
    timing: object = None


def world(num_seeds=2):
    """Ten clients with main labels 0 to 9 and sizes 20, 10, 10, 30, 40, ..."""
    sizes = np.array([20, 10, 10, 30, 40, 50, 60, 70, 80, 90])
    seconds = np.array([3.0, 1, 2, 4, 5, 6, 7, 8, 9, 10], np.float32)
    own = World(sizes, np.eye(10, dtype=int) * 5 + 1, timing.Timing(*[seconds] * 4))
    return jax.tree.map(lambda leaf: np.stack([leaf] * num_seeds), own)


def drawn(name, num_rounds=ROUNDS, seeds=(0, 1), **parameters):
    mode = REGISTRY.make(name, **parameters)
    return availability.draw(world(len(seeds)), mode, seeds, num_rounds)


def near(frequencies, probabilities, draws):
    """Five standard deviations; a wrong probability is off by many more."""
    probabilities = np.asarray(probabilities)
    margin = 5 * np.sqrt(probabilities * (1 - probabilities) / draws) + 1e-9
    return (np.abs(frequencies - probabilities) <= margin).all()


def test_the_names_are_those_of_the_settings():
    assert REGISTRY.names() == MODES


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("share,rounds_off", [(0.7, 5.0), (0.25, 3.0), (0.4, 1.5)])
def test_markov_has_its_share_and_its_mean_absence(share, rounds_off):
    present = drawn("markov", share=share, rounds_off=rounds_off)
    first = drawn("markov", 1, range(400), share=share, rounds_off=rounds_off)
    assert near(first.mean(), share, first.size)
    away, back = ~present[:, :-1], present[:, 1:]
    assert near((away & back).sum() / away.sum(), 1 / rounds_off, away.sum())
    leave = (1 - share) / share / rounds_off
    assert near((~away & ~back).sum() / (~away).sum(), leave, (~away).sum())
    # The draws of a chain are correlated, by a factor r per round.
    r = 1 - leave - 1 / rounds_off
    assert near(present.mean(), share, present.size * (1 - r) / (1 + r))


def test_a_client_of_share_1_is_always_there():
    assert drawn("markov", 50, share=1.0).all()


@pytest.mark.parametrize("zones", ["random", "label"])
def test_daily_follows_its_cosine(zones):
    present = drawn("daily", 6000, share=0.6, amplitude=0.9, period=8, zones=zones)
    by_hour = present.reshape(2, 750, 8, 10).mean(axis=1)
    hours, labels = np.arange(8)[:, None] / 8, np.arange(10) / 10
    if zones == "label":
        wanted = np.clip(0.6 * (1 + 0.9 * np.cos(2 * np.pi * (hours - labels))), 0, 1)
        assert near(by_hour, wanted, 750)
    else:  # the best of many zones fits each client, and clients and seeds have different ones
        zone = np.linspace(0, 1, 401)[:-1]
        curves = np.clip(0.6 * (1 + 0.9 * np.cos(2 * np.pi * (hours - zone))), 0, 1)
        misfit = np.abs(by_hour[..., None] - curves[:, None]).max(axis=1)
        assert (misfit.min(axis=-1) < 0.08).all()
        assert len(np.unique(misfit.argmin(axis=-1))) > 10


def test_label_size_and_speed_have_their_probabilities():
    def of(name, **parameters):
        return drawn(name, **parameters).mean(axis=(0, 1))

    assert near(of("label"), [0.9] * 7 + [0.2] * 3, 2 * ROUNDS)
    assert near(of("label", rare=0.7, rare_share=0.1), [0.9] * 3 + [0.1] * 7, 2 * ROUNDS)
    assert near(of("label", rare=0.01, share=0.5), [0.5] * 9 + [0.2], 2 * ROUNDS)  # rounded up
    ranks = np.array([2, 0.5, 0.5, 3, 4, 5, 6, 7, 8, 9]) / 9
    assert near(of("size"), 0.2 + 0.8 * ranks, 2 * ROUNDS)
    slowness = np.array([2, 0, 1, 3, 4, 5, 6, 7, 8, 9]) / 9
    assert near(of("speed", low=0.1, high=0.9), 0.9 - 0.8 * slowness, 2 * ROUNDS)


@pytest.mark.parametrize("name", MODES)
def test_a_longer_run_and_more_seeds_have_the_same_first_rounds(name):
    long = drawn(name, 40, (0, 1, 2))
    np.testing.assert_array_equal(drawn(name, 15, (1, 2)), long[1:, :15])
    assert (long[0] != long[1]).any()


def test_a_rhythm_without_amplitude_is_a_fraction():
    daily = SMALL.replace(available="daily", available_args={"share": 0.4, "amplitude": 0.0})
    fraction = SMALL.replace(available=0.4)
    tables = [fedjax_sel.availability_table(config, 3) for config in (daily, fraction)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert fedjax_sel.availability_table(SMALL.replace(available=1)).all()


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"available": "marcov"}, "nor a mode; did you mean 'markov'"),
        ({"available_args": "share=0"}, "--available-args share=0 of markov: must be from 0 .excluded. to 1; leave"),
        ({"available_args": "share=0.1 rounds_off=2"}, "rounds_off=2 is below .* = 9, the shortest"),
        ({"available_args": "shares=0.5"}, "unknown 'shares'; did you mean 'share'"),
        ({"available": "daily", "available_args": "zones=utc"}, "zones=utc of daily: unknown 'utc'"),
        ({"available": "speed", "available_args": ""}, "'speed' needs the speed .* add --timing"),
    ],
)
def test_bad_values_end_in_one_line_before_data_are_read(changes, message):
    with pytest.raises(UserError, match=message) as error:
        pose(SMALL.replace(dataset="mnist", data_dir="nowhere", **changes))
    assert "\n" not in str(error.value)


def test_labels_need_classes_and_someone_must_be_there():
    import flax.linen as nn

    numbers = np.arange(60, dtype=np.float32)[:, None]
    own = fedjax_sel.Dataset.from_arrays(train=(numbers, numbers), test=(numbers, numbers))
    settings = SMALL.replace(available="label", available_args="", task="regression", partition="iid", batch_size=5)
    with pytest.raises(UserError, match="has no classes; choose another mode"):
        pose(fedjax_sel.Experiment.of(settings, dataset=own, model=nn.Dense(1)))
    never = SMALL.replace(available="size", available_args="low=0 high=0")
    with pytest.raises(UserError, match="'size' makes no client available in 6 rounds"):
        layout.lay_out(pose(never), 2)


def test_a_mode_is_in_the_fingerprint_and_its_parameters_only_beside_it():
    plain = Config().replace(available=0.5)
    assert plain.replace(available_args="share=0.2").fingerprint() == plain.fingerprint()
    assert Config().fingerprint() == "a0d4e0c82710"  # of earlier versions
    other = SMALL.replace(available_args="share=0.5 rounds_off=4")
    assert len({SMALL.fingerprint(), other.fingerprint(), SMALL.replace(available=0.5).fingerprint()}) == 3


def test_the_cost_of_selection_knows_the_mean():
    problem = pose(SMALL)
    assert problem_setting(problem).available == np.mean(
        np.asarray(layout.lay_out(problem, 2).federation.availability_table)
    )


def test_the_data_command_counts_available_clients(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = ["--dataset", SMALL.data.dataset, "--num-clients", "12", "--rounds", "6", "--available", "markov"]
    flags += ["--available-args", "share=0.5", "rounds_off=3"]
    assert data.main(flags) == 0 and "available per round" in capsys.readouterr().out
    table = fedjax_sel.availability_table(SMALL)
    np.savetxt("who.csv", table.T, "%d", ",")
    np.testing.assert_array_equal(table, fedjax_sel.availability_table(SMALL.replace(available="who.csv")))
    assert table.shape == (6, 12) and 0 < table.sum() < table.size


@pytest.mark.slow
def test_clients_train_only_when_present_and_a_table_gives_the_same_run(tmp_path):
    config = SMALL.replace(seeds=1)
    table = fedjax_sel.availability_table(config)
    np.savetxt(tmp_path / "who.csv", table.T, "%d", ",")
    mode, trace = fedjax_sel.run(config), fedjax_sel.run(config.replace(available=str(tmp_path / "who.csv")))
    value = fedjax_sel.run(fedjax_sel.Experiment.of(config, available=table))
    for other in (trace, value):
        np.testing.assert_array_equal(mode.cohorts, other.cohorts)
        np.testing.assert_array_equal(mode.test_loss, other.test_loss)
    for round, cohort in enumerate(mode.cohorts[0]):
        chosen = set(cohort[cohort >= 0].tolist())
        assert chosen <= set(np.flatnonzero(table[round])) and len(chosen) == min(4, table[round].sum())


@pytest.mark.slow
@pytest.mark.parametrize("name,parameters", [("markov", ""), ("speed", "low=0.1")])
def test_a_resumed_run_is_an_uninterrupted_one(name, parameters, tmp_path):
    config = SMALL.replace(
        available=name, available_args=parameters, timing="lognormal", aggregation="unbiased", seeds_at_once=1
    )
    whole = fedjax_sel.run(config.replace(rounds=9))
    fedjax_sel.run(config, out=str(tmp_path / "run"))
    resumed = fedjax_sel.run(config.replace(rounds=9), out=str(tmp_path / "run"))
    np.testing.assert_array_equal(whole.cohorts, resumed.cohorts)
    np.testing.assert_array_equal(whole.test_loss, resumed.test_loss)
    for place, seed in enumerate(config.run.seeds):
        table = fedjax_sel.availability_table(config.replace(rounds=9), seed)
        for round, cohort in enumerate(whole.cohorts[place]):
            assert set(cohort[cohort >= 0].tolist()) <= set(np.flatnonzero(table[round]))


@pytest.mark.parametrize("period", [10.1, 15.6, 59.9, 600.0])
def test_a_wait_for_the_next_row_reaches_it(period):
    """Also at late times, where float32's rounding exceeds any constant tolerance."""
    plan: Any = SimpleNamespace(availability_seconds=period)
    begun = jnp.float32(np.random.default_rng(0).uniform(0, 3e5, 20_000))
    rows = jax.jit(lambda seconds: availability._row(plan, seconds))
    wait = jax.jit(lambda seconds: availability.until_next_row(plan, seconds))
    assert (rows(begun + wait(begun)) > rows(begun)).all()
