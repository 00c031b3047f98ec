"""The price of information: what its sentences say is what its numbers show."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from fedjax_sel.leaderboard import measures, pages, price, series
from tests.leaderboard import made_up

ROOT = Path(__file__).parents[2]
RISING = np.tile(np.linspace(0.1, 0.5, 20), (10, 1))


def test_ahead_from_a_number_of_megabytes():
    base = made_up.series(RISING)
    dear_at_first = made_up.series(RISING + 0.2, down=[11_000_000] + [1_000_000] * 19)
    assert price.ahead_from(dear_at_first, base, 40.0, 0.1) == 12.0
    assert price.ahead_from(made_up.series(RISING + 0.1), base, 40.0, 0.1) == 2.0  # from its first round on
    assert price.ahead_from(made_up.series(RISING - 0.05), base, 40.0, 0.1) is None


def test_advice_names_who_cannot_be_told_from_the_best():
    rows = {
        "random": made_up.level(0.5, first_seed=1),
        "fl_dp3s": made_up.level(0.7, first_seed=2),
        "clustered": made_up.level(0.6999, first_seed=3, spread=0.01),
        "fedcor": made_up.level(0.8, down=9_000_000, first_seed=4),
    }
    held = series.Setting(rows, made_up.about(rows))
    shared = measures.common(rows, 10)
    found = price.advice(held, shared, 1.0, list(rows))
    assert found.best == "fedcor" and found.as_good == []  # its accuracy is flat: also few rounds are as good
    assert shared.megabytes == 40.0
    found = price.advice(held, shared, 0.125, list(rows))
    assert found.best in ("fl_dp3s", "clustered") and set(found.as_good) == {"fl_dp3s", "clustered"} - {found.best}
    assert price.advice(held, shared, 1.0, ["random"]).as_good == []


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
    absent = {"random": made_up.level(0.5, first_seed=1), "fl_dp3s": made_up.level(0.6, first_seed=2),
              "fedcor": made_up.level(0.55, first_seed=3)}  # fmt: skip
    for name, held in {
        "fmnist-1spc": rows, "fmnist-2spc": rows, "information-probes-fmnist-1spc": probes,
        "information-absent-fmnist-1spc": absent,
    }.items():  # fmt: skip
        series.write(tmp_path / name, held, made_up.about(held, title=name))
    return tmp_path


def test_the_page_says_what_the_numbers_show(results):
    text = pages.price_of_information(results, "../results")
    assert "Ahead of random selection: fedcor interval=10, fedcor interval=80. Worse than the usual interval: " \
           "fedcor interval=80, fedcor interval=never." in text  # fmt: skip
    assert "| fedcor interval=80 | 1.50 |" in text and "| 50 % |" in text
    assert "the lead shrinks for fedcor, and grows for none" in text
    assert "With all of them FL-DP3S is better in: fmnist-1spc; fmnist-2spc; not told to be in: none." in text
    assert "The row that sends the most is fedcor, with 3.00 times random's megabytes." in text
    assert price.NONE not in text
    assert text == pages.price_of_information(results, "../results")


def test_the_pages_of_these_results(results):
    assert pages.write(results) == ["fmnist-1spc", "fmnist-2spc", "information-probes-fmnist-1spc",
                                    "information-absent-fmnist-1spc"]  # fmt: skip
    text = (results / "README.md").read_text()
    assert "performance_profiles_fashion-mnist.png" in text and (results / "budgets.png").exists()
    assert (results / "across_fashion-mnist.csv").exists()
    shown = (results / "information-probes-fmnist-1spc" / "README.md").read_text()
    assert "| fedcor interval=80 less random |" in shown


def test_nothing_is_said_where_nothing_was_run(tmp_path):
    text = pages.price_of_information(tmp_path, "../results")
    assert text.count(price.NONE) == 5
    assert pages.write(tmp_path) == []


def test_the_committed_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("price_page", ROOT / "tools" / "price_of_information.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text(encoding="utf-8") == tool.written(), "run tools/price_of_information.py"
