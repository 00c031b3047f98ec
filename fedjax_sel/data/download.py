"""Download of a data set's official files, with checksums, atomic writes and short timeouts."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import secrets
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedjax_sel.data import official_files, progress
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.official_files import RemoteFile
from fedjax_sel.errors import UserError

# Limits for connecting (name lookup, socket and headers) and for each wait for more bytes. Offline users get an error
# within 15 seconds, since the first failed file ends the download.
CONNECT_SECONDS = 7.0
STALL_SECONDS = 7.0

_CHUNK_BYTES = 1 << 16


def official(dataset: str, parent: Path) -> Dataset:
    """Return a data set from its official files; download missing files.

    Args:
        dataset: a name in ``official_files.OFFICIAL``.
        parent: folder that keeps the files in ``<parent>/downloads/<dataset>/``. If it cannot be written, a temporary
            folder is used.

    Returns:
        The data set, in memory.

    Raises:
        UserError: the download fails, or a file is not the official one.
    """
    folder = parent / "downloads" / dataset
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        with tempfile.TemporaryDirectory() as temporary:
            return _fetch_and_parse(dataset, Path(temporary), folder)
    return _fetch_and_parse(dataset, folder, folder)


def fetch(files: tuple[RemoteFile, ...], dataset: str, folder: Path) -> None:
    """Download missing files into a folder, and verify the checksums of all files.

    Args:
        files: the files.
        dataset: name of the data set, for messages and the mirror's folder.
        folder: an existing, writable folder.

    Raises:
        OSError: a download fails.
        UserError: a downloaded file has the wrong checksum; it is deleted.
    """
    missing = []
    for file in files:
        path = folder / file.name
        if not path.is_file():
            missing.append(file)
        elif _sha256(path) != file.sha256:
            path.unlink(missing_ok=True)
            missing.append(file)
    with progress.bar(f"downloading {dataset}", sum(file.num_bytes for file in missing), in_bytes=True) as advance:
        for file in missing:
            _download(file, _address(file, dataset), folder, advance)


def _fetch_and_parse(dataset: str, folder: Path, wanted_folder: Path) -> Dataset:
    files = official_files.OFFICIAL[dataset]
    try:
        fetch(files, dataset, folder)
    except (OSError, http.client.HTTPException) as problem:
        missing = [file for file in files if not (folder / file.name).is_file()]
        raise UserError(
            f"data set {dataset!r} is not on this machine and cannot be downloaded from "
            f"{_address((missing or files)[0], dataset)} ({_reason(problem)}): go online, or give a folder that "
            "tensorflow-datasets has prepared (--data-dir or TFDS_DATA_DIR), or set FEDJAX_SEL_MIRROR, or put "
            f"{', '.join(file.name for file in missing or files)} into {wanted_folder}"
        ) from problem
    try:
        return official_files.parse(dataset, folder)
    except (OSError, EOFError, ValueError, official_files.tarfile.TarError) as problem:
        raise UserError(f"the files of {dataset!r} in {folder} cannot be parsed ({problem}): delete them") from problem


def _address(file: RemoteFile, dataset: str) -> str:
    mirror = os.environ.get("FEDJAX_SEL_MIRROR", "").strip()
    if not mirror:
        return file.url
    if not re.match(r"(https?|file)://", mirror):
        raise UserError(f"FEDJAX_SEL_MIRROR must be an http://, https:// or file:// address, not {mirror!r}")
    return f"{mirror.rstrip('/')}/{dataset}/{file.name}"


def _download(file: RemoteFile, address: str, folder: Path, advance: Callable[[int], None]) -> None:
    # A unique temporary name, since two processes may download the same file; the last rename wins, with equal bytes.
    temporary = folder / f".{file.name}-{secrets.token_hex(4)}"
    try:
        digest, received = hashlib.sha256(), 0
        with temporary.open("xb") as out, _open(address) as response:
            # Stops beyond the registered size, since a longer file is not the official one.
            while received <= file.num_bytes and (chunk := _read(response)):
                out.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                advance(len(chunk))
        if received < file.num_bytes:
            raise OSError(f"only {received} of {file.num_bytes} bytes arrived")
        if digest.hexdigest() != file.sha256:
            raise UserError(
                f"{address} is not the official file of {folder.name!r} (its SHA-256 differs) and was deleted: "
                "try again, or set FEDJAX_SEL_MIRROR to another source"
            )
        temporary.replace(folder / file.name)
    finally:
        temporary.unlink(missing_ok=True)


def _open(address: str) -> Any:
    """Open an address within ``CONNECT_SECONDS``, including name lookup and redirects.

    A socket's timeout does not cover the lookup of the host's name, which can hang for much longer. The connection is
    therefore opened in a thread, which is abandoned after the limit.
    """
    outcome: dict[str, Any] = {}
    lock = threading.Lock()

    def connect() -> None:
        try:
            response = urllib.request.urlopen(address, timeout=min(CONNECT_SECONDS, STALL_SECONDS))
        except BaseException as problem:  # re-raised in the waiting thread
            outcome["problem"] = problem
            return
        with lock:
            if "late" in outcome:
                response.close()
            outcome["response"] = response

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    with lock:
        if "problem" in outcome:
            raise outcome["problem"]
        if "response" not in outcome:
            outcome["late"] = True
            raise TimeoutError(f"no answer within {CONNECT_SECONDS:g} seconds")
        return outcome["response"]


def _read(response: Any) -> bytes:
    """Return the next available bytes; raise TimeoutError after the socket's timeout."""
    return response.read1(_CHUNK_BYTES) if hasattr(response, "read1") else response.read(_CHUNK_BYTES)


def _reason(problem: Exception) -> str:
    if isinstance(problem, urllib.error.HTTPError):
        return f"the server answered {problem.code}"
    if isinstance(problem, urllib.error.URLError):
        problem = problem.reason if isinstance(problem.reason, Exception) else problem
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return str(problem) or type(problem).__name__


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
