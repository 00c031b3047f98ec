"""A folder of data is data: nothing that it names is run, and nothing outside of it is read."""

import json
import os
import shutil
import sys

import pytest

from fedjax_sel import data
from fedjax_sel.errors import UserError

OWN = "tensorflow_datasets.core.features"
DICT = f"{OWN}.features_dict.FeaturesDict"
EVIL = "evil_module.Evil"


def feature(name, **content):
    return {"pythonClassName": name, **content}


def image():
    return feature(f"{OWN}.image_feature.Image", image={"dtype": "uint8", "encodingFormat": "png"})


def label():
    return feature(f"{OWN}.class_label_feature.ClassLabel", classLabel={"numClasses": "3"})


def described(**features):
    return feature(DICT, featuresDict={"features": features})


EVIL_TEXT = json.dumps({"type": EVIL, "content": {}})
PLACES = {
    "the whole": feature(EVIL, featuresDict={"features": {}}),
    "a feature": described(image=image(), label=label(), extra=feature(EVIL, text={})),
    "by its other name": described(image=image(), label=label(), extra={"python_class_name": EVIL, "text": {}}),
    "in a sequence": described(
        image=image(), extra=feature(f"{OWN}.sequence_feature.Sequence", sequence={"feature": feature(EVIL, text={})})
    ),
    "the old form": {"type": EVIL, "content": {}},
    "deep in the old form": {"type": DICT, "content": {"image": {"type": EVIL, "content": {}}}},
    "a text of JSON": described(image=feature(DICT, jsonFeature={"json": f'{{"extra": {EVIL_TEXT}}}'})),
    "a text of JSON by its other name": feature(DICT, json_feature={"json": f'{{"extra": {EVIL_TEXT}}}'}),
    "a text of protobuf": {
        "type": DICT, "proto_cls": "tensorflow_datasets.FeaturesDict",
        "content": json.dumps({"features": {"extra": feature(EVIL, text={})}}),
    },
    "beside TFDS's own": described(image=feature(f"{OWN}_evil_module.Evil", text={})),
}  # fmt: skip


@pytest.fixture
def own(prepared, tmp_path, monkeypatch):
    """A prepared version's folder that may be changed, in a working folder with a module that must not be imported."""
    folder = tmp_path / "own"
    shutil.copytree(prepared / "tiny_grey", folder / "tiny_grey")
    trap = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\nraise ImportError\n"
    (folder / "evil_module.py").write_text(trap)
    monkeypatch.syspath_prepend(folder)  # as `cd folder; python -m ...` does
    monkeypatch.delitem(sys.modules, "evil_module", raising=False)
    return folder / "tiny_grey/1.2.0"


def refused(own, words):
    with pytest.raises(UserError, match=words) as caught:
        data.load("tiny_grey", own.parents[1])
    assert "\n" not in str(caught.value)
    assert not (own.parents[2] / "ran").exists(), "what the folder names was run"
    assert not list((own.parents[2] / "cache").glob("tiny_grey-*"))


@pytest.mark.parametrize("place", PLACES)
def test_no_module_that_features_name_is_imported(own, place):
    (own / "features.json").write_text(json.dumps(PLACES[place]))
    refused(own, r"features\.json names the class '.*vil")


@pytest.mark.parametrize("place", ["a feature", "a text of JSON"])
def test_no_module_that_the_info_names_is_imported(own, place):
    info = json.loads((own / "dataset_info.json").read_text())
    (own / "dataset_info.json").write_text(json.dumps({**info, "features": PLACES[place]}))
    refused(own, r"dataset_info\.json names the class 'evil_module\.Evil'")


def test_what_is_not_a_features_class_may_have_a_type(own):
    """Statistics of a split say of what type each feature was; that names no class."""
    info = json.loads((own / "dataset_info.json").read_text())
    info["splits"][0]["statistics"] = {"features": [{"type": "BYTES"}]}
    info["schema"] = {"feature": [{"name": "image", "type": "BYTES"}]}
    (own / "dataset_info.json").write_text(json.dumps(info))
    assert len(data.load("tiny_grey", own.parents[1]).train_labels) == 30


def test_the_old_form_of_tfdss_own_features_is_read(own):
    old = {"type": DICT, "content": {
        "image": {"type": f"{OWN}.image_feature.Image", "content": {
            "shape": [6, 5, 1], "dtype": "uint8", "encoding_format": "png"}},
        "label": {"type": f"{OWN}.class_label_feature.ClassLabel", "content": {"num_classes": 3}},
    }}  # fmt: skip
    (own / "features.json").write_text(json.dumps(old))
    assert len(data.load("tiny_grey", own.parents[1]).train_labels) == 30
    old["content"]["label"]["content"] = {"names_file": "/dev/zero"}
    (own / "features.json").write_text(json.dumps(old))
    shutil.rmtree(own.parents[2] / "cache")
    refused(own, "names the file '/dev/zero'")


WAYS_OUT = {
    "an absolute template": {"filepathTemplate": "{ABOVE}/other/{SPLIT}"},
    "an absolute template by its other name": {"filepath_template": "{ABOVE}/other/{SPLIT}"},
    "a template with dots": {"filepathTemplate": "../../../other/{SPLIT}"},
    "a template that comes back": {"filepathTemplate": "../1.2.0/{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"},
    "a bucket": {"filepathTemplate": "gs://bucket/{SPLIT}"},
    "a format that writes slashes": {"filepathTemplate": "gs:{SPLIT:/>7}"},
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_records_outside_of_the_folder_are_not_read(own, way):
    """The files are there, and sound: only where they lie is wrong."""
    (own.parents[2] / "other").mkdir()
    info = json.loads((own / "dataset_info.json").read_text())
    for split in info["splits"]:
        source = own / f"tiny_grey-{split['name']}.array_record-00000-of-00001"
        shutil.copy(source, own.parents[2] / "other" / split["name"])
        change = {key: text.replace("{ABOVE}", str(own.parents[2])) for key, text in WAYS_OUT[way].items()}
        del split["filepathTemplate"]
        split.update(change)
    (own / "dataset_info.json").write_text(json.dumps(info))
    refused(own, r"dataset_info\.json .*(outside of the folder|not one of TFDS's)")


def test_a_name_does_not_lead_out_of_the_folder(own):
    info = json.loads((own / "dataset_info.json").read_text())
    (own.parents[2] / "other").mkdir()
    for path in own.glob("*array_record*"):
        shutil.copy(path, own.parents[2] / "other")
    (own / "dataset_info.json").write_text(json.dumps({**info, "name": "../../../other/tiny_grey"}))
    refused(own, "outside of the folder")


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json"])
def test_descriptions_that_are_no_files_or_nest_without_end(own, name):
    (own / name).write_text("[" * 100_000)
    refused(own, f"{name} is damaged .it is nested too deeply")
    (own / name).unlink()
    os.mkfifo(own / name)  # to open it would wait for ever
    refused(own, "it is a pipe" if name == "features.json" else "not fully prepared")


def test_records_may_be_linked(own):
    """A link is whoever made the folder's choice; what it points at is read as records and nothing else."""
    for path in own.glob("*array_record*"):
        (own.parents[2] / "elsewhere").mkdir(exist_ok=True)
        shutil.move(path, own.parents[2] / "elsewhere" / path.name)
        path.symlink_to(own.parents[2] / "elsewhere" / path.name)
    assert len(data.load("tiny_grey", own.parents[1]).train_labels) == 30
