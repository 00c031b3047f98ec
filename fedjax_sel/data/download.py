"""Downloads of the official data files, with checksums and a progress bar."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import io
import math
import os
import queue
import re
import secrets
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.data.cache import OFFICIAL as OFFICIAL_PREFIX
from fedjax_sel.data.dataset import Dataset, of_splits
from fedjax_sel.errors import UserError


@contextlib.contextmanager
def bar(title: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal once the work has taken a second; yield ``advance(steps)``.

    `total` counts steps, such as examples, or bytes.
    """
    started, shown, done = time.monotonic(), None, 0

    def advance(steps: int) -> None:
        nonlocal shown, done
        done += steps
        if shown is None and sys.stderr.isatty() and time.monotonic() - started > 1.0:
            from rich import progress  # deferred, since the import takes 0.1 s
            from rich.console import Console

            amount = progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn()
            text = progress.TextColumn("{task.description}")
            columns = (text, progress.BarColumn(), amount, progress.TimeRemainingColumn())
            shown = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            shown.add_task(title, total=total)
            shown.start()
        if shown is not None:
            shown.update(shown.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if shown is not None:
            shown.stop()


class RemoteFile(NamedTuple):
    """A file to download: its name in the folder, its address, its size and its SHA-256."""

    name: str
    url: str
    num_bytes: int
    sha256: str


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_CIFAR_SHAPE = (3, 32, 32)


class _Cifar(NamedTuple):
    archive: str
    train: tuple[str, ...]  # batches
    test: str
    labels: int  # number before each image, of which the last is used
    num_classes: int


_CIFARS = {
    "cifar10": _Cifar(
        "cifar-10-binary.tar.gz", tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", 1, 10
    ),
    "cifar100": _Cifar("cifar-100-binary.tar.gz", ("train.bin",), "test.bin", 2, 100),  # coarse, then fine
}


# Source of the checksums: tensorflow-datasets 4.9.10.
OFFICIAL: dict[str, tuple[RemoteFile, ...]] = {
    dataset: tuple(RemoteFile(name, base + name, num_bytes, sha256) for name, num_bytes, sha256 in files)
    for dataset, (base, files) in {
        "mnist": (_MNIST, (
            (_TRAIN_IMAGES, 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (_TRAIN_LABELS, 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (_TEST_IMAGES, 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (_TEST_LABELS, 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        )),
        "fashion_mnist": (_FASHION_MNIST, (
            (_TRAIN_IMAGES, 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (_TRAIN_LABELS, 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (_TEST_IMAGES, 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (_TEST_LABELS, 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        )),
        "cifar10": (_CIFAR, (
            ("cifar-10-binary.tar.gz", 170052171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
        )),
        "cifar100": (_CIFAR, (
            ("cifar-100-binary.tar.gz", 168513733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
        )),
    }.items()
}  # fmt: skip


def fingerprint(dataset: str) -> str:
    """Return the fingerprint of a data set's official files: ``official_`` and 16 hexadecimal digits."""
    digests = "\n".join(file.sha256 for file in OFFICIAL[dataset])
    return OFFICIAL_PREFIX + hashlib.sha256(digests.encode()).hexdigest()[:16]


def parse(dataset: str, folder: Path) -> Dataset:
    """Parse a folder of official files; raise ValueError for invalid contents."""
    if kind := _CIFARS.get(dataset):
        num_classes = kind.num_classes
        pairs = _parse_cifar(kind, (folder / kind.archive).read_bytes())
    else:
        num_classes = 10
        names = ((_TRAIN_IMAGES, _TRAIN_LABELS), (_TEST_IMAGES, _TEST_LABELS))
        pairs = [(_parse_idx(folder / images)[..., None], _parse_idx(folder / labels)) for images, labels in names]
    for images, labels in pairs:
        if images.ndim != 4 or labels.shape != images.shape[:1] or (labels >= num_classes).any():
            raise ValueError(f"{dataset}: images of shape {images.shape} do not fit labels of shape {labels.shape}")
    train, test = ((images, labels.astype(np.int32)) for images, labels in pairs)
    return of_splits(dataset, train, test, num_classes=num_classes, source="official files")


def _parse_idx(path: Path) -> np.ndarray:
    """Parse IDX: two zero bytes, type 8 (uint8), number of axes, each axis as a big-endian int32, then the values."""
    with gzip.open(path) as file:
        content = file.read()
    num_axes = content[3] if len(content) > 3 else 0
    shape = tuple(np.frombuffer(content, ">i4", num_axes, 4).tolist()) if len(content) >= 4 + 4 * num_axes else ()
    if content[:3] != b"\0\0\x08" or not shape or len(content) != 4 + 4 * num_axes + math.prod(shape):
        raise ValueError(f"{path.name} is not an IDX file of bytes")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * num_axes).reshape(shape)


def _parse_cifar(kind: _Cifar, archive: bytes) -> list[tuple[np.ndarray, np.ndarray]]:
    """Parse CIFAR binary: rows of one byte per label and 3 x 32 x 32 pixels, red first."""
    batches = {}
    # Members are read into memory by base name. Nothing is extracted, so paths in the archive are harmless.
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        for member in tar:
            base = Path(member.name).name
            if member.isfile() and base.endswith(".bin"):
                content = tar.extractfile(member)
                assert content is not None, "a regular file has contents"
                batches[base] = content.read()
    row = kind.labels + math.prod(_CIFAR_SHAPE)
    pairs = []
    for names in (kind.train, (kind.test,)):
        if any(not batches.get(name) or len(batches[name]) % row for name in names):
            raise ValueError(f"{kind.archive} lacks a whole {' or '.join(names)}")
        rows = np.frombuffer(b"".join(batches[name] for name in names), np.uint8).reshape(-1, row)
        images = np.ascontiguousarray(rows[:, kind.labels :].reshape(-1, *_CIFAR_SHAPE).transpose(0, 2, 3, 1))
        pairs.append((images, rows[:, kind.labels - 1]))
    return pairs


# Limits for connecting (name lookup, socket and headers) and for each wait for more bytes.
CONNECT_SECONDS = 7.0
STALL_SECONDS = 7.0

_CHUNK_BYTES = 1 << 16


def official(dataset: str, parent: Path) -> Dataset:
    """Return a data set from its official files; download missing files.

    Files are kept in ``<parent>/downloads/<dataset>/``, or in a temporary folder if that cannot be written.
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

    Raises OSError if a download fails, and UserError for a downloaded file with the wrong checksum, which is deleted.
    """
    missing = []
    for file in files:
        path = folder / file.name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
            path.unlink(missing_ok=True)
            missing.append(file)
    with bar(f"downloading {dataset}", sum(file.num_bytes for file in missing), in_bytes=True) as advance:
        for file in missing:
            _download(file, _address(file, dataset), folder, advance)


def _fetch_and_parse(dataset: str, folder: Path, wanted_folder: Path) -> Dataset:
    files = OFFICIAL[dataset]
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
        return parse(dataset, folder)
    except (OSError, EOFError, ValueError, tarfile.TarError) as problem:
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
            while received <= file.num_bytes and (chunk := response.read1(_CHUNK_BYTES)):
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

    A socket's timeout does not cover the lookup of the host's name, so a thread connects and is abandoned at the limit.
    """
    outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def connect() -> None:
        try:
            outcome.put(urllib.request.urlopen(address, timeout=min(CONNECT_SECONDS, STALL_SECONDS)))
        except BaseException as problem:  # re-raised in the waiting thread
            outcome.put(problem)

    threading.Thread(target=connect, daemon=True).start()
    try:
        answer = outcome.get(timeout=CONNECT_SECONDS)
    except queue.Empty:
        raise TimeoutError(f"no answer within {CONNECT_SECONDS:g} seconds") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _reason(problem: Exception) -> str:
    if isinstance(problem, urllib.error.HTTPError):
        return f"the server answered {problem.code}"
    if isinstance(problem, urllib.error.URLError):
        problem = problem.reason if isinstance(problem.reason, Exception) else problem
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    return str(problem) or type(problem).__name__
