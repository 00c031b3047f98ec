"""One client's work against slow NumPy twins."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel import models, tasks
from fedjax_sel.data import federation
from fedjax_sel.training import client, optimizers, schedule

SIZES = (9, 16, 5)
CLASSES, SIDE = 3, 3


def make_federation(holdout=(2, 0, 1)):
    """Three unequal clients of one replicate; a few held-out examples; random pixels."""
    rng = np.random.default_rng(0)
    total = sum(SIZES) + sum(holdout)
    sizes = np.array(SIZES) + np.array(holdout)
    return federation.Federation(
        images=jnp.asarray(rng.integers(0, 256, (total, SIDE, SIDE, 1), np.uint8)),
        labels=jnp.asarray(rng.integers(0, CLASSES, total), jnp.int32),
        test_images=jnp.zeros((1, SIDE, SIDE, 1), jnp.uint8),
        test_labels=jnp.zeros(1, jnp.int32),
        server_images=jnp.zeros((0, SIDE, SIDE, 1), jnp.uint8),
        server_labels=jnp.zeros(0, jnp.int32),
        scale=jnp.array([1 / 128.0]),
        shift=jnp.array([-1.0]),
        order=jnp.asarray(rng.permutation(total)[None], jnp.int32),
        starts=jnp.asarray((np.cumsum(sizes) - sizes)[None], jnp.int32),
        train_sizes=jnp.asarray([SIZES], jnp.int32),
        holdout_sizes=jnp.asarray([holdout], jnp.int32),
        owner=jnp.zeros((1, total), jnp.int32),
        label_counts=jnp.zeros((1, 3, CLASSES), jnp.int32),
    )


FEDERATION = make_federation()
MODEL = models.make("mlp", (SIDE, SIDE, 1), CLASSES)
PARAMS = MODEL.init(jax.random.key(0))
ZERO, ROUND = jnp.int32(0), jnp.int32(4)


def make_trainer(momentum=0.0, weight_decay=0.0, milestones=None, **kind):
    settings = {"batch_size": 4, "steps": None, "epochs": None, "full_batch": False, **kind}
    work = schedule.plan(np.array(SIZES), **settings)
    rate = optax.piecewise_constant_schedule(0.1, milestones)
    return client.Trainer(
        MODEL,
        tasks.classification(),
        work,
        optimizers.make("fedavg"),
        client.sgd(momentum, weight_decay),
        rate,
        evaluation_block=4,
        micro_batch=3,
    )


def update_of(trainer, who, key):
    return client.train_and_report(trainer, FEDERATION, PARAMS, ZERO, who, key, ROUND).update


def examples(who, part="train"):
    """A client's images (normalized) and labels, by hand."""
    start, size, held = (int(a[0, who]) for a in (FEDERATION.starts, FEDERATION.train_sizes, FEDERATION.holdout_sizes))
    chosen = {"train": (start, size), "holdout": (start + size, held), "all": (start, size + held)}[part]
    rows = np.asarray(FEDERATION.order[0, chosen[0] : chosen[0] + chosen[1]])
    return (np.asarray(FEDERATION.images)[rows] / 128.0 - 1.0).astype(np.float32), np.asarray(FEDERATION.labels)[rows]


def plain_loss(params, images, labels):
    logits = MODEL.apply(params, jnp.asarray(images), None).prediction
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])


def twin(trainer, who, key, learning_rate, momentum, weight_decay):
    """SGD written out in a Python loop, on the batches that the schedule names."""
    images, labels = examples(who)
    size = jnp.int32(SIZES[who])
    drawn = schedule.orders(trainer.work, jax.random.split(key)[0], size)
    weights = {path: np.asarray(leaf, np.float64) for path, leaf in jax.tree_util.tree_leaves_with_path(PARAMS)}
    treedef = jax.tree.structure(PARAMS)
    buffers = {path: 0.0 for path in weights}
    gradient = jax.jit(jax.grad(plain_loss))
    for step in range(int(schedule.num_steps(trainer.work, size, schedule.epochs(trainer.work, key)))):
        positions, counts = schedule.batch(trainer.work, drawn, jnp.int32(step), size)
        rows = np.asarray(positions)[np.asarray(counts)]
        current = jax.tree.unflatten(treedef, [jnp.float32(leaf) for leaf in weights.values()])
        gradients = dict(jax.tree_util.tree_leaves_with_path(gradient(current, images[rows], labels[rows])))
        for path in weights:
            g = np.asarray(gradients[path], np.float64) + weight_decay * weights[path]
            buffers[path] = momentum * buffers[path] + g
            weights[path] = weights[path] - learning_rate * buffers[path]
    return [weights[path] - np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(PARAMS)]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "kind,momentum,weight_decay,milestones,rate",
    [
        ({"epochs": 2}, 0.0, 0.0, None, 0.1),
        ({"epochs": 2}, 0.9, 0.01, None, 0.1),
        ({"steps": 6}, 0.5, 0.0, {3: 0.5}, 0.05),
        ({"steps": 6}, 0.0, 0.1, {5: 0.5}, 0.1),
        ({"epochs": 3, "full_batch": True}, 0.5, 0.01, {2: 0.5, 4: 0.1}, 0.005),
    ],
)
def test_local_training_equals_its_twin(kind, momentum, weight_decay, milestones, rate):
    trainer = make_trainer(momentum, weight_decay, milestones, **kind)
    train = jax.jit(lambda who, key: update_of(trainer, who, key))
    for who in range(3):
        key = jax.random.key(who)
        expected = twin(trainer, who, key, rate, momentum, weight_decay)
        for found, wanted in zip(jax.tree.leaves(train(jnp.int32(who), key)), expected):
            np.testing.assert_allclose(found, wanted, atol=3e-6)


@pytest.mark.slow
def test_clients_of_unequal_length_train_together_as_they_do_alone():
    trainer = make_trainer(momentum=0.9, epochs=2)
    assert trainer.work.equal_steps is None
    keys = jax.random.split(jax.random.key(0), 3)

    def train(who, key):
        return update_of(trainer, who, key)

    together = jax.jit(jax.vmap(train))(jnp.arange(3), keys)
    for who in range(3):
        alone = jax.jit(train)(jnp.int32(who), keys[who])
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together)):
            np.testing.assert_allclose(a, b[who], atol=1e-6)


@pytest.mark.slow
def test_unrolled_steps_are_the_same_steps():
    rolled, key = make_trainer(momentum=0.5, steps=6), jax.random.key(0)
    unrolled = rolled._replace(unroll=4)  # of which 6 is no multiple
    assert "unroll=4" in str(jax.make_jaxpr(lambda: update_of(unrolled, ZERO, key))())
    found, expected = (jax.jit(lambda one=one: update_of(one, ZERO, key))() for one in (unrolled, rolled))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, atol=1e-6)
    unequal = make_trainer(epochs=2)._replace(unroll=4)  # ends when the client says: nothing to unroll
    assert "unroll=4" not in str(jax.make_jaxpr(lambda: update_of(unequal, ZERO, key))())


@pytest.mark.slow
def test_one_full_batch_step_is_one_step_of_gradient_descent():
    trainer = make_trainer(epochs=1, full_batch=True)
    train = jax.jit(lambda who: update_of(trainer, who, jax.random.key(1)))
    for who in range(3):
        update = train(jnp.int32(who))
        expected = jax.tree.map(lambda g: -0.1 * g, jax.grad(plain_loss)(PARAMS, *examples(who)))
        for a, b in zip(jax.tree.leaves(update), jax.tree.leaves(expected)):
            np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["train", "holdout", "all"])
def test_losses_are_means_over_the_right_examples(part):
    trainer = make_trainer(epochs=1)
    loss = jax.jit(lambda segment: client.loss(trainer, FEDERATION, PARAMS, segment))
    for who in range(3):
        segment = federation.loss_part(FEDERATION, ZERO, jnp.int32(who), part)
        shown = "train" if part == "holdout" and who == 1 else part  # client 1 holds nothing out
        expected = plain_loss(PARAMS, *examples(who, shown))
        np.testing.assert_allclose(loss(segment), expected, rtol=1e-5)


@pytest.mark.slow
def test_gradients_and_profiles_are_means_over_all_examples():
    trainer = make_trainer(epochs=1)
    gradient = jax.jit(lambda segment: client.gradient(trainer, FEDERATION, PARAMS, segment))
    profiles = {
        relu: jax.jit(lambda segment, relu=relu: client.profile(trainer, FEDERATION, PARAMS, segment, relu))
        for relu in (False, True)
    }
    weights, bias = PARAMS.trained["Dense_0"]["Dense_0"]["kernel"].T, PARAMS.trained["Dense_0"]["Dense_0"]["bias"]
    for who in range(3):
        images, labels = examples(who, "all")
        segment = federation.all_parts(FEDERATION, ZERO, jnp.int32(who))
        found = gradient(segment)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.grad(plain_loss)(PARAMS, images, labels))):
            np.testing.assert_allclose(a, b, atol=1e-6)
        # FL-DP3S Theorem 1: before the activation the profile is W mean(features) + b exactly
        features = images.reshape(len(images), -1)
        profile = profiles[False](segment)
        np.testing.assert_allclose(profile, features.mean(axis=0) @ weights + bias, atol=1e-5)
        after = profiles[True](segment)
        np.testing.assert_allclose(after, np.maximum(features @ weights + bias, 0).mean(axis=0), atol=1e-5)
