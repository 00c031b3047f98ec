"""The simulated clock: rounds computed by hand, deadlines, over-selection, and jitter.

Three clients with n = 8, 16 and 24 examples; all figures below are for a model of P parameters. A client spends its
latency l, downloads at d bytes/s, trains s seconds an example, and uploads at u bytes/s.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import timing
from fedjax_sel.errors import UserError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import clock, keys, run
from fedjax_sel.strategies.contract import Outcome, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, SELECTED, Request, always, at_start  # fmt: skip
from fedjax_sel.timing import Clients, Clock, Timing

SIZES = np.array([8.0, 16.0, 24.0])
SPEED = Timing(
    np.array([0.01, 0.02, 0.04]), np.array([1e4, 2e4, 4e3]), np.array([5e3, 1e3, 2e3]), np.array([0.1, 0.2, 0.3])
)
S, DOWN, UP, LATENCY = SPEED
CLASSES, INPUTS = 4, 9
PARAMETERS = CLASSES * INPUTS + CLASSES  # logistic regression
MODEL = 4.0 * PARAMETERS  # bytes
TRAIN, FORWARD = SIZES * S, SIZES * S / 3
WHOLE = LATENCY + MODEL / DOWN + TRAIN + MODEL / UP  # a client's own round
ANSWER = LATENCY + 4 / UP  # one float, without model and work
FETCH, SEND = MODEL / DOWN, MODEL / UP
STATIC = {
    "dataset": f"synthetic:train_size=48,test_size=8,num_classes={CLASSES},image_size=3", "model": "logistic",
    "partition": [np.arange(8), np.arange(8, 24), np.arange(24, 48)], "local_epochs": 1, "batch_size": 4, "rounds": 3,
    "timing": SPEED,
}  # fmt: skip
EVERYBODY = (0, 1, 2)


def fixed(*ids, requests=(), update=None):
    """A strategy that selects the same clients in every round, and names all as candidates."""
    mask = jnp.ones((len(ids),), bool)
    more = {} if update is None else {"update": update}
    if any(request.who == CANDIDATES for request in requests):
        more["candidates"] = lambda key, state, now: jnp.arange(3, dtype=jnp.int32)
    return Strategy(
        "fixed", lambda key, state, now: Selection(jnp.array(ids, jnp.int32), None, mask), tuple(requests),
        lambda key, now: jnp.zeros((2,)), **more,
    )  # fmt: skip


def seconds_of(strategy, num_selected, **settings):
    experiment = fedjax_sel.Experiment.of(**STATIC | {"algo": strategy, "num_selected": num_selected} | settings)
    return fedjax_sel.run(experiment)


def reads_losses(state, now, selection, outcome: Outcome):
    return state + outcome.losses_before.sum() + outcome.losses_after.sum()


def slowest(*exchanges):
    """The duration of exchanges in sequence, each as long as its slowest client."""
    return sum(exchange.max() for exchange in exchanges)


ASKED = ANSWER + FETCH  # a client that receives the model to send one float
AFTER = WHOLE - FETCH  # a client's training if it has the model
REPORT = LATENCY + SEND  # and if it has already trained
CASES = {  # requests -> the first round and the later rounds, with all three clients in the cohort
    "nothing": ((), WHOLE.max(), WHOLE.max()),
    "loss of all": ([Request("loss", ALL, always())], *[slowest(ASKED + FORWARD, AFTER)] * 2),
    "loss of candidates": ([Request("loss", CANDIDATES, always())], *[slowest(ASKED + FORWARD, AFTER)] * 2),
    "loss of the cohort": ([Request("loss", SELECTED, always())], *[slowest(WHOLE + FORWARD + 4 / UP)] * 2),
    "training loss of the cohort": ([Request("training_loss", SELECTED, always())], *[slowest(WHOLE + 4 / UP)] * 2),
    "gradient at the start": (
        [Request("gradient", ALL, at_start())], slowest(LATENCY + FETCH + TRAIN + SEND, AFTER), WHOLE.max(),
    ),
    "labels": ([Request("label_histogram", ALL, always())], *[slowest(LATENCY + CLASSES * 4 / UP, WHOLE)] * 2),
    "length of updates": ([Request("update_norm", ALL, always())], *[slowest(ASKED + TRAIN, REPORT)] * 2),
    "updates": ([Request("update", ALL, always())], *[slowest(LATENCY + FETCH + TRAIN + SEND, REPORT)] * 2),
    "durations": ([Request("seconds", ALL, at_start())], slowest(ASKED + TRAIN, AFTER), WHOLE.max()),
    "losses and labels": (
        [Request("loss", ALL, always()), Request("label_histogram", ALL, always())],
        *[slowest(ASKED + FORWARD + CLASSES * 4 / UP, AFTER)] * 2,
    ),
    "probes": (
        [Request("loss_change", ALL, always(), (("probes", 2),))],
        *[slowest(WHOLE, WHOLE, LATENCY + 3 * FETCH + 3 * FORWARD + 3 * 4 / UP, AFTER)] * 2,
    ),
}  # fmt: skip


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("case", CASES)
def test_a_round_by_hand(case):
    requests, first, later = CASES[case]
    result = seconds_of(fixed(*EVERYBODY, requests=requests), 3)
    np.testing.assert_allclose(result.seconds, [[first, later, later]], rtol=1e-5)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "requests,before,first",
    [
        ([Request("loss_change", ALL, always())], [WHOLE + FETCH, ASKED + FETCH + 2 * FORWARD + 4 / UP], None),
        ([Request("update", ALL, at_start())], [LATENCY + FETCH + TRAIN + SEND], 0),
    ],
)
def test_scaffolds_vectors_travel_as_they_are_billed(requests, before, first):
    """Two vectors with the cohort's training; no vector before the first round, and none in a probe's reports."""
    training = WHOLE + FETCH + SEND
    with_query = slowest(*before, training - FETCH)
    expected = [with_query if first in (None, round) else slowest(training) for round in range(3)]
    result = seconds_of(fixed(*EVERYBODY, requests=requests), 3, optimizer="scaffold")
    np.testing.assert_allclose(result.seconds, [expected], rtol=1e-5)
    ledger = result.ledger
    assert ledger.bytes_up[0, 1] == 2 * 3 * MODEL + (3 * MODEL + 3 * 2 * 4 if first is None else 0)


@pytest.mark.slow
def test_losses_that_a_strategy_reads_take_two_forward_passes():
    result = seconds_of(fixed(0, 1, update=reads_losses), 2)
    np.testing.assert_allclose(result.seconds, slowest((WHOLE + 2 * FORWARD + 8 / UP)[:2]) * np.ones((1, 3)), rtol=1e-5)


@pytest.mark.slow
def test_the_server_adds_its_own_seconds():
    result = seconds_of(fixed(0, 1), 2, server_seconds=0.5)
    np.testing.assert_allclose(result.seconds, (WHOLE[:2].max() + 0.5) * np.ones((1, 3)), rtol=1e-5)


def test_a_late_report_is_lost_and_the_round_ends_at_the_deadline():
    order = np.argsort(WHOLE)
    limit = (WHOLE[order[1]] + WHOLE[order[2]]) / 2
    result = seconds_of(fixed(*EVERYBODY), 3, deadline=f"{limit}")
    np.testing.assert_allclose(result.seconds, limit * np.ones((1, 3)), rtol=1e-6)
    assert (result.ledger.reports_lost == 1).all() and (result.ledger.models_up == 2).all()
    assert (result.ledger.models_down == 3).all()


def test_few_available_clients_end_a_round_early_and_none_at_once():
    """Not at the deadline: one of two places is filled, then none, then both."""
    present = np.array([[False, False, True], [False] * 3, [True, True, False]])
    result = seconds_of("random", 2, available=present, deadline="60", server_seconds=0.5)
    np.testing.assert_allclose(result.seconds, [[WHOLE[2] + 0.5, 0.5, WHOLE[:2].max() + 0.5]], rtol=1e-5)


ROWS = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]], bool)


def test_availability_follows_the_clock():
    """A row lasts half a second. A client that goes offline loses its report; without clients, the next row begins."""
    seconds = [WHOLE[1], WHOLE[2], WHOLE[2], 3.5 - WHOLE[1] - 2 * WHOLE[2], WHOLE[1]]
    starts = np.cumsum([0, *seconds[:-1]])
    assert (np.floor(starts[:3] / 0.5) == [0, 1, 4]).all() and starts[3] < 3.5
    result = seconds_of(fixed(*EVERYBODY), 3, available=ROWS, availability_seconds=0.5, rounds=5)
    np.testing.assert_allclose(result.seconds, [seconds], rtol=1e-4)
    assert result.ledger.models_down[0].tolist() == [2, 2, 1, 0, 2]  # the rows start again after the last
    assert result.ledger.models_up[0].tolist() == [1, 2, 0, 0, 1]
    assert result.ledger.reports_lost[0].tolist() == [1, 0, 1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("available", [0.5, "daily", "markov"])
def test_shares_and_modes_follow_the_clock(available):
    settings = TIERS | {"available": available, "rounds": 30}
    by_round, by_clock = (
        fedjax_sel.run(fedjax_sel.Config().replace(**settings, availability_seconds=seconds)) for seconds in (None, 0.5)
    )
    assert not np.array_equal(by_round.cohorts, by_clock.cohorts) and (by_clock.seconds > 0).all()
    assert by_clock.ledger.reports_lost.sum() > by_round.ledger.reports_lost.sum()


@pytest.mark.slow
def test_a_run_ends_after_its_simulated_seconds(tmp_path):
    config = fedjax_sel.Config().replace(**TIERS | {"rounds": 20, "chunk": 2, "deadline": None})
    whole = fedjax_sel.run(config)
    limits = whole.seconds_spent.min(axis=0)[[5, 10]] - 1e-3  # of the faster seed
    last = [int((whole.seconds_spent >= limit).all(axis=0).argmax()) for limit in limits]
    short, longer = (config.replace(out=tmp_path / "run", max_seconds=float(limit)) for limit in limits)
    for limited, round in zip((short, short, longer), (last[0], *last)):
        result = fedjax_sel.run(limited)
        assert result.finished and result.num_rounds == 2 * (round // 2 + 1) < 20
        assert np.array_equal(result.seconds, whole.seconds[:, : result.num_rounds])
    assert fedjax_sel.load(tmp_path / "run").finished
    with pytest.raises(fedjax_sel.UserError, match=r"^--max-seconds: .* is below the limit of .*; give at least"):
        fedjax_sel.run(short)
    fedjax_sel.run(config.replace(out=tmp_path / "whole"))
    with pytest.raises(fedjax_sel.UserError, match=r"^--max-seconds: .* is below the limit of .*; leave it out"):
        fedjax_sel.run(short.replace(out=tmp_path / "whole"))


@pytest.mark.slow
def test_chunks_end_at_multiples_after_an_extension_too(tmp_path):
    """Else seconds would end an extended run in another round, without the evaluation of a chunk's last round."""
    settings = TIERS | {"chunk": 4, "deadline": None, "client_test": 0.2, "batch_size": 5, "rounds": 14}
    config = fedjax_sel.Config().replace(**settings | {"eval_every": 14, "eval_clients_every": 0})
    limit = float(fedjax_sel.run(config).seconds_spent.max(axis=0)[6])  # within rounds 4 to 7
    whole = fedjax_sel.run(config.replace(max_seconds=limit))
    limited = config.replace(max_seconds=limit, out=tmp_path / "run")
    assert fedjax_sel.run(limited.replace(rounds=2)).num_rounds == 2
    extended = fedjax_sel.run(limited)
    assert extended.num_rounds == whole.num_rounds == 8
    np.testing.assert_array_equal(extended.cohorts, whole.cohorts)
    for measure in ("test_accuracy", "client_test_accuracy"):
        last, expected = (result.measured[measure][:, -1] for result in (extended, whole))
        np.testing.assert_allclose(last, expected, atol=0.01)


@pytest.mark.parametrize("max_seconds,evaluated", [(1e-3, [2]), (1e6, [2, 3])])
def test_a_run_that_seconds_end_is_evaluated_at_its_end(tmp_path, max_seconds, evaluated):
    """Each chunk's last round can be the last one, and is evaluated, on the clients' own tests, too."""
    settings = TIERS | {"chunk": 2, "deadline": None, "eval_every": 5, "client_test": 0.2, "batch_size": 5, "rounds": 3}
    config = fedjax_sel.Config().replace(**settings, max_seconds=max_seconds, out=str(tmp_path))
    result = fedjax_sel.run(config)
    assert result.finished
    for found in (result, fedjax_sel.load(tmp_path)):
        for measure in ("test_accuracy", "client_test_accuracy"):
            rounds = [1 + np.flatnonzero(np.isfinite(own)) for own in found.measured[measure]]
            assert all(own.tolist() == evaluated for own in rounds)


@pytest.mark.slow
def test_a_deadline_bounds_neither_probes_nor_answers():
    limit = WHOLE.min() * 1.01
    result = seconds_of(fixed(*EVERYBODY, requests=[Request("loss_change", ALL, always())]), 3, deadline=f"{limit}")
    expected = slowest(WHOLE, LATENCY + 2 * FETCH + 2 * FORWARD + 2 * 4 / UP) + limit
    np.testing.assert_allclose(result.seconds, expected * np.ones((1, 3)), rtol=1e-5)


@pytest.mark.slow
def test_a_deadline_can_be_a_quantile_of_all_clients():
    by_quantile = seconds_of(fixed(*EVERYBODY), 3, deadline="q0.5")
    np.testing.assert_allclose(by_quantile.seconds, np.median(WHOLE) * np.ones((1, 3)), rtol=1e-5)


@pytest.mark.slow
def test_the_slowest_client_reports_by_a_deadline_of_its_own_duration():
    """NumPy computes the deadline, and the round's program the duration: their last bits differ in some seeds."""
    result = seconds_of(fixed(*EVERYBODY), 3, deadline="q1", timing="lognormal", seeds=40)
    assert (result.ledger.reports_lost == 0).all()


def test_the_first_reports_count_and_the_others_are_lost_and_billed():
    result = seconds_of(fixed(*EVERYBODY), 2, over_select=1.5)
    np.testing.assert_allclose(result.seconds, np.sort(WHOLE)[1] * np.ones((1, 3)), rtol=1e-5)
    assert (result.ledger.reports_lost == 1).all() and (result.ledger.models_down == 3).all()
    assert (result.ledger.examples_trained == SIZES.sum()).all()


def test_strategies_see_the_seconds_of_reports_and_buy_those_of_all():
    def keep(state, now, selection, outcome):
        return outcome.seconds

    limit = np.sort(WHOLE)[1:].mean()
    strategy = fixed(*EVERYBODY, update=keep)._replace(init=lambda key, now: jnp.full((3,), float(now.env.has_clock)))
    problem = pose(fedjax_sel.Experiment.of(**STATIC, algo=strategy, num_selected=3, deadline=f"{limit}", chunk=3))
    program = run.prepare(problem)
    assert (program.carry.strategy == 1.0).all()
    carry, _ = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    np.testing.assert_allclose(carry.strategy[0], np.where(limit >= WHOLE, WHOLE, 0.0), rtol=1e-5)
    bought = fixed(0, requests=[Request("seconds", ALL, at_start())])
    program = run.prepare(pose(fedjax_sel.Experiment.of(**STATIC, algo=bought, num_selected=1)))
    np.testing.assert_allclose(program.carry.info.seconds.value[0], WHOLE, rtol=1e-5)


@pytest.mark.slow
def test_oort_learns_from_reports_in_time_alone():
    settings = {"algo": "oort", "algo_args": {"system": "clock"}, "num_selected": 2, "over_select": 1.5, "chunk": 1}
    program = run.prepare(pose(fedjax_sel.Experiment.of(**STATIC | settings)))
    np.testing.assert_allclose(program.carry.strategy.pacer.durations[0], WHOLE, rtol=1e-5)
    carry, _ = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    reported = AFTER + 4 / UP  # clients that answered before the first round have the model
    in_time = reported < reported.max()
    np.testing.assert_allclose(carry.strategy.pacer.durations[0], np.where(in_time, reported, WHOLE), rtol=1e-5)
    assert ((carry.strategy.utilities[0] > 0) == in_time).all() and (carry.strategy.count[0] == in_time).all()


def test_jitter_is_lognormal_and_depends_on_seed_and_round_alone():
    plan = pose(fedjax_sel.Experiment.of(**STATIC, num_selected=2, algo=fixed(0, 1)))
    streams = keys.streams(keys.roots(range(50), {}))
    given = Timing(*(jnp.ones((50, 200)) for _ in range(4)))
    timed = run.prepare(plan).plan._replace(clock=Clock(0.5, 2, 0.0))
    of_rounds = [clock.speeds(timed, given, streams, jnp.int32(round)) for round in (0, 1)]
    factors = [speeds.latency for speeds in of_rounds if speeds is not None]
    logs = np.log(np.stack(factors))
    assert abs(logs.mean()) < 4 * 0.5 / np.sqrt(logs.size) and abs(logs.std() - 0.5) < 0.01
    assert abs(np.corrcoef(logs[0].ravel(), logs[1].ravel())[0, 1]) < 0.04
    np.testing.assert_allclose(of_rounds[0].down * factors[0], 1.0, rtol=1e-6)


TIERS = {
    "dataset": "synthetic:train_size=200,test_size=20,num_classes=4,image_size=4", "num_clients": 20,
    "num_selected": 4, "algo": "random", "local_steps": 2, "rounds": 4, "timing": "tiers", "seeds": 2,
    "timing_args": {"jitter": 0.3}, "over_select": 1.5, "deadline": "q0.9",
}  # fmt: skip


@pytest.mark.slow
def test_a_resumed_run_continues_the_clock_to_the_bit(tmp_path):
    whole = fedjax_sel.run(fedjax_sel.Config().replace(**TIERS))
    first = fedjax_sel.Config().replace(**TIERS | {"rounds": 2, "out": tmp_path / "run", "chunk": 1})
    fedjax_sel.run(first)
    rest = fedjax_sel.run(first.replace(rounds=4))
    assert np.array_equal(whole.seconds, rest.seconds) and len(np.unique(whole.seconds)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("limit,idle", [(1e-3, True), (1e6, False)])
def test_rounds_without_clients_are_said_because_they_last_no_time(capsys, limit, idle):
    config = fedjax_sel.Config().replace(**TIERS | {"algo": "fedcs", "algo_args": {"round_seconds": limit}})
    result = fedjax_sel.run(config, progress=True)
    assert (result.seconds[:, 1:] == 0).all() == idle  # durations are measured before the first round
    assert ("6 of 8 seed-rounds have no client and last 0 simulated seconds" in capsys.readouterr().err) == idle


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"deadline": "0.001"}, "no client reports within"),
        ({"deadline": "q2"}, "neither seconds above 0 nor a quantile"),
        ({"over_select": 9.0}, "selects 36, but there are 20"),
        ({"over_select": float("nan")}, "nan must be finite and at least 1"),
        ({"timing_args": {"jitter": -1}}, "jitter"),
        ({"timing_args": {"shares": "0.5:0.6:0.1"}}, "add up to 1"),
        ({"timing": "rapid"}, "rapid"),
        ({"aggregation": "unbiased"}, "unbiased"),
    ],
)
def test_bad_input_is_one_line_with_the_fix(settings, message):
    with pytest.raises(UserError, match=message):
        run.prepare(pose(fedjax_sel.Experiment.of(**TIERS | settings)))


def test_files_of_devices(tmp_path):
    rows = [
        "client,seconds_per_example,down,up,latency",
        "1,0.02,2e4,1e3,0.2",
        "0,0.01,1e4,5e3,0.1",
        "2,0.04,4e3,2e3,0.3",
    ]
    own = tmp_path / "devices.csv"
    own.write_text("\n".join(rows))
    result = seconds_of(fixed(0, 1), 2, timing=str(own))
    np.testing.assert_allclose(result.seconds, WHOLE[:2].max() * np.ones((1, 3)), rtol=1e-5)
    for text, message in (
        ("", "no rows"),
        (rows[0] + "\n0,0,1,1,1", "above 0"),
        (rows[0] + "\n0,1,1,1,1", "1 clients"),
    ):
        own.write_text(text)
        with pytest.raises(UserError, match=message):
            seconds_of(fixed(0, 1), 2, timing=str(own))


def drawn(law, number=20_000, seed=0):
    counts = np.zeros((number, 2), int)
    counts[np.arange(number), np.arange(number) % 2] = 10
    return law.draw(np.random.default_rng(seed), Clients(np.full(number, 10), counts))


def test_the_laws_of_devices_have_the_moments_that_they_state():
    slowness = np.log(drawn(timing.lognormal()).seconds_per_example)
    np.testing.assert_allclose([np.median(slowness), slowness.std()], [np.log(0.0136), 0.6], atol=0.02)
    later = drawn(timing.correlated(correlation=1.0)).seconds_per_example
    assert later[1::2].min() > later[::2].max()  # clients of the second label are slower
    phones = drawn(timing.tiers())
    for down, share, median in ((7.2e6, 0.06, 0.0179), (4.3e6, 0.44, 0.0588), (3.7e6, 0.5, 0.164)):
        own = np.log(phones.seconds_per_example[phones.down == np.float32(down)])
        np.testing.assert_allclose(
            [len(own) / 20_000, np.median(own), own.std()], [share, np.log(median), 0.24], atol=0.02
        )
    assert set(drawn(timing.tiers(spread=0.0)).seconds_per_example) == set(np.float32([0.0179, 0.0588, 0.164]))


def test_rounds_of_tiers_last_longer_in_some_seeds_than_in_others():
    assert len(np.unique(seconds_of(fixed(*EVERYBODY), 3, timing="tiers", seeds=3).seconds)) == 3


HEADER = "client,seconds_per_example,down,up,latency\n"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "name,content,message",
    [
        ("no_header.csv", "0,0.01,1,1,1\n1,0.01,1,1,1\n", "first line does not name the column client"),
        ("short.csv", HEADER + "0,0.01,1,1,1\n1,0.01,1\n", "row 2 does not have one value per column"),
        ("long.csv", HEADER + "0,0.01,1,1,1,1\n", "row 1 does not have one value per column"),
        ("field.csv", HEADER + f"0,0.01,{'1' * 131_073},1,1\n", "larger than field limit"),
        ("twice.csv", HEADER + "0,0.01,1,1,1\n0,0.01,1,1,1\n", "must list 0 to 1 once each"),
        ("words.csv", HEADER + "0,fast,1,1,1\n", "could not convert string to float"),
    ],
)
def test_damaged_files_of_devices_are_one_clear_line(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        timing.from_file(path=str(file))
    assert str(raised.value).startswith("--timing: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "value", [(0.01, 1e6, 1e6, 0.1), ([0.01, 0.02], [1.0, 2.0, 3.0], 1, 0), ([[1], [1, 2]], 1, 1, 0)]
)
def test_values_of_devices_are_one_number_per_client(value):
    with pytest.raises(UserError, match=r"timing: .*give one number per client"):
        fedjax_sel.Experiment.of(timing=timing.Timing(*value))


@pytest.mark.parametrize("law", [timing.correlated(), timing.tiers(by="label")])
def test_devices_that_depend_on_labels_need_classes(law):
    with pytest.raises(UserError, match="--timing: its devices depend on labels, but the data have no classes"):
        law.draw(np.random.default_rng(0), Clients(np.full(5, 10), np.zeros((5, 0), int)))
