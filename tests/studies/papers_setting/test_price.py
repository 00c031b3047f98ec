"""The price of information: what its sentences say is what its numbers show."""

from pathlib import Path

import numpy as np
import pytest

from studies.boards import check, measures, series
from studies.papers_setting import information, pages, price
from studies.papers_setting.price import absence, as_many, budgets, profile, wording
from studies.papers_setting.settings import SETTINGS
from tests import scripts
from tests.studies.papers_setting import made_up

RESULTS = Path(__file__).parents[3] / "results" / "papers_setting"
RISING = np.tile(np.linspace(0.1, 0.5, 20), (10, 1))


def held_in(out):
    """The results of a folder, by part."""
    return {name: held for name in pages.GRIDS if (held := series.read(out / name)) is not None}


def all_tables(out):
    """The page with all tables of a folder."""
    found = held_in(out)
    return price.markdown(found, {name: pages.standings_of(held) for name, held in found.items() if name in SETTINGS})


def test_ahead_from_a_number_of_megabytes():
    base = made_up.series(RISING)
    dear_at_first = made_up.series(RISING + 0.2, down=[11_000_000] + [1_000_000] * 19)
    assert profile.ahead_from(dear_at_first, base, 40.0, 0.1) == 12.0
    assert profile.ahead_from(made_up.series(RISING + 0.1), base, 40.0, 0.1) == 2.0  # from its first round on
    assert profile.ahead_from(made_up.series(RISING - 0.05), base, 40.0, 0.1) is None


def test_advice_names_who_is_not_worse_than_the_best():
    rows = {
        "random": made_up.level(0.5, first_seed=1),
        "fl_dp3s": made_up.level(0.7, first_seed=2),
        "clustered": made_up.level(0.6999, first_seed=3, spread=0.01),
        "fedcor": made_up.level(0.8, down=9_000_000, first_seed=4),
    }
    held = series.Setting(rows, made_up.about(rows))
    shared = measures.common(rows, 10)
    found = budgets.advice(held, shared, 1.0, list(rows))
    assert found.best == "fedcor" and found.as_good == []  # its accuracy is flat: also few rounds are as good
    assert shared.megabytes == 40.0
    found = budgets.advice(held, shared, 0.125, list(rows))
    assert found.best in ("fl_dp3s", "clustered") and set(found.as_good) == {"fl_dp3s", "clustered"} - {found.best}
    assert budgets.advice(held, shared, 1.0, ["random"]).as_good == []


@pytest.fixture
def results(tmp_path):
    """Results of one setting and of the studies on it, with a FedCor whose lead is its probes'."""
    rows = {
        "random": made_up.level(0.5, first_seed=1),
        "fl_dp3s": made_up.level(0.6, first_seed=2),
        "fedcor": made_up.level(0.7, down=5_000_000, first_seed=3),
    }
    probes = {
        "random": rows["random"],
        "fedcor interval=10": rows["fedcor"],
        "fedcor interval=80": made_up.level(0.6, down=2_000_000, first_seed=4),
        "fedcor interval=never": made_up.level(0.5, first_seed=5),
    }
    longer = {"random": made_up.level(0.65, rounds=70, first_seed=6), "fl_dp3s": made_up.level(0.7, rounds=50)}
    absent = {"random": made_up.level(0.5, first_seed=1), "fl_dp3s": made_up.level(0.6, first_seed=2),
              "fedcor": made_up.level(0.55, first_seed=3)}  # fmt: skip
    for name, held in {
        "fmnist-1spc": rows, "fmnist-2spc": rows, "information-probes-fmnist-1spc": probes,
        "information-absent-fmnist-1spc": absent, "information-longer-fmnist-1spc": longer,
    }.items():  # fmt: skip
        series.write(tmp_path / name, held, made_up.about(held, title=name))
    return tmp_path


def test_the_page_says_what_the_numbers_show(results):
    short, text = pages.price_of_information(results, "../results"), all_tables(results)
    assert "Significantly ahead of random selection: fedcor interval=10; fedcor interval=80. Worse than fedcor " \
           "interval=10: fedcor interval=80; fedcor interval=never." in text  # fmt: skip
    assert "| fedcor interval=80 | 1.50 |" in text and "| 50 % |" in text
    assert "the difference to random selection falls significantly for fedcor, and rises for none" in text
    # fedcor sends 6 MB a round for 20 rounds, random selection and FL-DP3S 2 MB for 70 and 50: too few for the latter
    assert "At the row's megabytes: better than random: fedcor, worse: none." in text
    assert "| fedcor | 120 | 0.700 | 60 |" in text and "| fedcor | **+0.050 (" in text
    assert "minus fl_dp3s" not in text
    assert "Better than random selection with equal MB: fedcor interval=10." in text
    assert text.count("*Not run yet: Fashion-MNIST, two labels per client.*") == 3
    assert "FL-DP3S is significantly better in: fmnist-1spc; fmnist-2spc; not significantly different in: none." in text
    assert wording.NONE not in text
    assert "* **For at most 1.2 times random's megabytes**, after equal rounds: `fl_dp3s` (2)." in short
    assert "* **For more megabytes**, after equal rounds: `fedcor` (2)." in short
    assert "| fedcor | 3.00 | +0.200 | 2 / 0 | +0.200 | 2 / 0 |" in short


@pytest.mark.slow
def test_the_pages_of_these_results(results):
    assert pages.write(results) == ["fmnist-1spc", "fmnist-2spc", "information-probes-fmnist-1spc",
                                    "information-longer-fmnist-1spc", "information-absent-fmnist-1spc"]  # fmt: skip
    text = (results / "README.md").read_text()
    assert "performance_profiles_fashion-mnist.png" in text and (results / "budgets.png").exists()
    assert (results / "across_fashion-mnist.csv").exists()
    shown = (results / "information-probes-fmnist-1spc" / "README.md").read_text()
    assert "| fedcor interval=80 minus random |" in shown


@pytest.mark.slow
def test_a_part_draws_its_own_pictures_and_missing_ones(results):
    pages.write(results)
    drawn = {path: path.stat().st_mtime_ns for path in results.rglob("*.png")}
    missing = results / "fmnist-1spc" / "accuracy_by_round.png"
    missing.unlink()
    pages.write(results, ["information-probes-fmnist-1spc"])
    again = {path for path, before in drawn.items() if path.stat().st_mtime_ns != before}
    own = results / "information-probes-fmnist-1spc"
    assert again == {missing, own / "accuracy_by_round.png", own / "accuracy_by_megabytes.png"}
    pages.write(results, ["fmnist-2spc"])
    assert (results / "budgets.png").stat().st_mtime_ns != drawn[results / "budgets.png"]


def test_a_study_of_other_rounds_is_not_held_against_the_leaderboard(results):
    name = "information-absent-fmnist-1spc"
    other = {row: made_up.level(0.5, rounds=10) for row in ("random", "fedcor")}
    series.write(results / name, other, made_up.about(other, title=name))
    text = "\n".join(absence.section(held_in(results)))
    assert "70 % available |" in text and "change of the lead" not in text


def test_few_seeds_are_said():
    rows = {name: made_up.level(0.5 + 0.1 * place, seeds=3) for place, name in enumerate(("random", "fl_dp3s"))}
    held = series.Setting(rows, made_up.about(rows))
    found = budgets.advice(held, measures.common(rows, 10), 1.0, list(rows))
    assert found.best == "fl_dp3s" and not found.seeds_suffice


def test_longer_runs_send_what_the_expensive_ones_send():
    """By the committed bytes of the leaderboard; the longer runs' are those of random selection, in as many rounds."""
    for name, rounds in information.LONGER.items():
        held = series.read(RESULTS / name)
        assert held is not None
        sent = held.rows["fedcor"].megabytes[:, -1].mean()
        of_round = held.rows["random"].megabytes[:, -1].mean() / held.rows["random"].rounds
        assert sent <= rounds * of_round <= 1.05 * sent, name


def test_a_dearer_row_leaves_the_others_their_comparison(results):
    rows = dict(series.read(results / "fmnist-1spc").rows)
    rows["divfl"] = made_up.level(0.6, down=20_000_000, first_seed=7)  # more than any longer run
    series.write(results / "fmnist-1spc", rows, made_up.about(rows, title="fmnist-1spc"))
    section = "\n".join(as_many.section(held_in(results)))
    sizes, differences = [line for line in section.splitlines() if line.startswith("| divfl |")]
    assert (
        sizes.endswith("| 0.600 |  |")
        and differences == "| divfl |  |"
        and "better than random: fedcor, worse: none" in section
    )


def test_where_nobody_is_dear_it_is_said(results):
    rows = {name: one for name, one in series.read(results / "fmnist-1spc").rows.items() if name != "fedcor"}
    series.write(results / "fmnist-1spc", rows, made_up.about(rows, title="fmnist-1spc"))
    text = "\n".join(as_many.section(held_in(results)))
    assert "No row sends more than 1.2 times random's megabytes" in text
    assert "*Not run yet: Fashion-MNIST, two labels per client.*" in text


def test_nothing_is_said_where_nothing_was_run(tmp_path):
    short, text = pages.price_of_information(tmp_path, "../results"), all_tables(tmp_path)
    assert text.count(wording.NONE) == 5 and short.count(wording.NONE) == 1
    assert pages.write(tmp_path) == []


def test_the_committed_page_is_up_to_date():
    tool = scripts.load("tools/price_of_information.py")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.written(), "run tools/price_of_information.py"


@pytest.mark.slow
def test_the_committed_tables_are_up_to_date(monkeypatch):
    monkeypatch.setattr(check, "_older", lambda *_: [])  # it needs the whole history
    assert pages.check(RESULTS) == []


def test_the_check_finds_tables_that_do_not_follow_from_the_curves(results, monkeypatch):
    monkeypatch.setattr(check, "_older", lambda *_: [])
    (results / price.DETAILS).write_text(all_tables(results), encoding="utf-8")
    different = "\n".join(pages.check(results))
    assert "fmnist-1spc/table.csv does not follow from the curves" in different
    assert price.DETAILS not in different
