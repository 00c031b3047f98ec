"""The catalogue of facts: whoever serves, bills or speaks of facts knows every kind in it."""

import dataclasses
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import testing
from fedjax_sel.cli.catalogue import buys, costs
from fedjax_sel.config import Config
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run
from fedjax_sel.simulation.ledger import fact_counts, floats_per_answer, settle
from fedjax_sel.simulation.queries import ANSWERS
from fedjax_sel.strategies import checks, facts
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, KINDS, SELECTED, SERVER, Request, always
from fedjax_sel.testing import bench as driver
from fedjax_sel.testing.bench import Bench, Carry, Options, World
from tests.strategies import requested_bill

N, K, T = 8, 2, 2
COUNTS = facts.Counts(num_params=700, num_classes=4, profile_size=30)
PAIRS = [(kind, who) for kind in KINDS for who in KINDS[kind].who]
OF_CLIENTS = [kind for kind in KINDS if SERVER not in KINDS[kind].who]
COUNT = {SELECTED: "K", CANDIDATES: "d", ALL: "N"}


def ask(kind, who=None, **options):
    return Request(kind, who or KINDS[kind].who[0], always(), tuple(options.items()))


def buyer(*requests):
    """A strategy that buys and reads; it always asks and selects the first clients."""

    def select(key, state, now):
        return Selection(jnp.arange(K, dtype=jnp.int32), None, jnp.ones((K,), bool))

    def name(key, state, now):
        return jnp.arange(K + 1, dtype=jnp.int32)

    asks = any(request.who == CANDIDATES for request in requests)
    return Strategy("buyer", select, tuple(requests), candidates=name if asks else None)


def test_every_kind_is_described_where_strategies_are_written():
    _, *parts = re.split(r"^ *`(\w+)` {2,}", inspect.getdoc(Request) or "", flags=re.MULTILINE)
    described = dict(zip(parts[::2], parts[1::2]))
    assert list(described) == list(KINDS)
    for kind, words in described.items():
        for option in KINDS[kind].options:
            assert option in words, f"{option} of {kind}"
        if KINDS[kind].symbol:
            assert f"{KINDS[kind].symbol} floats up" in words, kind


@pytest.mark.parametrize("kind,who", PAIRS)
def test_every_kind_has_words_and_a_price(kind, who):
    strategy = buyer(ask(kind, who))
    assert KINDS[kind].words in buys(strategy)
    if who == SERVER:
        assert costs(strategy) == "each round: no traffic (the server evaluates)"
        return
    assert ("down" in costs(strategy)) == (KINDS[kind].needs_model and who != SELECTED)
    symbol = KINDS[kind].symbol
    count = f"{1 + facts.num_probes(ask(kind))}N" if facts.num_probes(ask(kind)) else COUNT[who]
    assert f"{count} {f'x {symbol} ' if symbol else ''}floats up" in costs(strategy)


@pytest.mark.parametrize("kind", OF_CLIENTS)
def test_prices_are_those_of_the_second_account(kind):
    counts = COUNTS._replace(num_classes=requested_bill.CLASSES)
    for options in ({}, {"probes": 3}) if "probes" in KINDS[kind].options else ({},):
        assert facts.floats(ask(kind, **options), counts) == requested_bill.length(ask(kind, **options), counts)


@pytest.mark.parametrize("kind,who", PAIRS)
def test_the_kit_plays_every_kind(kind, who):
    bench = Bench(buyer(ask(kind, who)), Options(N, K, T, run=False))
    testing.contract(bench)
    world = jax.tree.map(jnp.asarray, bench.world)
    key, state, now = bench.hooks["select"][1]
    before = Carry(state, now.info)

    def one_round(carry, key):
        return driver.one_round(bench.strategy, bench.options, carry, jnp.int32(0), key, world)[0]

    after = jax.eval_shape(one_round, before, key)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    assert [leaf.shape for leaf in jax.tree.leaves(after)] == [leaf.shape for leaf in jax.tree.leaves(before)]
    assert set(world.facts) == ({kind} if KINDS[kind].has_table else set())


def test_a_world_is_the_same_whatever_is_bought_of_it():
    everything = buyer(*(ask(kind) for kind in OF_CLIENTS))
    full = World.ordinary(everything, N, T, seed=0)
    assert list(full.facts) and set(full.facts) == set(OF_CLIENTS)
    for kind in OF_CLIENTS:
        alone = World.ordinary(buyer(ask(kind)), N, T, seed=0)
        np.testing.assert_array_equal(alone.facts[kind], full.facts[kind])


@pytest.mark.slow
def test_the_simulator_answers_every_kind_in_its_shape_and_at_its_price():
    requests = tuple(ask(kind, SELECTED if kind == "training_loss" else None) for kind in KINDS)
    strategy = buyer(*requests)
    config = Config().replace(
        dataset="synthetic:train_size=160,test_size=60,num_classes=4,image_size=4",
        num_clients=N, num_selected=K, local_steps=1, batch_size=8, rounds=T, chunk=T, server_validation=0.1,
        timing="tiers",
    )  # fmt: skip
    problem = dataclasses.replace(pose(config), strategy=strategy)
    checks.requests(strategy, has_holdout=False)
    program = run.prepare(problem)
    chunk = next(run.chunks(program))
    carry, records = jax.device_get((chunk.copy(lambda carry: carry), chunk.records))
    counts = fact_counts(problem.model, 4)
    for request in requests:
        if KINDS[request.kind].has_table:
            fact = getattr(carry.info, request.kind)
            assert fact.value.shape == (1, N, *facts.shape(request, counts))
            assert fact.age.tolist() == [[1 if k < K or request.who == ALL else fact.age.max() for k in range(N)]]
            assert np.abs(fact.value[:, :K]).max() > 0, request.kind
    assert carry.evaluation is not None
    lengths = floats_per_answer(strategy, problem.model, 4)
    asked = {ALL: N, SELECTED: K, SERVER: 0}
    bought = sum(asked[request.who] * length for request, length in zip(requests, lengths))
    assert settle(records.events, problem.model.num_params, lengths).floats_up.tolist() == [[bought]] * T
    computed = {kind for kind in OF_CLIENTS if not KINDS[kind].needs_clock and not facts.num_probes(ask(kind))}
    assert set(ANSWERS) == computed
