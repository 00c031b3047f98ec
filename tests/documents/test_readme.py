"""The README is short, and says what is so."""

import csv
import json
import re

from fedjax_sel import strategies
from tests.documents import pages

TEXT = (pages.ROOT / "README.md").read_text(encoding="utf-8")
READ = re.sub(r"<!--.*?-->", "", TEXT, flags=re.DOTALL)  # without the sources of tables


def table(heading):
    """The rows of the table whose header begins so, as lists of cells."""
    lines = READ.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading)) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def test_it_is_short():
    assert len(READ.split()) < 700


def test_it_counts_the_strategies_and_its_table_has_the_better_ones():
    assert f"It has {len(strategies.names())} [strategies]" in TEXT
    shown = {re.search(r"strategies/(\w+)\.md", cells[0])[1] for cells in table("| strategy | paper |")}
    folder = pages.ROOT / "results" / "leaderboard"
    better = set()
    for setting in ("fmnist-1spc", "fmnist-2spc"):
        with (folder / setting / "pairs.csv").open(newline="") as file:
            better |= {
                row["row"]
                for row in csv.DictReader(file)
                if row["measure"] == "last_rounds_accuracy" and row["verdict"] == "better" and "+" not in row["row"]
            }
    assert better and better <= shown


def test_its_speeds_are_those_of_the_file_that_it_names():
    assert "](results/rivals.json)" in TEXT
    found = json.loads((pages.ROOT / "results" / "rivals.json").read_text())
    (measured,) = found["settings"].values()
    assert found["processor"] == "AMD EPYC" and found["cores"] == 2
    assert measured["about"].endswith("5 clients x 20 steps x batch 64")
    names = {
        "PyTorch, stacked weights": "torch_batched",
        "FedJAX": "fedjax",
        "PyTorch, a loop over clients": "torch_loop",
        "pfl-research": "pfl",
        "Flower's simulation": "flower",
    }
    rows = {name: cells for name, *cells in table("| | rounds/s |")}
    assert rows.pop("fedjax_sel") == [f"{measured['ours']['rounds_per_second']:.1f}", "1"]
    assert set(rows) == set(names) and set(names.values()) == set(measured["rivals"])
    ours = round(measured["ours"]["rounds_per_second"], 1)
    for name, (speed, ratio) in rows.items():
        rival = measured["rivals"][names[name]]
        assert speed == f"{rival['rounds_per_second']:.1f}" and ratio == f"{ours / float(speed):.1f}"
        assert rival["same_model"] and rival["same_accuracy"]
