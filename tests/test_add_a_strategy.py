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


def test_the_page_shows_a_module_of_about_forty_lines_first():
    language, code = BLOCKS[0]
    assert language == "python" and "def stale_loss" in code
    assert len(code.splitlines()) <= 45
    assert {language for language, _ in BLOCKS} == {"python", "bash"}


@pytest.mark.slow
def test_every_block_runs(folder, monkeypatch):
    # The command has run the whole battery already.
    monkeypatch.setattr(testing, "check_strategy", functools.partial(testing.check_strategy, run=False, games=64))
    (folder / "my_strategies.py").write_text(BLOCKS[0][1])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PAGE.parent.parent)}
    names = {}
    outputs = []
    for language, code in BLOCKS[1:]:
        if language == "bash":
            command = ["bash", "-euc", code]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            outputs.append(done.stdout)
        else:
            exec(compile(code, str(PAGE), "exec"), names)
    checked, trained, _ = outputs
    assert checked.startswith("stale_loss: conforms")
    assert "final test accuracy" in trained and (folder / "stale_loss" / "metrics.csv").exists()


@pytest.mark.slow
def test_the_failure_on_the_page_is_what_the_kit_says(folder):
    k = "state.num_selected.value"
    drawn = f"sampling.without_replacement(key, weights, {k}, available)"
    assert drawn in BLOCKS[0][1]
    code = BLOCKS[0][1].replace(drawn, f"jax.lax.top_k(loss, {k})[1]")
    (folder / "my_strategies.py").write_text(code)
    from fedjax_sel import strategies
    from fedjax_sel.testing import examine

    report = examine(strategies.make("my_strategies:stale_loss"), run=False)
    assert len(report.failed) == 4
    quoted = re.search(r"^    key used: (.*?)\n\n", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert report.findings["key used"].why == " ".join(quoted.group(1).split())
