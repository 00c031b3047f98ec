"""What becomes of an error that nobody foresaw, and of a terminal that cannot show everything."""

import io
import os
import subprocess
import sys
import warnings

import jax
import pytest

import fedjax_sel
from fedjax_sel import data
from fedjax_sel.cli import command_line, train
from fedjax_sel.cli import test as kit
from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError


def refuses(error):
    def load(*_, **__):
        raise error

    return load


@pytest.mark.parametrize(
    "error,code,words",
    [
        (ZeroDivisionError("division\nby zero"), 1, "ZeroDivisionError: division, in fedjax_sel.experiment.problem."),
        (KeyError("seed"), 1, "KeyError: 'seed', in fedjax_sel.experiment.problem."),
        (ValueError("long " * 20_000), 1, "..., in fedjax_sel.experiment.problem."),
        (RecursionError(), 1, "RecursionError, in fedjax_sel.experiment.problem."),
        (MemoryError("Unable to allocate 3.64 TiB"), 2, "out of memory (MemoryError: Unable to allocate 3.64 TiB)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_unforeseen_error_is_one_sentence(capsys, monkeypatch, tmp_path, error, code, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "load", refuses(error))
    assert command_line.guarded(train.main, []) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err and len(err) < 1000
    assert ("please report it" in err) == (code == 1)
    assert command_line.guarded(train.main, ["--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("main", [train.main, kit.main])
def test_jax_that_cannot_start_is_one_sentence(capsys, monkeypatch, main):
    """As with JAX_PLATFORMS=cuda on a machine without, where JAX says nothing but AssertionError."""
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", refuses(AssertionError()))
    assert command_line.guarded(main, ["random"] if main is kit.main else []) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "JAX cannot start its devices (JAX_PLATFORMS=cuda: AssertionError); fix the driver" in err


@pytest.fixture
def set_platforms():
    """What sets JAX_PLATFORMS in a process whose JAX has started on the CPU."""
    jax.devices()
    before = jax.config.jax_platforms
    yield lambda names: jax.config.update("jax_platforms", names)
    jax.config.update("jax_platforms", before)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_platform_without_devices_is_not_the_cpu(capsys, monkeypatch, tmp_path, set_platforms, platform):
    """Where JAX has started with the CPU alone; asked twice."""
    monkeypatch.chdir(tmp_path)
    set_platforms(platform)
    for _ in range(2):
        assert command_line.guarded(train.main, []) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert f"JAX cannot start its devices (JAX_PLATFORMS={platform}: JAX finds no device of {platform});" in err


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_process_for_a_platform_that_is_missing_ends(tmp_path, platform):
    command = [sys.executable, "-m", "fedjax_sel", "train", "--rounds", "1", "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env=os.environ | {"JAX_PLATFORMS": platform}, capture_output=True, text=True)
    assert done.returncode == 2 and f"JAX_PLATFORMS={platform}: " in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_report_needs_no_device(tmp_path):
    config = fedjax_sel.preset("quickstart").replace(rounds=1, seeds=1, out=str(tmp_path / "run"))
    fedjax_sel.run(config)
    command = [sys.executable, "-m", "fedjax_sel", "report", str(tmp_path / "run")]
    done = subprocess.run(command, env=os.environ | {"JAX_PLATFORMS": "tpu"}, capture_output=True, text=True)
    assert done.returncode == 0 and "Gini index of selections" in done.stdout


def test_a_warning_is_one_line():
    shown, before = [], warnings.formatwarning

    def warned(arguments):
        shown.append(warnings.formatwarning(UserWarning("such as 'é'"), UserWarning, "leaf.py", 1))
        return 0

    assert command_line.guarded(warned, []) == 0
    assert shown == ["warning: such as 'é'\n"] and warnings.formatwarning is before


def test_jax_without_a_cpu_says_how_to_have_one(monkeypatch, set_platforms):
    set_platforms("tpu")
    monkeypatch.setattr(jax, "local_devices", refuses(RuntimeError("Unknown backend cpu")))
    with pytest.raises(UserError, match="set JAX_PLATFORMS=tpu,cpu"):
        jax_settings.cpu()


@pytest.mark.slow
def test_a_run_says_first_which_devices_it_uses(capsys, tmp_path):
    tiny = ["--num-clients", "4", "--num-selected", "2", "--rounds", "1", "--local-epochs", "1", "--algo", "random"]
    assert command_line.guarded(train.main, [*tiny, "--mesh", "seeds=1,clients=2", "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "devices: 2 x cpu"


def test_a_terminal_without_all_characters_shows_the_others(monkeypatch):
    shown = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", shown)
    assert command_line.guarded(lambda arguments: print("5 \u2588") or 0, []) == 0
    shown.flush()
    assert shown.buffer.getvalue().decode("latin-1") == "5 ?\n"


def test_ctrl_c_in_a_callback_of_the_garbage_collector_ends_the_process():
    """Python prints and ignores exceptions of such callbacks; JAX has one, and tracing calls it often."""
    program = """
import gc, signal
from fedjax_sel.cli import command_line
def main(arguments):
    gc.callbacks.append(lambda *_: signal.raise_signal(signal.SIGINT))
    gc.collect()
    return 0
command_line.guarded(main)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")
