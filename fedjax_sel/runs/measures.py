"""Measures of final models as papers report them, on the test set or each client's test data, by scikit-learn."""

from typing import Any

import jax
import numpy as np
from scipy import special
from sklearn import metrics as scores

from fedjax_sel.config import Config
from fedjax_sel.core.parsing import one_of
from fedjax_sel.data import examples, federation
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.models import Model
from fedjax_sel.runs import reading
from fedjax_sel.runs.run_files import Result

BLOCK = 1000  # examples predicted together
_ZERO: dict[str, Any] = {"zero_division": 0}  # a class that is never predicted has the score zero, without a warning


def measure(
    result: Result, experiment_or_config: Experiment | Config | None = None, on: str = "test"
) -> dict[str, Any]:
    """Return the measures of a result's final models by name, [seeds]; on "clients" [seeds, N + U].

    NaN: the measure is undefined, such as the AUC if all examples have one class, or there are no examples.
    """
    one_of("on", on, ("test", "clients"))
    problem = reading.problem_of(result, experiment_or_config, "measures")
    if on == "clients" and problem.client_tests is None:
        raise UserError("measures: the clients have no test data; run with client_test=0.2 or unseen_clients=0.1")
    if problem.task.name not in _OF_TASK:
        return {}
    result, dataset = reading.with_this_model(result, problem.model), problem.dataset
    found = []
    for place, seed in enumerate(result.seeds):
        pair, whose = (dataset.test_images, dataset.test_labels), [np.arange(dataset.num_test_examples)]
        if on == "clients" and problem.client_tests is not None:
            whose, in_training_set, _ = problem.client_tests[place]
            pair = (dataset.train_images, dataset.train_labels) if in_training_set else pair
        inputs, targets = (examples.take(tree, np.concatenate(whose)) for tree in pair)
        prediction = _predictions(problem.model, result.weights_of(seed), dataset, inputs)
        ends = np.cumsum([len(own) for own in whose])[:-1]
        parts = zip(np.split(prediction, ends), np.split(np.asarray(targets), ends))
        found.append([of_examples(problem.task.name, *part) for part in parts])
    names = list(dict.fromkeys(name for clients in found for one in clients for name in one))
    arrays = {name: np.array([[one.get(name, np.nan) for one in clients] for clients in found]) for name in names}
    return {name: array[:, 0] if on == "test" else array for name, array in arrays.items()}


def _predictions(model: Model, weights: Any, dataset: Dataset, inputs: Any) -> np.ndarray:
    affine = federation.affine(dataset)
    apply = jax.jit(lambda batch: model.apply(weights, federation.scaled(batch, *affine), None).prediction)
    count, parts = examples.num_examples(inputs), []
    for first in range(0, count, BLOCK):
        rows = np.minimum(np.arange(first, first + BLOCK), count - 1)
        parts.append(np.asarray(apply(examples.take(inputs, rows))))
    return np.concatenate(parts)[:count]


def of_examples(task: str, prediction: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Return the measures of some examples by name; empty without examples.

    Args:
        task: name of a built-in task.
        prediction: the model's output, [n, ...].
        targets: targets, [n, ...].
    """
    if not len(targets):
        return {}
    finite = np.isfinite(prediction)
    found = _OF_TASK[task](np.where(finite, prediction, 0.0).astype(np.float64), targets)
    if not finite.all():  # a model that diverged
        found = dict.fromkeys(found, np.nan)
    return {name: float(value) for name, value in found.items()}


def _classification(logits: np.ndarray, classes: np.ndarray) -> dict[str, float]:
    likeliest, probabilities = logits.argmax(axis=1), special.softmax(logits, axis=1)
    found = {
        "accuracy": scores.accuracy_score(classes, likeliest),
        "balanced accuracy": scores.recall_score(
            classes, likeliest, labels=np.unique(classes), average="macro", **_ZERO
        ),
        "macro F1": scores.f1_score(classes, likeliest, average="macro", **_ZERO),
        "AUC": _area(classes[:, None] == np.arange(logits.shape[1]), probabilities),
    }
    if logits.shape[1] > 5:
        found["top-5 accuracy"] = scores.top_k_accuracy_score(
            classes, probabilities, k=5, labels=np.arange(logits.shape[1])
        )
    return found


def _area(labels: np.ndarray, values: np.ndarray) -> float:
    """Return the mean area under the ROC curve over the labels with both kinds of examples; NaN without any."""
    both = [label for label in range(labels.shape[1]) if 0 < labels[:, label].sum() < len(labels)]
    return float(np.mean([scores.roc_auc_score(labels[:, k], values[:, k]) for k in both])) if both else np.nan


def _multilabel(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {
        "accuracy": ((logits > 0) == (labels > 0.5)).mean(),
        "macro F1": scores.f1_score(labels > 0.5, logits > 0, average="macro", **_ZERO),
        "AUC": _area(labels > 0.5, logits),
    }


def _next_token(logits: np.ndarray, tokens: np.ndarray) -> dict[str, float]:
    counts = tokens >= 0
    if not counts.any():
        return {}
    losses = -np.take_along_axis(special.log_softmax(logits, axis=-1), np.maximum(tokens, 0)[..., None], -1)[..., 0]
    right = logits.argmax(axis=-1) == tokens
    return {"accuracy of tokens": right[counts].mean(), "perplexity": np.exp(losses[counts].mean())}


def _regression(prediction: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    given, predicted = targets.reshape(len(targets), -1), prediction.reshape(len(targets), -1)
    return {
        "mean absolute error": scores.mean_absolute_error(given, predicted),
        "R2": scores.r2_score(given, predicted) if len(given) > 1 and np.ptp(given, axis=0).all() else np.nan,
    }


_OF_TASK = {
    "classification": _classification,
    "multilabel": _multilabel,
    "next_token": _next_token,
    "regression": _regression,
}
