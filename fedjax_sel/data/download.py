"""Downloads of the official data files, with checksums and a progress bar."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import math
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError


def tracked(items: Sequence[Any], title: str) -> Iterable[Any]:
    """Iterate over a sequence with a progress bar on a terminal, which vanishes at the end."""
    from rich import progress  # deferred, since the import takes 0.1 s
    from rich.console import Console

    shown = sys.stderr.isatty()
    return progress.track(items, title, console=Console(stderr=True), transient=True, disable=not shown)


class RemoteFile(NamedTuple):
    """A file to download: its name in the folder, its address and its SHA-256."""

    name: str
    url: str
    sha256: str


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_TRAIN_IMAGES, _TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_IMAGES, _TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_CIFAR_SHAPE = (3, 32, 32)


class _Cifar(NamedTuple):
    """An archive of the CIFAR family: its batches, and the number of labels before each image (the last is used)."""

    archive: str
    train: tuple[str, ...]
    test: str
    labels: int
    num_classes: int


_CIFARS = {
    "cifar10": _Cifar(
        "cifar-10-binary.tar.gz", tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin", 1, 10
    ),
    "cifar100": _Cifar("cifar-100-binary.tar.gz", ("train.bin",), "test.bin", 2, 100),  # coarse, then fine
}


# Source of the checksums: tensorflow-datasets 4.9.10.
OFFICIAL: dict[str, tuple[RemoteFile, ...]] = {
    dataset: tuple(RemoteFile(name, base + name, sha256) for name, sha256 in files)
    for dataset, (base, files) in {
        "mnist": (_MNIST, (
            (_TRAIN_IMAGES, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (_TRAIN_LABELS, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (_TEST_IMAGES, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (_TEST_LABELS, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        )),
        "fashion_mnist": (_FASHION_MNIST, (
            (_TRAIN_IMAGES, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (_TRAIN_LABELS, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (_TEST_IMAGES, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (_TEST_LABELS, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        )),
        "cifar10": (_CIFAR, (
            ("cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
        )),
        "cifar100": (_CIFAR, (
            ("cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
        )),
    }.items()
}  # fmt: skip


def fingerprint(dataset: str) -> str:
    """Return the fingerprint of a data set's official files: ``official_`` and 16 hexadecimal digits."""
    digests = "\n".join(file.sha256 for file in OFFICIAL[dataset])
    return "official_" + hashlib.sha256(digests.encode()).hexdigest()[:16]


def _parse(dataset: str, folder: Path) -> Dataset:
    """Parse a folder of official files, which their checksums have verified."""
    num_classes = 10
    if dataset in _CIFARS:
        kind = _CIFARS[dataset]
        num_classes = kind.num_classes
        pairs = _parse_cifar(kind, folder / kind.archive)
    else:
        arrays = [_parse_idx(folder / file.name) for file in OFFICIAL[dataset]]
        pairs = [(arrays[0][..., None], arrays[1]), (arrays[2][..., None], arrays[3])]
    train, test = ((images, labels.astype(np.int32)) for images, labels in pairs)
    return Dataset.build(dataset, train, test, num_classes=num_classes, source="official files")


def _parse_idx(path: Path) -> np.ndarray:
    """Parse IDX: two zero bytes, type 8 (uint8), number of axes, each axis as a big-endian int32, then the values."""
    with gzip.open(path) as file:
        content = file.read()
    shape = np.frombuffer(content, ">i4", content[3], 4).tolist()
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def _parse_cifar(kind: _Cifar, archive: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Parse CIFAR binary: rows of one byte per label and 3 x 32 x 32 pixels, red first."""
    with tarfile.open(archive) as tar:  # read into memory; nothing is extracted
        contents = {Path(member.name).name: tar.extractfile(member) for member in tar if member.isfile()}
        batches = {name: file.read() for name, file in contents.items() if file and name.endswith(".bin")}
    pairs = []
    for names in (kind.train, (kind.test,)):
        content = b"".join(batches[name] for name in names)
        rows = np.frombuffer(content, np.uint8).reshape(-1, kind.labels + math.prod(_CIFAR_SHAPE))
        images = rows[:, kind.labels :].reshape(-1, *_CIFAR_SHAPE).transpose(0, 2, 3, 1)
        pairs.append((np.ascontiguousarray(images), rows[:, kind.labels - 1]))
    return pairs


SECONDS = 7.0  # limit for connecting, and for each wait for more bytes


def fetch(files: tuple[RemoteFile, ...], dataset: str, folder: Path) -> None:
    """Download missing files into a folder, and verify the checksums of all files.

    Raises OSError if a download fails, and UserError for a downloaded file with the wrong checksum, which is deleted.
    """
    import pooch  # the import takes 0.2 s

    pooch.get_logger().setLevel("WARNING")
    downloader: Any = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=SECONDS)
    for file in files:
        try:
            path = pooch.retrieve(file.url, f"sha256:{file.sha256}", file.name, folder, downloader=downloader)
        except ValueError as problem:
            raise UserError(
                f"{file.url} is not the official file of {dataset!r} (its SHA-256 differs) and was deleted: try again"
            ) from problem
        with contextlib.suppress(OSError):
            Path(path).chmod(0o644)  # pooch makes it private, but other users may share the folder


def official(dataset: str, parent: Path) -> Dataset:
    """Return a data set from its official files in ``<parent>/downloads/<dataset>/``; download missing files."""
    files, folder = OFFICIAL[dataset], parent / "downloads" / dataset
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fetch(files, dataset, folder)
    except OSError as problem:
        missing = [file for file in files if not (folder / file.name).is_file()]
        raise UserError(
            f"data set {dataset!r} is not on this machine and cannot be downloaded from {(missing or files)[0].url} "
            f"({_reason(problem)}): go online, or give a folder that tensorflow-datasets has prepared (--data-dir or "
            f"TFDS_DATA_DIR), or put {', '.join(file.name for file in missing or files)} into {folder}"
        ) from problem
    return _parse(dataset, folder)


def _reason(problem: OSError) -> str:
    import requests

    if isinstance(problem, requests.HTTPError) and problem.response is not None:
        return f"the server answered {problem.response.status_code}"
    return "the connection failed" if isinstance(problem, requests.RequestException) else str(problem)
