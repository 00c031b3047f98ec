"""The README is short, and says what is so."""

import json
import re

from fedjax_sel import strategies
from tests.documents import pages

TEXT = (pages.ROOT / "README.md").read_text(encoding="utf-8")


def table(heading):
    """The rows of the table whose header begins so, as lists of cells."""
    lines = TEXT.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading)) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def test_it_is_short():
    read = re.sub(r"<!--.*?-->", "", TEXT, flags=re.DOTALL)  # where a table comes from is not for readers
    assert len(read.split()) < 900


def test_it_names_every_strategy_and_no_other():
    (sentence,) = re.findall(r"It has fifteen strategies,(.*?)\. Yours", TEXT, flags=re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", sentence)) == sorted(strategies.names()) and len(strategies.names()) == 15


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
    assert rows.pop("fedjax_sel") == [f"{measured['ours']['rounds_per_second']:.1f}", ""]
    assert set(rows) == set(names) and set(names.values()) == set(measured["rivals"])
    for name, (speed, faster) in rows.items():
        rival = measured["rivals"][names[name]]
        assert speed == f"{rival['rounds_per_second']:.1f}" and abs(float(faster[:-2]) - rival["ratio"]) <= 0.05001
        assert rival["same_model"] and rival["same_accuracy"]
