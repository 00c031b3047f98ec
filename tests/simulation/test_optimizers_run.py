"""Federated optimizers inside the simulator: twins over whole rounds, bills, weights, and every strategy under each."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import models, strategies
from fedjax_sel.config import Config
from fedjax_sel.data import federation as fed
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models.core import Weights
from fedjax_sel.runs import reading
from fedjax_sel.simulation import keys, run
from fedjax_sel.simulation.ledger import floats_per_answer, settle
from fedjax_sel.strategies import contract
from fedjax_sel.strategies.facts import SELECTED
from fedjax_sel.training import client, optimizers, schedule, server
from tests.killed import run_until_killed
from tests.strategies.hooks import env_of, info_of, now_of, started

N, K = 12, 3
SMALL = Config().replace(
    dataset="synthetic:train_size=300,test_size=40,num_classes=4,image_size=4", num_clients=N, num_selected=K,
    partition="dirichlet", alpha=1.0, dirichlet_form="yurochkin", aggregation="samples", learning_rate=0.2,
    algo="random", rounds=4, chunk=4,
)  # fmt: skip
RULES = ("uniform", "samples", "global-samples")
EXACT = {"full_batch": True, "local_epochs": 3}  # every step on the gradient of all a client's data


def in_turns():
    """Selects others in each round, some of them again, and keeps what came back."""

    def init(key, now):
        shapes = jax.eval_shape(models.make("mlp", (4, 4, 1), 4).init, jax.random.key(0)).trained
        return jax.tree.map(lambda leaf: jnp.zeros((now.env.num_selected, *leaf.shape)), shapes)

    def select(key, state, now):
        ids = (2 * now.round + jnp.arange(K, dtype=jnp.int32)) % N
        return contract.Selection(ids, None, jnp.ones(K, bool))

    return contract.Strategy(
        "in_turns", select, init=init, update=lambda state, now, selection, outcome: outcome.updates
    )


def program_of(**flat_names):
    return run.prepare(dataclasses.replace(pose(SMALL.replace(**flat_names)), strategy=in_turns()))


def play(program, first=0):
    carry, records = program.chunk(program.carry, jnp.int32(first), program.federation, program.streams)
    return jax.device_get(carry), jax.device_get(records)


def ravel(tree):
    """The first replicate's leaves as one vector."""
    return np.concatenate([np.asarray(leaf[0], np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def sizes_of(program):
    return np.asarray(program.federation.train_sizes)[0]


@pytest.mark.slow
def test_scaffold_equals_its_twin_over_rounds_with_changing_cohorts():
    program = program_of(optimizer="scaffold", server_learning_rate=0.8, **EXACT)
    trainer, federation, sizes = program.plan.trainer, program.federation, sizes_of(program)
    assert len(set(sizes)) > 3
    start, rebuild = jax.flatten_util.ravel_pytree(jax.tree.map(lambda leaf: leaf[0], program.carry.params))

    @jax.jit
    def gradient(w, k):
        part = fed.train_part(federation, jnp.int32(0), k)
        return jax.flatten_util.ravel_pytree(client.gradient(trainer, federation, rebuild(w), part))[0]

    w, c, own = np.asarray(start), np.zeros(len(start)), np.zeros((N, len(start)))
    for t in range(4):
        cohort = (2 * t + np.arange(K)) % N
        updates, changes = [], []
        for k in cohort:
            y = w
            for _ in range(3):
                y = y - 0.2 * (np.asarray(gradient(jnp.float32(y), k)) - own[k] + c)
            changes.append(-c + (w - y) / (3 * 0.2))
            updates.append(y - w)
        w = w + 0.8 * np.average(updates, axis=0, weights=sizes[cohort])
        c = c + np.sum(changes, axis=0) / N
        own[cohort] += changes
    carry, _ = play(program)
    np.testing.assert_allclose(ravel(carry.params), w, atol=2e-5)
    np.testing.assert_allclose(ravel(carry.shared), c, atol=2e-5)
    np.testing.assert_allclose(ravel(carry.shared), own.mean(0), atol=2e-5)
    found = np.concatenate([leaf[0].reshape(N, -1) for leaf in jax.tree.leaves(carry.clients.own)], axis=1)
    np.testing.assert_allclose(found, own, atol=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "failure",
    [
        {"report_failure_rate": 0.5},
        {"on_nonfinite": "skip", "learning_rate": 1e18},
    ],
)
def test_scaffolds_variate_of_the_server_stays_the_mean_of_the_clients(failure):
    """Also where reports are lost, or are left out because they are not finite."""
    carry, records = play(program_of(optimizer="scaffold", local_epochs=2, **failure))
    lost = records.events.reports_lost.sum() + records.events.updates_skipped.sum()
    assert lost > 0
    for own, shared in zip(jax.tree.leaves(carry.clients.own), jax.tree.leaves(carry.shared)):
        np.testing.assert_allclose(own.mean(axis=1), shared, rtol=1e-3, atol=1e-5 * max(1.0, np.abs(shared).max()))
        assert np.isfinite(own).all()


@pytest.mark.slow
def test_scaffolds_first_round_is_fedavgs_and_a_later_one_is_not():
    params = [
        [ravel(play(program_of(optimizer=name, rounds=rounds, chunk=rounds))[0].params) for rounds in (1, 3)]
        for name in ("scaffold", "fedavg")
    ]
    np.testing.assert_allclose(params[0][0], params[1][0], atol=1e-6)
    assert np.abs(params[0][1] - params[1][1]).max() > 1e-3


@pytest.mark.slow
def test_fednova_averages_directions():
    program = program_of(optimizer="fednova", rounds=1, chunk=1, local_epochs=2, batch_size=4)
    before, sizes = ravel(program.carry.params), sizes_of(program)[:K]
    carry, _ = play(program)
    steps = 2 * -(-sizes // 4)
    assert len(set(steps)) > 1
    updates = np.concatenate([leaf[0].reshape(K, -1) for leaf in jax.tree.leaves(carry.strategy)], axis=1)
    weights = sizes / sizes.sum()
    expected = before + (weights @ steps) * ((weights / steps) @ updates)
    np.testing.assert_allclose(ravel(carry.params), expected, atol=1e-6)
    plain, _ = play(program_of(optimizer="fedavg", rounds=1, chunk=1, local_epochs=2, batch_size=4))
    for mine, theirs in zip(jax.tree.leaves(plain.strategy), jax.tree.leaves(carry.strategy)):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)  # the strategy sees the same updates
    assert np.abs(ravel(plain.params) - expected).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", RULES)
def test_fednova_of_equal_steps_is_fedavg(aggregation):
    work = {"local_steps": 5, "batch_size": 4, "momentum": 0.5, "aggregation": aggregation}
    nova, average = (ravel(play(program_of(optimizer=name, **work))[0].params) for name in ("fednova", "fedavg"))
    np.testing.assert_allclose(nova, average, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedprox", "fednova"])
def test_mu_zero_is_no_proximal_term_and_a_large_mu_holds_clients(name):
    work = {"local_epochs": 2, "batch_size": 4}
    start = ravel(program_of().carry.params)
    reference = "fedavg" if name == "fedprox" else "fednova"
    without = ravel(play(program_of(optimizer=reference, **work))[0].params)
    found = ravel(play(program_of(optimizer=name, optimizer_args={"mu": 0}, **work))[0].params)
    np.testing.assert_allclose(found, without, atol=1e-6)
    held = ravel(play(program_of(optimizer="fedprox", optimizer_args={"mu": 4.0}, **work))[0].params)
    assert np.linalg.norm(held - start) < 0.8 * np.linalg.norm(without - start)


@pytest.mark.slow
def test_losses_that_select_do_not_contain_the_proximal_term():
    program = program_of(optimizer="fedprox", optimizer_args={"mu": 3.0}, **EXACT)
    trainer, federation = program.plan.trainer, program.federation
    w_t = jax.tree.map(lambda leaf: leaf[0], program.carry.params)
    part = fed.train_part(federation, jnp.int32(0), jnp.int32(5))
    arguments = (trainer, federation, w_t, jnp.int32(0), jnp.int32(5), jax.random.key(0), jnp.int32(0))
    result = jax.jit(lambda: client.train_and_report(*arguments, statistic="mean"))()
    w, losses = w_t, []
    for _ in range(3):
        losses.append(float(client.loss(trainer, federation, w, part)))
        gradient = Weights(client.gradient(trainer, federation, w, part))
        w = jax.tree.map(lambda w, g, start: w - 0.2 * (g + 3.0 * (w - start)), w, gradient, w_t)
    np.testing.assert_allclose(result.training_loss, np.mean(losses), rtol=1e-5)
    for a, b, start in zip(*map(jax.tree.leaves, (result.update, w, w_t))):
        np.testing.assert_allclose(a, b - start, atol=1e-6)


@pytest.mark.slow
def test_a_persistent_client_optimizer_by_name_goes_on_where_it_stopped():
    named = {"client_optimizer": "adam", "momentum_buffer": "persistent", "learning_rate": 0.01}
    carry, _ = play(program_of(**named))
    counts = carry.clients.optimizer.model[0][0].count[0]  # steps that each client's Adam has taken
    program = program_of(**named)
    rounds = np.bincount(np.concatenate([(2 * t + np.arange(K)) % N for t in range(4)]), minlength=N)
    steps = 5 * -(-sizes_of(program) // 10)
    np.testing.assert_array_equal(counts, rounds * steps)


@pytest.mark.slow
def test_a_persistent_momentum_buffer_is_counted_where_updates_are_divided_by_how_far_a_client_went():
    """SCAFFOLD and FedNova: |a|_1 of a client goes on with its buffer, which holds (1 - rho^n) / (1 - rho) after n."""
    carry, _ = play(program_of(optimizer="fednova", momentum=0.9, momentum_buffer="persistent"))
    program = program_of()
    rounds = np.bincount(np.concatenate([(2 * t + np.arange(K)) % N for t in range(4)]), minlength=N)
    steps = rounds * 5 * -(-sizes_of(program) // 10)
    assert len(set(steps)) > 4 and (steps == 0).any()
    (buffer,) = jax.tree.leaves(carry.clients.optimizer.unit)
    np.testing.assert_allclose(buffer[0], (1 - 0.9**steps) / (1 - 0.9), rtol=1e-5)


@pytest.mark.slow
def test_scaffold_learns_with_a_persistent_momentum_buffer():
    """Where |a|_1 is of a fresh buffer, variates are up to four times too long, and the loss ends above FedAvg's."""
    config = fedjax_sel.preset("quickstart").replace(
        num_clients=20, num_selected=4, local_epochs=None, local_steps=5, learning_rate=0.02, momentum=0.9,
        momentum_buffer="persistent", rounds=60, chunk=60, seeds=2, algo="random",
    )  # fmt: skip
    averaged, scaffold = (fedjax_sel.run(config.replace(optimizer=name)).test_loss for name in ("fedavg", "scaffold"))
    assert scaffold[:, -10:].mean() < 0.8 * averaged[:, -10:].mean()


@pytest.mark.slow
def test_a_server_optimizer_by_name_is_optaxs():
    import optax

    program = program_of(server_optimizer="adam", server_optimizer_args={"b1": 0.8}, server_learning_rate=0.05)
    adam = optax.adam(0.05, b1=0.8)
    params = jax.tree.map(lambda leaf: leaf[0], program.carry.params)
    state = adam.init(params)
    single = program_of(chunk=1)  # plain averaging, from the model of the named one
    for t in range(4):
        started = jax.tree.map(jnp.copy, single.carry)  # which the program takes
        started = started._replace(params=jax.tree.map(lambda leaf: leaf[None], params))
        after, _ = single.chunk(started, jnp.int32(t), single.federation, single.streams)
        mean = jax.tree.map(lambda new, old: new[0] - old, after.params, params)
        change, state = adam.update(jax.tree.map(jnp.negative, mean), state, params)
        params = optax.apply_updates(params, change)
    carry, _ = play(program)
    np.testing.assert_allclose(ravel(carry.params), ravel(jax.tree.map(lambda leaf: leaf[None], params)), atol=2e-5)


@pytest.mark.slow
def test_a_server_that_remembers_takes_no_step_when_nobody_reports():
    config = SMALL.replace(optimizer="fedavgm", num_selected=1, report_failure_rate=0.6, rounds=10, chunk=10)
    result = fedjax_sel.run(config)
    lost = result.ledger.reports_lost[0, 1:] == 1
    assert 0 < lost.sum() < 9
    same = result.test_loss[0, 1:] == result.test_loss[0, :-1]
    np.testing.assert_array_equal(same, lost)


@pytest.mark.slow
def test_the_step_that_strategies_see_is_the_servers_own():
    """GPFL's direction D under FedYogi: w^(t+1) - w^t, and not the mean update."""
    strategy = in_turns()._replace(
        init=lambda key, now: jax.tree.map(
            jnp.zeros_like, models.make("mlp", (4, 4, 1), 4).init(jax.random.key(0)).trained
        ),
        update=lambda state, now, selection, outcome: outcome.step,
    )
    config = SMALL.replace(optimizer="fedyogi", optimizer_args={"tau": 0.1}, rounds=1, chunk=1)
    program = run.prepare(dataclasses.replace(pose(config), strategy=strategy))
    before = ravel(program.carry.params)
    carry, _ = play(program)
    np.testing.assert_allclose(ravel(carry.strategy), ravel(carry.params) - before, atol=1e-7)
    assert np.abs(ravel(carry.strategy)).max() <= 0.01  # of its learning rate


# ---- weights ----


@pytest.mark.slow
def test_global_samples_leave_the_rest_with_the_old_model():
    program = program_of(aggregation="global-samples", rounds=1, chunk=1)
    before, sizes = ravel(program.carry.params), sizes_of(program)
    carry, _ = play(program)
    updates = np.concatenate([leaf[0].reshape(K, -1) for leaf in jax.tree.leaves(carry.strategy)], axis=1)
    np.testing.assert_allclose(ravel(carry.params), before + sizes[:K] / sizes.sum() @ updates, atol=1e-6)


def expected_mean(law, inclusion, sizes, updates):
    """The mean update over all cohorts of a law: subset -> probability."""
    total, sums = sizes.sum(), 0.0
    for cohort, probability in law.items():
        ids = np.array(cohort)
        weights = server.cohort_weights(
            "unbiased", jnp.asarray(sizes[ids]), jnp.ones(len(ids), bool), total, jnp.asarray(inclusion[ids])
        )
        sums = sums + probability * (np.asarray(weights) @ updates[ids])
    return sums


def select_all_of(strategy, sizes, k, info=None, number=400, available=None):
    """What a strategy answers to many keys, [number, k], and how often it says it selects each client, [N]."""
    now = now_of(env_of(sizes, k), info)
    state, now = started(strategy, now), now._replace(available=available)
    draws = jax.random.split(jax.random.key(1), number)
    answers = jax.vmap(lambda key: strategy.select(key, state, now))(draws)
    return np.asarray(answers.ids), np.asarray(strategy.inclusion(state, now))


@pytest.mark.parametrize("there", [None, np.array([True, False, True, True, True])])
def test_unbiased_weights_of_random_cohorts(there):
    sizes, k, rng = np.array([5, 1, 9, 20, 3]), 2, np.random.default_rng(0)
    updates = rng.normal(size=(5, 3))
    available = None if there is None else jnp.asarray(there)
    _, inclusion = select_all_of(strategies.make("random"), sizes, k, available=available)
    clients = np.arange(5) if there is None else np.flatnonzero(there)
    np.testing.assert_allclose(inclusion, k / len(clients), rtol=1e-6)
    law = {cohort: 1.0 for cohort in itertools.combinations(clients, k)}
    law = {cohort: 1 / len(law) for cohort in law}
    found = expected_mean(law, np.full(5, k / len(clients), np.float32), sizes, updates)
    np.testing.assert_allclose(found, (sizes / sizes.sum())[clients] @ updates[clients], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("there", [None, np.array([True, True, False, True, True, True])])
def test_unbiased_weights_of_diverse_cohorts(there):
    """FL-DP3S's k-DPP by enumeration: inclusion probabilities and the mean update over all cohorts."""
    sizes, k, rng = np.array([5, 1, 9, 20, 3, 7]), 3, np.random.default_rng(0)
    updates, profiles = rng.normal(size=(6, 2)), rng.normal(size=(6, 4))
    available = None if there is None else jnp.asarray(there)
    ids, inclusion = select_all_of(strategies.make("fl_dp3s"), sizes, k, info_of(profile=profiles), available=available)
    distances = np.linalg.norm(profiles[:, None] - profiles[None], axis=2)
    similarity = 1 - distances / distances.max()
    kernel = similarity.T @ similarity
    clients = range(6) if there is None else np.flatnonzero(there)
    law = {cohort: np.linalg.det(kernel[np.ix_(cohort, cohort)]) for cohort in itertools.combinations(clients, k)}
    law = {cohort: value / sum(law.values()) for cohort, value in law.items()}
    exact = np.array([sum(p for cohort, p in law.items() if i in cohort) for i in range(6)])
    clients = np.arange(6) if there is None else np.flatnonzero(there)
    np.testing.assert_allclose(inclusion[clients], exact[clients], rtol=2e-3)
    seen = np.bincount(ids.ravel(), minlength=6) / len(ids)
    assert (np.abs(seen - exact) < 5 * np.sqrt(exact * (1 - exact) / len(ids)) + 1e-6).all()
    found = expected_mean(law, exact.astype(np.float32), sizes, updates)
    shares = (sizes / sizes.sum()) * (1.0 if there is None else there)
    np.testing.assert_allclose(found, shares @ updates, rtol=1e-4)
    assert (jnp.linalg.eigvalsh(kernel) > 0).sum() == 6


FEW = SMALL.replace(
    dataset="synthetic:train_size=60,test_size=8,num_classes=4,image_size=4", num_clients=5, num_selected=2, alpha=2.0,
    rounds=1, chunk=1, local_epochs=1, batch_size=2, data_seed=0, model_seed=0, training_seed=0,
)  # fmt: skip


def all_at_once(k):
    """Selects everyone and keeps the updates."""
    shapes = jax.eval_shape(models.make("mlp", (4, 4, 1), 4).init, jax.random.key(0)).trained
    return contract.Strategy(
        "all", lambda key, state, now: contract.Selection(jnp.arange(k), None, jnp.ones(k, bool)),
        init=lambda key, now: jax.tree.map(lambda leaf: jnp.zeros((k, *leaf.shape)), shapes),
        update=lambda state, now, selection, outcome: outcome.updates,
    )  # fmt: skip


def weights_in_many_runs(number, **flat_names):
    """The weight that each client's update has in the step of the first round, [number, 5]; and the clients' shares.

    Data, model and batches are the same in all runs; who is reached, selected and heard of differs.
    """
    program = run.prepare(dataclasses.replace(pose(FEW.replace(num_selected=5)), strategy=all_at_once(5)))
    start, sizes = ravel(program.carry.params), sizes_of(program)
    carry, _ = play(program)
    updates = np.concatenate([leaf[0].reshape(5, -1) for leaf in jax.tree.leaves(carry.strategy)], axis=1)
    program = run.prepare(pose(FEW.replace(aggregation="unbiased", seeds=number, **flat_names)))
    np.testing.assert_array_equal(sizes_of(program), sizes)
    carry, _ = play(program)
    leaves = [np.asarray(leaf, np.float64).reshape(number, -1) for leaf in jax.tree.leaves(carry.params)]
    weights, residuals, *_ = np.linalg.lstsq(updates.T, (np.concatenate(leaves, axis=1) - start).T)
    assert residuals.max() < 1e-8 and len(set(sizes)) > 3
    return weights.T, sizes / sizes.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo,parameters,failures",
    [
        ("random", {}, {"available": 0.6, "report_failure_rate": 0.25}),
        ("random", {"variant": "md"}, {"available": 0.6, "report_failure_rate": 0.25}),
        ("random", {}, {}),
        ("random", {}, {"available": 0.3}),
        ("fl_dp3s", {}, {"available": 0.6}),
        ("clustered", {}, {"report_failure_rate": 0.4}),
    ],
)
def test_unbiased_steps_are_those_of_all_whoever_is_away_or_lost(algo, parameters, failures):
    """On average over runs a client's update has the weight p_k: away and lost clients are made up for."""
    weights, shares = weights_in_many_runs(1500, algo=algo, algo_args=parameters, **failures)
    deviation = weights.std(axis=0) / np.sqrt(len(weights))
    assert (deviation < 0.1 * shares).all()
    assert (np.abs(weights.mean(axis=0) - shares) < 4.5 * deviation).all()
    total = weights.sum(axis=1)
    assert np.abs(total.mean() - 1) < 4.5 * total.std() / np.sqrt(len(total))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["uniform-wor", "md"])
def test_unbiased_steps_are_those_of_who_is_there_where_a_file_says_who_is(variant, tmp_path):
    there = np.array([True, True, False, True, False])
    (tmp_path / "who.csv").write_text("\n".join("1" if here else "0" for here in there))
    failures = {"available": str(tmp_path / "who.csv"), "report_failure_rate": 0.25}
    weights, shares = weights_in_many_runs(1000, algo_args={"variant": variant}, **failures)
    expected = np.where(there, shares, 0) / shares[there].sum()
    deviation = weights.std(axis=0) / np.sqrt(len(weights))
    assert (np.abs(weights.mean(axis=0) - expected) < 4.5 * deviation + 1e-5).all()


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "algo,parameters", [("random", {"variant": "md"}), ("clustered", {}), ("clustered", {"variant": "size"})]
)
def test_weights_of_their_own_are_unbiased_where_strategies_say_how_often_they_draw(algo, parameters):
    """r / K for a client drawn r times: on average p_k, its share of the data."""
    sizes, k, number = np.array([5, 1, 9, 20, 3]), 2, 6000
    strategy = strategies.make(algo, **parameters)
    now = now_of(env_of(sizes, k))
    state = started(strategy, now)
    draws = jax.random.split(jax.random.key(1), number)
    answers = jax.vmap(lambda key: strategy.select(key, state, now))(draws)
    shares = sizes / sizes.sum()
    np.testing.assert_allclose(strategy.inclusion(state, now), k * shares, rtol=1e-5)
    weights = np.zeros((number, 5))
    np.add.at(weights, (np.arange(number)[:, None], np.asarray(answers.ids)), np.asarray(answers.weights))
    deviation = weights.std(axis=0) / np.sqrt(number)
    assert (np.abs(weights.mean(axis=0) - shares) < 5 * deviation + 1e-6).all()


@pytest.mark.slow
def test_a_strategy_that_cannot_say_how_often_it_selects_is_refused():
    refused = {"fedcor": {}, "divfl": {}, "random": {"variant": "weighted-wor"}, "fl_dp3s": {"pool": 8}}
    for algo, parameters in refused.items():
        with pytest.raises(
            UserError, match="--aggregation: 'unbiased' needs the expected number of selections per client"
        ):
            pose(SMALL.replace(algo=algo, algo_args=parameters, aggregation="unbiased"))
    allowed = {"clustered": ({}, {"variant": "size"}), "random": ({}, {"variant": "md"}), "fl_dp3s": ({},)}
    for algo, parameters in ((algo, one) for algo, several in allowed.items() for one in several):
        pose(SMALL.replace(algo=algo, algo_args=parameters, aggregation="unbiased"))


# ---- unequal work ----


@pytest.mark.slow
def test_a_range_of_epochs_is_drawn_for_client_and_round_alike_under_every_strategy():
    work = {"local_epochs": "1:4", "batch_size": 4, "seeds": 2}
    taken = {}
    for algo in ("random", "oort"):
        program = run.prepare(pose(SMALL.replace(algo=algo, **work)))
        _, records = play(program)
        local, sizes = program.plan.trainer.work, np.asarray(program.federation.train_sizes)
        assert local.varies
        for t, s in itertools.product(range(4), range(2)):
            expected = 0
            for k in records.cohort[t, s]:
                key = keys.client_key(program.streams.training[s], jnp.int32(t), jnp.int32(k))
                passes = int(schedule.epochs(local, key))
                assert taken.setdefault((t, s, int(k)), passes) == passes
                expected += passes * sizes[s, k]
            assert records.events.examples_trained[t, s] == expected
    assert set(taken.values()) == {1, 2, 3, 4}


@pytest.mark.slow
def test_clients_of_unequal_work_train_as_long_as_they_are_billed_for():
    program = program_of(local_epochs="1:4", batch_size=4, optimizer="fednova", rounds=1, chunk=1)
    trainer, federation, streams = program.plan.trainer, program.federation, program.streams
    for k in range(4):
        key = keys.client_key(streams.training[0], jnp.int32(0), jnp.int32(k))
        params = jax.tree.map(lambda leaf: leaf[0], program.carry.params)
        result = client.train_and_report(trainer, federation, params, jnp.int32(0), jnp.int32(k), key, jnp.int32(0))
        passes = int(schedule.epochs(trainer.work, key))
        size = sizes_of(program)[k]
        assert int(result.num_examples) == passes * size
        assert float(result.coefficient) == passes * -(-size // 4)


# ---- bills ----


def ledger_of(algo, algo_args=(), **flat_names):
    config = SMALL.replace(algo=algo, algo_args=dict(algo_args), rounds=5, chunk=5, **flat_names)
    problem = pose(config)
    _, records = play(run.prepare(problem))
    lengths = floats_per_answer(problem.strategy, problem.model, problem.dataset.num_classes)
    events = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records.events)
    return jax.tree.map(
        lambda leaf: leaf[0], settle(events, problem.model.num_params, lengths)
    ), problem.model.num_params


TRAIN_FIRST = {"variant": "train-first", "num_candidates": 5}
FEDCOR = {"warmup": 2, "interval": 2, "warmup_steps": 2, "steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo,algo_args",
    [
        ("random", {}),
        ("fedcor", FEDCOR),
        ("pow_d", TRAIN_FIRST),
    ],
)
def test_scaffold_sends_a_vector_with_every_model_that_trains(algo, algo_args):
    """FedCor's probes train K clients more; the five candidates of Pow-d's first phase receive the vector too."""
    plain, p = ledger_of(algo, algo_args)
    ledger, _ = ledger_of(algo, algo_args, optimizer="scaffold")
    np.testing.assert_array_equal(ledger.models_down, plain.models_down)
    np.testing.assert_array_equal(ledger.models_up, plain.models_up)
    trained = plain.models_down if algo == "pow_d" else plain.models_up  # probes send what they trained
    assert (trained.max() > K) == (algo != "random")
    np.testing.assert_array_equal(ledger.floats_down, trained * p)
    np.testing.assert_array_equal(ledger.floats_up - plain.floats_up, np.full(5, K * p))
    np.testing.assert_array_equal(ledger.bytes_down, 4 * p * (ledger.models_down + trained))
    if algo == "random":
        np.testing.assert_array_equal(ledger.bytes_down, 2 * plain.bytes_down)
        np.testing.assert_array_equal(ledger.bytes_up, 2 * plain.bytes_up)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,floats",
    [("fednova", 1), *((name, 0) for name in ("fedprox", "fedyogi", "fedavgm"))],
)
def test_other_optimizers_send_next_to_nothing(name, floats):
    plain, _ = ledger_of("random")
    ledger, _ = ledger_of("random", optimizer=name)
    np.testing.assert_array_equal(ledger.floats_up, floats * K)
    np.testing.assert_array_equal(ledger.bytes_down, plain.bytes_down)
    np.testing.assert_array_equal(ledger.bytes_up, plain.bytes_up + 4 * floats * K)


# ---- bad input ----


@pytest.mark.parametrize(
    "given,message",
    [
        (
            {"client_optimizer": "adam", "momentum": 0.9},
            "--client-optimizer adam: --momentum 0.9 applies to sgd only; add --moment",
        ),
        ({"client_optimizer": "adam", "weight_decay": 0.1}, "--weight-decay 0.1 applies to sgd only"),
        ({"client_optimizer_args": "b1=0.5"}, "--client-optimizer-args b1=0.5: sgd takes no arguments here"),
        ({"server_optimizer": "adam"}, "its learning rate is missing; add --server-learning-rate 0.01"),
        ({"server_optimizer": "adam", "optimizer": "fedyogi"}, "fedyogi has its own server optimizer"),
        ({"server_optimizer_args": "b1=0.5"}, "no --server-optimizer is given"),
        ({"server_optimizer": "amda", "server_learning_rate": 1}, "--server-optimizer: unknown 'amda'; did you mean"),
        ({"optimizer": "fedproxx"}, "--optimizer: unknown 'fedproxx'; did you mean 'fedprox'"),
        ({"optimizer_args": "mu=1"}, "--optimizer-args of fedavg: unknown 'mu'"),
        ({"server_learning_rate": 0}, "--server-learning-rate: 0.0 must be above 0"),
        ({"local_epochs": "3:1"}, "'3:1' has its bounds reversed; give 1:3"),
        ({"local_epochs": "0:2"}, "'0:2' is not a whole number from 1 to 10000, or a range of them such as 1:5"),
        ({"local_epochs": "1:x"}, "--local-epochs: 'x' is not a whole number"),
        ({"optimizer_args": "mu"}, "--optimizer-args: 'mu' is not of the form key=value"),
    ],
)
def test_what_cannot_work_is_refused_in_one_sentence(given, message):
    with pytest.raises(UserError, match=message) as error:
        pose(SMALL.replace(**given))
    assert len(str(error.value).splitlines()) == 1


def test_ranges_and_arguments_survive_a_configuration_file():
    config = SMALL.replace(local_epochs="2:7", optimizer="fednova", optimizer_args={"mu": "0.5"})
    assert Config.from_json(config.to_json()) == config
    assert config.training.epochs == (2, 7) and config.training.local_epochs == "2:7"
    assert SMALL.replace(local_epochs="4:4").training.local_epochs == 4


# ---- the matrix ----

DIGITS = Config().replace(dataset="digits", num_clients=20, num_selected=4, local_epochs=1, rounds=2, chunk=2)
ARGUMENTS = {"fedcor": FEDCOR, "fedgp": FEDCOR}
SAMPLE = {("gpfl", "scaffold")}
MATRIX = [
    pytest.param(*pair, marks=[] if pair in SAMPLE else [pytest.mark.slow], id="-".join(pair))
    for pair in itertools.product(strategies.names(), optimizers.names())
]


def timing_of(algo):
    return "tiers" if strategies.make(algo).needs_clock else "none"


@pytest.mark.parametrize("algo,optimizer", MATRIX)
def test_every_strategy_runs_under_every_optimizer_and_is_billed(algo, optimizer):
    config = DIGITS.replace(algo=algo, algo_args=ARGUMENTS.get(algo, {}), local_epochs="1:2", timing=timing_of(algo))
    result = fedjax_sel.run(config.replace(optimizer=optimizer))
    plain = fedjax_sel.run(config)
    assert np.isfinite(result.test_loss).all() and (result.cohorts[:, 0] == plain.cohorts[:, 0]).all()
    of = optimizers.make(optimizer)
    np.testing.assert_array_equal(result.ledger.models_up, plain.ledger.models_up)
    trained = (plain.cohorts >= 0).sum(axis=2)
    sent = result.ledger.floats_up - plain.ledger.floats_up
    p = models.make("mlp", (8, 8, 1), 10, config.model.model_dropout).num_params
    reports = plain.ledger.models_up  # of the cohort, and of probes
    np.testing.assert_array_equal(sent, reports * of.floats_up + trained * of.vectors_up * p)
    received = result.ledger.floats_down - plain.ledger.floats_down
    queried = any(request.who != SELECTED for request in strategies.make(algo, **ARGUMENTS.get(algo, {})).requests)
    vectors = trained * of.vectors_down * p
    assert ((received >= vectors) if queried else (received == vectors)).all()


@pytest.mark.slow
@pytest.mark.parametrize("algo,optimizer", list(itertools.product(strategies.names(), optimizers.names())))
def test_a_run_under_every_optimizer_goes_on_to_the_same_bits(algo, optimizer, tmp_path):
    config = DIGITS.replace(
        algo=algo, algo_args=ARGUMENTS.get(algo, {}), optimizer=optimizer, rounds=4, checkpoint_every=2,
        out=str(tmp_path / "run"), timing=timing_of(algo),
    )  # fmt: skip
    whole = fedjax_sel.run(config.replace(out=None))
    run_until_killed(config, 2)
    assert reading.load(tmp_path / "run").num_rounds == 2
    result = fedjax_sel.run(config)
    for name in ("test_loss", "cohorts"):
        np.testing.assert_array_equal(getattr(result, name), getattr(whole, name))
