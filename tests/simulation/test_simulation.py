"""The round and the run: identities that hold whatever the strategy."""

import dataclasses
import logging
from types import SimpleNamespace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr

from fedjax_sel import Experiment, devices, metrics, models, strategies
from fedjax_sel.config import Config
from fedjax_sel.data import federation as fed
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models.core import Weights
from fedjax_sel.simulation import keys, layout, run
from fedjax_sel.simulation import round as rounds
from fedjax_sel.simulation.ledger import floats_per_answer, settle
from fedjax_sel.strategies import checks, contract, facts
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.training import client

SMALL = Config().replace(
    dataset="synthetic:train_size=240,test_size=60,num_classes=4,image_size=4",
    num_clients=12,
    num_selected=3,
    local_steps=4,
    batch_size=8,
    rounds=6,
    chunk=3,
    model_dropout=0.5,
    holdout=0.2,
    loss_on="holdout",
)


def records_of(config, **flat_names):
    """All records of a run, leaves [rounds, S, ...], and the last carry."""
    program = run.prepare(pose(config.replace(**flat_names)))
    return collect(program)


def collect(program):
    parts = [jax.device_get(chunk.records) for chunk in run.chunks(program)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def assert_same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def assert_close(a, b, atol=1e-5):
    """Equal cohorts and counts, close values."""
    np.testing.assert_array_equal(a.cohort, b.cohort)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=atol)


@pytest.fixture(scope="module")
def two_seeds():
    return records_of(SMALL, seeds=2, train_metrics_every=2)


@pytest.mark.slow
def test_the_same_configuration_gives_the_same_bits(two_seeds):
    assert_same_bits(two_seeds, records_of(SMALL, seeds=2, train_metrics_every=2))


@pytest.mark.parametrize("place,seed", [pytest.param(0, 0, marks=pytest.mark.slow), (1, 1)])
def test_seeds_together_equal_seeds_alone(two_seeds, place, seed):
    alone = records_of(SMALL, seeds=f"{seed},", train_metrics_every=2)
    assert_close(jax.tree.map(lambda leaf: leaf[:, place : place + 1], two_seeds), alone)
    assert (two_seeds.cohort[:, 0] != two_seeds.cohort[:, 1]).any()


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(6, marks=pytest.mark.slow)])
def test_the_chunk_length_changes_nothing(two_seeds, chunk):
    other = records_of(SMALL, seeds=2, train_metrics_every=2, chunk=chunk)  # 4 leaves a short last chunk
    assert len(other.measured["gemd"]) == 6
    assert_close(two_seeds, other)


@pytest.mark.slow
def test_measurements_come_when_asked_for(two_seeds):
    assert not np.isnan(two_seeds.measured["test_accuracy"]).any()
    np.testing.assert_array_equal(np.isnan(two_seeds.measured["train_accuracy"][:, 0]), [True, False] * 3)
    sparse = records_of(SMALL, eval_every=4)
    np.testing.assert_array_equal(np.isnan(sparse.measured["test_loss"][:, 0]), [True, True, True, False, True, False])
    assert np.isnan(sparse.measured["train_loss"]).all()


def six_rounds(program):
    """The first six rounds as one program that donates nothing."""
    rounds = jax.jit(run.rounds(program.plan, 6))
    return rounds(program.carry, jnp.int32(0), program.federation, program.streams)


@pytest.mark.slow
@pytest.mark.parametrize(
    "groups,share,clients_at_once",
    [
        (1, 1, 0),
        (1, 1, 4),
        (1, 2, 1),
        # 3 clients of 2 seeds for 2 devices, two at a time: padded twice
        (1, 2, 2),
        (2, 1, 0),
    ],
)
def test_devices_and_grouping_change_nothing(two_seeds, monkeypatch, groups, share, clients_at_once):
    assert len(jax.devices()) == 2
    row = np.array(jax.devices()[: groups * share])
    some = jax.sharding.Mesh(row.reshape(groups, share), (devices.SEEDS, devices.CLIENTS))
    monkeypatch.setattr(devices, "make_mesh", lambda *_: some)
    assert_close(two_seeds, records_of(SMALL, seeds=2, train_metrics_every=2, cohort_batch=clients_at_once))


def test_nothing_is_compiled_after_the_first_chunk(caplog, monkeypatch):
    monkeypatch.setattr(run, "one_round", chex.assert_max_traces(run.one_round, n=1))
    program = run.prepare(pose(SMALL.replace(rounds=12)))
    pieces = run.chunks(program)
    next(pieces)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for _ in pieces:
            pass
    assert not [
        record for record in caplog.records if "Compiling" in record.getMessage() and "chunk" in record.getMessage()
    ]
    assert program.chunk._cache_size() == 1


@pytest.mark.slow
def test_a_state_that_adapts_its_type_at_first_compiles_no_second_program():
    """`jnp.full((n,), 0.5)` adapts to what it meets (`weak_type`), and after an update it no longer does."""
    plain = strategies.make("random")

    def init(key, now):
        return jnp.full((now.env.num_clients,), 0.5)

    def update(state, now, selection, outcome):
        return state * jnp.ones(state.shape, jnp.float32)

    adapting = Strategy("adapting", plain.select, init=init, update=update)
    program = run.prepare(pose(Experiment.of(SMALL.replace(rounds=12), algo=adapting)))
    assert len(list(run.chunks(program))) > 1
    assert program.chunk._cache_size() == 1


def largest_constant(jaxpr):
    """The size of the largest array that a program has for itself, at any depth."""
    sizes = [*map(np.size, jaxpr.consts)]
    for equation in jaxpr.jaxpr.eqns:
        inner = jax.tree.leaves(equation.params, is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr))
        sizes += [largest_constant(leaf) for leaf in inner if isinstance(leaf, ClosedJaxpr)]
    return max(sizes, default=0)


@pytest.mark.slow
def test_data_are_arguments_and_the_carry_is_donated():
    program = run.prepare(pose(SMALL))
    given = program.carry, jnp.int32(0), program.federation, program.streams
    assert largest_constant(jax.make_jaxpr(program.chunk)(*given)) < 100
    captured = jax.jit(lambda carry: program.chunk(carry, *given[1:]))
    assert largest_constant(jax.make_jaxpr(captured)(program.carry)) > 1000  # they would be found
    before = program.carry.params
    program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))


@pytest.mark.slow
def test_two_strategies_train_a_common_client_on_the_same_batches():
    """The update of a client in a round depends on the model, the round and the client, not on the strategy."""
    problem = pose(SMALL)
    programs = [run.prepare(dataclasses.replace(problem, strategy=always(ids))) for ids in ([3, 5, 7], [7, 1, 3])]
    updates = []
    for program in programs:
        step = jax.jit(run.rounds(program.plan, 1))
        carry, _ = step(program.carry, jnp.int32(0), program.federation, program.streams)
        updates.append(carry.strategy)
    for a, b in zip(jax.tree.leaves(updates[0]), jax.tree.leaves(updates[1])):
        np.testing.assert_allclose(a[:, 0], b[:, 2], atol=1e-6)  # client 3
        np.testing.assert_allclose(a[:, 2], b[:, 0], atol=1e-6)  # client 7


def always(ids, **fields):
    """A strategy that selects the same clients in every round and keeps what came back."""
    ids = jnp.array(ids, jnp.int32)

    def init(key, now):
        model = models.make("mlp", (4, 4, 1), 4, 0.5)
        shapes = jax.eval_shape(model.init, jax.random.key(0)).trained
        return jax.tree.map(lambda leaf: jnp.zeros((now.env.num_selected, *leaf.shape)), shapes)

    def select(key, state, now):
        return contract.Selection(ids, None, jnp.ones(len(ids), bool))

    def update(state, now, selection, outcome):
        return outcome.updates

    return contract.Strategy("always", select, init=init, update=update, **fields)


@pytest.mark.slow
def test_full_participation_with_one_full_batch_step_is_centralised_gradient_descent():
    config = SMALL.replace(
        partition="dirichlet", alpha=1.0, dirichlet_form="yurochkin", num_selected=12, holdout=0.0, loss_on="train",
        local_epochs=1, full_batch=True, model_dropout=0.0, aggregation="samples", learning_rate=0.3, algo="random",
    )  # fmt: skip
    problem = pose(config)
    program = run.prepare(problem)
    assert len(set(np.asarray(program.federation.train_sizes)[0])) > 3  # unequal clients
    held = np.asarray(program.federation.order[0][np.asarray(program.federation.owner[0]) < 12])
    images = fed.normalize(program.federation, program.federation.images[held])
    labels = program.federation.labels[held]

    def loss(params):
        logits = problem.model.apply(params, images, None).prediction
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])

    params = jax.tree.map(lambda leaf: leaf[0], program.carry.params)
    expected = params
    for _ in range(6):
        expected = jax.tree.map(lambda w, g: w - 0.3 * g, expected, jax.grad(loss)(expected))
    carry, _ = six_rounds(program)
    for a, b in zip(jax.tree.leaves(carry.params), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a[0], b, atol=2e-5)


@pytest.mark.slow
def test_evaluation_equals_a_direct_one():
    config = SMALL.replace(train_metrics_every=1, seeds=2, rounds=1, chunk=1, dataset=SMALL.data.dataset)
    problem = pose(config)
    program = run.prepare(problem)
    federation = jax.device_get(program.federation)
    carry, records = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    for s in range(2):
        params = jax.tree.map(lambda leaf, s=s: leaf[s], carry.params)

        def scores(images, labels, params=params):
            logits = np.asarray(
                problem.model.apply(params, fed.normalize(federation, jnp.asarray(images)), None).prediction
            )
            logits = logits.astype(np.float64)
            losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
            return logits.argmax(axis=1) == labels, losses

        correct, losses = scores(federation.test_images, federation.test_labels)
        np.testing.assert_allclose(records.measured["test_accuracy"][0, s], correct.mean(), rtol=1e-6)
        np.testing.assert_allclose(records.measured["test_loss"][0, s], losses.mean(), rtol=1e-5)
        by_client, all_correct, all_losses = [], [], []
        for k in range(12):
            start, size = federation.starts[s, k], federation.train_sizes[s, k]
            rows = federation.order[s, start : start + size]
            correct, losses = scores(federation.images[rows], federation.labels[rows])
            by_client.append(correct.mean())
            all_correct.extend(correct)
            all_losses.extend(losses)
        np.testing.assert_allclose(records.measured["train_accuracy"][0, s], np.mean(all_correct), rtol=1e-6)
        np.testing.assert_allclose(records.measured["train_loss"][0, s], np.mean(all_losses), rtol=1e-5)
        np.testing.assert_allclose(records.measured["worst_decile_accuracy"][0, s], min(by_client), rtol=1e-6)
        np.testing.assert_allclose(records.measured["gini_accuracy"][0, s], metrics.gini_index(by_client), rtol=1e-4)
        np.testing.assert_allclose(records.measured["jain_accuracy"][0, s], metrics.jain_index(by_client), rtol=1e-5)


@pytest.mark.slow
def test_more_test_examples_than_a_block_and_no_multiple_of_it(two_seeds, monkeypatch):
    small = models.TABLE["mlp"]._replace(cpu_block=17)
    monkeypatch.setitem(models.TABLE, "mlp", small)
    assert_close(two_seeds, records_of(SMALL, seeds=2, train_metrics_every=2))


@pytest.mark.slow
def test_a_step_in_pieces_is_the_same_step(two_seeds, monkeypatch):
    monkeypatch.setitem(models.TABLE, "mlp", models.TABLE["mlp"]._replace(cpu_micro_batch=3))
    config = SMALL.replace(seeds=2, cohort_batch=1)
    assert layout.lay_out(pose(config), 2).plan.trainer.micro_batch == 3
    assert_close(two_seeds, records_of(config, train_metrics_every=2))


def test_clients_who_train_together_take_whole_steps(monkeypatch):
    monkeypatch.setitem(models.TABLE, "mlp", models.TABLE["mlp"]._replace(cpu_micro_batch=3))
    trainer = layout.lay_out(pose(SMALL.replace(cohort_batch=0)), 1).plan.trainer
    assert trainer.micro_batch == trainer.work.batch_size > 3


def ledger_of(config, **flat_names):
    config = config.replace(**flat_names)
    problem = pose(config)
    program = run.prepare(problem)
    records = collect(program)
    events = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records.events)
    lengths = floats_per_answer(problem.strategy, problem.model, problem.dataset.num_classes)
    return settle(events, problem.model.num_params, lengths), problem, program


@pytest.mark.slow
@pytest.mark.parametrize(
    "profile",
    [
        "fc1",
        "gradient",
        "representative-gradient",
    ],
)
def test_ledger_of_fl_dp3s_equals_its_closed_form(profile):
    ledger, problem, _ = ledger_of(SMALL, seeds=2, algo_args={"profile": profile})
    n, k, t, p = 12, 3, 6, problem.model.num_params
    floats = 64 if profile == "fc1" else p
    np.testing.assert_array_equal(ledger.models_down, [[n] + [k] * (t - 1)] * 2)  # the start serves the first cohort
    np.testing.assert_array_equal(ledger.models_up, [[k] * t] * 2)
    np.testing.assert_array_equal(ledger.floats_up, [[n * floats] + [0] * (t - 1)] * 2)
    np.testing.assert_array_equal(ledger.floats_down, 0)
    np.testing.assert_array_equal(ledger.bytes_down, ledger.models_down * p * 4)
    np.testing.assert_array_equal(ledger.bytes_up, ledger.models_up * p * 4 + ledger.floats_up * 4)
    a_client = 4 * 8  # local steps of a full batch
    training = profile == "representative-gradient"
    start_trained, start_evaluated = (n * a_client, 0) if training else (0, 240)
    np.testing.assert_array_equal(ledger.examples_trained, [[k * a_client + start_trained] + [k * a_client] * 5] * 2)
    np.testing.assert_array_equal(ledger.examples_evaluated, [[start_evaluated] + [0] * 5] * 2)


@pytest.mark.slow
def test_ledger_counts_distinct_clients_and_their_own_examples():
    config = SMALL.replace(
        algo="random", algo_args={"variant": "md"}, num_selected=8, partition="dirichlet", dirichlet_form="yurochkin",
        alpha=0.5, local_epochs=2,
    )  # fmt: skip
    ledger, _, program = ledger_of(config)
    cohorts = collect(run.prepare(pose(config))).cohort[:, 0]
    sizes = np.asarray(program.federation.train_sizes)[0]
    assert (cohorts == -1).any()  # somebody was drawn twice
    for t, cohort in enumerate(cohorts):
        trained = cohort[cohort >= 0]
        assert len(set(trained)) == len(trained)
        assert ledger.models_down[0, t] == ledger.models_up[0, t] == len(trained)
        assert ledger.examples_trained[0, t] == 2 * sizes[trained].sum()


@pytest.mark.slow
def test_facts_are_bought_on_schedule_age_and_are_billed():
    """A strategy of a user's own: profiles in rounds 1 and 4, whose ages it writes down."""
    when = facts.every(3, offset=1)

    def init(key, now):
        return jnp.zeros((now.env.num_rounds,), jnp.int32)

    def select(key, state, now):
        return contract.Selection(jnp.arange(3, dtype=jnp.int32), None, jnp.ones(3, bool))

    def update(state, now, selection, outcome):
        return state.at[now.round].set(now.info.profile.age[0])

    strategy = contract.Strategy("mine", select, (facts.Request("profile", facts.ALL, when),), init=init, update=update)
    problem = dataclasses.replace(pose(SMALL.replace(chunk=6)), strategy=strategy)
    program = run.prepare(problem)
    carry, records = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    assert carry.strategy[0].tolist() == [facts.NEVER, 0, 1, 2, 0, 1]
    np.testing.assert_array_equal(records.events.models_down[:, 0], [3, 12, 3, 3, 12, 3])
    np.testing.assert_array_equal(records.events.answers[:, 0, 0], [0, 12, 0, 0, 12, 0])
    assert float(jnp.abs(carry.info.profile.value).sum()) > 0


def test_a_request_nobody_serves_is_refused():
    strategy = always([0, 1, 2], requests=(facts.Request("weather", facts.ALL, facts.always()),))
    with pytest.raises(ValueError, match="'always' requests 'weather'; the simulator serves loss"):
        checks.requests(strategy)


@pytest.mark.slow
def test_losses_of_the_cohort_are_those_of_its_held_out_data():
    seen = {}

    def select(key, state, now):
        return contract.Selection(jnp.array([2, 9, 4], jnp.int32), None, jnp.ones(3, bool))

    def update(state, now, selection, outcome):
        return {"before": outcome.losses_before, "after": outcome.losses_after}

    def init(key, now):
        return {"before": jnp.zeros(3), "after": jnp.zeros(3)}

    problem = pose(SMALL.replace(rounds=1, chunk=1))
    program = run.prepare(
        dataclasses.replace(problem, strategy=contract.Strategy("losses", select, init=init, update=update))
    )
    params = jax.tree.map(lambda leaf: np.asarray(leaf[0]), program.carry.params)
    federation = jax.device_get(program.federation)
    carry, _ = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    for place, k in enumerate((2, 9, 4)):
        start = federation.starts[0, k] + federation.train_sizes[0, k]
        rows = federation.order[0, start : start + federation.holdout_sizes[0, k]]
        logits = problem.model.apply(
            params, fed.normalize(federation, jnp.asarray(federation.images[rows])), None
        ).prediction
        expected = -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(rows)), federation.labels[rows]])
        seen[k] = (carry.strategy["before"][0, place], expected)
        np.testing.assert_allclose(*seen[k], rtol=1e-4)
    assert (carry.strategy["after"] != carry.strategy["before"]).all()


def test_purposes_have_streams_of_their_own():
    assert keys.roots([0, 1], {}).privacy is None
    free = keys.streams(keys.roots([0, 1], {}, private=True))
    fixed = keys.streams(keys.roots([0, 1], {"model": 7}))
    assert (jax.random.key_data(fixed.model[0]) == jax.random.key_data(fixed.model[1])).all()
    for name in ("selection", "training"):
        assert (jax.random.key_data(getattr(free, name)) == jax.random.key_data(getattr(fixed, name))).all()
    drawn = {tuple(np.asarray(jax.random.key_data(k))) for stream in free for k in stream}
    assert len(drawn) == 2 * len(keys.Streams._fields)


def test_a_clients_training_key_depends_on_seed_round_and_client_alone():
    streams = keys.streams(keys.roots([0, 1], {}))

    def drawn(ids, round=4):
        ids = jnp.array([ids, ids])
        cohort = SimpleNamespace(selection=SimpleNamespace(ids=ids), reports=SimpleNamespace(mask=ids >= 0))
        context: Any = SimpleNamespace(streams=streams, round=jnp.int32(round))
        _, _, found, _ = rounds.training_jobs(context, cohort)  # pyright: ignore[reportArgumentType]
        return np.asarray(jax.random.key_data(found)).reshape(2, 3, -1)

    one, other = drawn([3, 5, 7]), drawn([7, 1, 3])
    np.testing.assert_array_equal(one[:, [0, 2]], other[:, [2, 0]])
    assert (one[0] != one[1]).any() and (one != drawn([3, 5, 7], 5)).any()
    assert len(np.unique(one.reshape(6, -1), axis=0)) == 6


def test_the_learning_rate_falls_after_the_round_of_its_milestone():
    config = SMALL.replace(learning_rate=0.2, learning_rate_milestones=(3,), learning_rate_decay=0.5)
    rate = layout.lay_out(pose(config), 1).plan.trainer.learning_rate
    np.testing.assert_allclose([rate(jnp.int32(round)) for round in (2, 3, 4)], [0.2, 0.1, 0.1])  # rounds from 0


def test_a_fixed_seed_fixes_what_it_names():
    same_data = pose(SMALL.replace(seeds=2, data_seed=5))
    assert same_data.partitions[0].digest() == same_data.partitions[1].digest()
    own_data = pose(SMALL.replace(seeds=2))
    assert own_data.partitions[0].digest() != own_data.partitions[1].digest()
    program = run.prepare(pose(SMALL.replace(seeds=2, model_seed=3)))
    for leaf in jax.tree.leaves(program.carry.params):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    own_model = run.prepare(pose(SMALL.replace(seeds=2))).carry.params
    assert any((leaf[0] != leaf[1]).any() for leaf in jax.tree.leaves(own_model))


@pytest.mark.slow
def test_skipping_an_update_that_is_not_finite_leaves_the_others(monkeypatch):
    real = client.train_and_report

    def broken(trainer, federation, params, replicate, who, *rest):
        result = real(trainer, federation, params, replicate, who, *rest)
        return result._replace(update=jax.tree.map(lambda leaf: jnp.where(who == 5, jnp.nan, leaf), result.update))

    monkeypatch.setattr(client, "train_and_report", broken)
    problem = pose(SMALL.replace(on_nonfinite="skip", rounds=1, chunk=1))
    with_it = run.prepare(dataclasses.replace(problem, strategy=always([3, 5, 7])))
    carry, records = with_it.chunk(with_it.carry, jnp.int32(0), with_it.federation, with_it.streams)
    np.testing.assert_array_equal(records.nonfinite[0, 0], [False, True, False])
    smaller = pose(SMALL.replace(rounds=1, chunk=1, num_selected=2))
    without = run.prepare(dataclasses.replace(smaller, strategy=always([3, 7])))
    expected, _ = without.chunk(without.carry, jnp.int32(0), without.federation, without.streams)
    for a, b in zip(jax.tree.leaves(carry.params), jax.tree.leaves(expected.params)):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.slow
def test_a_clients_momentum_goes_on_where_it_stopped():
    """Two rounds of one step equal the same steps with a buffer that is carried by hand (GPFL Eq. 1)."""
    config = SMALL.replace(
        local_epochs=1, full_batch=True, model_dropout=0.0, learning_rate=0.2, holdout=0.0, loss_on="train",
        momentum=0.5, momentum_buffer="persistent", rounds=3, chunk=3,
    )  # fmt: skip
    ids = [3, 5, 7]
    program = run.prepare(dataclasses.replace(pose(config), strategy=always(ids)))
    trainer, federation = program.plan.trainer, program.federation
    params = jax.tree.map(lambda leaf: leaf[0], program.carry.params)
    buffers = [jax.tree.map(jnp.zeros_like, params) for _ in ids]

    def gradient(params, k):
        part = fed.train_part(federation, jnp.int32(0), jnp.int32(k))
        return Weights(client.gradient(trainer, federation, params, part))

    for _ in range(3):
        buffers = [jax.tree.map(lambda b, g: 0.5 * b + g, b, gradient(params, k)) for b, k in zip(buffers, ids)]
        params = jax.tree.map(lambda w, *b: w - 0.2 * sum(b) / 3, params, *buffers)
    carry, _ = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    for a, b in zip(jax.tree.leaves(carry.params), jax.tree.leaves(params)):
        np.testing.assert_allclose(a[0], b, atol=1e-5)
    for leaf in jax.tree.leaves(carry.clients.optimizer):
        touched = np.asarray(jnp.abs(leaf[0]).reshape(12, -1).sum(axis=1)) > 0
        assert set(np.flatnonzero(touched)) <= set(ids)
