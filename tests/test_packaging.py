"""What is built and installed: small, whole, with the commit, and working where there is no checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import fedjax_sel
from fedjax_sel import version
from fedjax_sel.runs import folder
from tests import scripts

REPOSITORY = Path(fedjax_sel.__file__).parents[1]
ADDRESS = "https://forge.example/somebody/fedjax_sel"


def git(folder, *arguments):
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository of one commit with a package in it."""
    package = tmp_path / "checkout" / "fedjax_sel"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1\n")
    git(tmp_path / "checkout", "init", "-q")
    git(tmp_path / "checkout", "add", ".")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    git(tmp_path / "checkout", *who, "commit", "-q", "-m", "first")
    return package


def test_the_commit_of_a_checkout(checkout):
    head = git(checkout.parent, "rev-parse", "HEAD")
    (checkout.parent / "elsewhere.txt").write_text("not of the package")
    assert version.commit_of(checkout) == (head, False)
    (checkout / "a.py").write_text("2\n")
    assert version.commit_of(checkout) == (head, True)


def test_the_commit_of_an_installed_package_is_the_one_that_the_build_noted(checkout, tmp_path):
    """Also where the environment lies in somebody else's repository."""
    installed = checkout.parent / "venv" / "site-packages" / "fedjax_sel"
    installed.mkdir(parents=True)
    assert version.commit_of(installed) == (None, None)
    (installed / version.NOTE).write_text("0" * 40 + "\n")
    assert version.commit_of(installed) == ("0" * 40, False)
    (installed / version.NOTE).write_text("0" * 40 + " changed\n")
    assert version.commit_of(installed) == ("0" * 40, True)
    (installed / version.NOTE).write_text("what?\n")
    assert version.commit_of(installed) == (None, None)


def test_without_git_nothing_is_said_of_a_commit(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert version.commit_of(checkout) == (None, None)


def test_an_environment_names_the_commit():
    about = folder.environment()
    assert {"commit", "uncommitted_changes"} <= set(about)
    assert (about["commit"], about["uncommitted_changes"]) == version.current_commit()
    if (REPOSITORY / ".git").exists() and shutil.which("git"):
        assert about["commit"] == git(REPOSITORY, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def hooks():
    pytest.importorskip("hatchling")
    return scripts.load("tools/build_hooks.py")


def test_links_are_made_of_one_address(hooks):
    text = "[d](docs/a.md#b) ![p](docs/i.png) [w](https://x.example) [h](#here) [m](mailto:a@b.example)"
    assert hooks.absolute(text, "") == text and hooks.urls("") == {}
    assert hooks.absolute(text, ADDRESS) == (
        f"[d]({ADDRESS}/blob/main/docs/a.md#b) ![p]({ADDRESS}/raw/main/docs/i.png) [w](https://x.example) [h](#here) "
        "[m](mailto:a@b.example)"
    )
    assert all(url.startswith(ADDRESS) for url in hooks.urls(ADDRESS).values()) and "Issues" in hooks.urls(ADDRESS)
    readme = (REPOSITORY / "README.md").read_text()
    relative = re.findall(r"\]\((?!https?:|#)[^)]+\)", readme)
    assert relative and not re.findall(r"\]\((?!https?:|#)[^)]+\)", hooks.absolute(readme, ADDRESS))


# ---- built and installed ----


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel and an archive of the source, with a public address; and a wheel that was made of that archive."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    place = tmp_path_factory.mktemp("built")
    source = place / "source"
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(source)], check=True)
    for name in git(REPOSITORY, "ls-files", "-m", "-o", "--exclude-standard").splitlines():  # not committed yet
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    text = (source / "pyproject.toml").read_text()
    assert text.count('address = ""') == 1
    (source / "pyproject.toml").write_text(text.replace('address = ""', f'address = "{ADDRESS}"'))
    build = [sys.executable, "-m", "build", "--no-isolation"]
    subprocess.run([*build, "--wheel", "--sdist", "-o", str(place / "dist"), str(source)], check=True)
    (archive,) = (place / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    subprocess.run([*build, "--wheel", "-o", str(place / "again"), str(unpacked)], check=True)
    (wheel,), (again,) = (place / "dist").glob("*.whl"), (place / "again").glob("*.whl")
    return {
        "wheel": wheel,
        "archive": archive,
        "wheel of the archive": again,
        "commit": git(source, "rev-parse", "HEAD"),
        "changed": bool(git(source, "status", "--porcelain", "--", "fedjax_sel")),
    }


@pytest.mark.slow
def test_what_is_built_is_small_and_whole(built):
    assert max(built[name].stat().st_size for name in ("archive", "wheel")) < 2_500_000  # with Shakespeare
    contents = {name: set(zipfile.ZipFile(built[name]).namelist()) for name in ("wheel", "wheel of the archive")}
    assert contents["wheel"] == contents["wheel of the archive"]
    modules = {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "fedjax_sel").rglob("*.py")}
    others = {"py.typed", "commit.txt", "data/shakespeare.txt.bz2"}
    assert modules | {f"fedjax_sel/{name}" for name in others} <= contents["wheel"]
    assert not [name for name in contents["wheel"] if not re.match(r"fedjax_sel[/-]", name)]
    with tarfile.open(built["archive"]) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "docs/design.md", "tools/build_hooks.py"} <= names
    assert not [name for name in names if name.startswith(("results/", "docs/images/", "tests/"))]


@pytest.mark.slow
def test_the_metadata_has_urls_pythons_and_absolute_pictures(built):
    wheel = zipfile.ZipFile(built["wheel"])
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    text = wheel.read(name).decode()
    assert f"Project-URL: Homepage, {ADDRESS}\n" in text and f"]({ADDRESS}/raw/main/docs/images/" in text
    assert not re.findall(r"!\[[^\]]*\]\((?!https://)", text)
    for minor in (11, 12, 13, 14):
        assert f"Classifier: Programming Language :: Python :: 3.{minor}\n" in text
    extras = set(re.findall(r"^Provides-Extra: (.*)$", text, re.MULTILINE))
    assert {"tensorboard", "wandb", "pandas"} <= extras


@pytest.mark.slow
@pytest.mark.parametrize("which", ["wheel", "wheel of the archive"])
def test_it_works_outside_of_the_checkout(built, which, tmp_path):
    """In an environment of its own, which takes only the other packages from this one."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (own,) = environment.glob("lib/python*/site-packages")
    others = [entry for entry in sys.path if Path(entry).name == "site-packages"]
    (own / "others.pth").write_text("\n".join(others) + "\n")  # behind its own, and no editable install of theirs
    python = environment / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    place = tmp_path / "elsewhere"
    place.mkdir()

    def run(*command):
        done = subprocess.run(command, cwd=place, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = (sys.executable, "-m", "pip", "--python", str(python))
    run(
        *pip,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        "--prefix",
        str(environment),
        built[which],
    )
    where = run(python, "-c", "import fedjax_sel; print(fedjax_sel.__file__)")
    assert Path(where.strip()).is_relative_to(environment)
    command = environment / "bin" / "fedjax-sel"
    assert run(command, "--version").strip() == f"fedjax_sel {fedjax_sel.__version__}"
    printed = run(command, "train", "--rounds", "3", "--out", "quick")
    assert "Written to quick" in printed and (place / "quick" / "curves.png").exists()
    about = json.loads((place / "quick" / "environment.json").read_text())
    assert about["commit"] == built["commit"] and about["uncommitted_changes"] is built["changed"]
    assert "fedcor/fmnist-1spc" in run(command, "list")
    assert "already finished" in run(python, "-m", "fedjax_sel", "train", "--rounds", "3", "--out", "quick")
