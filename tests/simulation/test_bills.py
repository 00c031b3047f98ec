"""Every strategy's bill, worked out by hand, against the ledger of a short run.

N clients, K selected, d candidates, S probes, P parameters, Q profile floats; t counts from 0.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.config import Config
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run
from fedjax_sel.simulation.ledger import floats_per_answer, settle

N, K, T, Q = 10, 3, 9, 64
SMALL = Config().replace(
    dataset="synthetic:train_size=200,test_size=20,num_classes=4,image_size=4",
    num_clients=N, num_selected=K, local_steps=1, batch_size=8, rounds=T, chunk=T, holdout=0.2, loss_on="holdout",
)  # fmt: skip
COHORT = np.full(T, K)
NONE = np.zeros(T, int)


def at(*rounds, value):
    """`value` in these rounds, zero in the others."""
    counts = NONE.copy()
    counts[list(rounds)] = value
    return counts


def start(value):
    return at(0, value=value)


def bill_of(algo, **hyperparameters):
    timing = "tiers" if strategies.make(algo, **hyperparameters).needs_clock else "none"
    problem = pose(SMALL.replace(algo=algo, algo_args=hyperparameters, timing=timing))
    program = run.prepare(problem)
    _, records = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    records = jax.device_get(records)
    lengths = floats_per_answer(problem.strategy, problem.model, problem.dataset.num_classes)
    events = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records.events)
    ledger = jax.tree.map(lambda leaf: leaf[0], settle(events, problem.model.num_params, lengths))
    drawn = (records.cohort[:, 0] >= 0).sum(axis=1)  # fewer than K where one client was drawn twice
    return ledger, drawn, problem.model.num_params


def name_of(item):
    return "-".join([item[0], *(str(value) for _, value in item[1:])])


def served_by(*rounds, by=N):
    """Downloads of the round's model: K, or `by` where more than the cohort is asked."""
    return COHORT + at(*rounds, value=by - K)


def fedcor_bill(updates, probes=1, begin=0):
    """Losses of all in rounds `begin` to 3; in update rounds a base and `probes` probes (FedCor, Alg. 2)."""
    warm = range(begin, 4)
    down = served_by(*warm, *updates) + at(*updates, value=probes * N)
    up = COHORT + at(*updates, value=probes * K)
    return down, up, at(*warm, value=N) + at(*updates, value=(1 + probes) * N)


LOSSES = (served_by(0), COHORT, start(N) + K)  # of all at the start, of the cohort in every round

BILLS = {
    # name, hyperparameters -> (models down, models up, floats up), each [T]; the floats may depend on P
    ("random",): (COHORT, COHORT, NONE),
    ("random", ("variant", "pps-wor")): (COHORT, COHORT, NONE),
    ("fl_dp3s",): (served_by(0), COHORT, start(N * Q)),
    ("fl_dp3s", ("profile", "gradient")): (served_by(0), COHORT, lambda p: start(N * p)),
    ("fedcor", ("warmup", 3), ("interval", 2)): fedcor_bill((4, 6, 8)),
    ("fedcor", ("warmup", 3), ("interval", 2), ("probes", 2)): fedcor_bill((4, 6, 8), probes=2),
    # the last losses of the warm-up and the first update in one round: its base is asked once more
    ("fedcor", ("warmup", 3), ("interval", 3)): fedcor_bill((3, 6)),
    # the code's updates come a round later: it measures at the end of a round
    ("fedcor", ("preset", "code-2023"), ("warmup", 3), ("interval", 2)): fedcor_bill((5, 7)),
    ("fedcor", ("preset", "code-2022"), ("warmup", 3), ("interval", 2)): fedcor_bill((5, 7), begin=2),
    ("fedcor", ("preset", "gpfl-port"), ("warmup", 3), ("interval", 2)): fedcor_bill((5, 7)),
    ("fedcor", ("preset", "closed-form"), ("warmup", 3), ("interval", 2)): fedcor_bill((4, 6, 8)),
    ("fedcor", ("preset", "proxy"), ("warmup", 3), ("interval", 2)): fedcor_bill((4, 6, 8)),
    ("fedgp", ("warmup", 3), ("interval", 2)): fedcor_bill((4, 6, 8)),
    ("gpfl",): (COHORT, COHORT, NONE),
    ("gpfl", ("start", "all-clients")): (served_by(0), COHORT, lambda p: start(N * p)),
    ("afl",): LOSSES,
    ("fedsae",): LOSSES,
    ("fedsae", ("variant", "greedy")): LOSSES,
    ("pow_d",): (np.full(T, 2 * K), COHORT, np.full(T, 2 * K)),
    ("pow_d", ("num_candidates", 5)): (np.full(T, 5), COHORT, np.full(T, 5)),
    ("pow_d", ("variant", "cpow-d"), ("batch_size", 2)): (np.full(T, 2 * K), COHORT, np.full(T, 2 * K)),
    ("pow_d", ("variant", "train-first"), ("num_candidates", 5)): (np.full(T, 5), COHORT, np.full(T, 5)),
    ("pow_d", ("variant", "rpow-d")): (COHORT, COHORT, COHORT),
    ("divfl", ("variant", "ideal")): (np.full(T, N), COHORT, lambda p: np.full(T, N * p)),
    ("divfl",): (served_by(0), COHORT, lambda p: start(N * p) + K * p),
    ("oort",): (COHORT, COHORT, COHORT),
    ("oort", ("system", "clock")): (served_by(0), COHORT, start(N) + COHORT),
    # durations at the start, and losses in rounds 0, 4 and 8; w^0 is sent once
    ("tifl", ("interval", 4)): (served_by(0, 4, 8), COHORT, start(N) + at(0, 4, 8, value=N)),
    ("fedcs",): (served_by(0), COHORT, start(N)),
    ("e3cs",): (COHORT, COHORT, NONE),
    ("cyclic",): (COHORT, COHORT, NONE),
    ("full",): (np.full(T, N), np.full(T, N), NONE),
    ("hics_fl",): (COHORT, COHORT, NONE),
    ("fedlecc",): (np.full(T, N), COHORT, start(N * 4) + N),  # histograms of four labels need no model
    ("fed_cbs",): (COHORT, COHORT, start(N * 4)),  # four labels
    ("greedyfed", ("evaluations", 20)): (COHORT, COHORT, NONE),
}


# What the clients and the server work through: 1 step of 8 examples a training, 4 held-out examples a client (a fifth
# of 20), 10 examples of the server (5 % of 200).
EXAMPLES = {
    # as above -> (examples trained on, evaluated by clients, evaluated by the server), each [T]
    ("pow_d",): (8 * COHORT, np.full(T, 4 * 2 * K), NONE),
    ("pow_d", ("variant", "train-first"), ("num_candidates", 5)): (np.full(T, 8 * 5), NONE, NONE),
    ("pow_d", ("variant", "cpow-d"), ("batch_size", 2)): (8 * COHORT, np.full(T, 2 * 2 * K), NONE),
    ("fedcor", ("warmup", 3), ("interval", 2)): (
        8 * (COHORT + at(4, 6, 8, value=K)),
        4 * (at(0, 1, 2, 3, value=N) + at(4, 6, 8, value=2 * N)),
        NONE,
    ),
    # the cohort does not train again what it trained to answer in the same round
    ("tifl", ("interval", 4)): (8 * (COHORT + start(N)), 4 * at(0, 4, 8, value=N), NONE),
    ("fedlecc",): (8 * COHORT, np.full(T, 4 * N), NONE),
    ("gpfl",): (8 * COHORT, NONE, start(10) + 10),  # w^0, then w^(t+1) in every round
    ("oort", ("system", "clock")): (8 * (COHORT + start(N)), NONE, NONE),
    ("greedyfed", ("evaluations", 20)): (8 * COHORT, NONE, np.full(T, 20 * 10)),
}
# One of a family by default: the others differ in what has tests of its own.
LONG = [
    ("fl_dp3s", ("profile", "gradient")),
    ("gpfl", ("start", "all-clients")),
    ("fedsae", ("variant", "greedy")),
    ("pow_d", ("num_candidates", 5)),
    ("pow_d", ("variant", "cpow-d"), ("batch_size", 2)),
    ("divfl", ("variant", "ideal")),
    ("oort", ("system", "clock")),
    *(item for item in BILLS if item[0] in ("fedcor", "fedgp") and item not in EXAMPLES),
]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "item",
    [pytest.param(item, marks=[pytest.mark.slow] * (item in LONG), id=name_of(item)) for item in BILLS],
)
def test_the_ledger_equals_the_closed_form(item):
    ledger, drawn, p = bill_of(item[0], **dict(item[1:]))
    down, up, floats = BILLS[item]
    floats = floats(p) if callable(floats) else floats
    np.testing.assert_array_equal(drawn, N if item[0] == "full" else K)
    np.testing.assert_array_equal(ledger.models_down, down)
    np.testing.assert_array_equal(ledger.models_up, up)
    np.testing.assert_array_equal(ledger.floats_up, floats)
    np.testing.assert_array_equal(ledger.floats_down, 0)
    np.testing.assert_array_equal(ledger.bytes_down, 4 * p * down)
    np.testing.assert_array_equal(ledger.bytes_up, 4 * (p * up + floats))
    if item in EXAMPLES:
        trained, evaluated, served = EXAMPLES[item]
        np.testing.assert_array_equal(ledger.examples_trained, trained)
        np.testing.assert_array_equal(ledger.examples_evaluated, evaluated)
        np.testing.assert_array_equal(ledger.server_examples, served)


@pytest.mark.slow
@pytest.mark.parametrize(
    "item",
    [("random", ("variant", "md")), ("clustered",), ("clustered", ("variant", "size")), ("osmd",), ("delta",)],
    ids=name_of,
)
def test_a_client_drawn_twice_counts_once(item):
    ledger, drawn, _ = bill_of(item[0], **dict(item[1:]))
    np.testing.assert_array_equal(ledger.models_down, drawn)
    np.testing.assert_array_equal(ledger.models_up, drawn)
    np.testing.assert_array_equal(ledger.floats_up, 0)


RANDOM = {
    # name, hyperparameters -> clients that are queried and train, floats up; per round
    ("ocs",): (N, N),
    ("ocs", ("num_candidates", 5)): (5, 5),
    ("kvib",): (None, 0),  # the clients that train are the cohort
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("item", RANDOM, ids=name_of)
def test_a_random_number_of_clients_is_billed(item):
    ledger, drawn, p = bill_of(item[0], **dict(item[1:]))
    queried, floats = RANDOM[item]
    down = drawn if queried is None else np.full(T, queried)
    assert len(set(drawn.tolist())) > 2
    np.testing.assert_array_equal(ledger.models_down, down)
    np.testing.assert_array_equal(ledger.models_up, drawn)
    np.testing.assert_array_equal(ledger.floats_up, floats)
    np.testing.assert_array_equal(ledger.bytes_up, 4 * (p * drawn + floats))
    np.testing.assert_array_equal(ledger.examples_trained, 8 * down)
    np.testing.assert_array_equal(ledger.examples_evaluated, 0)


def test_every_strategy_has_a_closed_form():
    assert {item[0] for item in (*BILLS, *RANDOM)} | {"clustered", "osmd", "delta"} == set(strategies.names())
