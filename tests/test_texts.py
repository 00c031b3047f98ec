"""Names of people's choosing in tables and pictures."""

import dataclasses

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import tasks
from fedjax_sel.cli import report
from fedjax_sel.core import parsing
from fedjax_sel.reporting import comparison, plots
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation.ledger import Ledger

NAMES = [r"runs/$\frac$|b", "runs/$a", "_hidden", "a\nb"]


@pytest.fixture
def result():
    config = fedjax_sel.preset("quickstart").replace(rounds=2, num_clients=4, num_selected=2)
    ones = np.ones((1, 2))
    ledger = Ledger(*(np.ones((1, 2), np.int64) for _ in Ledger._fields))
    cohorts = np.zeros((1, 2, 2), np.int32)
    measured = dict.fromkeys(tasks.names(tasks.classification()), ones)
    return Result(config, "made up", (0,), measured, cohorts, ledger, np.array([1.0, 2.0]))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_as_many_cells_in_every_line(result, name):
    row = dataclasses.replace(result)
    for table in (
        report.markdown({name: result}),
        comparison.as_markdown([comparison.row("s", name, row)]),
        comparison.by_optimizer([comparison.row("s", name, row, optimizer=name)]),
    ):
        lines = table.split("\n")
        assert len({line.replace(r"\|", "").count("|") for line in lines if line}) == 1, table


@pytest.mark.slow
def test_pictures_show_names_as_they_are(result, tmp_path):
    results = dict.fromkeys(NAMES, result)
    plots.curves(results, tmp_path / "curves.png")
    rows = [comparison.row("s", name, result, optimizer="o$") for name in NAMES]
    plots.draw_comparison(rows, [result] * len(NAMES), tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 4


def test_what_matplotlib_makes_of_a_label():
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    for name in NAMES:
        axis.plot([0, 1], label=parsing.label(name))
    shown = [text.get_text() for text in axis.legend().get_texts()]
    assert [text.strip().replace(r"\$", "$") for text in shown] == [" ".join(name.split()) for name in NAMES]
    assert not any(text._preprocess_math(text.get_text())[1] for text in axis.get_legend().get_texts())


@pytest.mark.parametrize(
    "text,without",
    [
        ("--out /home/me/results/x.json --minutes 8", "--out x.json --minutes 8"),
        ("--out=/data/a b", "--out=a b"),
        ("File '/usr/lib/python3/x.py', line 3", "File 'x.py', line 3"),
        ("fedcor/fmnist-2spc: 3 seed-rounds/s", "fedcor/fmnist-2spc: 3 seed-rounds/s"),
        ("file:///data/x", "file:x"),
    ],
)
def test_no_folder_of_the_machine_is_told(text, without):
    assert parsing.without_folders(text) == without
