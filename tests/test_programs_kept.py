"""The suite's own cache: whole entries stay, a cut one never does, and the newest stay where there are too many."""

import os
import subprocess
import sys
import zlib

import pytest

from tests import programs_kept


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def session(**entries):
    folder = programs_kept.Path(programs_kept.begin())
    for name, content in entries.items():
        (folder / f"{name}-cache").write_bytes(content)
    return folder


def names():
    return sorted(path.name for path in programs_kept.kept().iterdir())


def test_a_session_begins_with_what_others_left_whole():
    whole = zlib.compress(bytes(10_000))
    folder = session(one=whole, cut=whole[:-3], empty=b"", zstandard=programs_kept.ZSTANDARD + b"nothing")
    (folder / "one-atime").write_bytes(b"12345678")
    programs_kept.end(str(folder))
    assert not folder.exists() and names() == ["one-cache"]
    again = session(two=whole)
    assert sorted(path.name for path in again.iterdir()) == ["one-cache", "two-cache"]
    programs_kept.end(str(again))
    assert names() == ["one-cache", "two-cache"]


@pytest.mark.slow
def test_a_program_has_the_same_name_in_every_session(tmp_path):
    """With the settings of the conftest, in two folders."""
    code = "import jax, jax.numpy as jnp; jax.jit(lambda x: jnp.sort(x) + x)(jnp.arange(8.0)).block_until_ready()"
    found = []
    for name in ("one", "two"):
        settings = {
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / name),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | settings)
        found.append(sorted(path.name for path in (tmp_path / name).glob(programs_kept.ENTRY)))
    assert found[0] == found[1] != []


def test_the_oldest_make_room(monkeypatch):
    entry = zlib.compress(b"x" * 100)
    monkeypatch.setattr(programs_kept, "MOST_BYTES", 2 * len(entry))
    for number, name in enumerate("abc"):
        folder = session(**{name: entry})
        programs_kept.os.utime(folder / f"{name}-cache", (number, number))
        programs_kept.end(str(folder))
        programs_kept.os.utime(programs_kept.kept() / f"{name}-cache", (number, number))
    assert names() == ["b-cache", "c-cache"]


def test_without_a_home_nothing_is_kept(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(programs_kept.Path, "home", _no_home)
    folder = session(one=zlib.compress(b"x"))
    programs_kept.end(str(folder))
    assert not folder.exists()


def _no_home():
    raise RuntimeError("Could not determine home directory.")
