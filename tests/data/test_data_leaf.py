"""LEAF's JSON, made here in small: FEMNIST by writer, Shakespeare by role."""

import json

import numpy as np
import pytest

from fedjax_sel import data
from fedjax_sel.cli import data as preview
from fedjax_sel.data import leaf, partition
from fedjax_sel.errors import UserError

RNG = np.random.default_rng(0)
SIZES = {"train": {"f1": 6, "f0": 9, "f2": 5}, "test": {"f0": 2, "f1": 3, "f2": 1}}
SPEECH = "To be, or not to be: that is the question;\nWhether 'tis nobler in the mind to suffer [Aside] " * 2


def write(folder, part, name, users, **changes):
    """One file as LEAF's preprocessing writes it."""
    content = {"users": list(users), "num_samples": [len(u["y"]) for u in users.values()], "user_data": users}
    (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / part / name).write_text(json.dumps(content | changes))


def writer(size):
    levels = RNG.integers(256, size=(size, 784))
    return {"x": (levels / 255).tolist(), "y": RNG.integers(62, size=size).tolist()}


def role(start, size):
    places = range(start, start + size)
    return {"x": [SPEECH[p : p + 80] for p in places], "y": [SPEECH[p + 80] for p in places]}


@pytest.fixture
def femnist(tmp_path):
    """The folder, and the users' data by part."""
    users = {part: {name: writer(size) for name, size in sizes.items()} for part, sizes in SIZES.items()}
    first, *others = users["train"].items()
    write(tmp_path / "femnist", "train", "all_data_0_keep_0_train_9.json", dict([first]))
    write(tmp_path / "femnist", "train", "all_data_1_keep_0_train_9.json", dict(others))
    write(tmp_path / "femnist", "test", "all_data_0_keep_0_test_9.json", users["test"])
    (tmp_path / "femnist/train/notes.txt").write_text("no JSON")
    return tmp_path / "femnist", users


@pytest.fixture
def shakespeare(tmp_path):
    users = {"train": {"HAMLET": role(0, 8), "A_CLOWN": role(20, 6), "NOBODY": {"x": [], "y": []}}}
    users["test"] = {"HAMLET": role(50, 3), "A_CLOWN": role(60, 2)}
    for part in users:
        # LEAF adds the plays as "hierarchies"
        write(tmp_path / "plays", part, "all_data.json", users[part], hierarchies=["Hamlet"] * len(users[part]))
    return tmp_path / "plays", users


def test_femnist(femnist):
    folder, users = femnist
    loaded = data.load(f"leaf:{folder}")
    assert loaded.train_images.shape == (20, 28, 28, 1) and loaded.train_images.dtype == np.uint8
    assert loaded.num_classes == 62 and loaded.name == "leaf" and loaded.source == "LEAF's JSON of FEMNIST"
    for part, images, labels in (
        ("train", loaded.train_images, loaded.train_labels),
        ("test", loaded.test_images, loaded.test_labels),
    ):
        shades = np.concatenate([user["x"] for user in users[part].values()])
        np.testing.assert_array_equal(np.asarray(images).reshape(-1, 784), np.rint(shades * 255))
        np.testing.assert_array_equal(labels, np.concatenate([user["y"] for user in users[part].values()]))
    assert loaded.client_ids.tolist() == [0] * 6 + [1] * 9 + [2] * 5
    assert loaded.test_clients.tolist() == [1, 1, 0, 0, 0, 2]
    write(folder, "test", "more.json", {"a user without training examples": writer(1)})
    assert data.load(f"leaf:{folder}").test_clients.tolist() == [1, 1, 0, 0, 0, 2, 3]


def test_shakespeare(shakespeare):
    folder, users = shakespeare
    loaded = data.load(f"leaf:{folder}")
    assert loaded.train_images.shape == (14, 80) and loaded.train_images.dtype == np.int32
    assert loaded.num_classes == 80 == len(set(leaf.ALL_LETTERS)) and loaded.mean is None
    read = ["".join(leaf.ALL_LETTERS[token] for token in row) for row in loaded.train_images]
    assert read == [text for user in users["train"].values() for text in user["x"]]
    assert "".join(leaf.ALL_LETTERS[label] for label in loaded.test_labels) == "".join(
        text for user in users["test"].values() for text in user["y"]
    )
    assert loaded.client_ids.tolist() == [0] * 8 + [1] * 6


def test_the_letters_are_leafs():
    """By their places in LEAF's string, which trained models hang on."""
    places = [leaf.ALL_LETTERS.index(letter) for letter in "\n !09AZaz}"]
    assert places == [0, 1, 2, 11, 20, 25, 50, 53, 78, 79]


def test_what_the_80_characters_lack_is_a_blank(tmp_path):
    users = {"HAMLET": role(0, 2)}
    users["HAMLET"]["x"][1] = "é€" + users["HAMLET"]["x"][1][2:-1] + "?"
    write(tmp_path, "train", "a.json", users)
    write(tmp_path, "test", "a.json", {"HAMLET": role(3, 1)})
    with pytest.warns(UserWarning, match="outside LEAF's 80 are read as blanks") as caught:
        loaded = data.load(f"leaf:{tmp_path}")
    assert len(caught) == 1
    blank, mark = (leaf.ALL_LETTERS.index(letter) for letter in " ?")
    assert loaded.train_images[1, [0, 1, -1]].tolist() == [blank, blank, mark]


def test_natural_clients_fewer_than_there_are(femnist):
    folder, _ = femnist
    loaded = data.load(f"leaf:{folder}")
    parts = [
        partition.make("natural", loaded.train_labels, 2, seed, client_ids=loaded.client_ids, min_size=5)
        for seed in range(10)
    ]
    assert {frozenset(part.sizes) for part in parts} == {frozenset(p) for p in ((6, 9), (6, 5), (9, 5))}
    for part in parts:
        assert all(len(set(loaded.client_ids[own])) == 1 for own in part.indices)
        assert len(part.remainder) == 20 - part.sizes.sum()


def test_the_command_line_shows_natural_clients(femnist, shakespeare, tmp_path, capsys):
    flags = [
        "--partition",
        "natural",
        "--min-client-size",
        "2",
        "--out",
        str(tmp_path / "p.png"),
    ]
    assert preview.main(["--dataset", f"leaf:{femnist[0]}", "--num-clients", "2", *flags]) == 0
    shown = capsys.readouterr().out
    assert "LEAF's JSON of FEMNIST), 20 training examples, 62 labels" in shown
    names = ("Gini of sizes", "effective classes", "Hellinger distance", "Jensen-Shannon", "earth mover's")
    assert all(f"\n{name} " in shown for name in names)
    at_home = ["--data-dir", str(tmp_path), "--dataset", "leaf:plays", "--num-clients", "2"]
    assert preview.main([*at_home, *flags, "--server-validation", "0.1", "--holdout", "0.2"]) == 0
    shown = capsys.readouterr().out
    assert "13 training examples, 80 labels" in shown and "server-side examples  1 examples" in shown
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_it_is_read_once(femnist, isolated, monkeypatch):
    folder, _ = femnist
    first = data.load(f"leaf:{folder}")
    assert len(list(isolated.glob("leaf-*"))) == 1
    with monkeypatch.context() as context:
        context.setattr(leaf, "_users", lambda path: pytest.fail("the copy must be used"))
        again = data.load(f"leaf:{folder}")
    assert again.digest() == first.digest() and again.client_ids.tolist() == first.client_ids.tolist()
    write(folder, "train", "all_data_2.json", {"f7": writer(4)})
    assert data.load(f"leaf:{folder}").num_train_examples == 24


X, Y = [0.5] * 784, 3
TEXT = "a" * 80


def broken(**changes):
    return {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": [X], "y": [Y]}}} | changes


def of(x, y):
    return broken(num_samples=[len(y)], user_data={"u": {"x": x, "y": y}})


@pytest.mark.parametrize(
    "content,words",
    [
        ("{", "it cannot be read"),
        ('"\x00', "it cannot be read"),
        ([], "it lacks users, or their x and y in user_data"),
        ({"images": []}, "it lacks users"),
        (broken(users=["v"]), "it lacks users, or their x and y in user_data"),
        (broken(user_data={"u": {"x": [X]}}), "it lacks users, or their x and y in user_data"),
        (of([X, X], [Y]), "has 2 x and 1 y"),
        (of([], []), "no user has examples"),
        (of([X[1:]], [Y]), r"of user 'u' x holds neither lists of 784 numbers \(FEMNIST\) nor texts"),
        (of([X, X[1:]], [Y, Y]), "x holds neither lists of 784"),
        (of([["a"] * 784], [Y]), "x holds neither lists of 784"),
        (of([[1.5, *X[1:]]], [Y]), "x has gray levels outside 0 to 1"),
        (of([[float("nan"), *X[1:]]], [Y]), "x has gray levels outside 0 to 1"),
        (of(["000001.jpg"], [1]), "x has '000001.jpg', not a text of 80 characters"),
        (of([TEXT], ["ab"]), "y has 'ab', not a text of 1 characters"),
        (of([TEXT, X], ["a", "b"]), ", not a text of 80 characters"),
    ],
)
def test_damaged_and_foreign_files_are_one_sentence(tmp_path, content, words):
    (tmp_path / "train").mkdir()
    (tmp_path / "train/bad.json").write_text(content if isinstance(content, str) else json.dumps(content))
    write(tmp_path, "test", "a.json", {"u": {"x": [X], "y": [Y]}})
    with pytest.raises(UserError, match=words) as caught:
        data.load(f"leaf:{tmp_path}")
    text = str(caught.value)
    assert "\n" not in text and str(tmp_path / "train") in text and "preprocess.sh" in text and len(text) < 600


@pytest.mark.parametrize(
    "name,words",
    [
        ("leaf:", "needs a folder with train/ and test/: give 'leaf:FOLDER'"),
        ("leaf", "needs a folder"),
        ("leaf:{there}/no", r"no/train cannot be read \(No such file or directory\); give the folder that holds"),
        ("leaf:{there}", r"test has no \.json files"),
        ("leaf:~nobody-of-that-name/x", "cannot be read"),
        ("leef:{there}", "only 'synthetic', 'leaf' and 'npz' have them"),
        ("digits:{there}", "only 'synthetic', 'leaf' and 'npz' have them"),
    ],
)
def test_wrong_names_are_one_sentence(tmp_path, name, words):
    write(tmp_path, "train", "a.json", {"u": {"x": [X], "y": [Y]}})
    (tmp_path / "test").mkdir()
    with pytest.raises(UserError, match=words) as caught:
        data.load(name.format(there=tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("label,words", [(62, "label 62 of example 0 is not in 0 to 61"), (1.0, "targets are float32")])
def test_labels_that_are_no_classes(tmp_path, label, words):
    for part in ("train", "test"):
        write(tmp_path, part, "a.json", {"u": {"x": [X], "y": [label]}})
    with pytest.raises(UserError, match=words):
        data.load(f"leaf:{tmp_path}")


def test_texts_are_not_tested_on_images(femnist, shakespeare):
    write(shakespeare[0], "test", "b.json", femnist[1]["test"])
    with pytest.raises(UserError, match=r"test/b\.json is not LEAF's JSON.*, not a text of 80 characters"):
        data.load(f"leaf:{shakespeare[0]}")
