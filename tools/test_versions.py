#!/usr/bin/env python3
"""Run the main jobs and tests with the oldest and newest supported dependencies, on every installed Python version.

Each file in tools/pins is a set of versions. For each set and each suitable Python, the script creates an environment,
installs the package with the set as constraints, and runs the main jobs and the core tests. The main jobs compile as
users do, with XLA's full optimization; the tests do not. It needs Python 3.11 or newer with pip and venv, and access to
PyPI.
"""

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PINS = REPOSITORY / "tools" / "pins"

Version = tuple[int, int]

# set -> the oldest and the newest suitable Python
SETS: dict[str, tuple[Version, Version | None]] = {
    "oldest": ((3, 11), (3, 11)),  # NumPy 2.0 and packages of that time have no wheels for newer Python
    "colab": ((3, 13), (3, 13)),
    "newest": ((3, 11), None),
    "unpinned": ((3, 11), None),  # the versions that pip chooses today
}
DEFAULT_SETS = ("oldest", "colab", "newest")

# Tests of numerical code; the other tests cover folders, files and commands.
CORE = ("tests/numerics", "tests/models", "tests/training", "tests/strategies", "tests/simulation")

# Arguments of `python -m fedjax_sel`; {} is the folder of their results.
MAIN_JOBS = {
    "compare": "compare --algos random fed_cbs fl_dp3s fedcor --seeds 2 --rounds 20 --out {}/compare",
    "report": "report {}/compare --html {}/report.html",
    "local-steps": "train --algo fl_dp3s --local-steps 5 --rounds 4 --out {}/steps",
    "convolutions": "train --algo gpfl --model cnn_small --dataset synthetic:train_size=600,image_size=16"
    " --num-clients 10 --num-selected 3 --rounds 2 --out {}/convolutions",
    "clock": "train --algo clustered --available 0.7 --timing tiers --optimizer fedyogi --rounds 4 --out {}/clock",
}
SECONDS = 600  # limit of each main job, for a compiler that does not end

SHOWN = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")

# Variables that configure Python, JAX or the tests, or cache results of another environment.
NOT_INHERITED = (
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "FEDJAX_SEL_XLA_FLAGS",
)  # fmt: skip


@dataclasses.dataclass
class Job:
    """A set of versions on one Python, with the outcome."""

    pins: str
    version: Version
    python: str
    outcome: str = "not run"
    versions: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the job and its folder."""
        return f"{self.pins}-{shown(self.version)}"


def shown(version: Version) -> str:
    """Format a Python version, e.g. "3.11"."""
    return f"{version[0]}.{version[1]}"


def find_pythons(given: Sequence[str] = ()) -> dict[Version, str]:
    """Return an interpreter of each installed Python from 3.11 on that can create environments.

    Args:
        given: interpreters to use instead of a search.

    Returns:
        Version -> path. The search order is this interpreter, PATH, and pyenv with the newest first.
    """
    found: dict[Version, str] = {}
    for path in given or _candidates():
        version = _version(path)
        if version is not None and version >= (3, 11):
            found.setdefault(version, path)
        elif given:
            sys.exit(f"error: --python {path}: not a Python from 3.11 on with venv and pip; give another")
    return dict(sorted(found.items()))


def _candidates() -> Iterable[str]:
    yield sys.executable
    for minor in range(11, 30):
        if path := shutil.which(f"python3.{minor}"):
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    versions = [path for path in pyenv.glob("3.*") if all(part.isdecimal() for part in path.name.split("."))]
    for path in sorted(versions, key=lambda path: [int(part) for part in path.name.split(".")], reverse=True):
        yield str(path / "bin" / "python")


def _version(python: str) -> Version | None:
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
        major, minor = answer.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def plan(sets: Sequence[str], pythons: dict[Version, str]) -> list[Job]:
    """Return the jobs: every set on every suitable Python."""
    jobs = []
    for name in sets:
        first, last = SETS[name]
        jobs += [Job(name, v, path) for v, path in pythons.items() if first <= v and (last is None or v <= last)]
    return jobs


def do(job: Job, folder: Path, tests: Sequence[str]) -> None:
    """Create the environment and run the tests in it; store the outcome in the job.

    Args:
        job: the job.
        folder: the folder of the environment and logs; an existing environment is updated.
        tests: arguments for pytest.
    """
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / "bin" / "python"
    pins = PINS / f"{job.pins}.txt"
    constraints = ["-c", str(pins)] if pins.exists() else ["--upgrade", "--upgrade-strategy", "eager"]
    steps = {
        "venv": [job.python, "-m", "venv", str(folder / "venv")],
        "install": [str(python), "-m", "pip", "install", *constraints, "-e", f"{REPOSITORY}[test]"],
        **{
            name: [str(python), "-m", "fedjax_sel", *(word.format(folder / "runs") for word in words.split())]
            for name, words in MAIN_JOBS.items()
        },
        "tests": [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
    }
    shutil.rmtree(folder / "runs", ignore_errors=True)
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    for step, command in steps.items():
        log = folder / f"{step}.log"
        limit = SECONDS if step in MAIN_JOBS else None
        with log.open("w") as file:
            try:
                code = subprocess.call(
                    command, stdout=file, stderr=subprocess.STDOUT, cwd=REPOSITORY, env=environment, timeout=limit
                )
            except subprocess.TimeoutExpired:
                file.write(f"not finished after {limit} s\n")
                code = 124
        lines = log.read_text(errors="replace").splitlines()
        if step == "install" and code == 0:
            job.versions = _installed(str(python), environment)
        job.seconds = time.monotonic() - started
        if code:
            job.outcome = f"FAILED: {step}"
            print("\n".join([*lines[-25:], f"{job.name}: {step} failed with exit code {code}; full log: {log}"]))
            return
        job.outcome = lines[-1].strip("= ") if step == "tests" else f"{step} done"


def _installed(python: str, environment: dict[str, str]) -> str:
    code = f"import importlib.metadata as m; print(', '.join(f'{{p}} {{m.version(p)}}' for p in {SHOWN}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, env=environment).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: the command-line arguments, without the program name.

    Returns:
        0 if everything passed, 1 if a job failed, 2 if there is no job.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sets", nargs="+", choices=SETS, default=DEFAULT_SETS, help="sets of versions (default: %(default)s)"
    )
    parser.add_argument("--python", nargs="+", default=(), metavar="PATH", help="interpreters (default: all found)")
    parser.add_argument("--all", action="store_true", help="run the whole default suite instead of the core tests")
    parser.add_argument("--folder", type=Path, help="folder that keeps environments and logs for reuse")
    parser.add_argument("--list", action="store_true", help="list the jobs, and exit")
    parser.add_argument("tests", nargs="*", help="arguments for pytest (default: the core tests)")
    flags = parser.parse_args(arguments)

    pythons = find_pythons(flags.python)
    jobs = plan(flags.sets, pythons)
    for name in flags.sets:
        if not any(job.pins == name for job in jobs):
            print(f"{name}: needs Python {shown(SETS[name][0])}, which was not found; give --python PATH")
    if flags.list or not jobs:
        for job in jobs:
            print(f"{job.name}: {job.python}")
        return 0 if jobs else 2
    tests = flags.tests or ([] if flags.all else CORE)
    folder = flags.folder or Path(tempfile.mkdtemp(prefix="test-versions-"))
    try:
        for job in jobs:
            print(f"{job.name} ...", flush=True)
            do(job, (folder / job.name).resolve(), tests)
            print(f"{job.name}: {job.outcome} ({job.versions})", flush=True)
    finally:
        if flags.folder is None and all("FAILED" not in job.outcome for job in jobs):
            shutil.rmtree(folder, ignore_errors=True)
    print("\n| versions | Python | installed | outcome | minutes |\n|---|---|---|---|---|")
    for job in jobs:
        print(f"| {job.pins} | {shown(job.version)} | {job.versions} | {job.outcome} | {job.seconds / 60:.1f} |")
    return 1 if any("FAILED" in job.outcome for job in jobs) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
