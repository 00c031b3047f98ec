"""docs/your_data_in_five_minutes.md does what it says: each section runs in its own folder, with fewer rounds."""

import importlib
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedjax_sel
from fedjax_sel import UserError, cli, data
from fedjax_sel.config import validate
from fedjax_sel.experiment.problem import pose
from tests.documents import pages

PAGE = "docs/your_data_in_five_minutes.md"
TEXT = (pages.ROOT / PAGE).read_text(encoding="utf-8")
RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(pages.ROOT / "examples"), *sys.path])
    yield tmp_path
    for name in ("clinic", "frozen_features"):
        sys.modules.pop(name, None)


def section(title):
    """The blocks of a section, with short runs; commands of ours run."""
    start = TEXT[: TEXT.index(f"\n## {title}\n")].count("\n")
    after = TEXT.find("\n## ", TEXT.index(f"\n## {title}\n") + 1)
    end = TEXT[:after].count("\n") if after > 0 else 10**6
    blocks = [block for block in pages.blocks(PAGE, "python", "bash") if start < block.line <= end]
    for block in blocks:
        if block.language == "python":
            short = re.sub(r"rounds=50, seeds=10", "rounds=2, seeds=2", block.code)
            yield block._replace(code=short)
        else:
            yield block


def run(blocks, names=None):
    names = {} if names is None else names
    for block in blocks:
        if block.language == "python":
            pages.run([block], names)
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            command, *words = shlex.split(line)
            if command == "fedjax-sel":
                assert cli.main([{"50": "2", "10": "2"}.get(word, word) for word in words]) == 0
    return names


def save_photos(size=24):
    for number, (part, label) in enumerate([("train", "cat"), ("train", "dog"), ("test", "cat"), ("test", "dog")]):
        where = Path("photos", part, label)
        where.mkdir(parents=True)
        for one in range(150 if part == "train" else 5):
            pixels = RNG.integers(128, size=(size, size + 8, 3)) + 100 * (number % 2)
            Image.fromarray(pixels.astype(np.uint8)).save(where / f"{one}.png")


def save_features(**more):
    y_train, y_test = np.arange(600) % 5, np.arange(100) % 5
    x_train, x_test = (RNG.normal(size=(len(y), 16)) + y[:, None] for y in (y_train, y_test))
    arrays = dict(x_train=x_train.astype(np.float16), y_train=y_train, x_test=x_test.astype(np.float16), y_test=y_test)
    np.savez("features.npz", **(arrays | more))


@pytest.mark.slow
def test_images_in_folders(folder):
    pytest.importorskip("torchvision")
    save_photos()
    assert run(section("Images in folders"))["photos"].image_shape == (32, 32, 3)
    assert Path("runs/photos/comparison.md").is_file()


@pytest.mark.slow
def test_hugging_face_columns(folder, monkeypatch):
    package = pytest.importorskip("datasets")
    features = {"image": package.Image(), "character": package.ClassLabel(num_classes=62)}
    pictures = [Image.fromarray(RNG.integers(256, size=(28, 28), dtype=np.uint8)) for _ in range(1000)]
    owners = [f"f{number % 110:04}" for number in range(1000)]
    rows = {"image": pictures, "character": [number % 62 for number in range(1000)], "writer_id": owners}
    features["writer_id"] = package.Value("string")
    made = package.Dataset.from_dict(rows, features=package.Features(features))
    monkeypatch.setattr(package, "load_dataset", lambda *_, **__: made)
    assert run(section("Hugging Face columns"))["femnist"].num_classes == 62
    assert Path("runs/femnist/comparison.md").is_file()


@pytest.mark.slow
def test_a_table_of_patients(folder):
    pytest.importorskip("pandas")
    lines = ["age,pressure,hospital,diagnosis"]
    for number in range(400):
        lines.append(f"{RNG.normal(50, 9):.0f},{RNG.normal(80, 9):.1f},H{number % 12},{'abc'[number % 3]}")
    Path("patients.csv").write_text("\n".join(lines), encoding="utf-8")
    run(section("A table of patients"))
    assert "clients' tests" in Path("runs/patients/comparison.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_features_of_a_pretrained_network(folder, monkeypatch):
    pytest.importorskip("torchvision")
    save_photos(96)
    example = importlib.import_module("frozen_features")
    monkeypatch.setattr(example, "make_extractor", lambda: lambda images: images.mean((1, 2)) / 255)
    blocks = [block._replace(saved_as=None) for block in section("Features of a pretrained network")]
    run(blocks)
    assert np.load("features.npz")["x_train"].dtype == np.float16
    assert Path("runs/features/comparison.md").is_file()


@pytest.mark.slow
def test_test_each_client(folder, capsys):
    save_features()
    names = run(section("Test each client"))
    out = capsys.readouterr().out
    assert "macro F1" in out and "[" in out
    per_client = fedjax_sel.per_client(names["result"], on="test")
    assert per_client["accuracy"].shape == (2, 20) and per_client["examples"].min() > 0
    report = Path("runs/tests/comparison.md").read_text(encoding="utf-8")
    assert "worst-decile accuracy" in report and "unseen" in report


def test_snippets_are_short():
    for block in pages.blocks(PAGE, "python"):
        assert len([line for line in block.code.splitlines() if line.strip()]) <= 15


def test_the_example_saves_what_the_command_line_reads(folder):
    example = importlib.import_module("frozen_features")
    words = ["--dataset", "digits", "--train", "100", "--test", "50"]
    example.main(words, lambda: lambda images: images.mean(1).reshape(len(images), -1))
    made, digits = data.load("npz:features.npz"), data.load("digits")
    assert made.image_shape == (24,) and made.num_classes == 10 and made.source == "features.npz"
    np.testing.assert_array_equal(made.test_labels, digits.test_labels[:50])
    expected = np.repeat(digits.train_images[:100].mean(1), 3, axis=-1).reshape(100, -1)
    np.testing.assert_allclose(made.train_images, expected, rtol=1e-3)


def test_a_file_is_normalized_alike_under_every_name(folder):
    pictures, labels = np.arange(80, dtype=np.uint8).reshape(5, 4, 4, 1), np.arange(5)
    for name in ("mnist", "mine"):
        np.savez(f"{name}.npz", x_train=pictures, y_train=labels, x_test=pictures, y_test=labels)
    made = [data.load(f"npz:{name}.npz") for name in ("mnist", "mine")]
    assert made[0].mean == made[1].mean and [one.name for one in made] == ["mnist", "mine"]


def test_owners_in_a_file_are_numbered_together(folder):
    owners = np.array(["a", "c", "b"])
    save_features(client_train=owners[np.arange(600) % 3], client_test=np.array(["c", "d"])[np.arange(100) % 2])
    made = data.load("npz:features.npz", folder)
    assert made.client_ids[:3].tolist() == [0, 2, 1] and made.test_clients[:2].tolist() == [2, 3]


@pytest.mark.parametrize(
    "more, words",
    [
        ({"x_tst": np.zeros(3)}, "unknown 'x_tst'; did you mean 'x_test'"),
        ({"y_train": np.zeros(3, int)}, "train targets: 3 examples, but train inputs has 600"),
        ({"client_test": np.zeros(100, int)}, "test_client_ids: they need client_ids"),
        ({"client_train": np.zeros(600, int), "client_test": np.array(["a"] * 100)}, "mixed with client_ids"),
    ],
)
def test_a_wrong_file_is_one_line(folder, more, words):
    save_features(**more)
    with pytest.raises(UserError, match=words) as error:
        data.load("npz:features.npz")
    assert str(error.value).startswith("data set npz:features.npz: ") and "\n" not in str(error.value)


def test_a_missing_or_damaged_file_is_one_line(folder):
    np.savez("less.npz", x_train=np.zeros(3))
    Path("text.npz").write_text("x", encoding="utf-8")
    for name, words in (("no.npz", "cannot read no.npz"), ("text.npz", "cannot read"), ("less.npz", "y_train, x_test")):
        with pytest.raises(UserError, match=words):
            data.load(f"npz:{name}")


def test_hidden_layers_of_mlp():
    config = fedjax_sel.preset("quickstart").replace(model_args={"hidden": 128}, rounds=1, seeds=1)
    assert config.model.hidden_units == (128,)
    assert config.replace(model_args=["hidden=128-64"]).model.hidden_units == (128, 64)
    assert pose(config).model.num_params == 64 * 128 + 128 + 128 * 10 + 10
    for wrong, words in (("hiden=3", "did you mean 'hidden'"), ("hidden=x", "not a number of units")):
        with pytest.raises(UserError, match=words):
            validate(config.replace(model_args=[wrong]))
