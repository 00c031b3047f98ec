"""Strategies and optimizers of anybody's own in a run: none ends it in silence, and an edited one is named."""

import importlib
import sys

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, strategies, testing
from fedjax_sel.cli import command_line, compare, data, train
from fedjax_sel.cli import test as kit
from fedjax_sel.core.plugins import sources
from fedjax_sel.runs import resume, run_files

QUICK = [
    "--dataset", "synthetic:train_size=200,test_size=40", "--num-clients", "8", "--num-selected", "2", "--batch-size",
    "10", "--local-epochs", "1", "--chunk", "1", "--rounds", "1",
]  # fmt: skip

STRATEGY = """
import sys
import jax.numpy as jnp
from fedjax_sel.strategies.contract import Selection, Strategy
import {helper}

def select(key, state, now):
    return Selection.of(jnp.arange(now.env.num_selected, dtype=jnp.int32), None)

def leave(*arguments):
    sys.exit()

sound = lambda: Strategy("sound", select)
def lengthy():
    raise ValueError("x" * 100_000)

leaves = leave
leaves_in_init = lambda: Strategy("leaves_in_init", select, init=leave)
leaves_in_select = lambda: Strategy("leaves_in_select", leave)
"""

OPTIMIZER = """
import sys
from fedjax_sel.training.optimizers import FederatedOptimizer

def leave(*arguments):
    sys.exit("enough")

sound = lambda: FederatedOptimizer("sound")
leaves = lambda: FederatedOptimizer("leaves", gradient=leave)
"""


PARTITION = """
import sys

def deals_nothing(dataset, num_clients, seed):
    return [][1]

def leave(dataset, num_clients, seed):
    sys.exit()

leaves = lambda: leave
wrong = lambda: deals_nothing
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with modules of its own, which are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "own_strategy.py").write_text(STRATEGY.format(helper="own_helper"))
    (tmp_path / "own_optimizer.py").write_text(OPTIMIZER)
    (tmp_path / "own_partition.py").write_text(PARTITION)
    (tmp_path / "own_helper.py").write_text("")
    (tmp_path / "own_exit.py").write_text("import sys\nsys.exit()\n")
    forget()
    yield tmp_path
    forget()


def forget():
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def command(capsys, main, *arguments):
    code = command_line.guarded(main, list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["--algo", "own_exit:anything"], "importing 'own_exit' raised SystemExit"),
        (["--algo", "own_strategy:leaves"], "calling it raised SystemExit"),
        (["--algo", "own_strategy:leaves_in_init"], "`init` cannot be traced: SystemExit"),
        (["--algo", "own_strategy:leaves_in_select"], "`select` cannot be traced: SystemExit"),
        (["--algo", "own_strategy:lengthy"], "xxx...; fix it"),
        (
            ["--algo", "random", "--optimizer", "own_optimizer:leaves"],
            "`gradient` cannot be traced: SystemExit: enough",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_plugin_that_ends_the_process_does_not_end_it_in_silence(capsys, here, arguments, words):
    code, out, err = command(capsys, train.main, *QUICK, *arguments)
    assert code == 2 and out == ""
    (line,) = (line for line in err.splitlines() if not line.startswith("devices: "))
    assert line.startswith("error: ") and words in line


@pytest.mark.parametrize(
    "main,more,name,words",
    [
        (train.main, ["--dry-run"], "leaves", "raised SystemExit"),
        (data.main, [], "wrong", "raised IndexError: list index"),
        (compare.main, ["--algos", "random", "--out", "compared"], "wrong", "raised IndexError: list index"),
    ],
    ids=["train", "data", "compare"],
)
def test_a_partition_that_fails_is_named_by_every_command(capsys, here, main, more, name, words):
    quick = [*QUICK, *more] if main is not data.main else QUICK[:4]
    code, out, err = command(capsys, main, *quick, "--partition", f"own_partition:{name}")
    assert code == 2 and out == ""
    assert f"--partition own_partition:{name}: dealing with seed 0 {words}" in err and err.count("\n") == 1


def test_the_kit_does_not_say_that_such_a_plugin_conforms(capsys, here):
    for name in ("own_exit:anything", "own_strategy:leaves"):
        code, out, err = command(capsys, kit.main, name)
        assert code == 2 and out == "" and "SystemExit" in err
    for name in ("own_strategy:leaves_in_init", "own_strategy:leaves_in_select"):
        code, out, _ = command(capsys, kit.main, name, "--no-run")
        assert code == 1 and "conforms" not in out and "SystemExit" in out
    assert testing.examine(lambda: sys.exit()).failed == ("factory",)


def test_ctrl_c_stays_what_it_is(capsys, here):
    (here / "own_interrupt.py").write_text("raise KeyboardInterrupt\n")
    code, _, err = command(capsys, train.main, *QUICK, "--algo", "own_interrupt:anything")
    assert code == 130 and "interrupted" in err


def test_the_code_of_a_plugin_is_its_package(here):
    package = here / "own_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "mine.py").write_text(
        "import json, numpy, own_helper\nfrom fedjax_sel import errors\nfrom ..constants import ALPHA\n"
        "from . import near\ndef lazily():\n    import own_package.later\n"
    )
    for name in ("constants", "inner/near", "inner/unused", "later"):
        (package / f"{name}.py").write_text("ALPHA = 1\n")
    for name in ("own_package.inner.mine", "own_package.inner.unused", "own_package.later"):
        importlib.import_module(name)
    expected = {"", ".constants", ".inner.mine", ".inner.near", ".inner.unused", ".later"}
    assert set(sources("own_package.inner.mine:anything")) == {f"own_package{name}" for name in expected}
    assert set(sources("own_strategy:sound")) == set()  # not loaded
    assert sources("random") == {}


def test_an_edited_plugin_is_named_without_any_checkpoint(here):
    config = Config().replace(algo="own_strategy:sound")
    about = {
        "rounds": 1, "plugins": {"own_strategy:sound": {"own_strategy": "0" * 64}}, "config": {}, "data": {},
        "made_with": {}, "metrics": {"bytes": 0, "sha256": ""}, "cohorts": "", "fingerprint": "",
        "source": "", "server_validation": 0.0, "higher_is_better": True,
    }  # fmt: skip
    (here / "run").mkdir()
    run_files.write(here / "run" / "result.json", about)
    assert "own_strategy:sound was edited since" in resume.edited_plugins(here / "run", config)[0]


@pytest.mark.slow
def test_a_comparison_marks_rows_of_earlier_code(capsys, here):
    flags = ["--algos", "random", "own_strategy:sound", *QUICK, "--out", "compared"]
    assert command(capsys, compare.main, *flags)[0] == 0
    assert "earlier code" not in (here / "compared" / "comparison.md").read_text()
    forget()
    (here / "own_helper.py").write_text("EDITED = True\n")
    code, _, err = command(capsys, compare.main, *flags)
    assert code == 0 and "to run it again, remove compared/own_strategy-sound" in err
    page = (here / "compared" / "comparison.md").read_text()
    assert "Some or all rounds are from earlier code:\n\n* own_strategy:sound, " in page


def test_other_data_that_a_strategy_read_are_named(here):
    (here / "reads_data.py").write_text(
        "import numpy as np\nfrom fedjax_sel.strategies.contract import Selection, Strategy\n"
        "def make():\n    order = np.load('order.npy')\n"
        "    return Strategy('reads', lambda key, state, now: Selection.of(order[: now.env.num_selected], None))\n"
    )
    np.save(here / "order.npy", np.arange(9))
    strategies.make("reads_data:make")  # a run has loaded the module
    config, found = Config().replace(algo="reads_data:make"), []
    for order in (np.arange(9), np.arange(9), np.arange(9)[::-1].copy()):
        np.save(here / "order.npy", order)
        found.append(resume._sources(config))
    assert found[0] == found[1] and found[0] != found[2]


@pytest.mark.slow
def test_an_edited_plugin_is_named_when_its_run_goes_on(capsys, here):
    """A module beside it, and an optimizer: each is noticed, and a file that was not edited is not named."""
    run = [*QUICK, "--algo", "own_strategy:sound", "--optimizer", "own_optimizer:sound", "--out", "run", "--rounds"]
    assert command(capsys, train.main, *run, "1")[0] == 0
    forget()
    (here / "own_helper.py").write_text("EDITED = True\n")
    code, _, err = command(capsys, train.main, *run, "2")
    assert code == 0 and "resuming after round 1" in err
    assert "own_strategy:sound was edited since (own_helper): the remaining rounds use the edited code" in err
    forget()
    code, out, _ = command(capsys, train.main, *run, "2")
    assert code == 0 and "already finished" in out and "own_strategy:sound was edited since" in out
    forget()
    (here / "own_optimizer.py").write_text(f"{OPTIMIZER}\n# another comment\n")
    code, out, _ = command(capsys, train.main, *run, "2")
    assert code == 0 and "own_optimizer:sound was edited since (own_helper, own_optimizer): some or all rounds" in out
    assert "own_strategy:sound: synthetic" in out  # nor an emoji for ":sound:"
    fedjax_sel.run(fedjax_sel.load(here / "run").config, progress=True)
    assert "own_optimizer:sound was edited since" in capsys.readouterr().err


def test_the_kit_checks_other_sizes(capsys):
    code, _, err = command(capsys, kit.main, "pow_d", "--num-clients", "8", "--num-selected", "8")
    assert code == 2 and "--num-selected: 8 is out of range; give 1 to 7" in err
