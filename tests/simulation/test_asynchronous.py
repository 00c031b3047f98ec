"""Asynchronous rounds: order of events, equality with synchronous rounds, bills and seconds by hand, all strategies."""

import heapq
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import devices, strategies
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import asynchronous, run, seed_groups
from fedjax_sel.simulation.asynchronous import Reports
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import ALL, SELECTED, Request, always
from fedjax_sel.training import server
from tests.simulation.test_clock import ANSWER, FETCH, FORWARD, MODEL, STATIC, WHOLE

SMALL = {
    "dataset": "synthetic:train_size=200,test_size=20,num_classes=4,image_size=4", "num_clients": 20,
    "num_selected": 4, "rounds": 8, "chunk": 3, "local_epochs": 1, "batch_size": 5, "timing": "tiers",
    "seeds": 2, "algo": "random", "model": "logistic",
}  # fmt: skip
DISTURBED = {"timing_args": {"jitter": 0.3}, "deadline": "q0.8", "report_failure_rate": 0.2, "available": 0.7}


def result_of(**settings):
    return fedjax_sel.run(fedjax_sel.Experiment.of(**SMALL | settings))


def assert_equal(one, other, rounding=0.0):
    """Two runs are equal to the bit, the columns that only one of them has aside; `rounding` is that of the seconds."""
    np.testing.assert_allclose(one.seconds, other.seconds, rtol=rounding)
    assert np.array_equal(one.cohorts, other.cohorts)
    for pair in zip(one.ledger, other.ledger):
        assert np.array_equal(*pair)
    for name in (one.measured.keys() & other.measured.keys()) - {"seconds"}:
        assert np.array_equal(one.measured[name], other.measured[name], equal_nan=True), name
    jax.tree.map(np.testing.assert_array_equal, one.weights, other.weights)


# The order of events.
SCHEDULES, STEPS, PLACES, COUNT, CLIENTS, SERVER = 1000, 12, 6, 2, 9, 1.0


def schedules():
    """Durations with ties, lost reports and available clients, of each schedule, step and client."""
    rng = np.random.default_rng(5)
    shape = (SCHEDULES, STEPS, CLIENTS)
    rarely = rng.uniform(0.1, 1.0, (SCHEDULES, 1, 1))
    return rng.integers(1, 6, shape), rng.random(shape) < 0.8, rng.random(shape) < rarely, rng.permuted(
        np.broadcast_to(np.arange(CLIENTS), shape), axis=2
    )  # fmt: skip


def twin(durations, arrives, available, preferences):
    """An event queue: (clients that end with a report, all that end, seconds, server steps) of each step."""
    events, busy, clock, steps, number = [], set(), 0.0, 0, 0
    for step in range(STEPS):
        chosen = [c for c in preferences[step] if available[step, c] and c not in busy][:COUNT]
        for client in chosen:
            heapq.heappush(events, (clock + durations[step, client], number, client, arrives[step, client], steps))
            busy.add(client)
            number += 1
        left = sum(available[step]) - sum(available[step, c] for c in busy)
        if chosen and PLACES - len(events) >= COUNT and left >= COUNT:
            clock += SERVER
            yield [], [], 0.0
            continue
        before, ended = clock, [heapq.heappop(events) for _ in range(min(COUNT, len(events)))]
        clock = max([clock, *(event[0] for event in ended)])
        busy -= {event[2] for event in ended}
        ended.sort(key=lambda event: event[1])
        received = [(event[2], steps - event[4]) for event in ended if event[3]]
        steps += bool(received)
        yield received, [event[2] for event in ended], clock - before
        clock += SERVER


def test_the_order_of_events_is_that_of_a_queue():
    given = schedules()
    shape, none = (SCHEDULES, PLACES), None
    whole, no = jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
    table = Reports(whole, no, no, jnp.zeros(shape), whole, whole, whole, whole, none, {})  # pyright: ignore
    version = jnp.zeros(SCHEDULES, jnp.int32)

    @jax.jit
    def advance(table, version, step, durations, arrives, available, preferences):
        idle = asynchronous._idle(table, available, CLIENTS)
        order = jnp.argsort(~jnp.take_along_axis(idle, preferences, axis=1), axis=1, stable=True)
        ids = jnp.take_along_axis(preferences, order, axis=1)[:, :COUNT].astype(jnp.int32)
        of_ids = [jnp.take_along_axis(leaf, ids, axis=1) for leaf in (idle, arrives, durations)]
        number = jnp.broadcast_to(step * COUNT + jnp.arange(COUNT, dtype=jnp.int32), ids.shape)
        zero, versions = jnp.zeros(ids.shape, jnp.int32), jnp.broadcast_to(version[:, None], ids.shape)
        new = Reports(ids, *of_ids[:2], of_ids[2].astype(float), number, versions, zero, zero, none, {})  # pyright: ignore
        table = asynchronous.dispatch(table, new, jnp.zeros(SCHEDULES))
        more = of_ids[0].any(axis=1) & (asynchronous._idle(table, available, CLIENTS).sum(axis=1) >= COUNT)
        table, ended, seconds = asynchronous.wait_for(table, COUNT, more, SERVER)
        received = ended.in_flight & ended.arrives
        return table, version + received.any(axis=1), ended, version[:, None] - ended.version, seconds

    found = []
    for step in range(STEPS):
        before = version
        table, version, ended, staleness, seconds = advance(
            table, before, jnp.int32(step), *(jnp.asarray(leaf[:, step]) for leaf in given)
        )
        found.append(jax.device_get((ended, staleness, seconds)))
    ties = lost = waiting = 0
    for schedule in range(SCHEDULES):
        for step, (received, ids, seconds) in enumerate(twin(*(leaf[schedule] for leaf in given))):
            ended, staleness, waited = devices.replicate_slice(found[step], schedule)
            taken = ended.in_flight
            assert ended.ids[taken].tolist() == ids and waited == seconds
            arrived = taken & ended.arrives
            assert list(zip(ended.ids[arrived].tolist(), staleness[arrived].tolist())) == received
            lost += len(ids) - len(received)
            waiting += not ids
            ties += len(ids) > 1 and ended.remaining[taken][0] == ended.remaining[taken][1]
    assert min(ties, lost, waiting) > 500


def test_empty_rows_have_the_ids_of_clients_without_a_report():
    in_flight = jnp.array([[False, True, True], [False, False, True], [True, True, True]])
    rows = SimpleNamespace(ids=jnp.int32([[0, 0, 3], [1, 1, 1], [2, 1, 0]]), in_flight=in_flight)
    assert asynchronous._without_stale(rows, 4).tolist() == [[1, 0, 3], [0, 2, 1], [2, 1, 0]]  # pyright: ignore


# Equality with synchronous rounds.
@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "settings",
    [
        {"timing_args": {"spread": 0.0}},
        DISTURBED | {"algo": "afl"},
        {"algo": "divfl", "optimizer": "fedyogi", "mesh": "seeds=1,clients=2", "cohort_batch": 1},
        {"algo": "greedyfed", "momentum": 0.5, "momentum_buffer": "persistent"},
        DISTURBED | {"algo": "fedcor", "algo_args": {"warmup": 2, "interval": 2}},
        DISTURBED | {"algo": "pow_d", "available": "daily", "availability_seconds": 0.4},
        {"algo": "afl", "privacy": "epsilon=5,delta=1e-5"},
        {"algo": "oort", "algo_args": {"system": "clock"}, "server_seconds": 0.5, "mesh": "seeds=2,clients=1"},
    ],
    ids=lambda settings: settings.get("algo", "random"),
)
def test_with_as_many_clients_as_reports_it_is_the_synchronous_run(settings):
    """Whatever the speeds: the reports of a round are aggregated in the order of the cohort."""
    one, other = result_of(**settings), result_of(**settings, concurrency=SMALL["num_selected"])
    # XLA compiles the sum of a client's seconds in two programs, here with another last bit.
    assert_equal(one, other, rounding=1e-6 if "privacy" in settings else 0.0)
    assert (np.nan_to_num(other.measured["staleness"]) == 0).all()


ASYNCHRONOUS = {"concurrency": 12, "rounds": 12, **DISTURBED}
LATE_REPORTS = {"late_reports": "use", "rounds": 12, **DISTURBED, "deadline": "q0.5"}


def test_a_resumed_run_is_equal_to_the_bit(tmp_path):
    whole = result_of(**ASYNCHRONOUS, algo="afl")
    out = {"out": str(tmp_path / "run"), "algo": "afl"}
    result_of(**ASYNCHRONOUS | out | {"rounds": 6})
    assert_equal(whole, result_of(**ASYNCHRONOUS | out))
    assert np.nanmax(whole.measured["staleness"][:, 6:]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ASYNCHRONOUS, LATE_REPORTS], ids=["asynchronous", "late reports"])
def test_several_devices_and_seeds_choose_the_same_cohorts(settings):
    whole = result_of(**settings, mesh="seeds=1,clients=1")
    for other in ({"mesh": "seeds=2,clients=1"}, {"mesh": "seeds=1,clients=2"}, {"seeds_at_once": 1}):
        assert np.array_equal(whole.cohorts, result_of(**settings | other).cohorts)
    for seed in (0, 1):
        alone = result_of(**settings | {"seeds": [seed]})
        assert np.array_equal(whole.cohorts[seed], alone.cohorts[0])
        np.testing.assert_array_equal(whole.seconds[seed], alone.seconds[0])


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("optimizer", ["fedavg", "fedyogi"])
@pytest.mark.parametrize("algo", strategies.names())
def test_every_strategy_runs_or_says_why_not(algo, optimizer):
    settings = {**ASYNCHRONOUS, "rounds": 5, "concurrency": 8, "algo": algo, "optimizer": optimizer, "chunk": 5}
    if strategies.make(algo).max_selected is not None:
        with pytest.raises(UserError, match=f"--concurrency: {algo} decides how many clients it selects"):
            result_of(**settings)
        return
    result = result_of(**settings)
    assert np.isfinite(result.test_loss).all() and (result.cohorts[:, -1] >= 0).any()
    for seed in range(2):
        assert_idle(result, seed)


def assert_idle(result, seed):
    """No round starts a client twice, and all reports of a run are at most those of the started clients."""
    for cohort in result.cohorts[seed]:
        chosen = cohort[cohort >= 0]
        assert len(set(chosen.tolist())) == len(chosen)
    started = (result.cohorts[seed] >= 0).sum()
    assert 0 <= started - (result.ledger.models_up + result.ledger.reports_lost)[seed].sum() <= 8 or (
        result.ledger.models_up[seed].sum() > started  # probes report, too
    )


@pytest.mark.slow
def test_oort_discounts_stale_clients():
    """As Pisces does; in synchronous rounds, no report is stale."""
    for settings, same in (({"concurrency": 12}, False), ({}, True)):
        settings = {**settings, "algo": "oort", "rounds": 24, "chunk": 12}
        usual, discounted = (result_of(**settings, algo_args={"staleness_discount": beta}) for beta in (0.0, 2.0))
        assert np.array_equal(usual.cohorts, discounted.cohorts) == same


# By hand: the three clients of the tests of the clock.
def in_order(*cohorts, requests=()):
    """A strategy that selects these cohorts in turn."""
    table = jnp.array(cohorts, jnp.int32)
    return Strategy(
        "in_order",
        lambda key, state, now: Selection.of(table[now.round % len(cohorts)], now.available),
        tuple(requests),
    )


def by_hand(strategy, **settings):
    return fedjax_sel.run(
        fedjax_sel.Experiment.of(**STATIC | {"num_selected": 1, "algo": strategy, "rounds": 4} | settings)
    )


FIRST, SECOND, THIRD = np.argsort(WHOLE).tolist()
LATE = ((SECOND,), *[(FIRST,)] * 5)


@pytest.fixture(scope="module")
def two_at_a_time():
    return by_hand(in_order(*LATE), concurrency=2, rounds=6)


def test_two_clients_at_a_time(two_at_a_time):
    """The fast client reports three times before the slow one, whose report is three server steps late."""
    fast, slow = WHOLE[FIRST], WHOLE[SECOND]
    assert 3 * fast < slow < 4 * fast
    result = two_at_a_time
    np.testing.assert_allclose(np.cumsum(result.seconds[0]), [0, fast, 2 * fast, 3 * fast, slow, 4 * fast], rtol=1e-5)
    # In the last round the fast client still trains, so no client starts.
    assert result.cohorts[0, :, 0].tolist() == [SECOND, FIRST, FIRST, FIRST, FIRST, -1]
    assert result.ledger.models_down[0].tolist() == [1, 1, 1, 1, 1, 0]
    assert result.ledger.models_up[0].tolist() == [0, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(result.measured["staleness"][0], [np.nan, 0, 0, 0, 3, 1])


def test_queries_take_time_while_others_train():
    """Each round asks the idle clients for a loss; the answers of the cohort arrive with its report."""
    result = by_hand(in_order((THIRD,), (FIRST,), (FIRST,), requests=[Request("loss", ALL, always())]), concurrency=2)
    asked = ANSWER + FETCH + FORWARD
    idle = [max(asked), max(asked[FIRST], asked[SECOND])]
    wait = min(WHOLE[FIRST] - FETCH[FIRST], WHOLE[THIRD] - FETCH[THIRD] - idle[1])
    np.testing.assert_allclose(result.seconds[0, :2], [idle[0], idle[1] + wait], rtol=1e-5)
    assert result.ledger.models_down[0, :2].tolist() == [3, 2] and result.ledger.floats_up[0, :2].tolist() == [3, 2]


def test_lost_and_stale_reports_are_billed(two_at_a_time):
    """With a deadline the slow client is given up; a report that is too old is uploaded, and not aggregated."""
    limit, fast = (WHOLE[SECOND] + WHOLE[THIRD]) / 2, WHOLE[FIRST]
    # In the third round the slow client still trains, so no client starts; in the fourth, two places are empty.
    lost = by_hand(in_order((THIRD,), (FIRST,)), concurrency=2, deadline=f"{limit}", rounds=5)
    np.testing.assert_allclose(lost.seconds[0], [0, fast, limit - fast, 0, fast], rtol=1e-5)
    assert lost.ledger.models_down[0].tolist() == [1, 1, 0, 1, 1]
    assert lost.ledger.models_up[0].tolist() == [0, 1, 0, 0, 1]
    assert lost.ledger.reports_lost[0].tolist() == [0, 0, 1, 0, 0]
    assert (lost.ledger.bytes_up == lost.ledger.models_up * MODEL).all()
    stale, kept = by_hand(in_order(*LATE), concurrency=2, rounds=6, max_staleness=0), two_at_a_time
    assert np.array_equal(stale.ledger.models_up, kept.ledger.models_up)
    np.testing.assert_array_equal(stale.measured["staleness"][0], [np.nan, 0, 0, 0, 3, 0])  # no step in the fifth round
    assert stale.test_loss[0, 4] == stale.test_loss[0, 3] == kept.test_loss[0, 3] != kept.test_loss[0, 4]


def test_answers_of_a_cohort_arrive_with_its_report():
    strategy = in_order(*LATE, requests=[Request("loss", SELECTED, always())])
    settings = {"num_selected": 1, "concurrency": 2, "chunk": 1, "rounds": 6}
    program = run.prepare(pose(fedjax_sel.Experiment.of(**STATIC | settings | {"algo": strategy})))
    carry, ages = program.carry, []
    for number in range(6):
        carry, _ = program.chunk(carry, jnp.int32(number), program.federation, program.streams)
        ages.append(np.minimum(carry.info.loss.age[0], 10)[[FIRST, SECOND]].tolist())
    assert ages[:2] == [[10, 10], [1, 10]]
    arrived = [age[1] for age in ages].index(5)  # measured in the first round
    assert arrived == 4 and ages[arrived - 1][1] == 10


def test_a_training_loss_is_billed_with_the_training_that_it_comes_from(two_at_a_time):
    plain, requests = two_at_a_time, [Request("training_loss", SELECTED, always())]
    asked = by_hand(in_order(*LATE, requests=requests), concurrency=2, rounds=6)
    assert asked.ledger.floats_up[0].tolist() == plain.ledger.models_up[0].tolist() == [0, 1, 1, 1, 1, 1]
    for column in ("models_down", "models_up", "examples_trained", "examples_evaluated"):
        assert np.array_equal(getattr(asked.ledger, column), getattr(plain.ledger, column)), column


def test_update_knows_a_reporting_client_as_available():
    """Also if it was in flight when the round began: else OSMD and E3CS divide by a probability of zero."""
    table = jnp.array(LATE, jnp.int32)

    def select(key, wrong, now):
        chosen = Selection.of(table[jnp.minimum(now.round, 1)], now.available)
        return chosen._replace(weights=jnp.where(wrong, jnp.nan, jnp.ones((1,))))  # NaN ends the run

    def update(wrong, now, selection, outcome):
        return wrong | (outcome.reported & ~now.available[selection.ids]).any()

    watches = Strategy("watches", select, init=lambda key, now: jnp.bool_(False), update=update)
    assert np.isfinite(by_hand(watches, concurrency=2, rounds=9).test_loss).all()


def test_the_table_of_reports_counts_as_memory():
    needed = [
        seed_groups.needed_bytes(pose(fedjax_sel.Config().replace(**SMALL | {"seeds": 1}, concurrency=concurrency)), 1)
        for concurrency in (4, 20)
    ]
    model = pose(fedjax_sel.Config().replace(**SMALL)).model
    assert needed[1] - needed[0] >= 3 * 16 * 4 * model.num_params  # three copies of 16 further updates
    with pytest.raises(UserError, match="a lower --concurrency"):
        seed_groups.seeds_that_fit(pose(fedjax_sel.Config().replace(**SMALL, concurrency=4)), 1000)


def test_weights_by_staleness():
    made = {name: server.STALENESS[name]().factor for name in ("constant", "polynomial", "hinge")}
    steps = jnp.array([0, 3, 4, 6])
    np.testing.assert_allclose(made["constant"](steps), 1)
    np.testing.assert_allclose(made["polynomial"](steps), [1, 0.5, 5**-0.5, 7**-0.5], rtol=1e-6)
    np.testing.assert_allclose(made["hinge"](steps), [1, 1, 1, 1 / 21], rtol=1e-6)


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"timing": "none"}, "concurrency: 12 has no effect without a --timing other than none"),
        ({"concurrency": 10}, r"not a multiple of the K = 4 .* choose 8 or 12"),
        ({"concurrency": 24}, "exceeds the 20 clients; choose at most 20"),
        ({"over_select": 1.5}, "remove --over-select"),
        ({"aggregation": "unbiased"}, "choose another rule"),
        ({"optimizer": "scaffold"}, "scaffold combines reports that start from the same model"),
        ({"optimizer": "fednova"}, "fednova combines reports"),
        ({"algo": "ocs"}, "ocs decides how many clients it selects"),
        ({"staleness_args": {"b": 1}}, "did you mean|has no|choose from"),
        ({"max_staleness": -1}, "must be from 0 to"),
    ],
)
def test_bad_input_is_one_line_with_the_fix(settings, message):
    with pytest.raises(UserError, match=message) as error:
        result_of(**{"concurrency": 12} | settings)
    assert "\n" not in str(error.value)


def test_a_configuration_needs_a_clock():
    with pytest.raises(UserError, match="--concurrency: 4: asynchronous rounds need the simulated clock; add --timing"):
        pose(fedjax_sel.Config().replace(**SMALL | {"concurrency": 4, "timing": "none"}))


@pytest.mark.parametrize("settings", [{"concurrency": 8}, {"deadline": "q0.8", "late_reports": "use"}])
def test_a_strategy_must_accept_busy_clients(settings):
    def select(key, state, now):
        assert now.available is None, "all clients"
        return Selection.of(jnp.arange(4), None)

    with pytest.raises(UserError, match="cannot be traced: AssertionError: all clients"):
        result_of(algo=Strategy("mine", select), **settings)
