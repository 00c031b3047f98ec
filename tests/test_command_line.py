"""What becomes of an error that nobody foresaw, and of a terminal that cannot show everything."""

import io
import sys

import pytest

from fedjax_sel import data
from fedjax_sel.cli import command_line, train
from fedjax_sel.data import __main__ as data_command
from fedjax_sel.testing import __main__ as kit


def refuses(error):
    def load(*_):
        raise error

    return load


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class NoException(BaseException):
    pass


@pytest.mark.parametrize(
    "error,code,words",
    [
        (ZeroDivisionError("division\nby zero"), 1, "ZeroDivisionError: division, in fedjax_sel.experiment.dealing."),
        (KeyError("seed"), 1, "KeyError: 'seed', in fedjax_sel.experiment.dealing."),
        (ValueError("long " * 20_000), 1, "..., in fedjax_sel.experiment.dealing."),
        (MuteError(), 1, "MuteError, in fedjax_sel.experiment.dealing."),
        (NoException("of a plug-in"), 1, "NoException: of a plug-in, in fedjax_sel.experiment.dealing."),
        (RecursionError(), 1, "RecursionError, in fedjax_sel.experiment.dealing."),
        (MemoryError("Unable to allocate 3.64 TiB"), 2, "not enough memory (MemoryError: Unable to allocate 3.64 TiB)"),
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
    assert "JAX cannot start its devices (JAX_PLATFORMS=cuda: AssertionError); mend the driver" in err


def test_a_terminal_without_all_characters_shows_the_others(monkeypatch, tmp_path):
    """The heat map is drawn in shades that Latin-1 has not."""
    shown = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", shown)
    assert command_line.guarded(data_command.main, ["--num-clients", "5", "--out", str(tmp_path / "a.png")]) == 0
    shown.flush()
    text = shown.buffer.getvalue().decode("latin-1")
    assert "5 clients" in text and "100 %" in text and "?" in text
