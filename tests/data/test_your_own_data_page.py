"""docs/your_own_data.md does what it says: its code is run, in order, in a folder of its own."""

import re
import shlex
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedjax_sel.cli import data
from tests.data import test_data_leaf as leaf
from tests.data.test_data_packages import ClassLabel, HuggingFaceDataset, MapStyle

PAGE = Path(__file__).parents[2] / "docs" / "your_own_data.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
RNG = np.random.default_rng(0)


def load_dataset(name):
    """CIFAR-100 as Hugging Face has it, without most of its pictures."""
    features = {"img": None, "fine_label": ClassLabel([str(label) for label in range(100)]), "coarse_label": None}

    def split(size):
        pictures = list(RNG.integers(256, size=(size, 32, 32, 3), dtype=np.uint8))
        return HuggingFaceDataset({"img": pictures, "fine_label": [1] * size, "coarse_label": [0] * size}, features)

    return {"train": split(5), "test": split(3)}


def fashion_mnist(root, train, download):
    return MapStyle([(RNG.integers(256, size=(28, 28), dtype=np.uint8), i % 10) for i in range(20 if train else 10)])


@pytest.mark.slow
def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("datasets", "torchvision", "torchvision.datasets"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["datasets"].load_dataset = load_dataset
    sys.modules["torchvision.datasets"].FashionMNIST = fashion_mnist
    for part, size in (("train", 12), ("test", 2)):
        users = {f"f{number}": leaf.writer(size) for number in range(12)}
        leaf.write(Path("leaf/data/femnist/data"), part, "all_data_0.json", users)
    for number, place in enumerate(
        ("train/Basel/cat", "train/Cluj/cat", "train/Cluj/dog", "test/Cluj/cat", "test/Basel/dog")
    ):
        folder = Path("photos") / place
        folder.mkdir(parents=True)
        Image.fromarray(np.full((40, 30), 10 * number, np.uint8)).save(folder / "1.png")
    there = {}
    assert {language for language, _ in BLOCKS} == {"python", "bash"}
    for language, code in BLOCKS:
        if language == "python":
            exec(compile(code, str(PAGE), "exec"), there)
        else:
            start, command, *flags = shlex.split(code)
            assert (start, command) == ("fedjax-sel", "data")
            assert data.main(flags) == 0
            assert "10 clients" in capsys.readouterr().out
    photos = there["photos"]
    assert photos.train_labels.tolist() == [0, 0, 1] and photos.test_labels.tolist() == [
        1,
        0,
    ]  # in the order of the paths
    assert photos.train_images[:, 0, 0, 0].tolist() == [0, 10, 20] and there["owners"] == ["Basel", "Cluj", "Cluj"]
    assert there["fashion"].mean == (0.1307,), "the published normalization"
