"""Learning tasks: the loss per example, and named measures per example."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class Measure(NamedTuple):
    """A measure of each example besides its loss, which is averaged.

    Attributes:
        name: name in columns and tables, e.g. "accuracy".
        of: (prediction [B, ...], targets [B, ...]) -> bool, int32 or float32 [B]; each entry depends on its example
            only.
        higher_is_better: whether larger values are better.
    """

    name: str
    of: Callable[[Any, Any], jax.Array]
    higher_is_better: bool = True


class Task(NamedTuple):
    """A task. Functions are pure and traceable; static. B examples of a batch, n of a data set.

    Attributes:
        name: name used in messages.
        losses: (prediction [B, ...], targets [B, ...]) -> loss of each example, float32 [B]. A loss must not depend on
            the other examples of the batch, which may be padding copies.
        measures: measures of each example. Targets, curves and the worst decile of clients use the first one.
        complaint: (shape of a prediction [B, ...], shape of targets [B, ...], number of classes or None) -> reason why
            they do not fit, or None. Shapes have the fields `shape` and `dtype`.
        complaint_of_values: (shape of a prediction [B, ...], targets [n, ...] in host memory) -> reason why the
            targets' values cannot be learned, or None.
        of_classes: whether each target is one class; label histograms and the GEMD require it.
    """

    name: str
    losses: Callable[[Any, Any], jax.Array]
    measures: tuple[Measure, ...]
    complaint: Callable[[Any, Any, int | None], str | None] = lambda prediction, targets, num_classes: None
    of_classes: bool = False
    complaint_of_values: Callable[[Any, Any], str | None] = lambda prediction, targets: None

    @property
    def measure(self) -> Measure:
        """The first measure, which targets and curves use."""
        return self.measures[0]


def shown(array: Any) -> str:
    """Return an array's dtype and shape as text, with B for the leading axis."""
    return f"{array.dtype}[{', '.join(map(str, ('B', *array.shape[1:])))}]"


def likeliest(logits: jax.Array) -> jax.Array:
    """Return the class of the largest logit, int32 [...] for logits [..., C]; -1, which is no class, if one is NaN.

    `argmax` returns the index of the first NaN, so a model that predicts only NaN would be right about class zero.
    """
    return jnp.where(jnp.isnan(logits).any(axis=-1), -1, logits.argmax(axis=-1))


GEMD = "gemd"
SECONDS, STALENESS = "seconds", "staleness"
EPSILONS = ("largest_epsilon", "mean_epsilon")  # over all clients, at the end of a round
UNDEFINED_CLIENTS = "undefined_clients"
TEST_LOSS, TRAIN_LOSS = "test_loss", "train_loss"


def names(task: Task) -> tuple[str, ...]:
    """Return the names of a task's columns: the first measure's, over examples and over clients, then the others'."""
    first, *others = (measure.name for measure in task.measures)
    spread = (*(f"{kind}_{first}" for kind in ("worst_decile", "gini", "jain")), UNDEFINED_CLIENTS)
    of_others = (f"test_{name}" for name in others)
    return (f"test_{first}", TEST_LOSS, f"train_{first}", TRAIN_LOSS, *spread, GEMD, *of_others)


def columns_of(
    task: Task,
    test: tuple[dict[str, Any], Any],
    train: tuple[dict[str, Any], Any],
    over_clients: tuple[Any, Any, Any, Any],
    gemd: Any,
    seconds: Any = None,
) -> dict[str, Any]:
    """Return measured values by column; `test` and `train` hold the measures by name, and the loss.

    `over_clients` are the worst decile, the Gini index and the Jain index of the first measure, and the number of
    clients where it is undefined. `seconds` is the simulated duration of the round; None without a clock, and then
    there is no such column.
    """
    first, *others = (measure.name for measure in task.measures)
    values = (test[0][first], test[1], train[0][first], train[1], *over_clients, gemd, *(test[0][o] for o in others))
    columns = dict(zip(names(task), values, strict=True))
    return columns if seconds is None else {**columns, SECONDS: seconds}


def client_columns(kind: str, measure: str) -> tuple[str, ...]:
    """Return the columns of clients' own tests; `kind` is "client", of training clients, or "unseen".

    They are the mean over clients, worst decile, Gini and Jain index, and the number of undefined clients.
    """
    return tuple(
        f"{kind}_test_{name}"
        for name in (measure, f"worst_decile_{measure}", f"gini_{measure}", f"jain_{measure}", "undefined")
    )


# Tasks are cached, because compiled programs are cached by the identity of a task's functions.


@functools.cache
def classification() -> Task:
    """Make the classification task: cross-entropy in nats; logits [B, C], targets int32 [B]."""
    losses = optax.softmax_cross_entropy_with_integer_labels
    accuracy = Measure("accuracy", lambda logits, classes: likeliest(logits) == classes)
    return Task("classification", losses, (accuracy,), _not_classes, of_classes=True)


@functools.cache
def multilabel() -> Task:
    """Make the multilabel task: mean binary cross-entropy over C labels in nats; logits and 0/1 targets [B, C].

    Measures: the fraction of an example's labels that are predicted correctly, and whether all of them are.
    """
    measures = (
        Measure("accuracy", lambda logits, labels: _agree(logits, labels).astype(jnp.float32).mean(axis=1)),
        Measure("all_right", lambda logits, labels: _agree(logits, labels).all(axis=1)),
    )
    return Task("multilabel", _binary_cross_entropy, measures, _multilabel_mismatch, False, _not_zero_or_one)


def _agree(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return a mask of correct labels, bool [B, C]; NaN logits are never correct."""
    return ((logits > 0) == (labels > 0.5)) & ~jnp.isnan(logits)


def _binary_cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(logits, labels.astype(jnp.float32)).mean(axis=1)


def _not_classes(prediction, targets, num_classes) -> str | None:
    if len(targets.shape) != 1 or not jnp.issubdtype(targets.dtype, jnp.integer):
        return f"needs one integer class per example as targets, [B], but they are {shown(targets)}"
    if len(prediction.shape) != 2 or (num_classes is not None and prediction.shape[1] < num_classes):
        required = "C" if num_classes is None else num_classes
        return f"needs logits [B, {required}], but the model gives {shown(prediction)}"
    return None


def _not_zero_or_one(prediction, targets) -> str | None:
    others = targets[(targets != 0) & (targets != 1)]
    return f"needs labels that are 0 or 1, but one label is {others[0]:g}" if others.size else None


def _multilabel_mismatch(prediction, targets, num_classes) -> str | None:
    if len(targets.shape) != 2 or prediction.shape != targets.shape:
        return (
            f"needs logits and labels of equal shape [B, C]; the model gives {shown(prediction)} for {shown(targets)}"
        )
    return None


@functools.cache
def next_token() -> Task:
    """Make the next-token task: cross-entropy in nats, averaged over positions; logits [B, L, V], targets int32 [B, L].

    Positions with a negative target are padding and do not count. An example with padding only has loss and accuracy
    zero; leave such examples out.
    """
    right = Measure(
        "accuracy", lambda logits, tokens: _token_mean((likeliest(logits) == tokens).astype(jnp.float32), tokens)
    )
    return Task("next_token", _losses, (right,), _not_tokens, False, _unknown)


def _losses(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return _token_mean(optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(tokens, 0)), tokens)


def _token_mean(values: jax.Array, tokens: jax.Array) -> jax.Array:
    counts = tokens >= 0
    return jnp.where(counts, values, 0.0).sum(axis=1) / jnp.maximum(counts.sum(axis=1), 1)


def _unknown(prediction, targets) -> str | None:
    largest, vocabulary = int(targets.max(initial=-1)), prediction.shape[2]
    if largest >= vocabulary:
        return f"needs tokens below {vocabulary}, the model's number of logits, but one token is {largest}"
    return None


def _not_tokens(prediction, targets, num_classes) -> str | None:
    if len(targets.shape) != 2 or not jnp.issubdtype(targets.dtype, jnp.integer):
        return f"needs integer tokens [B, L] as targets, but they are {shown(targets)}"
    if len(prediction.shape) != 3 or prediction.shape[:2] != targets.shape:
        return f"needs logits [B, L, V] for targets {shown(targets)}, but the model gives {shown(prediction)}"
    return None


@functools.cache
def regression() -> Task:
    """Make the regression task: mean squared error; predictions and targets of equal shape [B, ...].

    Measures (lower is better): the mean absolute error of an example, and its mean squared error.
    """
    measures = (
        Measure("absolute_error", lambda prediction, targets: _example_mean(jnp.abs(prediction - targets)), False),
        Measure("squared_error", lambda prediction, targets: _example_mean((prediction - targets) ** 2), False),
    )
    return Task("regression", measures[1].of, measures, _regression_mismatch)


def _example_mean(values: jax.Array) -> jax.Array:
    return values.reshape(values.shape[0], -1).mean(axis=1)


def _regression_mismatch(prediction, targets, num_classes) -> str | None:
    if prediction.shape != targets.shape:
        advice = " (use targets[:, None])" if prediction.shape == (*targets.shape, 1) else ""
        given = f"the model gives {shown(prediction)} for {shown(targets)}"
        return f"needs predictions of the targets' shape, but {given}{advice}"
    if not jnp.issubdtype(targets.dtype, jnp.floating):
        return f"needs float targets, but they are {shown(targets)}"
    return None


TABLE: dict[str, Callable[[], Task]] = {
    "classification": classification,
    "multilabel": multilabel,
    "next_token": next_token,
    "regression": regression,
}
