"""`fedjax-sel` and `python -m fedjax_sel`: every command by one name, its help, and what is typed by another's name."""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import fedjax_sel
from fedjax_sel import UserError, cli, logs
from fedjax_sel.cli import catalogue, command_line, compare, train

PACKAGE = Path(fedjax_sel.__file__).parent


def shown(capsys, *arguments):
    """What a command prints, or its error."""
    try:
        code = command_line.guarded(cli.main, list(arguments))
    except SystemExit as end:  # --help
        code = end.code or 0
    out, err = capsys.readouterr()
    return code, out if code == 0 else err


def test_every_command_is_listed(capsys):
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    modules = {
        file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
        for file in files - {"__main__.py"}
        if 'if __name__ == "__main__"' in (PACKAGE / file).read_text()
    }
    assert modules == {"train"}
    code, out = shown(capsys)
    for name, command in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.about)}$", out, re.MULTILINE)
    assert code == 0
    assert out == shown(capsys, "--help")[1]


def test_the_installed_command_leads_where_they_should():
    scripts = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"fedjax-sel": "fedjax_sel.__main__:entry_point"}
    assert "import entry_point" in (PACKAGE / "__main__.py").read_text()


@pytest.mark.parametrize(
    "arguments,message",
    [
        (["comparre"], "error: unknown command 'comparre'; did you mean 'compare'?\n"),
        (["bananas"], "error: unknown command 'bananas'; choose from compare, data, list, report, "),
        (["--seeds"], "error: unknown flag --seeds; --help lists every flag\n"),
        (["train", "--rounds", "0"], "error: --rounds: 0 must be from 1 to 2147483647\n"),
        (["train", "stray"], "error: unexpected argument 'stray'; --help lists every flag\n"),
        (["train", "--model", "a.b:c", "--precision", "bfloat16"], "error: --precision bfloat16: has no effect"),
        (["train", "--dataset", "a.b:c", "--data-dir", "."], "error: --data-dir .: has no effect without"),
        (["train", "--eval-clients-every", "1"], "error: --eval-clients-every 1: has no effect without --client-test"),
        (["list", "fedcorr"], "error: list: unknown name 'fedcorr'; did you mean 'fedcor'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(capsys, arguments, message):
    code, err = shown(capsys, *arguments)
    assert code == 2 and err.startswith(message) and err.count("\n") == 1


def test_every_command_tells_its_version_without_jax():
    """Also where something else is wrong with the command line."""
    code = """
import runpy, sys
commands = ("train", "compare", "report", "list")
for module, *command in [("",), (".train",), *(("", name) for name in commands)]:
    sys.argv = ["x", *command, "--version", "--no-such-flag"]
    try: runpy.run_module("fedjax_sel" + module, run_name="__main__", alter_sys=True)
    except SystemExit as end: assert not end.code, end.code
assert not {"jax", "numpy", "importlib_resources"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and len(set(lines)) == 1, done.stdout + done.stderr
    assert lines[0] == f"fedjax_sel {fedjax_sel.__version__}"


def test_help_is_there_at_once_for_every_command():
    """Without JAX, NumPy or Matplotlib, whose imports are what takes time."""
    code = f"""
import sys
from fedjax_sel import cli
for name in {list(cli.COMMANDS)!r}:
    try: cli.main([name, "--help"])
    except SystemExit as end: assert not end.code
found = {{"jax", "numpy", "matplotlib", "pandas", "rich"}} & set(sys.modules)
assert not found, found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nexamples:\n") + done.stdout.count("\nexample:\n") == len(cli.COMMANDS)


@pytest.mark.parametrize("name", [None, *cli.COMMANDS])
def test_help_fits_80_columns(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = (cli if name is None else cli.module_of(name)).make_parser().format_help()
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_is_grouped_and_every_flag_says_what_holds_without_it(name):
    parser = cli.module_of(name).make_parser()
    groups = [
        group for group in parser._action_groups if group._group_actions and group.title != "positional arguments"
    ]
    assert len(groups) > 1
    for group in groups[1:]:
        for action in group._group_actions:
            if action.nargs != 0 and not action.required and not isinstance(action, argparse.BooleanOptionalAction):
                text = action.help or ""
                has_default = any(words in text for words in ("(default", "default:", "instead of"))
                assert has_default or not action.option_strings, f"{action.option_strings}: {text}"
    assert {"--help", "--version", "--debug"} <= set(parser._option_string_actions)


# ---- unknown names ----


@pytest.mark.parametrize(
    "arguments,words",
    [
        (["compare", "--rounds", "3", "--out", "x"], "the following arguments are required: --algos; --help"),
        (["compare", "--algo", "random", "--out", "x"], "unknown flag --algo; did you mean '--algos'?"),
        (
            ["compare", "--algos", "pow_d", "--algo-args", "num_candidates=9", "--out", "x"],
            "unknown flag --algo-args; give parameters in --algos 'NAME[parameter=value]'",
        ),
        (["data", "--algo-args", "profile=fc1"], "unknown flag --algo-args; did you mean '--task-args'?"),
        (["train", "--roundz=3"], "unknown flag --roundz; did you mean '--rounds'?"),
        (["train", "--lr", "0.1"], "unknown flag --lr; --help lists every flag"),
    ],
)
def test_an_unknown_flag_gets_the_nearest_one(capsys, arguments, words):
    code, err = shown(capsys, *arguments)
    assert code == 2 and err.startswith(f"error: {words}") and err.count("\n") == 1


def test_a_configuration_answers_likewise():
    with pytest.raises(UserError, match="configuration: unknown 'roundz'; did you mean 'rounds'"):
        fedjax_sel.preset("quickstart").replace(roundz=1)


def test_the_sections_of_list_are_those_of_the_catalogue():
    assert set(cli.module_of("list").SECTIONS) == set(catalogue.sections())


def test_log_names_the_tools_that_there_are():
    (action,) = (one for one in train.make_parser()._actions if one.dest == "log")
    assert action.choices == list(logs.NAMES)


def test_a_page_shows_a_command_without_the_folders_of_a_machine():
    shown = command_line.quoted_command(
        "fedjax-sel compare", ["--data-dir", "/mine/data", "--runs=/mine/runs", "--algos", "my algo", "--runs"]
    )
    assert shown == "fedjax-sel compare --data-dir DATA --runs RUNS --algos 'my algo' --runs RUNS"
    more = ["--config", "/home/me/a.toml", "--available=/home/me/who.csv", "--dataset", "leaf:/home/me/femnist"]
    shown = command_line.quoted_command("fedjax-sel compare", [*more, "--preset", "fedcor/fmnist-2spc"])
    assert shown == "fedjax-sel compare --config a.toml --available=who.csv --dataset leaf:femnist --preset " \
                    "fedcor/fmnist-2spc"  # fmt: skip
    for given, seen in (("/mine/results", "OUT"), ("results/papers", "results/papers")):
        assert command_line.quoted_command("study", ["--out", given]) == f"study --out {seen}"
        assert command_line.quoted_command("study", [f"--out={given}"]) == f"study --out {seen}"


def test_an_update_that_is_not_finite_is_exit_code_3(monkeypatch, tmp_path, capsys):
    def diverge(*_):
        raise fedjax_sel.NonFiniteUpdateError("round 2")

    monkeypatch.setattr("fedjax_sel.runs.experiment.run_experiment", diverge)
    assert command_line.guarded(train.main, ["--out", str(tmp_path / "run")]) == 3
    assert "stopped: round 2; the rounds before it are in" in capsys.readouterr().err


def test_a_failed_run_of_a_comparison_is_exit_code_3(monkeypatch, tmp_path, capsys):
    found = SimpleNamespace(stopped=False, rows=(), failed=("random: round 2",))
    monkeypatch.setattr("fedjax_sel.reporting.compared.run", lambda *_: found)
    assert command_line.guarded(compare.main, ["--algos", "random", "--out", str(tmp_path / "compared")]) == 3
    assert "failed: random: round 2" in capsys.readouterr().err
