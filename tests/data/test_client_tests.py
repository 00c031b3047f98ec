"""The clients' own test examples, and the clients that never train."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, metrics, strategies
from fedjax_sel.cli import command_line
from fedjax_sel.cli import data as data_command
from fedjax_sel.data import Dataset, partition
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import evaluation

SMALL = fedjax_sel.preset("quickstart").replace(
    num_clients=12, num_selected=3, rounds=4, chunk=2, seeds=2, client_test=0.2, unseen_clients=0.25, model="logistic"
)


def natural(train_owners, test_owners):
    rng = np.random.default_rng(0)
    train, test = (
        (rng.normal(size=(len(owners), 3)).astype(np.float32), rng.integers(0, 3, len(owners)))
        for owners in (train_owners, test_owners)
    )
    dataset = Dataset.from_arrays(train=train, test=test, client_ids=train_owners, num_classes=3)
    return dataclasses.replace(dataset, test_clients=np.asarray(test_owners))


def test_a_share_of_each_client_tests_and_unseen_clients_test_with_all_examples():
    problem = pose(SMALL)
    assert SMALL.num_training_clients == 9
    for seed, (part, tests) in enumerate(zip(problem.partitions, problem.client_tests)):
        whole = partition.make("shards", problem.dataset.train_labels, 12, seed, shards_per_client=1)
        assert part.num_clients == 9 and len(tests.positions) == 12 and tests.in_training_set
        before = {frozenset(own.tolist()) for own in whole.indices}
        for own, tested in zip(part.indices, tests.positions):
            assert not {*own} & {*tested} and len(tested) == int(0.2 * (len(own) + len(tested)))
            assert frozenset([*own.tolist(), *tested.tolist()]) in before
        assert all(frozenset(own.tolist()) in before for own in tests.positions[9:])
        assert not {*np.concatenate(tests.positions)} & {*np.concatenate(part.indices)}
        assert {*part.remainder} == {*range(whole.num_examples)} - {*np.concatenate(part.indices)}


@pytest.mark.parametrize("label_noise", [0.0, 0.1])
def test_examples_that_clients_share_are_tested_or_trained_on(label_noise):
    """With label noise, each client has its own copy of a shared example."""
    shared = {"partition": "skewness", "skewness_main": "random", "client_test": 0.1, "unseen_clients": 0.0}
    problem = pose(SMALL.replace(label_noise=label_noise, **shared))
    assert problem.client_tests is not None
    images = [image.tobytes() for image in problem.dataset.train_images]
    for part, tests in zip(problem.partitions, problem.client_tests):
        tested, trained = ({images[i] for own in lists for i in own} for lists in (tests.positions, part.indices))
        assert tested and not tested & trained


def test_a_client_whose_examples_others_test_on_is_named():
    pairs = partition.Partition.from_indices([[0, 1], [0, 1], [2, 3, 4]], 5)
    dataset = natural(np.arange(5), np.arange(2))
    with pytest.raises(UserError, match=r"client 0 has no training example, .* lower --client-test"):
        for seed in range(20):
            partition.split_tests(pairs, dataset, 0.5, 0, seed)


def test_a_share_below_one_example_of_every_client_is_rejected():
    with pytest.raises(UserError, match=r"--client-test: 0.1 of each client's examples is less than one"):
        partition.split_tests(partition.Partition.from_indices([[0, 1], [2, 3, 4]], 5), None, 0.1, 0, 0)


def test_without_the_settings_nothing_changes():
    problem = pose(SMALL.replace(client_test=0.0, unseen_clients=0.0))
    assert problem.client_tests is None and problem.partitions[0].num_clients == 12
    plain = fedjax_sel.preset("quickstart")
    assert plain.replace(eval_clients_every=0).fingerprint() == plain.fingerprint()
    own = plain.replace(partition="mine:natural_clients")
    assert own.replace(eval_clients_every=2).fingerprint() != own.fingerprint()
    assert SMALL.fingerprint() != SMALL.replace(client_test=0.3).fingerprint()


def test_natural_clients_test_on_their_own_test_examples():
    train, test = np.repeat([5, 7, 9], 6), np.array([9, 5, 5, 3, 9, 5])
    dataset = natural(train, test)
    whole = partition.make("natural", dataset.train_labels, 3, 0, client_ids=dataset.client_ids)
    part, tests = partition.split_tests(whole, dataset, 0.0, 0, 0)
    assert part.sizes.tolist() == [6, 6, 6] and not tests.in_training_set
    names = [int(dataset.client_ids[own[0]]) for own in part.indices]
    assert {name: own.tolist() for name, own in zip(names, tests.positions)} == {5: [1, 2, 5], 7: [], 9: [0, 4]}
    part, tests = partition.split_tests(whole, dataset, 0.0, 1, 0)
    assert part.num_clients == 2 and len(tests.positions) == 3


def test_columns_equal_a_plain_evaluation_of_each_client(tmp_path):
    uneven = {"partition": "dirichlet", "dirichlet_form": "yurochkin", "alpha": 0.5}
    config = SMALL.replace(client_test=0.01, eval_clients_every=2, **uneven)  # below 100 examples: no test example
    result = fedjax_sel.run(config, out=str(tmp_path / "run"))
    # Other test examples would make other columns, so that a finished run is not that of today's data.
    assert len(json.loads((tmp_path / "run" / "result.json").read_text())["data"]["client_tests"]) == 64
    found = fedjax_sel.per_client(result, on="test")
    problem = pose(config)
    images = problem.dataset.train_images.astype(np.float32) / 255.0
    inputs = (images - np.float32(problem.dataset.mean)) / np.float32(problem.dataset.std)
    predict = jax.jit(lambda weights: result.model.apply(weights, inputs, None).prediction.argmax(axis=1))
    for seed in range(2):
        correct = np.asarray(predict(result.weights_of(seed))) == problem.dataset.train_labels
        accuracy = np.full(12, np.nan)
        for client, own in enumerate(problem.client_tests[seed].positions):
            assert found["examples"][seed, client] == len(own)
            if len(own):
                accuracy[client] = correct[own].mean()
        np.testing.assert_allclose(found["accuracy"][seed], accuracy, atol=1e-6)
        for kind, own in (("client", accuracy[:9]), ("unseen", accuracy[9:])):
            column = {name: result.measured[f"{kind}_test_{name}"][seed] for name in ("accuracy", "undefined")}
            assert np.isnan(column["accuracy"][[0, 2]]).all() and not np.isnan(column["undefined"][[1, 3]]).any()
            assert column["undefined"][-1] == np.isnan(own).sum()
            np.testing.assert_allclose(column["accuracy"][-1], np.nanmean(own), atol=1e-6)
            worst = result.measured[f"{kind}_test_worst_decile_accuracy"][seed, -1]
            np.testing.assert_allclose(worst, metrics.worst_decile(own), atol=1e-6)
    assert result.client_test_undefined[:, -1].min() > 0
    without = result.config.replace(client_test=0.0, unseen_clients=0.0)
    with pytest.raises(UserError, match="the clients have no test data; run with"):
        fedjax_sel.per_client(dataclasses.replace(result, config=without), on="test")


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    ("eval_every", "eval_clients_every", "one_pass"), [(1, 2, True), (2, 4, True), (3, 2, False), (3, 0, True)]
)
def test_one_pass_over_the_test_set_serves_the_clients_too(monkeypatch, eval_every, eval_clients_every, one_pass):
    rng = np.random.default_rng(1)
    dataset = natural(np.repeat(np.arange(6), 10), rng.integers(0, 6, 40))
    config = fedjax_sel.preset("quickstart").replace(
        num_clients=6, num_selected=3, rounds=4, chunk=2, seeds=2, partition="natural", model="logistic",
        eval_every=eval_every, eval_clients_every=eval_clients_every,
    )  # fmt: skip
    reused, client_tests = set(), evaluation.client_tests

    def watched(plan, federation, weights, of_test_set):
        reused.add(of_test_set is not None)
        return client_tests(plan, federation, weights, of_test_set)

    monkeypatch.setattr(evaluation, "client_tests", watched)
    experiment = fedjax_sel.Experiment.of(config, dataset=dataset)
    result = fedjax_sel.run(experiment)
    assert reused == {one_pass}
    found = fedjax_sel.per_client(result, experiment, on="test")
    np.testing.assert_allclose(result.client_test_accuracy[:, -1], np.nanmean(found["accuracy"], axis=1), atol=1e-6)
    defined = ~np.isnan(result.client_test_accuracy[0])
    assert defined.tolist() == [(t + 1) % (eval_clients_every or 4) == 0 or t == 3 for t in range(4)]


@pytest.mark.parametrize("feature_skew", [pytest.param("none", marks=pytest.mark.slow), "turns"])
def test_the_clients_tests_alone_are_evaluated(monkeypatch, feature_skew):
    """Not the whole training set for a fifth of it, nor the copies of other seeds under feature skew."""
    evaluated, per_example = set(), evaluation.per_example

    def watched(plan, federation, weights, inputs, targets, rows=None):
        evaluated.add((len(targets), None if rows is None else rows.shape[1]))
        return per_example(plan, federation, weights, inputs, targets, rows)

    monkeypatch.setattr(evaluation, "per_example", watched)
    monkeypatch.setattr(evaluation, "train_metrics", lambda plan, federation, params: train)
    nan = jnp.full((2,), jnp.nan)
    train = evaluation.TrainMetrics({"accuracy": nan}, *[nan] * 5)
    config = SMALL.replace(rounds=2, feature_skew=feature_skew)
    fedjax_sel.run(config)
    problem = pose(config)
    tested = sum(map(len, problem.client_tests[0].positions))
    assert evaluated == {(355, None), (len(problem.dataset.train_labels), tested)} and tested < 600


def test_strategies_know_the_training_clients_only():
    def select(key, state, now):
        assert now.env.num_clients == 9 and len(now.info.label_histogram.value) == 9
        return strategies.Selection.of(jnp.array([0, 4, 8]), now.available)

    requests = (strategies.Request("label_histogram", strategies.ALL, strategies.at_start()),)
    mine = strategies.Strategy("mine", select, requests)
    result = fedjax_sel.run(fedjax_sel.Experiment.of(SMALL, algo=mine))
    assert result.ledger.floats_up[0, 0] == 9 * 10 and result.selection_counts.shape == (2, 9)


@pytest.mark.parametrize("partition", [[], ["--partition", "skewness", "--skewness-main", "random"]])
def test_the_data_command_counts_no_example_twice(partition, capsys, tmp_path):
    left = []
    for flags in ([], ["--client-test", "0.2", "--unseen-clients", "0.25"]):  # of the second partition, clients share
        flags += [*partition, "--num-clients", "12", "--out", str(tmp_path / "clients.png")]
        assert command_line.guarded(data_command.main, flags) == 0
        left += re.findall(r"^left over +([\d,]+) examples", capsys.readouterr().out, re.MULTILINE)
    assert len(left) == 2 and left[0] == left[1]


def test_what_cannot_be():
    with pytest.raises(UserError, match=r"--num-selected: 10 exceeds the 9 clients that train; choose at most 9"):
        pose(SMALL.replace(num_selected=10))
