"""The sets of versions that tools/test_versions.py tests, and the tool."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import scripts

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
NEEDED = {
    canonicalize_name(requirement.name): requirement
    for requirement in map(Requirement, [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]])
}
OF_THE_PACKAGE = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}


@pytest.fixture(scope="module")
def tool():
    return scripts.load("tools/test_versions.py")


def pins(name, python):
    """Package -> version, of a file in tools/pins on a Python."""
    lines = (REPOSITORY / "tools" / "pins" / f"{name}.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    found = {}
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            (one,) = requirement.specifier
            assert one.operator == "==" and canonicalize_name(requirement.name) not in found
            found[canonicalize_name(requirement.name)] = Version(one.version)
    return found


def lower_bound(requirement):
    (bound,) = (part.version for part in requirement.specifier if part.operator == ">=")
    return Version(bound)


@pytest.mark.parametrize(
    "name,python", [("oldest", "3.11"), ("colab", "3.13"), ("newest", "3.11"), ("newest", "3.12"), ("newest", "3.14")]
)
def test_every_set_goes_with_what_the_package_asks_for(name, python):
    given = pins(name, python)
    for package, version in given.items():
        if package in NEEDED:
            assert NEEDED[package].specifier.contains(version), f"{package} {version}"
    missing = {"colab": {"chex", "importlib-resources"}}.get(name, set())  # added by pip
    assert OF_THE_PACKAGE - set(given) == missing
    assert given["jaxlib"] == given["jax"]


def test_the_oldest_set_is_the_lower_bounds():
    given = pins("oldest", "3.11")
    assert {package: given[package] for package in OF_THE_PACKAGE} == {
        package: lower_bound(NEEDED[package]) for package in OF_THE_PACKAGE
    }


def test_the_versions_that_users_have_are_supported():
    """Colab's, and what pip takes on Python 3.11 and later."""
    for package, versions in {"jax": ("0.7.2", "0.10.2", "0.12.0.1"), "flax": ("0.11.2", "0.12.8", "0.12.12")}.items():
        assert all(NEEDED[package].specifier.contains(version) for version in versions)


def test_every_python_that_is_supported_has_a_newest_set(tool):
    first, last = tool.SETS["newest"]
    assert PROJECT["requires-python"] == f">={tool.shown(first)}" and last is None
    assert set(tool.SETS) - {"unpinned"} == {path.stem for path in tool.PINS.glob("*.txt")}


def test_the_core_is_there(tool):
    assert all(list((REPOSITORY / path).glob("test_*.py")) for path in tool.CORE)


def test_what_is_done_on_which_python(tool):
    pythons = {(3, minor): f"python3.{minor}" for minor in (11, 12, 13, 14)}
    assert [(job.name, job.python) for job in tool.plan(tool.DEFAULT_SETS, pythons)] == [
        ("oldest-3.11", "python3.11"),
        ("colab-3.13", "python3.13"),
        *((f"newest-3.{minor}", f"python3.{minor}") for minor in (11, 12, 13, 14)),
    ]


def fake_python(path, answer):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return str(path)


def test_pythons_are_found_on_the_path_and_in_pyenv(tool, tmp_path, monkeypatch):
    on_path = fake_python(tmp_path / "bin" / "python3.12", "echo 3 12")
    fake_python(tmp_path / "bin" / "python3.13", "exit 1")  # a shim of pyenv's, or a Python without venv
    for version, answer in {"3.10.1": "3 10", "3.12.9": "3 12", "3.13.9": "3 13", "3.13.10": "3 13"}.items():
        fake_python(tmp_path / "versions" / version / "bin" / "python", f"echo {answer}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path / "own", "echo 3 10"))
    pyenv = str(tmp_path / "versions" / "3.13.10" / "bin" / "python")
    assert tool.find_pythons() == {(3, 12): on_path, (3, 13): pyenv}
    assert tool.find_pythons([on_path]) == {(3, 12): on_path}
    with pytest.raises(SystemExit, match=r"own: not a Python from 3\.11 on"):
        tool.find_pythons([str(tmp_path / "own")])


@pytest.mark.parametrize("failing", [None, "install", "compare", "local-steps", "tests"])
def test_what_fails_is_told_and_the_others_go_on(tool, tmp_path, monkeypatch, capsys, failing):
    commands = []

    def call(command, stdout, timeout, **settings):
        assert "XLA_FLAGS" not in settings["env"] and "PYTHONPATH" not in settings["env"]
        step = Path(stdout.name).stem
        commands.append((step, command))
        stdout.write(f"{step} says so\n==== 5 passed ====\n")
        fails = step == failing and "oldest" in command[0]
        if fails and step == "local-steps":
            raise subprocess.TimeoutExpired(command, timeout)
        return int(fails)

    monkeypatch.setattr(tool.subprocess, "call", call)
    monkeypatch.setattr(tool, "_installed", lambda *_: "jax 1.2.3")
    monkeypatch.setattr(tool, "find_pythons", lambda given: {(3, 11): "python3.11", (3, 13): "python3.13"})
    code = tool.main(["--sets", "oldest", "newest", "--folder", str(tmp_path)])
    output = capsys.readouterr().out
    assert code == (0 if failing is None else 1)
    oldest, newest = (line for line in output.splitlines() if re.match(r"\| (oldest|newest) \| 3.11", line))
    assert "| jax 1.2.3 | 5 passed |" in newest
    if failing is None:
        assert "| jax 1.2.3 | 5 passed |" in oldest
    else:
        assert f"FAILED: {failing}" in oldest and f"{failing} says so" in output
        assert ("not finished after 600 s" in output) == (failing == "local-steps")
    installed = [command for step, command in commands if step == "install"]
    assert [Path(command[command.index("-c") + 1]).name for command in installed] == [
        "oldest.txt", "newest.txt", "newest.txt",
    ]  # fmt: skip
    assert {*tool.MAIN_JOBS} < {step for step, _ in commands}
    assert [command[-len(tool.CORE) :] for step, command in commands if step == "tests"][-1] == list(tool.CORE)


def test_it_says_what_it_would_do():
    command = [sys.executable, "tools/test_versions.py", "--list", "--sets", "newest", "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout == f"newest-{sys.version_info[0]}.{sys.version_info[1]}: {sys.executable}\n", done.stderr
