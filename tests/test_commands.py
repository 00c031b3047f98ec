"""`python -m fedjax_sel` and `--version`: what there is, said at once."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedjax_sel
from fedjax_sel import __main__ as overview
from fedjax_sel.cli import command_line

PACKAGE = Path(fedjax_sel.__file__).parent


def test_every_command_is_listed(capsys):
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    commands = {
        file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
        for file in files - {"__main__.py"}
        if 'if __name__ == "__main__"' in (PACKAGE / file).read_text()
    }
    assert {f"fedjax_sel.{command}" for command in commands} == set(overview.COMMANDS)
    assert command_line.guarded(overview.main, []) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, line in overview.COMMANDS.items():
        assert any(re.fullmatch(rf"  python -m {name} +{re.escape(line)}", shown) for shown in lines)
    assert max(map(len, lines)) <= 120


def test_the_installed_commands_are_those_that_are_named(capsys):
    command_line.guarded(overview.main, [])
    scripts = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(re.findall(r"fedjax-sel-\w+", capsys.readouterr().out)) == set(scripts)


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["train", "--rounds", "3"], "error: 'train': not expected here; run python -m fedjax_sel.train\n"),
        (["comparre"], "error: 'comparre': not expected here; did you mean 'compare'?\n"),
        (
            ["--seeds"],
            "error: '--seeds': not expected here; choose from compare, data, leaderboard, report, reproduce, testing, "
            "train\n",
        ),
    ],
)
def test_what_is_no_command_is_one_sentence(capsys, arguments, message):
    assert command_line.guarded(overview.main, arguments) == 2
    assert capsys.readouterr().err == message


def test_every_command_tells_its_version_without_jax():
    """Also where something else is wrong with the command line."""
    code = """
import runpy, sys
for module in ("", ".train", ".compare", ".report", ".reproduce"):
    sys.argv = ["x", "--version", "--no-such-flag"]
    try: runpy.run_module("fedjax_sel" + module, run_name="__main__", alter_sys=True)
    except SystemExit as end: assert not end.code, end.code
assert not {"jax", "numpy", "importlib_resources"} & set(sys.modules)
try: runpy.run_module("fedjax_sel.data", run_name="__main__", alter_sys=True)
except SystemExit as end: assert not end.code, end.code
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and len(set(lines)) == 1, done.stdout + done.stderr
    start = f"fedjax_sel {fedjax_sel.__version__} (Python {sys.version.split()[0]}, jax "
    assert lines[0].startswith(start), lines[0]
