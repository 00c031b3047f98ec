"""The scripts in benchmarks/: that their settings are sound, and their arithmetic."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from fedjax_sel.simulation.problem import check

FOLDER = Path(__file__).parents[1] / "benchmarks"
RIVALS = FOLDER / "rivals"


@pytest.fixture
def rivals(monkeypatch):
    """The modules of benchmarks/rivals, which import each other by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(RIVALS))
    before = set(sys.modules)
    yield lambda name: importlib.import_module(name)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(FOLDER) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_settings_of_the_rivals_are_sound(rivals):
    settings, ours = rivals("settings"), rivals("ours")
    for name, setting in settings.SETTINGS.items():
        config = ours.config_of(setting)
        check(config)
        assert config.training.learning_rate_milestones == (), name
        assert setting["rounds"] % setting["chunk"] == setting["warm_rounds"] % setting["chunk"] == 0
        assert config.data.dataset in rivals("synthetic").SHAPES


def requirements(name):
    """The lines of a file of requirements, and of those that it names."""
    for line in (RIVALS / "requirements" / name).read_text().splitlines():
        if line.startswith("-r "):
            yield from requirements(line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            yield line


def test_every_rival_has_a_runner_and_pins(rivals):
    for name, rival in rivals("settings").RIVALS.items():
        assert (RIVALS / rival["runner"]).exists(), name
        pins = list(requirements(f"{rival['venv']}.txt"))
        assert pins and all(re.fullmatch(r"[\w\-\[\]]+==[\d.]+", line) for line in pins), name


def test_a_ratio_compares_a_rival_with_the_runs_beside_it(rivals):
    def runs(*seconds):
        return [{"seconds": value, "accuracy": 0.5 + 0.001 * i} for i, value in enumerate(seconds)]

    table = {
        "ours": runs(1, 3, 5, 2, 4, 6),  # before the first rival, between, after the last; twice
        "together": runs(10, 20),
        "first": runs(8, 12),
        "second": runs(8, 10),
    }
    judge = rivals("run").judgement
    assert judge("first", table, 5)["ratios"] == [4.0, 4.0]  # 8 / mean(1, 3), 12 / mean(2, 4)
    assert judge("second", table, 5)["ratios"] == [2.0, 2.0]  # 8 / mean(3, 5), 10 / mean(4, 6)
    assert judge("first", table, 5)["ratio_5_seeds"] == 3.5  # the median of 40 / 10 and 60 / 20
    assert judge("first", table, 5)["same_accuracy"]


@pytest.mark.parametrize("file", sorted((FOLDER.parent / "results").glob("*.json")), ids=lambda file: file.name)
def test_results_say_how_they_were_made_and_name_no_machine(file):
    text = file.read_text()
    assert json.loads(text)
    assert not re.search(r"/(work|tmp|home|root|Users)/", text)
