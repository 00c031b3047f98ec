"""Measures of final models: scikit-learn's values, also with absent classes; undefined ones are NaN."""

import math

import numpy as np
import pytest
from scipy import special
from sklearn import metrics as scores

import fedjax_sel
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import measures

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(60, 8))


@pytest.mark.parametrize("classes", [np.arange(60) % 8, RNG.integers(2, 6, 60), np.array([3] * 59 + [5])])
def test_classification(classes):
    found = measures.of_examples("classification", LOGITS, classes)
    predicted, probabilities = LOGITS.argmax(axis=1), special.softmax(LOGITS, axis=1)
    assert found["accuracy"] == pytest.approx((predicted == classes).mean())
    recalls = [(predicted[classes == c] == c).mean() for c in np.unique(classes)]
    assert found["balanced accuracy"] == pytest.approx(np.mean(recalls), abs=1e-6)
    f1 = []
    for c in np.union1d(classes, predicted):
        hits = ((classes == c) & (predicted == c)).sum()
        f1.append(2 * hits / ((classes == c).sum() + (predicted == c).sum()))
    assert found["macro F1"] == pytest.approx(np.mean(f1), abs=1e-6)
    areas = []
    for c in np.unique(classes):
        own, others = probabilities[classes == c, c], probabilities[classes != c, c]
        areas.append((own[:, None] > others).mean() + 0.5 * (own[:, None] == others).mean())
    assert found["AUC"] == pytest.approx(np.mean(areas), abs=1e-6)
    ranks = (LOGITS[np.arange(60), classes][:, None] < LOGITS).sum(axis=1)
    assert found["top-5 accuracy"] == pytest.approx((ranks < 5).mean(), abs=1e-6)
    if len(np.unique(classes)) == 8:
        assert found["AUC"] == pytest.approx(scores.roc_auc_score(classes, probabilities, multi_class="ovr"), abs=1e-6)
        assert found["balanced accuracy"] == pytest.approx(scores.balanced_accuracy_score(classes, predicted))


def test_what_is_undefined():
    one_class = measures.of_examples("classification", LOGITS, np.full(60, 3))
    assert math.isnan(one_class["AUC"]) and not math.isnan(one_class["macro F1"])
    assert measures.of_examples("classification", LOGITS[:0], np.zeros(0, int)) == {}
    assert math.isnan(measures.of_examples("regression", np.ones((3, 1)), np.ones((3, 1)))["R2"])


@pytest.mark.parametrize("task,shape", [
    ("classification", (8,)), ("multilabel", (8,)), ("next_token", (3, 8)), ("regression", (1,)),
])  # fmt: skip
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_diverged_has_no_measures(task, shape, value):
    outputs = np.full((4, *shape), value)
    targets = RNG.integers(2, size=(4, *(shape if task == "multilabel" else shape[:-1])))
    found = measures.of_examples(task, outputs, targets)
    assert found and all(map(math.isnan, found.values()))


def test_regression_and_tokens_and_labels():
    targets, predicted = RNG.normal(size=(30, 2)), RNG.normal(size=(30, 2))
    found = measures.of_examples("regression", predicted, targets)
    assert found["mean absolute error"] == pytest.approx(np.abs(targets - predicted).mean())
    assert found["R2"] == pytest.approx(scores.r2_score(targets, predicted), abs=1e-6)
    logits, tokens = RNG.normal(size=(4, 5, 7)), RNG.integers(0, 7, (4, 5))
    tokens[0, 3:] = -1
    counts, chosen = tokens >= 0, special.log_softmax(logits, axis=-1)
    losses = [-chosen[i, j, tokens[i, j]] for i, j in np.argwhere(counts)]
    found = measures.of_examples("next_token", logits, tokens)
    assert found["perplexity"] == pytest.approx(np.exp(np.mean(losses)))
    assert found["accuracy of tokens"] == pytest.approx((logits.argmax(-1) == tokens)[counts].mean())
    labels = RNG.integers(0, 2, (60, 8))
    found = measures.of_examples("multilabel", LOGITS, labels)
    assert found["AUC"] == pytest.approx(scores.roc_auc_score(labels, LOGITS, average="macro"), abs=1e-6)
    assert found["macro F1"] == pytest.approx(scores.f1_score(labels, LOGITS > 0, average="macro"), abs=1e-6)


def test_of_a_run(capsys, tmp_path):
    config = fedjax_sel.preset("quickstart").replace(
        algo="random", num_clients=12, num_selected=3, rounds=2, seeds=2, client_test=0.2, unseen_clients=0.25, chunk=2,
        model="logistic",
    )  # fmt: skip
    result = fedjax_sel.run(config, out=str(tmp_path / "run"))
    on_test, on_clients = fedjax_sel.measures(result), fedjax_sel.measures(result, on="clients")
    np.testing.assert_allclose(on_test["accuracy"], result.test_accuracy[:, -1], atol=1e-6)
    np.testing.assert_allclose(on_clients["accuracy"], fedjax_sel.per_client(result, on="test")["accuracy"], atol=1e-6)
    problem = pose(config)
    labels = problem.dataset.train_labels
    one_class = [[len({*labels[own]}) < 2 for own in tests.positions] for tests in problem.client_tests or ()]
    np.testing.assert_array_equal(np.isnan(on_clients["AUC"]), one_class)
    from fedjax_sel.cli import report

    assert report.main([str(tmp_path / "run"), "--measures", "--out", str(tmp_path / "curves.png")]) == 0
    printed = capsys.readouterr().out
    assert "macro F1 (test set)" in printed and "AUC (mean over clients)" in printed and "undefined)" in printed
    assert "AUC (mean over unseen clients)" in printed
    with pytest.raises(fedjax_sel.UserError, match="on: unknown 'train'"):
        fedjax_sel.measures(result, on="train")
