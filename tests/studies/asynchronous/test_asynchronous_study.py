"""The study of asynchronous rounds: measures by hand, rows, tuning, and the check of its page."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedjax_sel import Config, Experiment
from fedjax_sel.statistics import BETTER
from studies.asynchronous import command, page, protocol, speeds
from studies.asynchronous.protocol import GRIDS, RATES, REFERENCE, SECONDS
from studies.boards import check, series
from studies.boards.series import Series, Setting
from studies.leaderboard import protocol as leaderboard

SEEDS = 8


def made_up(accuracy, arrives, rounds=100):
    """A row that reaches its accuracy, which differs by seed, after `arrives` of its rounds of equal length."""
    spread = np.random.default_rng(rounds).normal(0, 0.002, (SEEDS, 1))
    curves = np.full((SEEDS, rounds), 0.1, np.float32)
    curves[:, arrives:] = accuracy + spread
    ones = np.ones((SEEDS, rounds), np.int64)
    return Series(
        tuple(range(SEEDS)), curves, curves, ones, ones, np.full((SEEDS, rounds), SECONDS / rounds, np.float32)
    )


def test_measures_equal_numbers_by_hand():
    one = made_up(0.5, 40)
    assert protocol.accuracy(one).shape == (SEEDS,) and protocol.accuracy(one).mean() == pytest.approx(0.5, abs=3e-3)
    # A window of ten rounds has a mean of 0.1 + (k / 10) 0.4 after k rounds at 0.5: 0.3 after round 45.
    assert protocol.seconds_to(one, 0.28).tolist() == [45 * SECONDS / 100] * SEEDS
    assert protocol.seconds_to(one, 0.9).tolist() == [SECONDS] * SEEDS
    sparse = one._replace(test_accuracy=np.where(np.arange(100) % 5 == 4, one.test_accuracy, np.nan))
    assert protocol.accuracy(sparse).mean() == pytest.approx(0.5, abs=3e-3)
    assert protocol.seconds_to(sparse, 0.28).tolist() == [45 * SECONDS / 100] * SEEDS


def test_the_rate_of_each_mode_is_the_best_on_tuning_seeds_and_the_smaller_of_equal_ones():
    values = dict(zip(RATES, (0.2, 0.6, 0.6, 0.1)))
    rows = {f"buffer-1 server={rate:g}": made_up(value, 0) for rate, value in values.items()}
    assert protocol.best_rates(Setting(rows, {}))["buffer-1"] == 0.3
    chosen = GRIDS["tiers"].choose(Setting(rows, {}))
    assert chosen["buffer-1 fed_cbs"].training.server_learning_rate == 0.3
    assert chosen["sync fed_cbs"].training.server_learning_rate == 1.0
    tried = GRIDS["tiers-rates"].rows.values()
    assert {(config.data.tuning_share, config.selection.algo) for config in tried} == {(0.1, "random")}
    assert {config.data.tuning_share for config in GRIDS["tiers"].rows.values()} == {0.0}


def test_the_rate_of_clients_is_that_of_the_leaderboard():
    held = series.read(Path("results/leaderboard") / f"{protocol.SETTING}{leaderboard.TUNING}")
    assert leaderboard.best(leaderboard.SETTINGS[protocol.SETTING], held).client == protocol.RATE


def test_selections_of_a_class_are_relative_to_its_share_of_the_clients(tmp_path):
    """Clients 2 and 3 are slow, half of the clients, and have three of the four selections."""
    rows = [f"{client},{0.1 if client < 2 else 0.5},1e6,1e6,0.0" for client in range(4)]
    (tmp_path / "speeds.csv").write_text("\n".join(["client,seconds_per_example,down,up,latency", *rows]) + "\n")
    config = Config().replace(num_clients=4, num_selected=2, timing=str(tmp_path / "speeds.csv"), algo="random")
    run = SimpleNamespace(config=config, cohorts=np.array([[[0, 2], [2, 3], [-1, -1]]]))
    assert speeds.of_result(run) == {speeds.SLOWEST: [1.5], speeds.FASTEST: [0.5]}


@pytest.mark.parametrize("name", GRIDS)
def test_every_row_can_run(name):
    for config in GRIDS[name].rows.values():
        Experiment(config)


@pytest.fixture
def out(tmp_path):
    rows = {
        REFERENCE: made_up(0.605, 60), "sync-20 random": made_up(0.61, 50), "buffer-10 random": made_up(0.65, 20, 200),
        "buffer-10 fed_cbs": made_up(0.68, 20, 300),
    }  # fmt: skip
    about = {name: {"fairness": {page.GINI: [0.1] * SEEDS}} for name in rows}
    series.write(tmp_path / "tiers", rows, {"rows": about, "commands": ["a command"]})
    return tmp_path


def test_the_page_compares_with_synchronous_random_selection(out):
    table = page.make_table(series.read(out / "tiers").rows)
    assert table.target == 0.6 and table.gains["buffer-10 random"].verdict == BETTER
    assert table.speedup("buffer-10 random") > 2 and list(table.within) == ["buffer-10 fed_cbs"]
    assert table.within["buffer-10 fed_cbs"].difference == pytest.approx(0.03, abs=5e-3)
    text = page.pages(out)["README.md"]
    assert "`buffer-10 random` reaches 0.60" in text and "Not run yet: labels, daily." in text


@pytest.mark.slow
def test_the_check_finds_a_page_that_does_not_follow_from_the_curves(out, capsys, monkeypatch):
    monkeypatch.setattr(check, "_older", lambda *_: [])
    assert command.main(["--pages", "--out", str(out)]) == 0
    assert (out / page.PICTURE).exists()
    assert command.main(["--check", "--out", str(out)]) == 0
    path = out / "README.md"
    path.write_text(path.read_text(encoding="utf-8").replace("fastest", "slowest"), encoding="utf-8")
    assert command.main(["--check", "--out", str(out)]) == 1
    assert "README.md does not follow from the curves" in capsys.readouterr().out


def test_the_numbers_of_the_timing_page_follow_from_the_table():
    table = page.make_table(series.read(Path("results/asynchronous/tiers")).rows)
    about = series.read(Path("results/asynchronous/tiers")).about["rows"]
    text = " ".join(Path("docs/timing.md").read_text(encoding="utf-8").split())
    buffered = [row for row in table.accuracy if row.startswith("buffer") and row.endswith("random")]
    faster = sorted(table.speedup(row) for row in buffered)
    bytes_more = sorted(table.megabytes[row] / table.megabytes[REFERENCE] for row in buffered)
    assert f"for {bytes_more[0]:.1f} to {bytes_more[-1]:.1f} times the bytes" in text
    assert f"{faster[0]:.1f} to {faster[-1]:.1f} times as fast, which is FedBuff's claim" in text
    assert f"keep as many clients busy, are {table.speedup('sync-20 random'):.1f} times as fast" in text
    adds = [table.within[f"{mode} fed_cbs"] for mode in ("sync", "sync-20", "buffer-10", "buffer-1")]
    within = page.make_table(series.read(Path("results/asynchronous/daily")).rows).within
    daily = within["buffer-10 fed_cbs"]
    assert min(daily.difference, within["sync-20 fed_cbs"].difference) > within["sync fed_cbs"].difference
    words = "adds {:.3f} to rounds of 5, {:.3f} to rounds of 20, {:.3f} to steps of 10 reports, nothing"
    assert f"**Selection matters less.** Fed-CBS {words.format(*(one.difference for one in adds[:3]))}" in text
    assert f"Exception: [`daily`](availability.md) (steps of 10: {daily.difference:.3f})." in text
    assert daily.verdict == BETTER
    assert [one.verdict == BETTER for one in adds] == [True, True, True, False]
    assert all(
        table.accuracy[f"deadline {algo}"].mean() < table.accuracy[f"sync {algo}"].mean() for algo in protocol.ALL
    )
    ends = (table.accuracy["deadline fedcor"].mean(), table.accuracy["sync fedcor"].mean())
    assert "FedCor then ends at {:.3f} instead of {:.3f}".format(*ends) in text
    shares = [np.mean(about[f"buffer-10 {algo}"][speeds.FASTEST]) for algo in ("random", "oort")]
    assert "get {:.1f} times their share of asynchronous selections, and {:.1f} times with Oort".format(*shares) in text
