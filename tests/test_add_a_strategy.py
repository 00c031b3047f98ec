"""docs/add_a_strategy.md does what it says: its code is run, in order, in a folder of its own."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedjax_sel import testing

PAGE = Path(__file__).parent.parent / "docs" / "add_a_strategy.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory from which `my_strategies` can be imported, and afterwards no longer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("my_strategies", None)


NUMPY, STATEFUL, JAX = BLOCKS[0][1], BLOCKS[2][1], BLOCKS[4][1]


def test_the_page_shows_complete_strategies_of_few_lines():
    assert "from_numpy(" in NUMPY and "def stale_loss" in JAX
    assert max(len(block.splitlines()) for block in (NUMPY, STATEFUL, JAX)) <= 25
    assert {language for language, _ in BLOCKS} == {"python", "bash"}


@pytest.mark.slow
def test_every_block_runs(folder, monkeypatch):
    # The command has run the whole battery already.
    monkeypatch.setattr(testing, "check_strategy", functools.partial(testing.check_strategy, run=False, games=64))
    (folder / "my_strategies.py").write_text(NUMPY + STATEFUL + JAX)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PAGE.parent.parent)}
    names = {}
    outputs = []
    for language, code in [BLOCKS[1], BLOCKS[3], *BLOCKS[5:]]:
        if language == "bash":
            command = ["bash", "-euc", code]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            outputs.append(done.stdout)
        else:
            exec(compile(code, str(PAGE), "exec"), names)
    compared, smoothed, checked, trained, _ = outputs
    assert "my_strategies:high_loss" in compared and "my_strategies:smoothed_loss" in smoothed
    assert checked.startswith("stale_loss: conforms")
    assert "final test accuracy" in trained and (folder / "stale_loss" / "metrics.csv").exists()


@pytest.mark.slow
def test_the_failure_on_the_page_is_what_the_kit_says(folder):
    drawn = "sampling.without_replacement(key, weights, now.env.num_selected, now.available)"
    assert drawn in JAX
    code = JAX.replace(drawn, "lax.top_k(loss, now.env.num_selected)[1]")
    (folder / "my_strategies.py").write_text(f"from jax import lax\n{NUMPY}{code}")
    from fedjax_sel import strategies
    from fedjax_sel.testing import examine

    report = examine(strategies.make("my_strategies:stale_loss"), run=False)
    assert len(report.failed) == 4
    quoted = re.search(r"^    key used: (.*?)\n\n", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert report.findings["key used"].why == " ".join(quoted.group(1).split())
