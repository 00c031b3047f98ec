"""Downloads, against a server on the loopback interface."""

import gzip
import hashlib
import http.server
import io
import socket
import struct
import tarfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedjax_sel import data
from fedjax_sel.data import download
from fedjax_sel.data.download import RemoteFile
from fedjax_sel.errors import UserError


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes(), mtime=0)


RNG = np.random.default_rng(0)
TRAIN_IMAGES, TEST_IMAGES = (RNG.integers(256, size=(n, 28, 28), dtype=np.uint8) for n in (40, 10))
TRAIN_LABELS, TEST_LABELS = (RNG.integers(10, size=n, dtype=np.uint8) for n in (40, 10))
FILES = {
    "train-images-idx3-ubyte.gz": idx(TRAIN_IMAGES),
    "train-labels-idx1-ubyte.gz": idx(TRAIN_LABELS),
    "t10k-images-idx3-ubyte.gz": idx(TEST_IMAGES),
    "t10k-labels-idx1-ubyte.gz": idx(TEST_LABELS),
}


def table(files: dict[str, bytes], address: str) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(name, f"{address}/{name}", hashlib.sha256(content).hexdigest()) for name, content in files.items()
    )


class Server:
    """Serves ``files`` (path to contents); ``requests`` are the paths asked for; ``cut`` shortens bodies."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.cut = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                content = outer.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) - outer.cut])

            def log_message(self, *_) -> None:
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, *_) -> None:
                """A client that hangs up early is what some tests are about."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    running = Server()
    running.files = {f"/mnist/{name}": content for name, content in FILES.items()}
    monkeypatch.setattr(download, "OFFICIAL", {"mnist": table(FILES, f"{running.address}/mnist")})
    yield running
    running.http.shutdown()
    running.http.server_close()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def check(dataset: data.Dataset) -> None:
    np.testing.assert_array_equal(dataset.train_images, TRAIN_IMAGES[..., None])
    np.testing.assert_array_equal(dataset.test_images, TEST_IMAGES[..., None])
    np.testing.assert_array_equal(dataset.train_labels, TRAIN_LABELS)
    np.testing.assert_array_equal(dataset.test_labels, TEST_LABELS)
    assert dataset.source == "official files" and dataset.mean == (0.1307,) and dataset.train_labels.dtype == np.int32


def test_official_files_become_a_copy(server, isolated):
    check(data.load("mnist"))
    assert sorted(server.requests) == sorted(server.files)
    assert set(FILES) <= set(files_in(isolated)) and (isolated / "downloads/mnist").is_dir()
    check(data.load("mnist"))
    assert len(server.requests) == 4, "the copy must be used"
    (isolated / "usual").touch()
    modes = {path.stat().st_mode for path in isolated.rglob("*") if path.is_file()}
    assert modes == {(isolated / "usual").stat().st_mode}, "a group shares a folder of data"


def test_an_existing_data_folder_is_downloaded_into(server, isolated, tmp_path):
    (tmp_path / "mine").mkdir()
    check(data.load("mnist", tmp_path / "mine"))
    assert not isolated.exists() and len(list((tmp_path / "mine").glob("mnist-official_*"))) == 1
    check(data.load("mnist", tmp_path / "mine"))
    assert len(server.requests) == 4


def test_a_damaged_copy_is_made_again_from_the_kept_files(server, isolated):
    data.load("mnist")
    (copy,) = isolated.glob("mnist-*")
    copy.write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        check(data.load("mnist"))
    assert len(server.requests) == 4, "the kept files must be used"


def test_a_damaged_copy_is_named_where_it_cannot_be_made_again(server, isolated):
    data.load("mnist")
    (copy,) = isolated.glob("mnist-*")
    copy.write_bytes(b"")
    for kept in (isolated / "downloads/mnist").iterdir():
        kept.unlink()
    server.files.clear()
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match="answered 404"):
        data.load("mnist")


def test_a_half_prepared_home_folder_is_one_sentence(server, tmp_path):
    (tmp_path / "home/tensorflow_datasets/mnist/3.0.1").mkdir(parents=True)
    with pytest.raises(UserError, match=r"was not fully prepared: delete it and prepare again"):
        data.load("mnist")


def test_files_put_there_by_hand_are_enough(server, isolated):
    server.files.clear()
    folder = isolated / "downloads/mnist"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    check(data.load("mnist"))
    assert server.requests == []


def test_a_wrong_file_is_deleted_and_named(server, isolated):
    name = "/mnist/t10k-labels-idx1-ubyte.gz"
    server.files[name] = server.files[name][:-1] + bytes([server.files[name][-1] ^ 1])
    with pytest.raises(UserError, match=r"t10k-labels-idx1-ubyte.gz is not the official file"):
        data.load("mnist")
    assert files_in(isolated) == sorted(set(FILES) - {"t10k-labels-idx1-ubyte.gz"})


def test_a_truncated_file_is_not_kept(server, isolated):
    server.cut = 7
    with pytest.raises(UserError, match="the connection failed"):
        data.load("mnist")
    assert files_in(isolated) == []


def test_a_damaged_kept_file_is_fetched_again(server, isolated):
    folder = isolated / "downloads/mnist"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"half")
    check(data.load("mnist"))


def test_a_missing_file_is_one_sentence(server):
    server.files.clear()
    with pytest.raises(UserError, match=r"'mnist'.*/mnist/train-images.*answered 404.*--data-dir.*into ") as e:
        data.load("mnist")
    assert "\n" not in str(e.value)


def test_without_a_network_it_gives_up_at_once(server, isolated):
    server.http.shutdown()
    server.http.server_close()
    started = time.monotonic()
    with pytest.raises(UserError, match="go online"):
        data.load("mnist")
    assert time.monotonic() - started < 2
    assert files_in(isolated) == []


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 200 OK\r\nContent-Length: 99999\r\n\r\nabc"])
def test_a_server_that_hangs_is_given_up_in_time(server, monkeypatch, isolated, answer):
    assert 2 * download.SECONDS < 15
    monkeypatch.setattr(download, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        connections = []

        def accept():
            try:
                while True:
                    connection, _ = hanging.accept()
                    connections.append(connection)
                    connection.sendall(answer)
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        files = table(FILES, f"http://127.0.0.1:{hanging.getsockname()[1]}")
        monkeypatch.setattr(download, "OFFICIAL", {"mnist": files})
        started = time.monotonic()
        with pytest.raises(UserError, match=r"no answer in time|the connection failed"):
            data.load("mnist")
        assert time.monotonic() - started < 2
        assert len(connections) == 1, "the first file that fails ends it"
        for connection in connections:
            connection.close()
    assert files_in(isolated) == []


def test_two_at_once(server, isolated):
    results, problems = [], []

    def load():
        try:
            results.append(data.load("mnist"))
        except BaseException as problem:
            problems.append(problem)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    for dataset in results:
        check(dataset)
    assert len(list(isolated.glob("mnist-*"))) == 1 and not list(isolated.glob(".*"))


def test_a_folder_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "file/cache"))
    with pytest.raises(UserError, match=r"cannot be downloaded .* Not a directory"):
        data.load("mnist")


def cifar_archive(folder: str, rows: dict[str, np.ndarray]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, values in rows.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = values.nbytes
            tar.addfile(member, io.BytesIO(values.tobytes()))
    return out.getvalue()


def test_cifar_binaries(server, monkeypatch, tmp_path):
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    rows = {name: RNG.integers(10, size=(4, 3073), dtype=np.uint8) for name in names}
    archive = cifar_archive("cifar-10-batches-bin", rows)
    monkeypatch.setattr(download, "OFFICIAL", {"cifar10": table({"cifar-10-binary.tar.gz": archive}, server.address)})
    server.files = {"/cifar-10-binary.tar.gz": archive}
    dataset = data.load("cifar10")
    assert dataset.train_images.shape == (20, 32, 32, 3) and dataset.test_images.shape == (4, 32, 32, 3)
    # Example 6 is the third of the second batch; red comes first, then rows.
    row = rows["data_batch_2.bin"][2]
    assert dataset.train_labels[6] == row[0]
    assert dataset.train_images[6, 5, 7].tolist() == [row[1 + channel * 1024 + 5 * 32 + 7] for channel in range(3)]
    assert not list(tmp_path.rglob("*.bin"))


def test_cifar_100_has_fine_labels(server, monkeypatch, isolated):
    rows = {
        name: RNG.integers(100, size=(size, 3074), dtype=np.uint8) for name, size in (("train.bin", 9), ("test.bin", 4))
    }
    archive = cifar_archive("cifar-100-binary", rows)
    monkeypatch.setattr(download, "OFFICIAL", {"cifar100": table({"cifar-100-binary.tar.gz": archive}, server.address)})
    server.files = {"/cifar-100-binary.tar.gz": archive}
    for _ in range(2):
        dataset = data.load("cifar100")
        assert dataset.num_classes == 100 and dataset.source == "official files"
        for images, labels, content in (
            (dataset.train_images, dataset.train_labels, rows["train.bin"]),
            (dataset.test_images, dataset.test_labels, rows["test.bin"]),
        ):
            np.testing.assert_array_equal(labels, content[:, 1])  # a coarse label stands before it
            np.testing.assert_array_equal(images[:, 5, 7, 2], content[:, 2 + 2 * 1024 + 5 * 32 + 7])
    assert server.requests == list(server.files) and len(list(isolated.glob("cifar100-official_*"))) == 1


def test_the_registered_checksums_are_those_of_tfds():
    folder = Path(pytest.importorskip("tensorflow_datasets").__file__).parent / "url_checksums"
    for dataset, files in download.OFFICIAL.items():
        lines = (folder / f"{dataset}.txt").read_text().splitlines()
        registered = {(url, sha256, name) for url, _, sha256, name in (line.split("\t") for line in lines)}
        for file in files:
            assert (file.url, file.sha256, file.name) in registered
