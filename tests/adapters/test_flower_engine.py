"""Flower's own simulation engine: the example, twenty rounds of four strategies, and the page."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr.simulation", reason="Flower is not installed: pip install 'fedjax-sel[flower]'")
pytest.importorskip("ray", reason="Flower's engine is not installed: pip install 'flwr[simulation]'")

HOME = Path(__file__).parents[2]
EXAMPLE = HOME / "examples" / "flower" / "run.py"
FOUR = ("fedcor", "fl_dp3s", "pow_d", "gpfl")


def environment():
    """As users have it: without the flags by which the suite compiles quickly."""
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return own | {"PYTHONPATH": str(HOME), "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def run(*flags, seconds=1500):
    command = [sys.executable, str(EXAMPLE), "--cores", "2", *map(str, flags)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.slow
def test_four_strategies_name_the_simulators_cohorts(tmp_path):
    out = tmp_path / "flower.json"
    run("--clients", "simulator", "--rounds", 20, "--out", out)
    report = json.loads(out.read_text())
    assert tuple(report) == FOUR
    for name, both in report.items():
        ours, theirs = both["flower"], both["simulator"]
        assert len(ours["cohorts"]) == 20
        assert ours["cohorts"] == theirs["cohorts"], name
        assert ours["bill"] == theirs["bill"], name
        assert ours["accuracy"][1:] == pytest.approx(theirs["accuracy"], abs=0.005), name


@pytest.mark.slow
@pytest.mark.parametrize("clients", ["torch", "jax"])
def test_four_strategies_learn_digits(clients, tmp_path):
    pytest.importorskip("torch" if clients == "torch" else "jax", reason="PyTorch is not installed: pip install torch")
    out = tmp_path / "flower.json"
    run("--clients", clients, "--rounds", 20, "--out", out)
    for name, both in json.loads(out.read_text()).items():
        found = both["flower"]
        assert found["accuracy"][-1] > 0.6 > found["accuracy"][0], name
        assert [len(set(cohort)) for cohort in found["cohorts"]] == [5] * 20


@pytest.mark.slow
def test_a_killed_server_goes_on(tmp_path):
    flags = ("--clients", "simulator", "--strategies", "gpfl", "--rounds", 8)
    run(*flags, "--out", tmp_path / "whole.json")
    folder = tmp_path / "standing"
    command = [sys.executable, str(EXAMPLE), "--cores", "2", *map(str, flags), "--folder", str(folder)]
    with (tmp_path / "log").open("w") as log:
        killed = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + 600
        while not (folder / "gpfl" / "weights-000003.npz").exists():
            assert killed.poll() is None and time.monotonic() < end, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.02)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    run(*flags, "--folder", folder, "--out", tmp_path / "later.json")
    whole = json.loads((tmp_path / "whole.json").read_text())["gpfl"]["flower"]
    later = json.loads((tmp_path / "later.json").read_text())["gpfl"]["flower"]
    assert 0 < len(later["cohorts"]) < 8
    assert later["cohorts"] == whole["cohorts"][-len(later["cohorts"]) :]
    assert later["bill"] == whole["bill"] and later["accuracy"][-1] == whole["accuracy"][-1]


@pytest.mark.slow
def test_its_page_runs(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    page = (HOME / "docs" / "selector.md").read_text().partition("\n## Flower\n")[2]
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-6000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("accuracy")]
    assert float(line.split()[1]) > 0.9
    assert "Spent(models_down=72, models_up=36, floats_up=72)" in line
