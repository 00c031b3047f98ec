"""Prepared TFDS folders, decoded copies and the order in which they are looked for."""

import re
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import data
from fedjax_sel.data import cache, tfds
from fedjax_sel.errors import UserError

REPOSITORY = Path(__file__).parents[2]


def same(first: data.Dataset, second: data.Dataset) -> bool:
    arrays = ("train_images", "train_labels", "test_images", "test_labels")
    values = ("name", "num_classes", "mean", "std", "source")
    return all(np.array_equal(getattr(first, a), getattr(second, a)) for a in arrays) and all(
        getattr(first, v) == getattr(second, v) for v in values
    )


def own_copy(prepared: Path, tmp_path: Path) -> Path:
    """A prepared folder that may be damaged."""
    return Path(shutil.copytree(prepared, tmp_path / "own"))


def the_copy(folder: Path, name: str = "tiny_gray") -> Path:
    (found,) = folder.glob(f"{name}-*")
    return found


def must_not_decode(*_):
    raise AssertionError("decoded again")


# Reading prepared folders.


@pytest.mark.parametrize("name", ["tiny_gray", "tiny_color"])
def test_a_prepared_set_is_read_pixel_for_pixel(prepared, pixels, name):
    dataset = data.load(name, prepared)
    shape = (6, 5, 3 if name == "tiny_color" else 1)
    for split, images, labels in (
        ("train", dataset.train_images, dataset.train_labels),
        ("test", dataset.test_images, dataset.test_labels),
    ):
        expected_images, expected_labels = pixels(split, shape)
        order = images[:, 0, 0, 0].astype(int)  # TFDS shuffles; the first pixel is the number
        assert sorted(order) == list(range(len(expected_images)))
        np.testing.assert_array_equal(images, expected_images[order])
        np.testing.assert_array_equal(labels, expected_labels[order])
    assert dataset.num_classes == 3 and dataset.source == "TFDS 1.2.0"
    assert dataset.train_labels.dtype == np.int32 and dataset.train_images.dtype == np.uint8
    np.testing.assert_allclose(dataset.mean, (dataset.train_images / 255).mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(dataset.std, (dataset.train_images / 255).std(axis=(0, 1, 2)))


def test_jpeg_records_are_said_to_be_lossy(prepared):
    assert data.load("cifar10", prepared).source == "TFDS 1.2.0, lossy JPEG copy, not the official pixels"
    assert data.load("cifar10", prepared).mean == (0.5, 0.5, 0.5)
    assert data.load("tiny_jpeg", prepared).source == "TFDS 1.2.0, lossy JPEG records"


@pytest.mark.slow
def test_reading_prints_nothing(prepared):
    code = f"from fedjax_sel import data; data.load('tiny_gray', {str(prepared)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout == "" and done.stderr == ""


def test_the_newest_version_is_read(prepared, tmp_path):
    own = own_copy(prepared, tmp_path)
    shutil.copytree(own / "tiny_gray/1.2.0", own / "tiny_gray/1.10.0")
    info = own / "tiny_gray/1.10.0/dataset_info.json"
    info.write_text(info.read_text().replace("1.2.0", "1.10.0"))
    assert data.load("tiny_gray", own).source == "TFDS 1.10.0"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Turns over bytes in the records themselves, behind the header of the second block."""
    content = bytearray(path.read_bytes())
    position = content.find(b"IHDR")
    start = position if position > 0 else 200
    content[start : start + 300] = bytes(255 - byte for byte in content[start : start + 300])
    path.write_bytes(content)


def rewrite_info(folder: Path, old: str, new: str) -> None:
    info = folder / "dataset_info.json"
    assert old in info.read_text()
    info.write_text(info.read_text().replace(old, new))


TRAIN = "tiny_gray-train.array_record-00000-of-00001"
DAMAGES = {
    "no info": (lambda f: (f / "dataset_info.json").unlink(), "not fully prepared"),
    "info is not JSON": (lambda f: truncate(f / "dataset_info.json"), "dataset_info.json is damaged"),
    "records cut": (lambda f: truncate(f / TRAIN), "damaged or incomplete"),
    "records missing": (lambda f: (f / TRAIN).unlink(), "damaged or incomplete.*No such file"),
    "records empty": (lambda f: (f / TRAIN).write_bytes(b""), "damaged or incomplete"),
    "records changed": (lambda f: flip(f / TRAIN), "damaged or incomplete"),
    "fewer records": (lambda f: rewrite_info(f, '"30"', '"31"'), "damaged or incomplete.*30"),
    "tfrecord": (lambda f: rewrite_info(f, "array_record", "tfrecord"), "tfrecord files.*array_record"),
    "no features": (lambda f: (f / "features.json").unlink(), "damaged or incomplete"),
    "no test split": (lambda f: rewrite_info(f, '"name": "test"', '"name": "extra"'), "'validation'|damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_one_sentence(prepared, tmp_path, damage):
    own = own_copy(prepared, tmp_path)
    apply, words = DAMAGES[damage]
    apply(own / "tiny_gray/1.2.0")
    with pytest.raises(UserError, match=words) as caught:
        data.load("tiny_gray", own)
    assert str(own) in str(caught.value) and "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("tiny_gray-*")), "damaged data must not become a copy"


def test_an_unfinished_preparation_is_said_to_be_one(tmp_path):
    (tmp_path / "own/mnist/incomplete.ABC_3.0.1").mkdir(parents=True)
    with pytest.raises(UserError, match="not fully prepared"):
        data.load("mnist", tmp_path / "own")


@pytest.mark.parametrize(
    ("name", "words"),
    [("tiny_ragged", "different sizes"), ("tiny_unlabelled", "class label"), ("tiny_deep", "more than 8 bits")],
)
def test_sets_that_are_no_labelled_images_of_one_size_are_refused(prepared, name, words):
    with pytest.raises(UserError, match=words):
        data.load(name, prepared)


# Where data are looked for.


def test_a_folder_that_does_not_exist(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="nowhere does not exist"):
        data.load("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"TFDS_DATA_DIR .*nowhere does not exist"):
        data.load("mnist")


def test_a_name_that_no_file_can_have(prepared, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="does not exist, or is not accessible"):
        data.load("mnist", "x" * 300)
    with pytest.raises(UserError, match="no data set"):
        data.load("x" * 300, prepared)


def test_a_home_folder_that_does_not_exist(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "~nosuchuser/data")
    with pytest.raises(UserError, match=r"TFDS_DATA_DIR ~nosuchuser/data does not exist"):
        data.load("mnist")
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # a container's user whom nobody knows
    assert len(data.load("tiny_gray").train_labels) == 30
    monkeypatch.delenv("FEDJAX_SEL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(UserError, match="FEDJAX_SEL_CACHE: there is no home folder"):
        data.load("tiny_gray")


def test_a_set_that_is_not_in_the_folder(prepared):
    with pytest.raises(UserError, match="did you mean 'tiny_gray'"):
        data.load("tiny_grey", prepared)


def test_environment_then_home(prepared, tmp_path, monkeypatch):
    with pytest.raises(UserError):
        data.load("tiny_gray")
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared))
    from_environment = data.load("tiny_gray")
    monkeypatch.delenv("TFDS_DATA_DIR")
    with pytest.raises(UserError, match="no data set 'tiny_gray'"):
        data.load("tiny_gray")
    shutil.copytree(prepared, tmp_path / "home/tensorflow_datasets")
    assert same(data.load("tiny_gray"), from_environment)


def test_another_folder_never_gets_this_folders_copy(prepared, prepare, tmp_path):
    first = data.load("tiny_gray", prepared)
    prepare(tmp_path / "other", ("tiny_gray",), seed=1)
    second = data.load("tiny_gray", tmp_path / "other")
    assert not np.array_equal(np.sort(first.train_images, axis=None), np.sort(second.train_images, axis=None))
    assert same(data.load("tiny_gray", prepared), first)
    assert len(list((tmp_path / "cache").glob("tiny_gray-*"))) == 2


# The decoded copy.


def test_the_second_load_is_the_first_from_the_copy(prepared, monkeypatch):
    first = data.load("tiny_gray", prepared)
    monkeypatch.setattr(tfds, "read", must_not_decode)
    second = data.load("tiny_gray", prepared)
    assert same(first, second)


COPY_DAMAGES = {
    "truncated": lambda copy: truncate(copy),
    "empty": lambda copy: copy.write_bytes(b""),
    "other arrays": lambda copy: np.savez(copy, train_images=np.zeros(3)),
}


@pytest.mark.parametrize("damage", COPY_DAMAGES)
def test_a_damaged_copy_is_made_again(prepared, isolated, monkeypatch, damage):
    first = data.load("tiny_gray", prepared)
    COPY_DAMAGES[damage](the_copy(isolated))
    with pytest.warns(UserWarning, match="damaged"):
        assert same(data.load("tiny_gray", prepared), first)
    monkeypatch.setattr(tfds, "read", must_not_decode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(data.load("tiny_gray", prepared), first)
    assert [path.name for path in isolated.iterdir()] == [the_copy(isolated).name], "nothing temporary may stay"


def test_the_copy_needs_no_packages(prepared):
    expected = data.load("tiny_gray", prepared)
    code = (
        "import sys\n"
        "for name in ('tensorflow_datasets', 'PIL', 'tensorflow', 'array_record'): sys.modules[name] = None\n"
        "from fedjax_sel import data\n"
        f"print(data.load('tiny_gray', {str(prepared)!r}).train_images.sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout.split() == [str(expected.train_images.sum())], done.stderr


SENTENCE = (
    "folders that tensorflow-datasets has prepared are read with tensorflow-datasets, array_record and Pillow, but "
    "importing them fails ({}); pip install --upgrade tensorflow-datasets array_record pillow"
)
# What an import ends with where a package and those that it needs are of versions that do not go together.
BROKEN = {
    "raise ImportError('cannot import name x')": "ImportError: cannot import name x",
    "raise TypeError('Descriptors cannot be\\ncreated')": "TypeError: Descriptors cannot be",
    "raise KeyError": "KeyError",
    "import no_such_package.deep": "ModuleNotFoundError: No module named 'no_such_package'",
}


@pytest.fixture
def break_package(tmp_path, monkeypatch):
    """``break_package(name, statement)``: importing it runs the statement instead; without one it is not there."""

    def break_it(package, statement=None):
        for module in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, module)
        if statement is None:
            monkeypatch.setitem(sys.modules, package, None)
            return
        folder = tmp_path / "site" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(statement + "\n")
        monkeypatch.syspath_prepend(folder.parent)

    return break_it


@pytest.mark.parametrize("package", ["tensorflow_datasets", "array_record", "PIL"])
def test_a_missing_package_is_one_sentence(prepared, break_package, package):
    break_package(package)
    with pytest.raises(UserError) as caught:
        data.load("tiny_gray", prepared)
    assert re.fullmatch(re.escape(SENTENCE).replace(r"\{\}", rf"ModuleNotFoundError: .*{package}.*"), str(caught.value))


def test_a_package_that_is_missing_behind_it_is_one_sentence(prepared):
    code = (
        "import sys\nsys.modules['tensorflow_metadata'] = None\nfrom fedjax_sel import data\n"
        f"try: data.load('tiny_gray', {str(prepared)!r})\nexcept ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    missing = "ModuleNotFoundError: No module named 'tensorflow_metadata.proto'; 'tensorflow_metadata' is not a package"
    assert done.stdout == SENTENCE.format(missing) + "\n", done.stderr


@pytest.mark.parametrize("package", ["tensorflow_datasets", "array_record"])
@pytest.mark.parametrize("statement", BROKEN)
def test_a_broken_package_is_one_sentence(prepared, break_package, package, statement):
    break_package(package, statement)
    with pytest.raises(UserError) as caught:
        data.load("tiny_gray", prepared)
    assert str(caught.value) == SENTENCE.format(BROKEN[statement])


@pytest.mark.slow
def test_nothing_but_a_prepared_folder_needs_the_package(prepared, break_package):
    copied = data.load("tiny_gray", prepared)
    for package in ("tensorflow_datasets", "tensorflow_metadata", "array_record", "importlib_resources"):
        break_package(package, "raise KeyError")
    assert same(data.load("tiny_gray", prepared), copied)  # its folder is known by its files, and there is a copy
    assert len(data.load("digits").train_labels) > 1000
    assert len(data.load("synthetic:train_size=50").train_labels) == 50
    result = fedjax_sel.run(fedjax_sel.preset("quickstart").replace(rounds=2))
    assert result.finished and result.test_accuracy.shape == (1, 2)


def test_without_a_writable_cache_it_goes_on(prepared, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDJAX_SEL_CACHE", str(tmp_path / "file/cache"))
    with pytest.warns(UserWarning, match="continuing without"):
        assert len(data.load("tiny_gray", prepared).train_labels) == 30


def test_a_writer_that_dies_leaves_no_copy(prepared, isolated, monkeypatch):
    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        data.load("tiny_gray", prepared)
    monkeypatch.undo()
    assert not list(isolated.iterdir())


def test_many_writers_at_once_end_with_one_sound_copy(tmp_path, isolated):
    dataset = data.load("synthetic:train_size=200")
    dataset = data.Dataset(**{**vars(dataset), "name": "blobs"})
    problems = []

    def write():
        try:
            assert same(cache.fetch(isolated, "blobs", "abc", lambda: dataset), dataset)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [path.name for path in isolated.iterdir()] == ["blobs-abc.npz"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(cache.fetch(isolated, "blobs", "abc", must_not_decode), dataset)


@pytest.mark.parametrize(
    ("name", "counts", "mean"),
    [
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], [33.318]),
        ("fashion_mnist", [6000] * 10, [72.940]),
    ],
)
def test_real_data(name, counts, mean, real_data_dir):
    dataset = data.load(name, real_data_dir)
    assert dataset.train_images.shape == (60000, 28, 28, 1) and dataset.test_images.shape == (10000, 28, 28, 1)
    assert np.bincount(dataset.train_labels).tolist() == counts
    np.testing.assert_allclose(dataset.train_images.mean(axis=(0, 1, 2)), mean, atol=1e-3)
    assert (dataset.mean, dataset.std) == ((0.1307,), (0.3081,))
