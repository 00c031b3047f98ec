"""Losses and measures of the tasks, against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import tasks

RNG = np.random.default_rng(1)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def found(task, prediction, targets):
    args = jnp.asarray(prediction, jnp.float32), jnp.asarray(targets)
    return [np.asarray(task.losses(*args)), *(np.asarray(each.of(*args), np.float64) for each in task.measures)]


def test_classification():
    logits, classes = RNG.normal(size=(7, 4)), RNG.integers(4, size=7)
    losses, right = found(tasks.classification(), logits, classes)
    np.testing.assert_allclose(losses, -log_softmax(logits)[np.arange(7), classes], rtol=1e-5)
    np.testing.assert_array_equal(right, logits.argmax(axis=1) == classes)


def test_multilabel():
    logits, labels = RNG.normal(size=(7, 4)), RNG.integers(2, size=(7, 4))
    losses, share, every = found(tasks.multilabel(), logits, labels)
    chance = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(
        losses, -(labels * np.log(chance) + (1 - labels) * np.log(1 - chance)).mean(1), rtol=1e-5
    )
    agree = (logits > 0) == (labels > 0)
    np.testing.assert_allclose(share, agree.mean(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(every, agree.all(axis=1))


@pytest.mark.parametrize("shape", [(7,), (7, 3)])
def test_regression(shape):
    prediction, targets = RNG.normal(size=shape), RNG.normal(size=shape).astype(np.float32)
    losses, absolute, squared = found(tasks.regression(), prediction, targets)
    difference = (prediction - targets).reshape(7, -1)
    np.testing.assert_allclose(losses, (difference**2).mean(axis=1), rtol=1e-4)
    np.testing.assert_allclose(squared, losses)
    np.testing.assert_allclose(absolute, np.abs(difference).mean(axis=1), rtol=1e-4)


def test_next_token_counts_what_is_not_padding():
    logits, tokens = RNG.normal(size=(4, 5, 3)), RNG.integers(3, size=(4, 5))
    tokens[1, 2:] = -1
    tokens[3] = -1
    losses, share = found(tasks.next_token(), logits, tokens)
    for row in range(4):
        own = [-log_softmax(logits[row, t])[tokens[row, t]] for t in range(5) if tokens[row, t] >= 0]
        right = [logits[row, t].argmax() == tokens[row, t] for t in range(5) if tokens[row, t] >= 0]
        np.testing.assert_allclose(losses[row], np.mean(own) if own else 0.0, rtol=1e-5)
        np.testing.assert_allclose(share[row], np.mean(right) if right else 0.0, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [slice(None), 1])
def test_a_prediction_with_a_nan_is_not_right(broken):
    classes = np.array([0, 1, 2])
    logits = 9.0 * np.eye(3)
    logits[0, broken] = np.nan
    _, right = found(tasks.classification(), logits, classes)
    np.testing.assert_array_equal(right, [0, 1, 1])
    _, share = found(tasks.next_token(), logits[None], classes[None])
    np.testing.assert_allclose(share, 2 / 3, rtol=1e-6)
    logits = np.where(np.isnan(logits), np.nan, -1.0)
    _, share, every = found(tasks.multilabel(), logits, np.zeros((3, 3), int))
    np.testing.assert_allclose(share, [np.mean(~np.isnan(logits[0])), 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(every, [0, 1, 1])


def test_columns_have_the_names_of_the_measures():
    assert tasks.names(tasks.classification()) == (
        "test_accuracy", "test_loss", "train_accuracy", "train_loss", "worst_decile_accuracy", "gini_accuracy",
        "jain_accuracy", "undefined_clients", "gemd",
    )  # fmt: skip
    assert tasks.names(tasks.multilabel())[-1] == "test_all_right"
