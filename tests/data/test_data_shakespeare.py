"""The embedded roles of Shakespeare: their numbers, LEAF's form of them, and runs on them."""

import json

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import data
from fedjax_sel.cli import command_line, train
from fedjax_sel.data import Dataset, leaf, sources
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import problem
from fedjax_sel.papers import preset
from tests import scripts


def test_the_roles_and_their_windows():
    plays = data.load("shakespeare")
    sizes = np.bincount(plays.client_ids)
    assert (plays.num_train_examples, plays.num_test_examples) == (40_334, 9_820)
    assert (len(sizes), sizes.min(), sizes.max(), np.median(sizes)) == (520, 16, 620, 54)
    windows = sizes + np.bincount(plays.test_clients)
    assert windows.min() == 20 and (np.bincount(plays.test_clients) == windows // 5).all()
    assert not plays.has_classes and (plays.train_images[:, 1:] == plays.train_labels[:, :-1]).all()
    for tokens in (plays.train_images, plays.test_images, plays.train_labels, plays.test_labels):
        assert tokens.shape[1] == 80 and tokens.min() >= 0


def test_a_window_is_the_text_of_its_role():
    texts, plays = sources.shakespeare_texts(), data.load("shakespeare")
    role = list(texts).index("HAMLET_OPHELIA")
    read = ["".join(leaf.ALL_LETTERS[token] for token in row) for row in plays.train_images[plays.client_ids == role]]
    assert read[0].startswith("Do you doubt that?") and texts["HAMLET_OPHELIA"].startswith("".join(read))
    last = plays.test_labels[plays.test_clients == role][-1, -1]
    assert leaf.ALL_LETTERS[last] == texts["HAMLET_OPHELIA"][-1]


def test_the_digest_omits_the_owners_of_test_examples():
    plays = data.load("shakespeare")
    about = {"client_ids": plays.client_ids, "num_classes": 0, "name": "shakespeare"}
    pairs = {
        part: tuple(getattr(plays, f"{part}_{kind}") for kind in ("images", "labels")) for part in ("train", "test")
    }
    assert Dataset.from_arrays(**pairs, **about).digest() == plays.digest()


def test_leafs_json_gives_the_same_data(tmp_path):
    parts = {"train": {}, "test": {}}
    for role, text in sources.shakespeare_texts().items():
        starts = range(0, len(text) - 80, 80)
        windows = [(text[start : start + 80], text[start + 80]) for start in starts]
        cut = len(windows) - max(1, len(windows) // 5)
        for part, own in (("train", windows[:cut]), ("test", windows[cut:])):
            parts[part][role] = {"x": [x for x, _ in own], "y": [y for _, y in own]}
    for part, users in parts.items():
        (tmp_path / part).mkdir()
        (tmp_path / part / "all.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    read, plays = data.load(f"leaf:{tmp_path}"), data.load("shakespeare")
    for one, other in ((read.train_images, plays.train_images), (read.test_images, plays.test_images)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(read.train_labels, plays.train_labels[:, -1])
    assert (read.client_ids == plays.client_ids).all() and (read.test_clients == plays.test_clients).all()


def test_the_tool_reads_speeches_by_role(tmp_path):
    tool = scripts.load("tools/shakespeare.py")
    line = "Nay, answer me: stand, and _unfold_ yourself \\ at once.  \n"
    (tmp_path / "tragedies").mkdir()
    (tmp_path / "tragedies/king-lear.md").write_text(
        f"# King Lear\n**FIRST LORD**  \n{line * 20}\n_Exit_\n\n**A Fool**  \nNo.\n\n**FIRST LORD**  \n{line * 20}"
    )
    found = tool.texts(tmp_path)
    assert list(found) == ["KING_LEAR_FIRST_LORD"]  # the other role has fewer than 20 windows
    text = " ".join([line.strip().replace("_", "").replace("\\", " ")] * 40)
    assert found["KING_LEAR_FIRST_LORD"] == text[: len(text) // 80 * 80 + 1]


FEW = ["--dataset", "shakespeare", "--algo", "random", "--num-clients", "4", "--num-selected", "2", "--rounds", "1",
       "--local-steps", "1", "--chunk", "1"]  # fmt: skip


@pytest.fixture
def few(monkeypatch):
    """The data set with its first four roles, and ten test windows."""
    plays = data.load("shakespeare")
    own, asked = plays.client_ids < 4, np.arange(plays.num_test_examples) < 10
    pairs = {part: (getattr(plays, f"{part}_images")[rows], getattr(plays, f"{part}_labels")[rows])
             for part, rows in (("train", own), ("test", asked))}  # fmt: skip
    made = Dataset.from_arrays(**pairs, client_ids=plays.client_ids[own], num_classes=0, name="shakespeare")
    monkeypatch.setattr(sources, "shakespeare", lambda: made)


@pytest.mark.slow
def test_the_command_line_chooses_task_and_model(few):
    config, _ = command_line.parse(train.make_parser(), FEW)
    assert (config.model.model, config.model.task) == ("char_gru", "next_token")
    assert np.isfinite(fedjax_sel.run(config).test_accuracy).all()


@pytest.mark.parametrize("flags", [["--model", "char_lstm"], ["--partition", "iid"]])
def test_other_models_and_partitions(few, flags):
    config, _ = command_line.parse(train.make_parser(), [*FEW, *flags])
    posed = problem.pose(config)
    assert posed.model.num_params == (817_872 if "char_lstm" in flags else 63_696)


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--partition", "shards"], "scheme 'shards', not int32 of shape .*: choose iid or natural"),
        (["--task", "classification"], "--task classification: targets of shakespeare are not one class per example"),
        (["--model", "mlp"], "needs logits"),
        (["--algo", "fed_cbs"], "it requests label histograms, but shakespeare has no classes"),
        (["--preset", "quickstart", "--partition", "iid"], "--task classification: targets of shakespeare"),
    ],
)
def test_what_does_not_fit_is_one_line(few, flags, words):
    config, _ = command_line.parse(train.make_parser(), [*FEW, *flags])
    with pytest.raises(UserError, match=words) as caught:
        problem.pose(config)
    assert "\n" not in str(caught.value)


def test_the_preset_is_that_of_the_data_set():
    config, flags = command_line.parse(train.make_parser(), ["--dataset", "shakespeare"])
    assert config == preset("shakespeare") and flags.preset == "shakespeare"
