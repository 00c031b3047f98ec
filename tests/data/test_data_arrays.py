"""Anybody's arrays as a data set: what they become, what works without classes, and what is refused."""

import collections
import dataclasses
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from fedjax_sel import Config, Experiment, data
from fedjax_sel.data import cache, examples, partition
from fedjax_sel.data import federation as fed
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import problem

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(256, size=(20, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(20) % 4
FLOATS = RNG.standard_normal((20, 7))


def half(array, test=False):
    return array[12:] if test else array[:12]


def pair(x, y):
    """The arguments `train` and `test` of arrays of twenty examples."""
    return {"train": (half(x), half(y)), "test": (half(x, True), half(y, True))}


def one_sentence(caught):
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400 and ". " not in text
    return text


# ---------------------------------------------------------------- what arrays become


def test_images_are_what_they_were():
    made = Dataset.from_arrays(**pair(PIXELS, LABELS))
    assert made.train_images.dtype == np.uint8 and made.train_labels.dtype == np.int32
    assert made.num_classes == 4 and made.has_classes and made.client_ids is None and made.name == "arrays"
    np.testing.assert_allclose(made.mean, (PIXELS[:12] / 255).mean(axis=(0, 1, 2)))
    np.testing.assert_allclose(made.std, (PIXELS[:12] / 255).std(axis=(0, 1, 2)))
    gray = Dataset.from_arrays(**pair(PIXELS[..., 0], LABELS))
    assert gray.image_shape == (6, 5, 1) and len(gray.mean) == 1


@pytest.mark.parametrize(
    "given,dtype",
    [
        (FLOATS, np.float32),
        (FLOATS.astype(np.float16), np.float32),
        (RNG.integers(9, size=(20, 8)), np.int32),
        (RNG.integers(9, size=(20, 8), dtype=np.uint8), np.int32),  # [n, d] are no images
        (FLOATS > 0, np.int32),
    ],
)
def test_floats_and_tokens_pass_as_they_are(given, dtype):
    made = Dataset.from_arrays(**pair(given, LABELS))
    assert made.train_images.dtype == dtype and made.mean is None and made.std is None
    np.testing.assert_array_equal(made.train_images, np.asarray(given)[:12].astype(dtype))
    federation = build(made, 3)
    inputs, _ = fed.gather(federation, fed.all_parts(federation, 0, 1), jnp.arange(4))
    rows = federation.order[0, federation.starts[0, 1] + jnp.arange(4)]
    assert inputs.dtype == dtype
    np.testing.assert_array_equal(inputs, made.train_images[np.asarray(rows)])


@pytest.mark.parametrize(
    "targets,given,classes",
    [
        (LABELS, None, 4),
        (LABELS, 10, 10),
        (LABELS, np.int64(4), 4),
        (LABELS, 0, 0),
        (LABELS.astype(np.uint8), None, 4),
        (LABELS > 1, None, 2),
        (LABELS - 7, 0, 0),
        (LABELS.astype(float), None, 0),
        (LABELS[:, None], None, 0),
        ({"a": LABELS}, None, 0),
    ],
)
def test_whether_targets_are_classes(targets, given, classes):
    parts = {
        part: (half(FLOATS, part == "test"), jax.tree.map(lambda a: half(a, part == "test"), targets))  # noqa: B023
        for part in ("train", "test")
    }
    made = Dataset.from_arrays(**parts, num_classes=given)
    assert made.num_classes == classes and made.has_classes == (classes > 0)


Both = collections.namedtuple("Both", "image text")
TREE = {
    "train": (Both(PIXELS[:12], (FLOATS[:12], np.arange(12))), {"y": FLOATS[:12, :2], "m": LABELS[:12]}),
    "test": (Both(PIXELS[12:], (FLOATS[12:], np.arange(8))), {"y": FLOATS[12:, :2], "m": LABELS[12:]}),
}


def build(dataset, num_clients, **options):
    parts = [partition.make("iid", dataset.train_labels, num_clients, seed) for seed in (0, 1)]
    return jax.tree.map(jnp.asarray, fed.build(dataset, parts, 0.25, (0, 1), **options))


def test_only_images_in_a_tree_are_normalized():
    made = Dataset.from_arrays(**TREE)
    federation = build(made, 3)
    inputs, targets = jax.jit(lambda f: fed.gather(f, fed.train_part(f, 1, 2), jnp.arange(3)))(federation)
    rows = np.asarray(federation.order[1, federation.starts[1, 2] + np.arange(3)])
    scaled = (PIXELS[rows] / 255 - np.asarray(made.mean.image)) / np.asarray(made.std.image)
    np.testing.assert_allclose(inputs.image, scaled, atol=1e-5)
    assert isinstance(inputs, Both) and made.mean.text == (None, None)
    np.testing.assert_array_equal(inputs.text[0], FLOATS[rows].astype(np.float32))
    np.testing.assert_array_equal(inputs.text[1], rows)
    np.testing.assert_array_equal(targets["y"], FLOATS[rows, :2].astype(np.float32))
    np.testing.assert_array_equal(targets["m"], LABELS[rows])
    assert federation.label_counts.shape == (2, 3, 0)


def test_blocks_of_a_tree():
    made = Dataset.from_arrays(**TREE)
    found = fed.block(build(made, 3)._replace(scale=None), made.train_images, jnp.int32(4), 5)
    np.testing.assert_array_equal(found.image, PIXELS[4:9])
    np.testing.assert_array_equal(found.text[1], np.arange(4, 9))


def test_images_are_normalized_by_the_same_operations_as_ever():
    """The bits of trained models hang on them."""
    federation = build(Dataset.from_arrays(**pair(PIXELS, LABELS)), 3)
    rows = jnp.asarray([3, 1, 1])

    def as_ever(images, scale, shift):
        return images.reshape(12, -1)[rows].reshape(3, 6, 5, 3).astype(jnp.float32) * scale + shift

    def now(images, scale, shift):
        here = federation._replace(images=images, scale=scale, shift=shift)
        return fed.normalize(here, fed.take(here.images, rows))

    arguments = federation.images, federation.scale, federation.shift
    assert str(jax.make_jaxpr(now)(*arguments)) == str(jax.make_jaxpr(as_ever)(*arguments))


# ---------------------------------------------------------------- without classes


REGRESSION = Dataset.from_arrays(**pair(FLOATS, FLOATS[:, :2]))


def test_the_server_draws_uniformly_without_classes():
    made = Dataset.from_arrays(**TREE, client_ids=np.arange(12))
    given = made.give_server(0.25, 0)
    assert given.num_server_examples == 3 and given.num_train_examples == 9 and made.num_server_examples == 0
    kept = given.server_images.text[1]
    assert sorted([*kept, *given.train_images.text[1]]) == list(range(12))
    np.testing.assert_array_equal(given.train_images.text[1], given.client_ids)
    np.testing.assert_array_equal(given.server_labels["m"], LABELS[kept])
    drawn = {tuple(made.give_server(0.25, seed).server_images.text[1]) for seed in range(20)}
    assert len(drawn) > 10 and {row for rows in drawn for row in rows} == set(range(12))
    assert made.give_server(0.0, 0) is made
    with pytest.raises(UserError, match=r"the server holds examples of .* already"):
        given.give_server(0.25, 0)


@pytest.mark.parametrize("scheme", ["shards", "dirichlet", "dirichlet_qp", "skewness"])
@pytest.mark.parametrize("targets", [REGRESSION.train_labels, {"a": LABELS}, (LABELS, LABELS)])
def test_schemes_that_deal_by_label_refuse_other_targets(scheme, targets):
    with pytest.raises(
        UserError, match=f"list of integers for scheme {scheme!r}, not.*iid or natural, or.*from_indices"
    ) as caught:
        partition.make(scheme, targets, 2, 0)
    one_sentence(caught)


def test_schemes_that_look_at_no_labels_deal_any_targets():
    by_labels = partition.make("iid", LABELS, 4, 0)
    assert partition.make("iid", {"a": FLOATS, "b": LABELS}, 4, 0).digest() == by_labels.digest()
    parts = partition.make("natural", FLOATS, 2, 0, client_ids=np.repeat([7, 3], 10))
    assert {tuple(sorted(own)) for own in parts.indices} == {tuple(range(10)), tuple(range(10, 20))}
    assert parts.label_counts(FLOATS, 0).shape == (2, 0)
    with pytest.raises(UserError, match="1 clients cannot share 0 training examples"):
        partition.make("iid", np.zeros((0, 3)), 1, 0)


@pytest.mark.parametrize("kind", [list, lambda names: np.array(names, object), pd.Series])
def test_clients_are_numbered_by_name(kind):
    np.testing.assert_array_equal(examples.client_numbers(kind(["b", "a", "c", "a"]), 4), [1, 0, 2, 0])


@pytest.mark.parametrize("labels,classes,absent", [(LABELS + 1, 5, 0), (LABELS * 2, 7, 1)])
def test_classes_without_an_example_are_announced(labels, classes, absent):
    with pytest.warns(
        UserWarning, match=f"{classes - 4} of {classes} classes have no training example, such as {absent};"
    ):
        assert Dataset.from_arrays(**pair(FLOATS, labels)).num_classes == classes


def test_a_copy_of_what_has_no_classes_and_has_clients(isolated):
    made = Dataset.from_arrays(**pair(FLOATS, FLOATS[:, :2]), client_ids=[*"aabbccddeeff"])
    copy = cache.fetch(isolated, "arrays", "0", lambda: made)
    assert list(isolated.glob("arrays-0.npz")) and copy.digest() == made.digest() and copy.mean is None
    np.testing.assert_array_equal(copy.client_ids, made.client_ids)
    again = cache.fetch(isolated, "arrays", "0", lambda: pytest.fail("the copy must be used"))
    np.testing.assert_array_equal(again.client_ids, np.repeat(np.arange(6), 2))


# ---------------------------------------------------------------- digests


def test_the_digest_of_images_is_that_of_older_run_folders():
    made = Dataset.from_arrays(**pair(PIXELS, LABELS))
    content = hashlib.sha256(b"fedjax_sel dataset 1\n")
    for array in (made.train_images, made.train_labels, made.test_images, made.test_labels):
        content.update(str((array.shape, array.dtype)).encode() + array.tobytes())
    assert made.digest() == content.hexdigest()


def test_the_digest_of_a_tree_knows_names_shapes_kinds_and_bytes():
    def of(x, y=LABELS, **more):
        parts = {p: tuple(jax.tree.map(lambda a: half(a, p == "test"), t) for t in (x, y)) for p in ("train", "test")}  # noqa: B023
        return Dataset.from_arrays(**parts, **more)

    other = FLOATS.copy()
    other[3, 2] += 1
    digests = [
        of({"a": FLOATS, "b": FLOATS}).digest(),
        of({"a": FLOATS, "c": FLOATS}).digest(),
        of({"a": FLOATS, "b": other}).digest(),
        of((FLOATS, FLOATS)).digest(),
        of(FLOATS).digest(),
        of(FLOATS, num_classes=9).digest(),
        of(FLOATS[:, :, None]).digest(),
        of(FLOATS, LABELS.astype(float)).digest(),
        of(FLOATS).give_server(0.5, 0).digest(),
    ]
    assert len(set(digests)) == len(digests)
    assert of({"b": FLOATS, "a": FLOATS}).digest() == digests[0], "the order of a dict's keys means nothing"


def test_the_digest_of_images_knows_classes_that_no_label_shows():
    def of(**more):
        images = np.arange(6 * 16, dtype=np.uint8).reshape(6, 4, 4, 1)
        return Dataset.from_arrays(train=(images, np.arange(6) % 3), test=(images[:3], np.arange(3)), **more).digest()

    assert of() == of(num_classes=3) != of(num_classes=6)


def test_the_digest_knows_a_normalization_that_is_not_the_usual_one():
    """The usual one is that of the whole training set, whatever the server keeps; older folders have no trace of it."""
    made = Dataset.from_arrays(**pair(PIXELS, LABELS))
    kept = made.give_server(0.25, 0)
    assert made.digest() == "e22d1a955bb5e74acd8da1ea88032d929469da42d9e600c6e298ff85149552b3"
    assert kept.digest() == "2010046546ae0f0146f12dd2e89034192dcc73c8429dc4598739917e390fbe33"
    two = Dataset.from_arrays(train=({"a": PIXELS, "b": FLOATS}, LABELS), test=({"a": PIXELS, "b": FLOATS}, LABELS))
    for dataset in (made, kept, Dataset.from_arrays(**pair(PIXELS, LABELS), name="cifar10"), two):
        others = [{"mean": None, "std": None}] + [
            {which: jax.tree.map(lambda moment: moment + 0.25, getattr(dataset, which))} for which in ("mean", "std")
        ]
        changed = [dataclasses.replace(dataset, **other).digest() for other in others]
        assert len({dataset.digest(), *changed}) == 4
        lists = {which: jax.tree.map(np.float32, getattr(dataset, which)) for which in ("mean", "std")}
        assert dataclasses.replace(dataset, **lists).digest() == dataset.digest()


# ---------------------------------------------------------------- bad input


NAN = FLOATS.copy()
NAN[4, 1] = np.nan


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"train": PIXELS}, "train: a ndarray is not a pair; give"),
        ({"train": (PIXELS[:12],)}, "train: a tuple is not a pair"),
        ({"train": (PIXELS[:12], LABELS[:11])}, "train targets: 11 examples, but train inputs has 12"),
        ({"train": ({"a": PIXELS[:12], "b": FLOATS[:9]}, LABELS[:12])}, r"train inputs\['b'\]: 9 examples, but"),
        ({"train": (PIXELS[:0], LABELS[:0])}, r"train inputs: .*shape \(0, 6, 5, 3\) holds no examples"),
        ({"test": (PIXELS[:0], LABELS[:0])}, "test inputs: .*holds no examples"),
        ({"train": ({}, LABELS[:12])}, "train inputs: {} holds no array"),
        ({"train": (7, LABELS[:12])}, r"train inputs: an array of shape \(\) holds no examples"),
        ({"train": (None, LABELS[:12])}, "train inputs: dtype object is not supported"),
        ({"train": ([[1, 2], [3]], LABELS[:12])}, "train inputs: not an array .*rows of one length"),
        ({"train": (PIXELS[:12], np.array(["a"] * 12))}, "train targets: dtype <U1 is not supported; number the te"),
        ({"train": (PIXELS[:12], np.array(["a"] * 12, object))}, "train targets: dtype object .*; number the texts"),
        ({"train": (PIXELS[:12], LABELS[:12].astype(object))}, "train targets: dtype object is not"),
        ({"train": (PIXELS[:12], LABELS[:12] * 1j)}, "train targets: dtype complex128 is not"),
        ({"train": (PIXELS[:12], NAN[:12])}, "train targets: nan of example 4 is not a finite float32"),
        ({"train": (NAN[:12], LABELS[:12])}, "train inputs: nan of example 4"),
        ({"train": (FLOATS[:12] * 1e300, LABELS[:12])}, "train inputs: .* of example 0 is not a finite float32"),
        ({"train": (LABELS[:12] + 2**40, LABELS[:12])}, "train inputs: whole numbers beyond int32"),
        ({"train": (PIXELS[:12], LABELS[:12] - 1)}, "train targets: label -1 of example 0 is not in 0 to 3"),
        ({"num_classes": 3}, "train targets: label 3 of example 3 is not in 0 to 2; number the classes from 0"),
        ({"test": (PIXELS[12:], LABELS[12:] + 1), "num_classes": 4}, "test targets: label 4 of example 3"),
        ({"num_classes": -1}, "num_classes: -1 is not a number of classes"),
        ({"num_classes": 4.0}, "num_classes: 4.0 is not a number of classes"),
        ({**pair(PIXELS, FLOATS), "num_classes": 4}, r"num_classes: 4 was given, but the targets are float32 of shape"),
        ({"train": (PIXELS[:12], LABELS[:12] + 9000)}, "label 9003 in only 20 .* not look like a class"),
        ({"test": (PIXELS[12:, :5], LABELS[12:])}, r"test inputs: examples of uint8 \[5, 5, 3\], but in train"),
        ({"test": (FLOATS[12:], LABELS[12:])}, r"test inputs: examples of float32 \[7\], but in train"),
        ({"test": ({"a": PIXELS[12:]}, LABELS[12:])}, "test inputs: their arrays .*; give both parts one structure"),
        ({"test": (PIXELS[12:], FLOATS[12:])}, r"test targets: examples of float32 \[7\], but in train of int32"),
        ({"client_ids": np.arange(11)}, r"client_ids: shape \(11,\) for 12 examples"),
        ({"client_ids": FLOATS[:12, 0]}, "client_ids: float64 is neither whole numbers nor texts"),
        ({"client_ids": [None] * 12}, "client_ids: object is neither"),
    ],
)  # fmt: skip
def test_bad_arrays_are_one_sentence(changes, words):
    with pytest.raises(UserError, match=words) as caught:
        Dataset.from_arrays(**{**pair(PIXELS, LABELS), **changes})
    one_sentence(caught)


def test_the_constructor_checks_too():
    made = Dataset.from_arrays(**pair(FLOATS, LABELS))
    with pytest.raises(UserError, match=r"train inputs: float64 .* let Dataset.from_arrays convert it"):
        data.Dataset(**{**vars(made), "train_images": FLOATS[:12]})
    with pytest.raises(UserError, match="test targets: 7 examples"):
        data.Dataset(**{**vars(made), "test_labels": made.test_labels[:7]})


# ---------------------------------------------------------------- partitions by hand


def test_a_partition_by_hand():
    parts = Partition.from_indices([[5, 2, 9], np.array([0, 5], np.uint8)], 12)
    assert [own.tolist() for own in parts.indices] == [[5, 2, 9], [0, 5]] and parts.scheme == "indices"
    assert parts.remainder.tolist() == [1, 3, 4, 6, 7, 8, 10, 11] and parts.sizes.tolist() == [3, 2]
    assert parts.digest() != Partition.from_indices([[2, 5, 9], [0, 5]], 12).digest()
    dealt = partition.make("iid", LABELS, 3, 0)
    again = Partition.from_indices(dealt.indices, 20)
    assert again.digest() == dealt.digest() and again.indices[0].dtype == np.int64


def test_clients_by_hand_may_share_examples():
    """The tables are as long as they need be: both clients gather what both hold."""
    made = Dataset.from_arrays(**pair(PIXELS, LABELS))
    parts = Partition.from_indices([list(range(12)), list(range(12))[::-1], [3]], 12)
    federation = fed.build(made, [parts], 0.0, (0,))
    assert federation.order.shape == (1, 25)
    for client in (0, 1):
        start = federation.starts[0, client]
        assert sorted(federation.order[0, start : start + 12]) == list(range(12))
    assert federation.label_counts[0].tolist() == [[3, 3, 3, 3], [3, 3, 3, 3], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    "indices,words",
    [
        ([[0], []], "client 1 has no examples; give it at least one, or leave it out"),
        ([[0], [12]], "12 of client 1 is not in 0 to 11"),
        ([[-1]], "-1 of client 0"),
        ([[1, 3, 1]], "client 0 has a position twice"),
        ([[0.5]], "client 0 has float64"),
        ([[True, False]], "client 0 has bool"),
        ([[[1, 2]]], r"client 0 has int64 of shape \(1, 2\)"),
        ([3, 4], r"client 0 has int64 of shape \(\)"),
        ([], "indices: .* is no list of clients"),
        ("abc", "indices: 'abc' is no list of clients"),
        ({0: [1]}, "is no list of clients"),
    ],
)
def test_a_bad_partition_by_hand_is_one_sentence(indices, words):
    with pytest.raises(UserError, match=words) as caught:
        Partition.from_indices(indices, 12)
    one_sentence(caught)


def test_what_a_plug_in_builds_has_no_label_beyond_its_classes():
    """The counts of one client's labels would go on in the next one's."""
    labels = LABELS.astype(np.int32)
    train, test = (PIXELS[:12], labels[:12]), (PIXELS[12:], labels[12:])
    assert Dataset.build("own", train, test, num_classes=4, source="here").num_classes == 4
    for num_classes, shift in ((3, 0), (4, 1)):
        with pytest.raises(UserError, match=r"targets: label .* is not in 0 to"):
            Dataset.build("own", train, (test[0], test[1] + shift), num_classes=num_classes, source="here")


def test_tuning_examples_replace_the_test_set_and_keep_their_owners():
    labels = np.repeat([0, 1], 50).astype(np.int32)
    inputs, owners = np.arange(100, dtype=np.float32)[:, None], np.arange(100) % 7
    made = Dataset.from_arrays(train=(inputs, labels), test=(-inputs, labels), client_ids=owners)
    tuned = made.for_tuning(0.2)
    assert (tuned.num_train_examples, tuned.num_test_examples) == (80, 20)
    assert np.bincount(tuned.test_labels).tolist() == [10, 10]
    both = np.concatenate([tuned.train_images[:, 0], tuned.test_images[:, 0]]).astype(int)
    assert sorted(both) == list(range(100))  # no example of the test set, and none in both parts
    assert np.array_equal(np.concatenate([tuned.client_ids, tuned.test_clients]), owners[both])
    assert np.array_equal(tuned.test_images, made.for_tuning(0.2).test_images)


def test_a_run_for_tuning_never_sees_the_test_set():
    inputs, labels = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32), np.arange(60, dtype=np.int32) % 3
    config = Config().replace(num_clients=6, num_selected=2, batch_size=4, rounds=2, algo="random", tuning_share=0.2)
    digests = set()
    for test in (inputs[:6], np.full_like(inputs[:6], 1e3)):
        dataset = Dataset.from_arrays(train=(inputs, labels), test=(test, labels[:6]))
        digests.add(problem.pose(Experiment(config, dataset)).dataset.digest())
    assert len(digests) == 1
