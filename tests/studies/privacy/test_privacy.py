"""The study of privacy: rows, the leads that noise leaves, and the check of its page."""

import numpy as np
import pytest

from fedjax_sel.config import validate
from fedjax_sel.statistics import BETTER
from studies.boards import check, series
from studies.boards.series import Series
from studies.privacy import command, page, protocol
from studies.privacy.protocol import ALGOS, EPSILONS, GRIDS, LEADERBOARD, PLAIN, RATES, row

SEEDS, ROUNDS = 12, 20


def made_up(accuracy):
    """A row whose accuracy differs by seed."""
    rng = np.random.default_rng(int(1e4 * accuracy))
    curves = np.full((SEEDS, ROUNDS), accuracy, np.float32) + rng.normal(0, 0.002, (SEEDS, 1)).astype(np.float32)
    ones = np.ones((SEEDS, ROUNDS), np.int64)
    return Series(tuple(range(SEEDS)), curves, curves, ones, ones)


@pytest.fixture
def out(tmp_path, monkeypatch):
    """Results in which fed_cbs loses its lead below epsilon 1, and pow_d never has one."""
    without = {"random": made_up(0.7), "fed_cbs": made_up(0.76), "pow_d": made_up(0.69)}
    gains = dict(zip(EPSILONS, (-0.05, 0.0002, 0.03, 0.05, 0.06)))
    noisy = {row("fed_cbs", one): made_up(0.7 + gain) for one, gain in gains.items()}
    noisy |= {row("pow_d", one): made_up(0.7 - 0.001 * place) for place, one in enumerate(EPSILONS)}
    about = {"rows": {}, "commands": ["a command"]}
    for folder, rows in (("leaderboard", without), ("privacy", noisy)):
        series.write(tmp_path / folder / "gray-2labels", rows, {**about, "rows": {name: {} for name in rows}})
    monkeypatch.setattr(protocol, "LEADERBOARD", tmp_path / "leaderboard")
    return tmp_path / "privacy"


def test_the_rows_are_those_of_the_protocol_and_use_the_leaderboards_rates():
    for name, rates in RATES.items():
        held = series.read(LEADERBOARD / PLAIN.get(name, name))
        assert held is not None and held.about["rows"]["random"]["learning_rate"] == rates.client
        assert len(GRIDS[name].rows) == len(ALGOS) * len(EPSILONS)
        for config in GRIDS[name].rows.values():
            validate(config)
    assert GRIDS["gray-2labels"].rows["clustered epsilon=1"].selection.privacy_unit == "client"
    assert GRIDS["gray-2labels"].rows["fed_cbs epsilon=1"].selection.privacy_unit == "example"
    assert GRIDS["gray-2labels-client"].rows["fed_cbs epsilon=1"].selection.privacy_unit == "client"


def test_a_lead_is_kept_down_to_the_smallest_epsilon_without_a_gap(out):
    table = page._tables(out)["gray-2labels"]
    assert page.keeps_lead_to(table, "fed_cbs") == 1.0 and page.keeps_lead_to(table, "pow_d") is None
    assert table.found["fed_cbs", page.NO_NOISE].verdict == BETTER
    text = page.pages(out)["README.md"]
    assert "**Leads that noise leaves: `fed_cbs` down to epsilon 1.**" in text
    assert "| fed_cbs | **+0.06" in text


@pytest.mark.slow
def test_the_check_finds_a_table_that_does_not_follow_from_the_curves(out, capsys, monkeypatch):
    monkeypatch.setattr(check, "_older", lambda *_: [])
    assert command.main(["--pages", "--out", str(out)]) == 0
    assert (out / page.PICTURE).exists()
    assert command.main(["--check", "--out", str(out)]) == 0
    path = out / "gray-2labels" / "table.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("fed_cbs", "fl_dp3s", 1), encoding="utf-8")
    assert command.main(["--check", "--out", str(out)]) == 1
    assert "gray-2labels/table.csv does not follow from the curves" in capsys.readouterr().out
