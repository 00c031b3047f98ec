"""docs/your_own_experiment.md does what it says: its code is run, in order, in a folder of its own."""

import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from fedjax_sel.cli import command_line, train
from tests.data import test_data_leaf as leaf
from tests.documents import pages

BLOCKS = pages.blocks("docs/your_own_experiment.md", "python")


@pytest.mark.slow
def test_a_network_data_and_a_loss_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = pages.run(BLOCKS[:4])
    result = there["result"]
    assert (result.test_accuracy.max(axis=1) >= 0.9).all() and result.num_rounds < 30
    np.testing.assert_allclose(there["logits"], there["flax_logits"], rtol=1e-4, atol=1e-4)
    assert there["state_dict"]["fc.weight"].shape == (3, 32)
    validation = there["is_right"](there["scans"][500:600], there["labels"][500:600], 1).mean()
    np.testing.assert_allclose(validation, there["chosen"].test_accuracy[1].max(), atol=0.011)  # rounding: one image
    assert len(there["right"]) == 100
    assert [row.algo for row in there["compared"].rows] == ["random", "clustered", "pow_d"]


@pytest.mark.slow
def test_parts_as_plugins(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(BLOCKS[4].code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (block,) = (block for block in pages.blocks("docs/your_own_experiment.md", "bash") if "mine:scans" in block.code)
    start, command, *flags = shlex.split(block.code.replace("\\\n", " "))
    assert (start, command) == ("fedjax-sel", "train")
    try:
        assert command_line.guarded(train.main, [*flags, "--rounds", "2", "--out", "run"]) == 0
    finally:
        sys.modules.pop("mine", None)
    assert "value" not in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.slow
def test_the_next_character(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("train", "test"):
        users = {f"R_{number}": leaf.role(5 * number, 8) for number in range(6)}
        leaf.write(Path("leaf/data/shakespeare/data"), part, "all_data.json", users)
    imports = BLOCKS[0]._replace(code=BLOCKS[0].code.split("class Block")[0])
    pages.run([imports, BLOCKS[5]])


def test_the_users_code_is_short():
    lines = [line for line in BLOCKS[0].code.splitlines() if line.strip()]
    assert len(lines) < 60
