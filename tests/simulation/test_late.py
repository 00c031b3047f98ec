"""Late reports: an event list, equality with rounds without them, bills and seconds by hand, REFL's factor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import strategies
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import late, seed_groups
from fedjax_sel.simulation.late import LateReports
from fedjax_sel.training import server
from tests.simulation.test_asynchronous import (
    FIRST,
    LATE_REPORTS,
    SECOND,
    SMALL,
    assert_equal,
    by_hand,
    in_order,
    result_of,
)
from tests.simulation.test_clock import MODEL, WHOLE

USED = {"late_reports": "use"}

# The order of events.
SCHEDULES, STEPS, COUNT, CLIENTS, DEADLINE, SERVER = 1000, 14, 3, 8, 3, 1


def schedules():
    """Durations with ties, lost reports, available clients, preferences, and the seconds of queries."""
    rng = np.random.default_rng(6)
    shape = (SCHEDULES, STEPS, CLIENTS)
    there = rng.random(shape) < rng.uniform(0.05, 1.0, (SCHEDULES, 1, 1))
    preferences = rng.permuted(np.broadcast_to(np.arange(CLIENTS), shape), axis=2)
    return rng.integers(1, 9, shape), rng.random(shape) < 0.8, there, preferences, rng.integers(0, 2, shape[:2])


def twin(durations, arrives, available, preferences, elapsed):
    """A list of events: (late reports with their staleness, seconds of the training phase) of each step."""
    pending, now, steps = [], 0, 0  # events are (time, client, server steps before the dispatch)
    for step in range(STEPS):
        busy = {client for _, client, _ in pending}
        chosen = [c for c in preferences[step] if available[step, c] and c not in busy][:COUNT]
        now += elapsed[step]
        reports = [c for c in chosen if arrives[step, c]]
        in_time = [c for c in reports if durations[step, c] <= DEADLINE]
        lasts = max((durations[step, c] for c in in_time), default=0) if len(in_time) == len(chosen) else DEADLINE
        if not chosen and pending:
            lasts = max(min(pending)[0] - now, 0)
        ended = [event for event in pending if event[0] <= now + lasts]
        pending = [event for event in pending if event not in ended]
        pending += [(now + durations[step, c], c, steps) for c in reports if c not in in_time]
        yield {(client, steps - version) for _, client, version in ended}, lasts
        steps += bool(in_time or ended)
        now += lasts + SERVER


def test_late_reports_arrive_in_the_order_of_an_event_list():
    given = schedules()
    shape = (SCHEDULES, CLIENTS)
    real, no, whole = jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(shape, jnp.int32)
    table, version = LateReports(no, real, whole, real, no, ()), whole[:, 0]

    @jax.jit
    def advance(table, version, durations, arrives, available, preferences, elapsed):
        idle = available & ~table.in_flight
        order = jnp.argsort(~jnp.take_along_axis(idle, preferences, axis=1), axis=1, stable=True)
        ids = jnp.take_along_axis(preferences, order, axis=1)[:, :COUNT].astype(jnp.int32)
        chosen, arrives, durations = (jnp.take_along_axis(leaf, ids, axis=1) for leaf in (idle, arrives, durations))
        in_time = chosen & arrives & (durations <= DEADLINE)
        lasts = jnp.where((in_time == chosen).all(axis=1), jnp.where(in_time, durations, 0).max(axis=1), DEADLINE)
        ended, lasts = late.arrivals(table, elapsed, chosen.any(axis=1), lasts.astype(float))
        staleness = version[:, None] - table.version
        remaining = durations - (lasts + SERVER)[:, None]
        versions = jnp.broadcast_to(version[:, None], ids.shape)
        new = LateReports(chosen & arrives & ~in_time, remaining, versions, remaining, in_time, ())
        left = table.remaining - (elapsed + lasts + SERVER)[:, None]
        table = late.written(
            table._replace(in_flight=table.in_flight & ~ended, remaining=left), new.in_flight, ids, new
        )
        return table, version + (in_time.any(axis=1) | ended.any(axis=1)), (ended, staleness, lasts)

    found = []
    for step in range(STEPS):
        table, version, events = advance(table, version, *(jnp.asarray(leaf[:, step]) for leaf in given))
        found.append(jax.device_get(events))
    late_ones = several = waits = 0
    for schedule in range(SCHEDULES):
        for step, (events, lasts) in enumerate(twin(*(leaf[schedule] for leaf in given))):
            ended, staleness, seconds = (leaf[schedule] for leaf in found[step])
            assert {(client, staleness[client]) for client in np.flatnonzero(ended)} == events
            assert seconds == lasts
            late_ones += len(events)
            several += len(events) > 1
            waits += bool(events) and not given[2][schedule, step].any()
    assert min(late_ones, several, waits) > 300


# Whole runs.
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"algo": "divfl", "optimizer": "fedyogi", "available": 0.7, "report_failure_rate": 0.2},
        {"algo": "oort", "algo_args": {"system": "clock"}, "available": 0.7},
        {"algo": "greedyfed", "available": "daily", "availability_seconds": 0.4},
        {"algo": "random", "mesh": "seeds=1,clients=2", "cohort_batch": 1, "server_seconds": 0.5},
    ],
    ids=lambda settings: settings["algo"],
)
def test_without_a_late_report_it_is_the_run_that_drops_them(settings):
    settings = settings | {"deadline": "1000"}
    one, other = result_of(**settings), result_of(**settings, **USED)
    assert_equal(one, other)
    assert (np.nan_to_num(other.measured["staleness"]) == 0).all()


@pytest.mark.slow
def test_a_resumed_run_is_equal_to_the_bit(tmp_path):
    whole = result_of(**LATE_REPORTS, algo="divfl")
    out = {"out": str(tmp_path / "run"), "chunk": 1, "algo": "divfl"}
    result_of(**LATE_REPORTS | out | {"rounds": 6})
    assert_equal(whole, result_of(**LATE_REPORTS | out))
    assert np.nanmax(whole.measured["staleness"][:, 6:]) > 0


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("algo", strategies.names())
def test_every_strategy_runs(algo):
    result = result_of(**LATE_REPORTS | {"rounds": 5, "chunk": 5}, algo=algo, staleness="refl", optimizer="fedyogi")
    assert np.isfinite(result.test_loss).all() and result.measured["staleness"].shape == (2, 5)


# By hand: the three clients of the tests of the clock. The second fastest misses the deadline.
LIMIT = 1.5 * WHOLE[FIRST]
SLOW = {"deadline": f"{LIMIT}", **USED}


def test_a_late_report_is_billed_and_aggregated_when_it_arrives():
    result = by_hand(in_order((SECOND,), *[(FIRST,)] * 4), rounds=5, chunk=5, **SLOW)
    fast, slow = WHOLE[FIRST], WHOLE[SECOND]
    ends = np.array([LIMIT, *(LIMIT + fast * np.arange(1, 5))])
    np.testing.assert_allclose(np.cumsum(result.seconds[0]), ends, rtol=1e-5)
    place = int(np.argmax(ends >= slow))
    up = np.array([0, 1, 1, 1, 1]) + (np.arange(5) == place)
    assert place > 1 and result.ledger.models_up[0].tolist() == up.tolist()
    assert (result.ledger.bytes_up == result.ledger.models_up * MODEL).all()
    assert result.ledger.models_down[0].tolist() == [1] * 5 and (result.ledger.reports_lost == 0).all()
    assert result.measured["staleness"][0, place] == (place - 1) / 2  # the first round made no step
    old = by_hand(in_order((SECOND,), *[(FIRST,)] * 4), rounds=5, chunk=5, max_staleness=0, **SLOW)
    assert np.array_equal(old.ledger.models_up, result.ledger.models_up)
    assert old.test_loss[0, place - 1] == result.test_loss[0, place - 1]
    assert old.test_loss[0, place] != result.test_loss[0, place]


def test_a_round_without_an_idle_client_lasts_until_the_next_report():
    """The slow client's update is then that of a round without a deadline."""
    result = by_hand(in_order((SECOND,)), rounds=2, chunk=2, **SLOW)
    np.testing.assert_allclose(result.seconds[0], [LIMIT, WHOLE[SECOND] - LIMIT], rtol=1e-5)
    assert result.cohorts[0, :, 0].tolist() == [SECOND, -1] and result.ledger.models_up[0].tolist() == [0, 1]
    alone = by_hand(in_order((SECOND,)), rounds=1, chunk=1)
    assert result.test_loss[0, 1] == alone.test_loss[0, 0] != result.test_loss[0, 0]


def test_reports_after_the_kth_are_late():
    settings = {"over_select": 2.0, "rounds": 4, "chunk": 4}
    used = by_hand(in_order((FIRST, SECOND)), **settings, **USED)
    assert used.ledger.reports_lost[0].tolist() == [0] * 4 and used.ledger.models_up[0].tolist() == [1, 1, 1, 2]
    assert used.measured["staleness"][0, 3] == 1.5


def test_the_factor_of_refl():
    """Sec. 4.2, Eqs. 2 to 4, in float64: the deviation of the mean of the reports in time by a late update."""
    rng, beta, number = np.random.default_rng(2), 0.35, 3
    late_ones, mean = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 5))
    staleness, used = rng.integers(1, 5, (2, 6)), rng.random((2, 6)) < 0.7
    changes = ((number * mean[:, None] + late_ones) / (number + 1) - mean[:, None]) ** 2
    deviation = np.where(used, changes.sum(axis=2) / (mean**2).sum(axis=1)[:, None], 0)
    expected = (1 - beta) / (staleness + 1) + beta * (1 - np.exp(-deviation / deviation.max(axis=1, keepdims=True)))
    whole = jnp.ones((2, 6), bool)
    table = LateReports(whole, staleness, staleness, staleness, whole, (jnp.float32(late_ones), ()))
    found = late.factors(server.refl(), jnp.asarray(staleness), table, jnp.asarray(used), jnp.float32(mean))
    np.testing.assert_allclose(found[used], expected[used], rtol=1e-5)
    none = late.factors(server.refl(), jnp.asarray(staleness), table, ~whole, jnp.float32(mean))
    assert np.isfinite(none).all()


def test_the_table_of_reports_counts_as_memory():
    one, other = (pose(fedjax_sel.Config().replace(**SMALL | {"seeds": 1, "deadline": "q0.5"} | more))
                  for more in ({}, USED))  # fmt: skip
    needed = [seed_groups.needed_bytes(problem, 1) for problem in (one, other)]
    assert needed[1] - needed[0] >= 3 * 20 * 4 * one.model.num_params  # three copies of an update of each client
    with pytest.raises(UserError, match="--late-reports drop") as error:
        seed_groups.seeds_that_fit(other, 1000)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"concurrency": 12}, "no report is late in asynchronous rounds; remove --late-reports"),
        ({"optimizer": "scaffold"}, "--late-reports: scaffold combines .* or --late-reports drop"),
        ({"staleness_args": {"b": 1}}, "did you mean|has no|choose from"),
        ({"late_reports": "keep"}, "drop.*use"),
        ({"concurrency": 12, "late_reports": "drop", "staleness": "refl"}, "--staleness: 'refl' compares late reports"),
    ],
)
def test_bad_input_is_one_line_with_the_fix(settings, message):
    with pytest.raises(UserError, match=message) as error:
        result_of(**LATE_REPORTS | settings)
    assert "\n" not in str(error.value)
