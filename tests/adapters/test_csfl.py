"""Selectors in CSFL-simulator's signature run as strategies, survive a stop, and pay for what they read."""

# ruff: noqa: N803 (CSFL-simulator's signature has an argument K)
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import testing
from fedjax_sel.callbacks import StopAtTarget
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import Evaluation, Fact, Information, Now, Outcome, ServerMetrics
from fedjax_sel.strategies.facts import NEVER
from fedjax_sel.strategies.from_numpy import own_errors
from tests import scripts
from tests.strategies.hooks import env_of

csfl = scripts.load("examples/csfl.py")

N, K, T, C = 6, 2, 4, 3
SMALL = fedjax_sel.Config().replace(
    dataset="synthetic:train_size=120,test_size=30,num_classes=3,image_size=4",
    num_clients=N,
    num_selected=K,
    local_steps=2,
    batch_size=8,
    rounds=T,
    chunk=1,
    seeds=2,
    server_validation=0.1,
)


# Selectors of several families, with every kind of memory.


def by_loss(round_idx, K, clients, history, rng, time_budget=None, device=None):
    ranked = sorted(clients, key=lambda c: (c.last_loss, rng.random()), reverse=True)
    return [c.id for c in ranked[:K]], [c.last_loss for c in clients], {}


def by_fairness(round_idx, K, clients, history, rng, time_budget=None, device=None, weight=1.0):
    def score(c):
        return c.grad_norm - weight * c.participation_count + 0.01 * (round_idx - c.last_selected_round)

    return [c.id for c in sorted(clients, key=score, reverse=True)[:K]], None, None


def by_labels(round_idx, K, clients, history, rng, time_budget=None, device=None):
    covered, ids = history["state"].setdefault("covered", set()), []
    for c in sorted(clients, key=lambda c: (-len(set(c.label_histogram) - covered), -c.data_size))[:K]:
        covered |= set(c.label_histogram)
        ids.append(c.id)
    if len(covered) > 8:
        covered.clear()
    return ids, None, None  # the set was changed in place


def bandit(round_idx, K, clients, history, rng, time_budget=None, device=None, epsilon=0.3, **kwargs):
    state = history.get("state", {}).get("bandit", {"count": {}, "value": {}, "A": np.eye(2), "seen": ()})
    reward = history["state"].get("last_reward", 0.0)
    for k in history["selected"][-1] if history["selected"] else []:
        state["count"][k] = state["count"].get(k, 0) + 1
        state["value"][k] = state["value"].get(k, 0.0) + (reward - state["value"].get(k, 0.0)) / state["count"][k]
        state["A"] = state["A"] + np.outer([1.0, reward], [1.0, reward])
    state["seen"] += (round_idx,)
    ids = [c.id for c in clients]
    rng.shuffle(ids)
    if rng.random() >= epsilon:
        bonus = math.sqrt(np.linalg.inv(state["A"])[0, 0])
        ids.sort(key=lambda k: state["value"].get(k, bonus), reverse=True)
    return ids[:K], None, {"bandit": state}


def by_speed(round_idx, K, clients, history, rng, time_budget=None, device=None):
    fast = [c for c in clients if c.tier > 0 and c.compute_speed >= 0.8 and c.estimated_duration < time_budget]
    return [c.id for c in fast[:K]], None, {}


def pointer(round_idx, K, clients, history, rng, time_budget=None, device=None):
    first = history.get("state", {}).get("pointer", 0)
    ids = [clients[(first + i) % len(clients)].id for i in range(K)]
    return ids, None, {"pointer": (first + K) % len(clients)}


STRATEGIES = {
    "bandit": csfl.csfl("bandit", bandit, reads=["last_reward"], epsilon=0.5),
    "by_loss": csfl.csfl("by_loss", by_loss, reads=["last_loss"]),
    "by_fairness": csfl.csfl("by_fairness", by_fairness, reads=["grad_norm"], weight=0.1),
    "by_labels": csfl.csfl("by_labels", by_labels, reads=["label_histogram"]),
    "by_speed": csfl.csfl("by_speed", by_speed, reads=["tier", "compute_speed", "estimated_duration"], time_budget=1e9),
    "pointer": csfl.csfl("pointer", pointer),
}
BILLS = {  # floats that clients send beside updates, per round
    "by_loss": [K] * T,
    "by_fairness": [0] * T,
    "by_labels": [N * C, *[0] * (T - 1)],
    "bandit": [0] * T,
    "by_speed": [N, *[0] * (T - 1)],
    "pointer": [0] * T,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_stopped_run_goes_on_with_the_same_bits_and_pays_for_facts(name, tmp_path):
    timed = {"timing": "tiers"} if name == "by_speed" else {}
    experiment = fedjax_sel.Experiment.of(SMALL, algo=STRATEGIES[name], **timed)
    whole = fedjax_sel.run(experiment)
    first = fedjax_sel.run(experiment, out=str(tmp_path), callbacks=StopAtTarget(1e-6))
    assert 0 < first.num_rounds < T
    second = fedjax_sel.run(experiment, out=str(tmp_path))
    np.testing.assert_array_equal(second.cohorts, whole.cohorts)
    np.testing.assert_array_equal(second.test_loss, whole.test_loss)
    np.testing.assert_array_equal(whole.ledger.floats_up, [BILLS[name]] * 2)
    asked = [N * (name == "by_speed"), *[0] * (T - 1)]  # the model for the training that measures durations
    assert (whole.ledger.models_down >= asked).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_loss", "bandit"])
def test_strategies_keep_the_contract(name):
    testing.check_strategy(STRATEGIES[name])


# One round after another without training: what a selector sees, and its errors.

ENV = env_of([30, 10, 20, 5, 15, 25], K, T, C, has_clock=True)


def now_of(round=0, available=None, losses=None, known=None):
    """What the server knows; `losses` and `known`: training losses, and the clients whose loss and facts are known."""
    ages = np.where(np.isin(np.arange(N), range(N) if known is None else known), 0, NEVER).astype(np.int32)
    values = {
        "training_loss": np.zeros(N) if losses is None else losses,
        "label_histogram": np.tile([2.0, 0.0, 1.0], (N, 1)),
        "seconds": np.array([3.0, 2.0, 1.0, 1.0, 1.5, 2.5]),
    }
    facts = {kind: Fact(np.asarray(value, np.float32), ages) for kind, value in values.items()}
    return Now(ENV, Information("seen", facts), jnp.int32(round), available)


def outcome_of(round, reported=(True, True), **changes):
    """Updates of norm 5 and 10 over paths of length 0.5; a test accuracy of 0.1 in the first round, 0.2 in the next."""
    evaluation = Evaluation(jnp.int32(0), jnp.float32(0.1 * (round + 1)), jnp.float32(0.0))
    given = {
        "updates": {"a": jnp.array([[3.0], [6.0]]), "b": jnp.array([[4.0], [8.0]])},
        "reported": jnp.array(reported),
        "finite": jnp.array(reported),
        "metrics": ServerMetrics(evaluation, evaluation),
        "path_lengths": jnp.array([0.5, 0.5]),
        "seconds": jnp.array([7.0, 9.0]),
        **changes,
    }
    return Outcome(**{field: given.get(field) for field in Outcome._fields})


def play(strategy, rounds=1, losses=None, known=None, available=None, **changes):
    """Play rounds; return the cohorts and the last state."""
    cohorts = []
    with own_errors():
        state = strategy.init(jax.random.key(0), now_of(known=known))
        for round in range(rounds):
            selection = strategy.select(jax.random.key(round), state, now_of(round, available, None, known))
            cohorts.append(np.asarray(selection.ids)[np.asarray(selection.mask)].tolist())
            after = now_of(round, available, losses, known)
            state = strategy.update(state, after, selection, outcome_of(round, **changes))
    return cohorts, state


ALL_READS = [*csfl.SOURCES]


def watched(**options):
    """A strategy that selects clients 1 and 4, and the list of the arguments of its calls."""
    calls = []

    def select(round_idx, K, clients, history, rng, time_budget=None, device=None):
        calls.append((clients, {key: list(part) if key == "selected" else dict(part) for key, part in history.items()}))
        return [1, 4], None, {"round": round_idx}

    return csfl.csfl("seen", select, reads=ALL_READS, reward_weights={"acc": 1.0, "fair": 1.0}, **options), calls


def test_attributes_before_and_after_a_round():
    strategy, calls = watched(constants={"channel_quality": 0.5, "energy_rate": lambda k: 2 * k})
    play(strategy, rounds=2, losses=[0, 0.5, 0, 0, 0.25, 0], reported=(True, False))
    (clients, history), (again, _), (later, remembered), _ = calls  # each round's selector is called twice
    assert [vars(c) for c in again] == [vars(c) for c in clients]
    first = {key: value for key, value in vars(clients[1]).items() if key != "_missed"}
    assert first == {
        "id": 1, "data_size": 10, "participation_count": 0, "last_selected_round": -1, "last_loss": 0.0,
        "grad_norm": 0.0, "label_histogram": {0: 2.0, 2: 1.0}, "estimated_duration": 2.0, "compute_speed": 0.5,
        "tier": 0, "channel_quality": 0.5, "energy_rate": 2,
    }  # fmt: skip
    assert history == {"state": {}, "selected": []}
    assert [c.tier for c in clients] == [1, 0, 2, 0, 1, 1]  # 10 examples per second are the median
    assert [c.participation_count for c in later] == [0, 1, 0, 0, 0, 0]  # the report of client 4 is lost
    assert [c.last_selected_round for c in later] == [-1, 0, -1, -1, 0, -1]
    assert [c.last_loss for c in later] == [0, 0.5, 0, 0, 0.25, 0]
    assert [c.grad_norm for c in later] == [0, 10, 0, 0, 0, 0]
    assert [c.estimated_duration for c in later] == [3, 7, 1, 1, 1.5, 2.5]
    assert remembered["selected"] == [[1, 4]] and remembered["state"]["round"] == 0
    reward = 0.1 + 1 / (1 + np.var([0, 1, 0, 0, 0, 0]))
    np.testing.assert_allclose(remembered["state"]["last_reward"], reward, rtol=1e-6)


def test_clients_without_a_measurement_have_defaults():
    strategy, calls = watched()
    play(strategy, known=[0, 2])
    unknown, known = vars(calls[0][0][1]), vars(calls[0][0][2])
    assert (unknown["label_histogram"], unknown["estimated_duration"], unknown["compute_speed"]) == (None, 0, 1)
    assert (known["label_histogram"], known["estimated_duration"]) == ({0: 2.0, 2: 1.0}, 1)


def test_only_available_clients_are_offered():
    available = jnp.array([False, True, False, False, True, True])
    assert play(STRATEGIES["pointer"], 2, available=available)[0] == [[1, 4], [5, 1]]
    assert play(STRATEGIES["pointer"], available=jnp.zeros(N, bool))[0] == [[]]
    assert play(STRATEGIES["pointer"], available=jnp.arange(N) == 3)[0] == [[3]]


def test_a_cohort_depends_on_the_seed():
    strategy = csfl.csfl("drawn", lambda t, K, clients, history, rng, *_: (rng.sample(range(N), K), None, None))
    states = [strategy.init(jax.random.key(seed), now_of()) for seed in range(4)]
    cohorts = [strategy.select(jax.random.key(0), state, now_of()).ids.tolist() for state in states]
    assert len({*map(tuple, cohorts)}) > 1


def reading(name, get=getattr):
    return lambda t, K, clients, history, rng, *_: ([0, 1] if get(clients[0], name) else [0, 2], None, None)


def of_state(t, K, clients, history, rng, *_):
    return [0, int(history["state"].get("last_reward", 0.0))], None, None


def remembering(value):
    return lambda t, K, clients, history, rng, *_: ([0, 1], None, {"model": value})


def setting(t, K, clients, history, rng, *_):
    clients[0].utility_estimate = 1.0


class Memory:
    calls = 0

    def __call__(self, t, K, clients, history, rng, *_):
        self.calls += 1
        return [0, self.calls], None, None


@pytest.mark.parametrize(
    "select,words",
    [
        (reading("grad_norm"), r"""Client has no 'grad_norm', because `reads` does not name it; add "grad_norm" to"""),
        (
            reading("channel_quality"),
            r"Client has no 'channel_quality': fedjax_sel does not simulate it; give constants=",
        ),
        (reading("tier", lambda c, name: getattr(c, name, 1)), "Client has no 'tier'"),  # a default does not hide it
        (of_state, r"""history\["state"\] has no 'last_reward', because"""),
        (setting, "sets 'utility_estimate' of a Client"),
        (
            remembering(np.random.default_rng(0)),
            r"history\['state'\]\['model'\] is of type Generator and cannot survive",
        ),
        (remembering(np.random.default_rng(0).random(9999)), r"history takes \d+ bytes .* above state_bytes=65536"),
        (Memory(), r"returned \[0, 1\], and \[0, 2\] when it was called again"),
    ],
)
def test_errors_name_the_strategy_and_the_round(select, words):
    with pytest.raises(UserError, match=rf"^strategy 'mine': `(select|update)` failed in round 1: .*{words}"):
        play(csfl.csfl("mine", select))


def test_a_larger_state_and_a_constant_reward():
    values = np.random.default_rng(0).random(9999)
    state = play(csfl.csfl("mine", remembering(values), state_bytes=200_001))[1]
    np.testing.assert_array_equal(csfl.unpack(state)["state"]["model"], values)
    assert play(csfl.csfl("mine", of_state, constants={"last_reward": 3.0}))[0] == [[0, 3]]


def test_a_missing_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Client has no 'position'"):
        csfl.Client(id=0, _missed=[]).position  # noqa: B018


def test_unknown_reads():
    with pytest.raises(UserError, match=r"^reads of mine: unknown 'last_los'; choose from last_loss, grad_norm, "):
        csfl.csfl("mine", by_loss, reads=["last_los"])


def test_history_survives_exactly():
    history = {
        "state": {3: 0.1, "a": (1, [None, True, {2, 1}]), (0, 1): frozenset({"x"}), 2.5: float("inf"), None: {}},
        "selected": [[1, 2], []],
    }
    found = csfl.unpack(csfl.pack(history, 4096))
    assert repr(found) == repr(history)
    arrays = {
        "float64": np.eye(2) / 3,
        "view": np.arange(6, dtype=np.int8)[::2],
        "none": np.zeros((0, 3)),
        "text": "\0",
    }
    found = csfl.unpack(csfl.pack(arrays | {"scalar": np.float32(0.1)}, 4096))
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert np.asarray(found[name]).dtype == np.asarray(array).dtype
    assert type(found["scalar"]) is np.float32 and found["scalar"] == np.float32(0.1)
    found["float64"][0, 0] = 1.0  # arrays can be changed in place
