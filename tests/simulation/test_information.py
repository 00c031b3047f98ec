"""Facts: their values, their ages, whom they are asked of, and what they cost."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import strategies
from fedjax_sel.config import Config
from fedjax_sel.data import federation as fed
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import availability, evaluation, run
from fedjax_sel.simulation.ledger import floats_per_answer, settle
from fedjax_sel.simulation.state import env_of
from fedjax_sel.strategies import checks, contract
from fedjax_sel.strategies.facts import ALL, CANDIDATES, NEVER, SELECTED, SERVER, Request, always, at_start, every
from fedjax_sel.strategies.fedcor import importance_of
from fedjax_sel.strategies.protocol import fields_read
from fedjax_sel.training import client

N, K, T, P = 12, 3, 4, 3654  # the MLP's parameters on 4 x 4 images and 4 classes

SMALL = Config().replace(
    dataset="synthetic:train_size=240,test_size=60,num_classes=4,image_size=4",
    num_clients=N, num_selected=K, local_steps=2, batch_size=8, rounds=T, chunk=T, holdout=0.2, loss_on="holdout",
)  # fmt: skip
ONE_FULL_BATCH_STEP = dict(local_epochs=1, full_batch=True, holdout=0.0, loss_on="train", learning_rate=0.2)


UNEQUAL = dict(partition="dirichlet", alpha=1.0, dirichlet_form="yurochkin")


def watcher(*requests, ids=(2, 9, 4), candidates=None, reads=()):
    """Selects the same clients in every round and writes down what it knows in `observe` and in `update`."""
    kinds = list(dict.fromkeys(request.kind for request in requests if request.who != SERVER))

    def init(key, now):
        rounds, n = now.env.num_rounds, now.env.num_clients
        state = {"available": jnp.zeros((rounds, n), bool), "reported": jnp.zeros((rounds, len(ids)), bool)}
        for kind in kinds:
            for hook in ("observe", "update"):
                state[f"{hook}.{kind}.value"] = jnp.zeros((rounds, n), jnp.float32)
                state[f"{hook}.{kind}.age"] = jnp.zeros((rounds, n), jnp.int32)
        state.update({name: jnp.zeros((rounds, len(ids)), jnp.float32) for name in reads})
        state["metrics"] = jnp.zeros((rounds, 2, 3))
        return state

    def write_down(hook, state, now):
        state = dict(state)
        for kind in kinds:
            fact = getattr(now.info, kind)
            flat = fact.value.reshape(fact.value.shape[0], -1)[:, 0]
            state[f"{hook}.{kind}.value"] = state[f"{hook}.{kind}.value"].at[now.round].set(flat)
            state[f"{hook}.{kind}.age"] = state[f"{hook}.{kind}.age"].at[now.round].set(fact.age)
        return state

    def select(key, state, now):
        return contract.Selection(jnp.array(ids, jnp.int32), None, jnp.ones(len(ids), bool))

    def update(state, now, selection, outcome):
        state = write_down("update", state, now)
        state["reported"] = state["reported"].at[now.round].set(outcome.reported)
        for name in reads:
            state[name] = state[name].at[now.round].set(getattr(outcome, name))
        if any(request.kind == "server_metrics" for request in requests):
            both = jnp.stack([jnp.stack([jnp.float32(x) for x in side]) for side in outcome.metrics])
            state["metrics"] = state["metrics"].at[now.round].set(both)
        return state

    name_candidates = None if candidates is None else lambda key, state, now: jnp.array(candidates)
    return contract.Strategy(
        "watcher", select, tuple(requests), init, update, candidates=name_candidates,
        observe=lambda state, now: write_down("observe", state, now),
    )  # fmt: skip


def play(strategy, config=SMALL, **flat_names):
    """Runs one chunk: the strategy's last state (without the seeds' axis), the ledger, the records, the program."""
    problem = dataclasses.replace(pose(config.replace(algo="random", **flat_names)), strategy=strategy)
    checks.requests(strategy, config.data.holdout > 0, problem.config.data.server_validation != 0)
    program = run.prepare(problem)
    before = jax.device_get(program.carry)
    carry, records = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    records = jax.device_get(records)
    lengths = floats_per_answer(strategy, problem.model, problem.dataset.num_classes)
    events = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records.events)
    ledger = jax.tree.map(lambda leaf: leaf[0], settle(events, problem.model.num_params, lengths))
    return jax.tree.map(lambda leaf: leaf[0], jax.device_get(carry.strategy)), ledger, before, program


def direct_losses(program, params, part):
    """Per-example losses of each client, by plain indexing."""
    federation = jax.device_get(program.federation)
    found = []
    for k in range(N):
        start, train = federation.starts[0, k], federation.train_sizes[0, k]
        stop = start + train + federation.holdout_sizes[0, k]
        rows = federation.order[0, {"train": start, "holdout": start + train, "all": start}[part] : stop]
        rows = rows[:train] if part == "train" else rows
        images = fed.normalize(federation, jnp.asarray(federation.images[rows]))
        params_0 = jax.tree.map(lambda leaf: leaf[0], params)
        logits = np.asarray(program.plan.trainer.model.apply(params_0, images, None).prediction, np.float64)
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(rows)), federation.labels[rows]]
        found.append(losses)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "part,statistic",
    [
        ("train", "mean"),
        ("all", "rms"),
        *[
            (None, "mean"),
            ("train", "rms"),
            ("holdout", "mean"),
            ("holdout", "rms"),
            ("all", "mean"),
            (None, "rms"),
        ],
    ],
)
def test_losses_of_all_equal_direct_ones(part, statistic):
    options = (*((("on", part),) if part else ()), ("statistic", statistic))
    state, ledger, before, program = play(watcher(Request("loss", ALL, always(), options)), rounds=1, chunk=1)
    losses = direct_losses(program, before.params, part or "holdout")
    expected = [np.sqrt(np.mean(x**2)) if statistic == "rms" else x.mean() for x in losses]
    np.testing.assert_allclose(state["observe.loss.value"][0], expected, rtol=1e-5)
    assert ledger.examples_evaluated[0] == sum(map(len, losses))
    assert (ledger.floats_up[0], ledger.models_down[0], ledger.models_up[0]) == (N, N, K)


@pytest.mark.slow
def test_only_candidates_answer_what_candidates_are_asked():
    candidates = [1, 2, 5, 9, 11]
    strategy = watcher(Request("loss", CANDIDATES, always()), candidates=candidates)
    state, ledger, before, program = play(strategy)
    there = np.isin(np.arange(N), candidates)
    for t in range(T):
        np.testing.assert_array_equal(state["update.loss.age"][t], np.where(there, 0, NEVER))
    expected = [x.mean() for x in direct_losses(program, before.params, "holdout")]
    np.testing.assert_allclose(state["update.loss.value"][0][there], np.array(expected)[there], rtol=1e-5)
    assert (state["observe.loss.age"][0] == NEVER).all() and (state["observe.loss.age"][1][there] == 1).all()
    # 2 and 9 are asked and selected: one download each; 4 is selected only
    np.testing.assert_array_equal(ledger.models_down, [6] * T)
    np.testing.assert_array_equal(ledger.floats_up, [5] * T)
    np.testing.assert_array_equal(ledger.models_up, [K] * T)


def test_the_cohort_answers_before_it_trains_and_one_table_serves_two_requests():
    strategy = watcher(Request("loss", ALL, at_start()), Request("loss", SELECTED, always()))
    state, ledger, before, program = play(strategy)
    cohort = np.isin(np.arange(N), [2, 9, 4])
    expected = [x.mean() for x in direct_losses(program, before.params, "holdout")]
    np.testing.assert_allclose(state["observe.loss.value"][0], expected, rtol=1e-5)
    np.testing.assert_allclose(state["update.loss.value"][0], expected, rtol=1e-5)  # of w^0 still
    for t in range(T):
        np.testing.assert_array_equal(state["update.loss.age"][t], np.where(cohort, 0, t))
        np.testing.assert_array_equal(state["observe.loss.age"][t], np.where(cohort, min(t, 1), t))
    np.testing.assert_array_equal(ledger.models_down, [N] + [K] * (T - 1))
    np.testing.assert_array_equal(ledger.floats_up, [N + K] + [K] * (T - 1))


@pytest.mark.slow
def test_a_loss_on_a_batch():
    whole, _, before, program = play(watcher(Request("loss", ALL, always(), (("batch_size", 50),))), rounds=1, chunk=1)
    losses = direct_losses(program, before.params, "holdout")
    np.testing.assert_allclose(whole["observe.loss.value"][0], [x.mean() for x in losses], rtol=1e-5)
    part, ledger, _, _ = play(watcher(Request("loss", ALL, always(), (("batch_size", 2),))))
    value = part["observe.loss.value"][0]
    pairs = [[(a + b) / 2 for i, a in enumerate(x) for b in x[:i]] for x in losses]
    assert all(np.isclose(v, p, rtol=1e-5).any() for v, p in zip(value, pairs))  # two distinct examples
    chosen = [int(np.isclose(v, p, rtol=1e-5).argmax()) for v, p in zip(value, pairs)]
    assert len(set(chosen)) > 1  # not the same two of everybody
    np.testing.assert_array_equal(ledger.examples_evaluated, 2 * N)


@pytest.mark.slow
def test_training_losses_along_the_way():
    """Full-batch steps without dropout: the first loss is that of w^t, the second that of one step further."""
    config = SMALL.replace(**ONE_FULL_BATCH_STEP).replace(local_epochs=2, rounds=1, chunk=1)
    found = {}
    for statistic in ("mean", "last-pass", "rms-first-pass"):
        request = Request("training_loss", SELECTED, always(), (("statistic", statistic),))
        state, ledger, before, program = play(watcher(request), config)
        found[statistic] = state["update.training_loss.value"][0][[2, 9, 4]]
        assert (ledger.floats_up[0], ledger.models_down[0], ledger.examples_evaluated[0]) == (K, K, 0)
    first = direct_losses(program, before.params, "train")
    start = np.array([first[k].mean() for k in (2, 9, 4)])
    second = []
    for k in (2, 9, 4):
        params = jax.tree.map(lambda leaf: leaf[0], before.params)
        part = fed.train_part(program.federation, jnp.int32(0), jnp.int32(k))
        gradient = Weights(client.gradient(program.plan.trainer, program.federation, params, part))
        further = jax.tree.map(lambda w, g: w - 0.2 * g, params, gradient)
        second.append(float(client.loss(program.plan.trainer, program.federation, further, part)))
    np.testing.assert_allclose(found["rms-first-pass"], [np.sqrt((first[k] ** 2).mean()) for k in (2, 9, 4)], rtol=1e-5)
    np.testing.assert_allclose(found["last-pass"], second, rtol=1e-4)
    np.testing.assert_allclose(found["mean"], (start + second) / 2, rtol=1e-4)


@pytest.mark.slow
def test_who_trains_to_answer_trains_as_the_cohort_does():
    """With an optimizer that goes on: the update that is bought is the one that the cohort then reports."""

    def update(state, now, selection, outcome):
        bought = now.info.update.value[selection.ids]
        reported = jax.vmap(lambda update: jax.flatten_util.ravel_pytree(update)[0])(outcome.updates)
        return state.at[now.round].set(jnp.stack([jnp.abs(bought - reported).max(), jnp.abs(reported).max()]))

    strategy = watcher(Request("update", ALL, always()))._replace(
        init=lambda key, now: jnp.zeros((T, 2)), update=update, observe=contract.keep_state
    )
    difference, size = play(strategy, momentum=0.9, momentum_buffer="persistent")[0].T
    assert (difference < 1e-5).all() and (size > 1e-3).all()


@pytest.mark.slow
def test_candidates_that_train_are_billed_once():
    request = Request("training_loss", CANDIDATES, always())
    _, ledger, _, _ = play(watcher(request, candidates=[2, 9, 4, 0, 1]))
    np.testing.assert_array_equal(ledger.examples_trained, 5 * 2 * 8)  # the cohort is among them
    np.testing.assert_array_equal(ledger.models_down, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "also",
    [
        {"optimizer": "fedavgm", "report_failure_rate": 0.3, "momentum": 0.5, "momentum_buffer": "persistent"},
        {},
        {"optimizer": "fedyogi", "server_learning_rate": 0.1, "report_failure_rate": 0.3},
        {"optimizer": "fedadam", "aggregation": "samples", **UNEQUAL},
        {"aggregation": "global-samples", **UNEQUAL},
        {"aggregation": "unbiased", "report_failure_rate": 0.3},
        {"server_optimizer": "sgd", "server_learning_rate": 0.3},
        {"optimizer": "fednova", "server_optimizer": "adam", "server_learning_rate": 0.01, "momentum": 0.9},
    ],
    ids=lambda also: "-".join(map(str, also.values())) or "fedavg",
)
def test_a_probe_of_everyone_foretells_the_next_losses(also):
    """Full participation, full batches: the discarded probe is the very step that the round then takes.

    So it is with a server that remembers, of which the probe takes the step and leaves the memory alone.
    """
    config = SMALL.replace(**ONE_FULL_BATCH_STEP).replace(num_selected=N, **also)
    strategy = watcher(
        Request("loss_change", ALL, always(), (("probes", 2),)), Request("loss", ALL, always()), ids=tuple(range(N))
    )
    strategy = strategy._replace(inclusion=lambda state, now: jnp.ones(N))
    state, ledger, _, program = play(strategy, config)
    losses = state["observe.loss.value"]
    np.testing.assert_allclose(state["observe.loss_change.value"][:-1], losses[1:] - losses[:-1], atol=2e-6)
    sizes = np.asarray(program.federation.train_sizes)[0]
    lost = ledger.reports_lost // 3  # by each probe as by the cohort
    assert (lost.sum() > 0) == ("report_failure_rate" in also)
    np.testing.assert_array_equal(ledger.models_down, N + 2 * N)
    np.testing.assert_array_equal(ledger.models_up, (N - lost) + 2 * (N - lost))
    reported = 3 * N if also.get("optimizer") == "fednova" else 0  # how far each went, in the probes, too
    np.testing.assert_array_equal(ledger.floats_up, 3 * N + N + reported)
    np.testing.assert_array_equal(ledger.examples_trained, 3 * sizes.sum())
    np.testing.assert_array_equal(ledger.examples_evaluated, 4 * sizes.sum())


@pytest.mark.slow
def test_probes_are_random_cohorts_on_schedule():
    strategy = watcher(Request("loss_change", ALL, every(2, offset=1), (("probes", 1),)))
    state, ledger, _, _ = play(strategy)
    np.testing.assert_array_equal(state["observe.loss_change.age"][:, 0], [NEVER, 0, 1, 0])
    np.testing.assert_array_equal(ledger.models_down, [K, 2 * N, K, 2 * N])  # the base serves the cohort
    np.testing.assert_array_equal(ledger.models_up, [K, 2 * K, K, 2 * K])
    assert (state["observe.loss_change.value"][1] != state["observe.loss_change.value"][3]).any()


@pytest.mark.slow
def test_a_probe_whose_model_is_restored_changes_no_loss_and_costs_what_probes_cost():
    """`try_federated_learning` of GPFL's authors: everything is sent, and the losses are those of the round's model."""
    request = Request("loss_change", ALL, every(2, offset=1), (("probes", 2), ("restored", True)))
    state, ledger, _, _ = play(watcher(request))
    np.testing.assert_array_equal(state["observe.loss_change.age"][:, 0], [NEVER, 0, 1, 0])
    assert (state["observe.loss_change.value"][1:] == 0).all()
    np.testing.assert_array_equal(ledger.models_down, [K, 3 * N, K, 3 * N])
    np.testing.assert_array_equal(ledger.models_up, [K, 3 * K, K, 3 * K])
    np.testing.assert_array_equal(ledger.floats_up, [0, 3 * N, 0, 3 * N])
    np.testing.assert_array_equal(ledger.examples_trained[[1, 3]], 3 * ledger.examples_trained[[0, 2]])
    assert (ledger.examples_evaluated[[1, 3]] > 0).all() and (ledger.losses_replaced == 0).all()


@pytest.mark.slow
def test_label_histograms_need_no_model():
    state, ledger, _, program = play(watcher(Request("label_histogram", ALL, at_start())))
    np.testing.assert_array_equal(state["observe.label_histogram.value"][0], program.federation.label_counts[0, :, 0])
    np.testing.assert_array_equal(ledger.models_down, K)
    np.testing.assert_array_equal(ledger.floats_up, [4 * N, 0, 0, 0])


def test_who_cannot_be_reached_neither_answers_nor_trains():
    request = Request("loss", ALL, always())
    state, ledger, _, _ = play(watcher(request), available=0.6, rounds=8, chunk=8)
    there = state["observe.loss.age"] == 0
    assert 0.35 < there.mean() < 0.85 and (there != there[0]).any()
    np.testing.assert_array_equal(ledger.floats_up, there.sum(axis=1))
    np.testing.assert_array_equal(ledger.models_down, there.sum(axis=1))
    np.testing.assert_array_equal(state["reported"], there[:, [2, 9, 4]])
    np.testing.assert_array_equal(ledger.models_up, there[:, [2, 9, 4]].sum(axis=1))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("asked", ["available", "all"])
def test_all_clients_or_those_available_in_round_1_answer_before_it(asked):
    settings = {"available": 0.6, "rounds": 8, "chunk": 8}
    there = fedjax_sel.availability_table(SMALL.replace(**settings))
    known, ledger, _, _ = play(watcher(Request("loss", ALL, at_start())), start_queries=asked, **settings)
    answered = there[0] if asked == "available" else np.ones(N, bool)
    assert 0 < there[0].sum() < N
    np.testing.assert_array_equal(known["observe.loss.age"][0] < NEVER, answered)
    np.testing.assert_array_equal(known["observe.loss.age"][-1] < NEVER, answered)  # the others are not asked later
    np.testing.assert_array_equal(ledger.floats_up, [answered.sum(), *[0] * 7])


@pytest.mark.slow
def test_a_probe_trains_those_who_are_there():
    strategy = watcher(Request("loss_change", ALL, always(), (("probes", 1),)))
    state, ledger, _, _ = play(strategy, available=0.3, rounds=12, chunk=12)
    there = state["observe.loss_change.age"] == 0
    count = there.sum(axis=1)
    assert count.min() < K < count.max()
    np.testing.assert_array_equal(ledger.models_up, state["reported"].sum(axis=1) + np.minimum(count, K))
    np.testing.assert_array_equal(ledger.models_down, 2 * count)  # the model, and the probe's


@pytest.mark.slow
def test_random_selection_takes_those_who_are_there():
    problem = pose(SMALL.replace(algo="random", available=0.3, rounds=20, chunk=20, num_selected=6))
    program = run.prepare(problem)
    _, records = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    trained = (np.asarray(records.cohort)[:, 0] >= 0).sum(axis=1)
    assert trained.min() < 6 and trained.max() >= 3
    np.testing.assert_array_equal(records.events.models_down[:, 0], trained)


@pytest.mark.slow
@pytest.mark.parametrize("on_nan", ["largest", "missing"])
def test_a_loss_that_is_not_finite_is_replaced_and_counted(monkeypatch, on_nan):
    real = client.loss

    def broken(trainer, federation, params, segment, statistic="mean"):
        bad = segment.start < federation.starts[0, 1]  # client 0
        return jnp.where(bad, jnp.nan, real(trainer, federation, params, segment, statistic))

    monkeypatch.setattr(client, "loss", broken)
    state, ledger, _, _ = play(watcher(Request("loss", ALL, always(), (("nonfinite", on_nan),))))
    values = state["observe.loss.value"][0]
    assert values[0] == values[1:].max()
    assert state["observe.loss.age"][0, 0] == (0 if on_nan == "largest" else NEVER)
    np.testing.assert_array_equal(ledger.losses_replaced, 1)


@pytest.mark.slow
def test_losses_of_the_outcome_are_finite_too(monkeypatch):
    real = client.loss

    def broken(trainer, federation, params, segment, statistic="mean"):
        bad = segment.start < federation.starts[0, 3]  # clients 0 to 2, and 2 is in the cohort
        return jnp.where(bad, jnp.inf - jnp.inf, real(trainer, federation, params, segment, statistic))

    monkeypatch.setattr(client, "loss", broken)
    state, ledger, _, _ = play(watcher(reads=("losses_before",)))
    losses = state["losses_before"]
    np.testing.assert_array_equal(losses[:, 0], losses[:, 1:].max(axis=1))
    np.testing.assert_array_equal(ledger.losses_replaced, 1)  # those after training are not read


def test_sanitising():
    values = jnp.array([1.0, jnp.nan, jnp.inf, -jnp.inf, 3.0, jnp.nan])
    finite, missing, replaced = availability.replace_nonfinite(values, jnp.array([True] * 5 + [False]))
    np.testing.assert_array_equal(finite, np.float32([1, 3, 1e6, -1e6, 3, 3]))
    np.testing.assert_array_equal(missing, [False, True, True, True, False, False])
    assert replaced == 3
    finite, _, _ = availability.replace_nonfinite(
        jnp.array([jnp.nan, 1.0]), jnp.ones(2, bool), 3.0
    )  # somebody's from before
    np.testing.assert_array_equal(finite, [3.0, 1.0])
    finite, _, _ = availability.replace_nonfinite(jnp.array([jnp.nan, jnp.nan]), jnp.ones(2, bool))
    np.testing.assert_array_equal(finite, np.float32([1e6, 1e6]))


def test_the_servers_own_losses_are_bounded():
    """The loss of an average is its only weight, times each of the server's two examples."""
    task = types.SimpleNamespace(losses=lambda prediction, targets: prediction)
    model = types.SimpleNamespace(apply=lambda weights, batch, key: types.SimpleNamespace(prediction=weights * batch))
    request = Request("subset_loss", SERVER, always(), (("subsets", 4),))
    plan = types.SimpleNamespace(
        strategy=types.SimpleNamespace(name="mine", requests=(request,)), evaluation_block=2,
        trainer=types.SimpleNamespace(task=task, model=model),
    )  # fmt: skip
    federation = types.SimpleNamespace(server_images=jnp.ones(2), server_labels=jnp.ones(2), scale=None, shift=None)
    updates = jnp.float32([5e6, jnp.nan, -jnp.inf])
    losses = evaluation.subsets(plan, federation, evaluation.CohortModels(updates, jnp.ones(3), jnp.float32(0.5)))
    masks = jnp.concatenate([jnp.eye(3, dtype=bool), jnp.zeros((1, 3), bool)])
    np.testing.assert_array_equal(losses(masks), np.float32([1e6, 1e6, -1e6, 0.5]))


@pytest.mark.slow
def test_losses_that_come_with_the_upload_are_billed_if_they_are_read():
    for reads in ((), ("losses_before",), ("losses_before", "losses_after")):
        _, ledger, _, program = play(watcher(reads=reads))
        np.testing.assert_array_equal(ledger.floats_up, K * len(reads))
        held = np.asarray(program.federation.holdout_sizes)[0, [2, 9, 4]].sum()
        np.testing.assert_array_equal(ledger.examples_evaluated, held * len(reads))


def test_what_a_function_reads():
    given = {"x": jnp.ones(2), "y": jnp.ones(3), "z": jnp.ones(())}
    found = fields_read(lambda a, b: (a["x"] + 1, jnp.where(a["z"] > 0, 1, 0)), given, jnp.ones(1))
    assert found == ({"x": True, "y": False, "z": True}, False)
    assert fields_read(lambda a: (a, jnp.sum(a) * 0)[1], jnp.ones(2)) == (True,)
    assert fields_read(lambda a, b: a, jnp.ones(2), jnp.ones(2)) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("on", ["validation", "test"])
def test_the_servers_own_evaluation(on):
    strategy = watcher(Request("server_metrics", SERVER, always(), (("on", on),)))
    config = SMALL.replace(server_validation=0.1, num_clients=N)
    state, ledger, before, program = play(strategy, config)
    federation = jax.device_get(program.federation)
    images, labels = (
        (federation.test_images, federation.test_labels)
        if on == "test"
        else (federation.server_images, federation.server_labels)
    )
    evaluated = np.array([2, 1, 1, 1])  # w^0 and w^1, then one new model a round
    np.testing.assert_array_equal(ledger.server_examples, evaluated * len(labels))
    params = jax.tree.map(lambda leaf: leaf[0], before.params)
    logits = program.plan.trainer.model.apply(params, fed.normalize(federation, jnp.asarray(images)), None).prediction
    correct = (np.asarray(logits).argmax(axis=1) == labels).sum()
    first = state["metrics"][0, 0]
    assert first[0] == correct and np.isclose(first[1], correct / len(labels))
    losses = -jax.nn.log_softmax(logits)[np.arange(len(labels)), labels]
    np.testing.assert_allclose(first[2], losses.mean(), rtol=1e-5)
    np.testing.assert_array_equal(state["metrics"][1:, 0], state["metrics"][:-1, 1])  # after is the next before
    assert (state["metrics"][:, 0] != state["metrics"][:, 1]).any()


@pytest.mark.slow
@pytest.mark.parametrize("on,lost", [("validation", 0.0), ("test", 0.4)])
def test_the_servers_loss_of_averages_of_subsets(on, lost):
    masks = jnp.array([[False] * K, [True] * K, [True, False, False], [False, True, True]])
    requests = tuple(
        Request(kind, SERVER, always(), (("on", on), *own))
        for kind, own in (("server_metrics", ()), ("subset_loss", (("subsets", len(masks)),)))
    )

    def update(state, now, selection, outcome):
        both = jnp.stack([outcome.metrics.before.loss, outcome.metrics.after.loss])
        updates = jax.tree.map(lambda leaf: leaf[0], outcome.updates)
        return {
            "losses": state["losses"].at[now.round].set(outcome.subset_loss(masks)),
            "metrics": state["metrics"].at[now.round].set(both),
            "first": jax.tree.map(lambda old, new: jnp.where(now.round == 0, new, old), state["first"], updates),
            "heard": state["heard"].at[now.round].set(outcome.reported),
        }

    def init(key, now):
        first = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), now.env.params)
        zeros, heard = jnp.zeros((T, len(masks))), jnp.zeros((T, K), bool)
        return {"losses": zeros, "metrics": jnp.zeros((T, 2)), "first": first, "heard": heard}

    strategy = watcher(*requests)._replace(init=init, update=update, observe=contract.keep_state)
    state, ledger, before, program = play(strategy, SMALL, server_validation=0.1, report_failure_rate=lost)
    np.testing.assert_allclose(state["losses"][:, :2], state["metrics"], rtol=1e-5)  # of nobody, of everybody
    assert (state["heard"].all() and lost == 0) or not state["heard"].all()
    nobody = ~(masks[None] & state["heard"][:, None]).any(axis=2)
    assert (np.isclose(state["losses"], state["metrics"][:, :1], rtol=1e-5) == nobody).all()

    federation = jax.device_get(program.federation)
    images, labels = (
        (federation.test_images, federation.test_labels)
        if on == "test"
        else (federation.server_images, federation.server_labels)
    )
    own = jax.tree.map(lambda leaf, change: leaf[0] + change, before.params.trained, state["first"])
    inputs = fed.normalize(federation, jnp.asarray(images))
    logits = program.plan.trainer.model.apply(Weights(own), inputs, None).prediction
    losses = -jax.nn.log_softmax(logits)[np.arange(len(labels)), labels]
    np.testing.assert_allclose(state["losses"][0, 2], losses.mean(), rtol=1e-5)
    np.testing.assert_array_equal(ledger.server_examples, (np.array([2, 1, 1, 1]) + len(masks)) * len(labels))


def test_calling_for_losses_of_subsets_unasked_or_of_another_number_is_an_error():
    def update(state, now, selection, outcome):
        return state + outcome.subset_loss(jnp.ones((2, K), bool)).sum()

    for requests, words in (
        ((), "reads the fact 'subset_loss' without buying it"),
        ((Request("subset_loss", SERVER, always()),), r"the mask is bool \[2, 3\], but subsets=1 was requested"),
    ):
        strategy = watcher(*requests)._replace(
            init=lambda key, now: jnp.zeros(()), update=update, observe=contract.keep_state
        )
        with pytest.raises(UserError, match=words):
            play(strategy, SMALL, server_validation=0.1)


@pytest.mark.slow
def test_an_update_norm_is_the_length_of_the_update():
    def update(state, now, selection, outcome):
        whole = jnp.linalg.norm(now.info.update.value, axis=1)
        return state.at[now.round].set(jnp.stack([now.info.update_norm.value, whole]))

    requests = (Request("update", ALL, always()), Request("update_norm", ALL, always()))
    strategy = watcher(*requests)._replace(
        init=lambda key, now: jnp.zeros((T, 2, N)), update=update, observe=contract.keep_state
    )
    state, ledger, _, program = play(strategy)
    np.testing.assert_allclose(state[:, 0], state[:, 1], rtol=1e-5)
    sent = program.plan.trainer.model.num_params + 1
    assert (state > 0).all() and ledger.floats_up[0] == N * sent and ledger.models_down[0] == N


@pytest.mark.slow
def test_a_strategy_finds_the_output_layer():
    def init(key, now):
        assert now.env.output_layer.bias_of(now.env.params).shape == (now.env.num_classes,)
        return jnp.zeros((T, 2, N, now.env.num_classes))

    def update(state, now, selection, outcome):
        layer = now.env.output_layer
        free = jnp.zeros_like(state[0, 0]).at[selection.ids].set(layer.bias_of(outcome.updates))
        flat, like = now.info.update.value, jax.tree.map(lambda leaf: leaf[0], outcome.updates)
        bought = layer.bias_of(jax.vmap(jax.flatten_util.ravel_pytree(like)[1])(flat))
        return state.at[now.round].set(jnp.stack([free, bought]))

    strategy = watcher(Request("update", ALL, always()))._replace(init=init, update=update, observe=contract.keep_state)
    found = play(strategy)[0]
    np.testing.assert_allclose(found[:, 0, [2, 9, 4]], found[:, 1, [2, 9, 4]], atol=1e-6)
    assert np.abs(found[:, 0, [2, 9, 4]]).min() > 0


def test_the_server_takes_its_share_of_every_label_before_the_clients():
    problem = pose(SMALL.replace(server_validation=0.25, algo="random"))
    labels, own = problem.dataset.train_labels, problem.dataset.server_labels
    whole = pose(SMALL.replace(algo="random")).dataset
    np.testing.assert_array_equal(np.bincount(own), np.round(0.25 * np.bincount(whole.train_labels)))
    assert len(labels) + len(own) == 240

    def rows(images):
        return sorted(image.tobytes() for image in images)

    assert rows([*problem.dataset.train_images, *problem.dataset.server_images]) == rows(whole.train_images)


def test_reading_the_servers_metrics_unasked_is_an_error():
    def update(state, now, selection, outcome):
        return state + outcome.metrics.after.accuracy

    strategy = watcher()._replace(init=lambda key, now: jnp.zeros(()), update=update, observe=contract.keep_state)
    with pytest.raises(contract.UndeclaredFactError, match="'watcher' reads the fact 'server_metrics'"):
        play(strategy)


@pytest.mark.parametrize(
    "request_,sentence",
    [
        (Request("loss", "neighbors", always()), "from 'neighbors'; request it from all or candidates or selected"),
        (Request("loss", CANDIDATES, always()), "no `candidates` function"),
        (Request("loss", SELECTED, at_start()), "only 'all' can answer at_start()"),
        (Request("loss", ALL, always(), (("onn", "train"),)), "did you mean 'on'"),
        (Request("loss", ALL, always(), (("on", "test"),)), "give one of train, holdout, all"),
        (Request("loss", ALL, always(), (("batch_size", 0),)), "give a whole number of at least 1"),
        (Request("loss", ALL, always(), (("on", "holdout"),)), "add --holdout 0.2"),
        (Request("server_metrics", SERVER, every(2)), "use always()"),
        (Request("server_metrics", SERVER, always()), "add --server-validation 0.05"),
        (Request("update", SELECTED, always()), "request it from all or candidates"),
    ],
)
def test_requests_that_cannot_be_served(request_, sentence):
    with pytest.raises(UserError) as caught:
        checks.requests(watcher(request_), has_holdout=False, server_has_data=False)
    assert sentence in str(caught.value) and "watcher" in str(caught.value)


def test_one_table_holds_one_measure():
    strategy = watcher(Request("loss", ALL, at_start()), Request("loss", SELECTED, always(), (("on", "all"),)))
    with pytest.raises(UserError, match="twice with different options"):
        checks.requests(strategy)


def test_strategies_are_told_how_much_clients_hold_out():
    unequal = SMALL.replace(partition="dirichlet", dirichlet_form="yurochkin", alpha=2.0, holdout=0.3, algo="fedcor")
    program = run.prepare(pose(unequal))
    train, held = (np.asarray(program.federation._asdict()[f"{part}_sizes"])[0] for part in ("train", "holdout"))
    assert np.abs(train / train.sum() - (train + held) / (train + held).sum()).max() > 1e-4
    env = env_of(program.plan, program.federation, program.carry.params.trained)
    importance = jax.vmap(lambda env: importance_of(env, "shares"))(env)[0]
    np.testing.assert_allclose(importance, (train + held) / (train + held).sum(), rtol=1e-6)


@pytest.mark.slow
def test_a_round_without_requests_buys_nothing():
    _, ledger, _, _ = play(strategies.make("random"))
    for name in ("floats_up", "floats_down", "examples_evaluated", "server_examples", "losses_replaced"):
        np.testing.assert_array_equal(getattr(ledger, name), 0)
    np.testing.assert_array_equal(ledger.models_down, K)
