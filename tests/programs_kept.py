"""Compiled programs from one run of the suite to the next, for XLA's work is half of its time.

A session compiles into a folder of its own, so that a process that a test kills spoils nothing. When it ends, whole
entries are kept; the next one starts from them. JAX's key of an entry covers the program, jaxlib, and XLA's flags; ours
covers the machine, whose instructions are in the code.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import tempfile
import zlib
from importlib.metadata import version
from pathlib import Path

ENTRY = "*-cache"
MOST_BYTES = 2**29  # that are kept, about twice those of a whole suite
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how its files begin; JAX writes zlib's where that package is missing


def kept() -> Path:
    """Return the folder of this machine, of this jaxlib."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    features = f"{platform.machine()} {platform.processor()}"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features += str(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    machine = hashlib.sha256(features.encode()).hexdigest()[:12]
    return Path(base) / "fedjax_sel_tests" / f"jaxlib-{version('jaxlib')}-{machine}"


def begin() -> str:
    """Return a new folder that holds what is kept."""
    session = tempfile.mkdtemp(prefix="programs-")
    with contextlib.suppress(OSError, RuntimeError):  # no home: then nothing is kept
        for entry in kept().glob(ENTRY):
            try:
                os.link(entry, Path(session) / entry.name)
            except OSError:  # another file system
                shutil.copy2(entry, session)
    return session


def end(session: str) -> None:
    """Keep a session's whole entries, and remove its folder."""
    with contextlib.suppress(OSError, RuntimeError):
        store = kept()
        store.mkdir(parents=True, exist_ok=True)
        for entry in Path(session).glob(ENTRY):
            if not (store / entry.name).exists() and _is_whole(entry.read_bytes()):
                unfinished = Path(tempfile.mkstemp(dir=store)[1])
                shutil.copyfile(entry, unfinished)
                unfinished.replace(store / entry.name)
        _make_room(store)
    shutil.rmtree(session, ignore_errors=True)


def _is_whole(entry: bytes) -> bool:
    try:
        if entry.startswith(ZSTANDARD):
            import zstandard

            return bool(zstandard.ZstdDecompressor().decompress(entry))
        return bool(zlib.decompress(entry))
    except Exception:  # whatever a package says of a file that was cut off
        return False


def _make_room(store: Path) -> None:
    """Remove the oldest entries beyond the limit."""
    total = 0
    for entry in sorted(store.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True):
        total += entry.stat().st_size
        if total > MOST_BYTES:
            entry.unlink()
