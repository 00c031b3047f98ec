"""The protocol: hooks and facts in the documented order, in plain Python, for whatever server."""

import ast
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import strategies
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.checks import COUNTS
from fedjax_sel.strategies.contract import Now, Selection, Strategy, keep_state
from fedjax_sel.strategies.facts import ALL, CANDIDATES, NEVER, SELECTED, Request, always, at_start, every
from fedjax_sel.strategies.protocol import Keys, SelectionState
from fedjax_sel.testing import bench
from fedjax_sel.testing.bench import World
from tests.strategies.hooks import env_of, now_of

N, K, T = 6, 2, 4
PACKAGE = Path(fedjax_sel.__file__).parent
HOOKS = ("init", "observe", "candidates", "select", "update")
HERE, ABSENT = np.array([1, 1, 1, 1, 1, 0], bool), 5


def talker(log, *requests):
    """A strategy of NumPy and side effects: it says what is called, and with what."""

    def hook(name, answer):
        def call(*arguments):
            log.append((name, *arguments))
            return answer(*arguments)

        return call

    cohort = Selection(np.array([3, 1]), None, np.array([True, False]))
    return Strategy(
        "talker",
        requests=requests,
        observe=hook("observe", lambda state, *_: f"{state}, observed"),
        candidates=hook("candidates", lambda *_: np.array([3, ABSENT])),
        select=hook("select", lambda *_: cohort),
        update=hook("update", lambda state, *_: f"{state}, updated"),
    )


def test_a_round_in_the_documented_order_outside_jit():
    log = []
    strategy = talker(log, *(Request("loss", who, always()) for who in (ALL, CANDIDATES, SELECTED)))
    empty = protocol.empty_information(strategy, COUNTS, N)

    def serve(info, bill, who, ids=None, mask=None, arrives=None):
        log.append(("serve", who, ids, mask, arrives))
        heard = HERE if ids is None else np.isin(np.arange(N), ids) & HERE
        return protocol.enter_answers(info, "loss", jnp.full((N,), float(bill)), heard), bill + 1

    known = SelectionState("state", Now("environment", empty, 7, HERE), 1)
    known, choice = protocol.select(strategy, serve, known, Keys("for candidates", "for the cohort"))
    assert known.bill == 3 and choice.candidates.tolist() == [3, ABSENT]
    arrives = np.array([False, False])
    known = protocol.query_cohort(serve, known, choice.selection, arrives)
    outcome = SimpleNamespace()
    known = protocol.learn(strategy, known, choice.selection, outcome)

    asked_all, observe, candidates, asked_candidates, select, asked_cohort, update = log
    assert asked_all == ("serve", ALL, None, None, None)
    assert observe[:2] == ("observe", "state")
    assert observe[2].info.loss.value.tolist() == [1, 1, 1, 1, 1, 0] and observe[2].info.loss.age[ABSENT] == NEVER
    assert candidates == ("candidates", "for candidates", "state, observed", observe[2])
    assert asked_candidates == ("serve", CANDIDATES, choice.candidates, None, None)
    assert select[:3] == ("select", "for the cohort", "state, observed")
    assert select[3].info.loss.value.tolist() == [1, 1, 1, 2, 1, 0]
    assert asked_cohort == ("serve", SELECTED, choice.selection.ids, choice.selection.mask, arrives)
    assert (*update[:2], *update[3:]) == ("update", "state, observed", choice.selection, outcome)
    assert update[2].info.loss.value.tolist() == [1, 3, 1, 3, 1, 0] and update[2].info.loss.age[1] == 0
    for now in (observe[2], select[3], update[2]):
        assert (now.env, now.round, now.available) == ("environment", 7, HERE)
    assert known.state == "state, observed, updated" and known.bill == 4
    assert known.now.info.loss.age.tolist() == [1, 1, 1, 1, 1, NEVER]  # a round older


def test_without_a_request_to_candidates_nobody_is_named():
    log = []
    strategy = talker(log, Request("loss", SELECTED, every(2)))
    known = SelectionState("state", Now(None, protocol.empty_information(strategy, COUNTS, N), 0, None))
    known, choice = protocol.select(strategy, lambda info, bill, who: (info, bill), known, Keys(0, 1))
    assert choice.candidates is None and [name for name, *_ in log] == ["observe", "select"]


def test_who_is_asked_for_what():
    first, later, cohort = (
        Request("profile", ALL, at_start()),
        Request("loss", ALL, at_start() | every(3)),
        Request("loss", SELECTED, always()),
    )
    strategy = talker([], first, later, cohort)
    assert protocol.requests_at_start(strategy) == [(0, first), (1, later)]
    assert protocol.requests_to(strategy, ALL) == [(1, later)]
    assert protocol.requests_to(strategy, SELECTED) == [(2, cohort)]
    assert protocol.requests_to(strategy, CANDIDATES) == []


def test_init_works_in_float64_and_gives_32_bits():
    seen, traced = [], []

    def init(key, now):
        traced.append(0)
        wide = now.info.profile.value.astype(jnp.float64).sum() + 1e-12
        seen.append(wide.dtype)
        return {"sum": wide, "count": now.round + jnp.int64(5), "key": key, "raw": jax.random.bits(key, (2,), "uint64")}

    strategy = Strategy("beginning", None, (Request("profile", ALL, at_start()),), init=init)
    now = now_of(env_of([5] * N, K), protocol.empty_information(strategy, COUNTS, N))
    shapes = protocol.state_shapes(strategy, jax.random.key(5), now)
    for _ in range(2):
        state = protocol.initial_state(strategy, jax.random.key(5), now)
        assert (state["sum"].dtype, state["count"].dtype, int(state["count"])) == (np.float32, np.int32, 5)
        assert state["raw"].dtype == np.uint32
        assert jax.random.key_data(state["key"]).tolist() == jax.random.key_data(jax.random.key(5)).tolist()
        assert {name: (leaf.shape, leaf.dtype) for name, leaf in state.items()} == {
            name: (leaf.shape, leaf.dtype) for name, leaf in shapes.items()
        }
    assert seen[-1] == np.float64 and len(traced) == 2  # for the shapes, and once for all replicates
    assert protocol.initial_state(strategies.make("random"), jax.random.key(5), now) == ()


@pytest.mark.slow
@pytest.mark.parametrize("available", [None, True], ids=["everyone there", "some absent"])
def test_over_replicates_is_each_replicate_by_itself(available):
    strategy = strategies.make("pow_d")
    seeds, one = jax.random.split(jax.random.key(3), 3), protocol.empty_information(strategy, COUNTS, N)
    infos = [protocol.enter_answers(one, "loss", jnp.arange(N) * float(s), jnp.ones((N,), bool)) for s in (1, -1, 2)]
    there = [None] * 3 if available is None else [jnp.array(mask) for mask in (HERE, HERE[::-1], ~HERE | HERE)]
    env = env_of(range(5, 5 + N), K)
    nows = [now_of(env, info, 1, mine) for info, mine in zip(infos, there)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nows)._replace(round=jnp.int32(1))

    all_at_once = protocol.over_replicates(strategy)
    together = all_at_once.select(seeds, (), stacked)
    for place in range(3):
        alone = strategy.select(seeds[place], (), nows[place])
        np.testing.assert_array_equal(together.ids[place], alone.ids)
    assert all_at_once.update is keep_state and all_at_once.requests == strategy.requests


@pytest.mark.slow
@pytest.mark.parametrize("name", ["afl", "fl_dp3s", "pow_d"])
def test_a_server_that_is_told_facts_selects_as_one_that_asks(name):
    """Facts that come from outside, step by step and without jit: the cohorts are those of the kit's compiled game."""
    strategy, game = strategies.make(name), bench.Options(N, K, T)
    table = World.ordinary(strategy, N, T, seed=1).sparse(K)._replace(missing=np.zeros((T, N), bool))
    world = jax.tree.map(jnp.asarray, table)
    key = jax.random.key(2)
    start = bench.start_of(strategy, game, key, world)
    carry = bench.initial_carry(strategy, *jax.tree.map(lambda leaf: leaf[None], start))
    carry = jax.tree.map(lambda leaf: leaf[0], carry)
    wanted = jax.jit(lambda carry: bench.play_rounds(strategy, game, T, carry, key, world)[1])(carry)

    state, now = jax.tree.map(jnp.asarray, protocol.initial_state(strategy, *start)), start.now

    def tell(now, who, clients):
        info = now.info
        for _, request in protocol.requests_to(strategy, who):
            if request.when.due(now.round):
                heard = jnp.zeros((N,), bool).at[jnp.asarray(clients, int)].set(True)
                info = protocol.enter_answers(info, request.kind, world.facts[request.kind][now.round], heard)
        return now._replace(info=info)

    for round in range(T):
        for_candidates, for_select = jax.random.split(jax.random.fold_in(key, round))
        now = now._replace(round=jnp.int32(round), available=world.available[round])
        present = set(np.flatnonzero(now.available).tolist())
        now = tell(now, ALL, sorted(present))
        state, candidates = protocol.observe(strategy, state, now, for_candidates)
        if candidates is not None:
            now = tell(now, CANDIDATES, sorted(present & set(candidates.tolist())))
        cohort = strategy.select(for_select, state, now)
        assert cohort.ids.tolist() == wanted.ids[round].tolist()
        now = tell(now, SELECTED, cohort.ids[cohort.mask])
        outcome = bench.outcome_of(strategy, world, jnp.int32(round), cohort)
        state, now, _ = protocol.learn(strategy, SelectionState(state, now), cohort, outcome)


def test_nobody_else_calls_a_strategys_hooks():
    """The order is written once."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            of_strategy = isinstance(called, ast.Attribute) and ast.unparse(called.value).split(".")[-1] == "strategy"
            if of_strategy and called.attr in HOOKS:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"strategies/protocol.py"}
