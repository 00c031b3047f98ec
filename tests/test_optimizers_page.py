"""docs/optimizers.md and the README list the optimizers that there are; their commands and code work."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import fedjax_sel
from fedjax_sel.cli import command_line
from fedjax_sel.config import Config
from fedjax_sel.experiment import Experiment, checking
from fedjax_sel.experiment.checking import check
from fedjax_sel.runs import sweep
from fedjax_sel.training import optimizers

PAGE = (Path(__file__).parent.parent / "docs" / "optimizers.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_table_names_every_optimizer_and_its_parameters():
    rows = [line for line in PAGE.split("| `--optimizer` |")[1].split("\n\n")[0].splitlines() if line.startswith("| `")]
    named = {}
    for row in rows:
        cell = row.split("|")[1]
        outside, _, inside = cell.partition("(")
        for name in re.findall(r"`(\w+)`", outside):
            named[name] = set(re.findall(r"`(\w+)`", inside))
    assert set(named) == set(optimizers.names())
    for name, parameters in named.items():
        assert parameters <= set(optimizers.parameters(name)), name


def test_its_comparison_can_run(tmp_path):
    command = next(line for line in BLOCKS[0][1].splitlines() if line.startswith("fedjax-sel compare "))
    words = shlex.split(command)[2:]
    algos = words[words.index("--algos") + 1 : words.index("--optimizers")]
    chosen = words[words.index("--optimizers") + 1 : words.index("--out")]
    jobs = sweep.make_jobs({"here": Experiment()}, algos, tmp_path, False, chosen)
    assert len(jobs) == len(algos) * len(chosen)
    for job in jobs:
        check(job.experiment)


@pytest.mark.slow
def test_the_optimizer_of_ones_own_runs(tmp_path, monkeypatch):
    (tmp_path / "mine_of_the_page.py").write_text(BLOCKS[1][1])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    config = Config().replace(
        dataset="synthetic:train_size=120,test_size=20,num_classes=4,image_size=4", num_clients=6, num_selected=2,
        algo="random", local_steps=2, batch_size=4, rounds=2, optimizer="mine_of_the_page:shrinking",
        optimizer_args={"rate": "0.5"},
    )  # fmt: skip
    result, plain = fedjax_sel.run(config), fedjax_sel.run(config.replace(optimizer="fedavg", optimizer_args={}))
    assert (result.test_loss != plain.test_loss).all()
    sys.modules.pop("mine_of_the_page")


def test_the_help_names_every_optimizer():
    about = " ".join(command_line.make_parser("train", "", "", only={"optimizer"}).format_help().split())
    assert all(name in about for name in optimizers.names())


def test_any_of_optax_can_be_named():
    assert {"adam", "lion", "sgd", "yogi"} <= set(checking.optax_names())
