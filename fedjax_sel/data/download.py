"""Downloads the official files of a data set: checked, never half under their final name, and quick to give up."""

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

# Connecting (names, sockets, headers together) and each wait for more bytes. Their sum stays below the 15 seconds
# after which somebody without a network should know; the first file that fails ends the download.
CONNECT_SECONDS = 7.0
STALL_SECONDS = 7.0

_CHUNK_BYTES = 1 << 16


def official(dataset: str, parent: Path) -> Dataset:
    """Return a data set from its official files, downloaded where they are not there yet.

    Args:
        dataset: a name in ``official_files.OFFICIAL``.
        parent: files are kept below ``<parent>/downloads/<dataset>/``, or nowhere if it cannot be written.

    Returns:
        The data set, in memory.

    Raises:
        UserError: offline, or a file that is not the official one.
    """
    folder = parent / "downloads" / dataset
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        with tempfile.TemporaryDirectory() as elsewhere:
            return _fetch_and_parse(dataset, Path(elsewhere), folder)
    return _fetch_and_parse(dataset, folder, folder)


def fetch(files: tuple[RemoteFile, ...], dataset: str, folder: Path) -> None:
    """Download files that are not in a folder yet, and check all of them.

    Args:
        files: what is needed.
        dataset: its name, for messages and for the mirror's folder.
        folder: an existing folder that can be written.

    Raises:
        OSError: a server cannot be reached, or does not deliver.
        UserError: a file with other contents than registered; it is deleted.
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
    # A name of its own for each writer: two processes may fetch the same file, and the last rename wins harmlessly.
    temporary = folder / f".{file.name}-{secrets.token_hex(4)}"
    try:
        digest, received = hashlib.sha256(), 0
        with temporary.open("xb") as out, _open(address) as response:
            # Stops one byte past the registered size: what comes after that is not the official file.
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
    """Open an address within ``CONNECT_SECONDS``, name look-up and redirects included.

    A socket's timeout does not cover the look-up of the host's name, which can hang for much longer; so the opening
    happens in a thread that is left behind when it takes too long.
    """
    outcome: dict[str, Any] = {}
    lock = threading.Lock()

    def connect() -> None:
        try:
            response = urllib.request.urlopen(address, timeout=min(CONNECT_SECONDS, STALL_SECONDS))
        except BaseException as problem:  # raised again in the waiting thread
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
    """Return the next bytes, as soon as there are any; a wait beyond the socket's timeout raises TimeoutError."""
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
