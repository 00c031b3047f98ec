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
from fedjax_sel.strategies.base import NEVER, Selection, Strategy, keep_state
from fedjax_sel.strategies.contract import COUNTS
from fedjax_sel.strategies.facts import ALL, CANDIDATES, SELECTED, Request, always, at_start, every
from fedjax_sel.strategies.protocol import Keys, SelectionState
from fedjax_sel.testing import bench
from fedjax_sel.testing.bench import World

N, K, T = 6, 2, 4
PACKAGE = Path(fedjax_sel.__file__).parent
HOOKS = ("prepare", "observe", "candidates", "select", "update")
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
        init=lambda key, env: "first state",
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

    known, choice = protocol.select(
        strategy, serve, SelectionState("state", empty, 1), Keys("for candidates", "for the cohort"), 7, HERE
    )
    assert known.bill == 3 and choice.candidates.tolist() == [3, ABSENT]
    arrives = np.array([False, False])
    known = protocol.query_cohort(serve, known, choice.selection, arrives)
    reports, outcome = choice.selection._replace(mask=arrives), SimpleNamespace()
    known = protocol.learn(strategy, known, 7, reports, outcome)

    asked_all, observe, candidates, asked_candidates, select, asked_cohort, update = log
    assert asked_all == ("serve", ALL, None, None, None)
    assert (*observe[:2], *observe[3:]) == ("observe", "state", 7, HERE)
    assert observe[2].loss.value.tolist() == [1, 1, 1, 1, 1, 0] and observe[2].loss.age[ABSENT] == NEVER
    assert candidates == ("candidates", "for candidates", "state, observed", observe[2], 7, HERE)
    assert asked_candidates == ("serve", CANDIDATES, choice.candidates, None, None)
    assert (*select[:3], *select[4:]) == ("select", "for the cohort", "state, observed", 7, HERE)
    assert select[3].loss.value.tolist() == [1, 1, 1, 2, 1, 0]
    assert asked_cohort == ("serve", SELECTED, choice.selection.ids, choice.selection.mask, arrives)
    assert (*update[:2], *update[3:]) == ("update", "state, observed", 7, reports, outcome)
    assert update[2].loss.value.tolist() == [1, 3, 1, 3, 1, 0] and update[2].loss.age[1] == 0
    assert known.state == "state, observed, updated" and known.bill == 4
    assert known.info.loss.age.tolist() == [1, 1, 1, 1, 1, NEVER]  # a round older


def test_without_a_request_to_candidates_nobody_is_named():
    log = []
    strategy = talker(log, Request("loss", SELECTED, every(2)))
    known = SelectionState("state", protocol.empty_information(strategy, COUNTS, N))
    known, choice = protocol.select(strategy, lambda info, bill, who: (info, bill), known, Keys(0, 1), 0, None)
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


def test_prepare_works_in_float64_and_gives_the_old_dtypes():
    seen, traced = [], []

    def prepare(state, info):
        traced.append(0)
        wide = info.profile.value.astype(jnp.float64).sum() + 1e-12
        seen.append(wide.dtype)
        return {**state, "sum": wide, "count": state["count"] + jnp.int64(1)}

    strategy = Strategy(
        "preparing", keep_state, keep_state, (Request("profile", ALL, at_start()),), prepare=prepare
    )  # fmt: skip
    info = protocol.empty_information(strategy, COUNTS, N)
    state = {"sum": jnp.float32(0), "count": jnp.int32(4), "key": jax.random.key(5)}
    for _ in range(2):
        after = protocol.prepare(strategy, state, info)
        assert (after["sum"].dtype, after["count"].dtype, int(after["count"])) == (np.float32, np.int32, 5)
        assert jax.random.key_data(after["key"]).tolist() == jax.random.key_data(state["key"]).tolist()
    assert seen == [np.float64] and len(traced) == 1  # compiled once for all replicates
    assert protocol.prepare(strategy._replace(prepare=keep_state), state, info) is state


@pytest.mark.slow
@pytest.mark.parametrize("available", [None, True], ids=["everyone there", "some absent"])
def test_over_replicates_is_each_replicate_by_itself(available):
    strategy = strategies.make("pow_d")
    world = jax.tree.map(jnp.asarray, World.ordinary(strategy, N, T, seed=0))
    game, seeds = bench.Options(N, K, T), jax.random.split(jax.random.key(3), 3)
    states = [bench.initial_world(strategy, game, key, world).state for key in seeds]
    one = protocol.empty_information(strategy, COUNTS, N)
    infos = [protocol.enter_answers(one, "loss", jnp.arange(N) * float(s), jnp.ones((N,), bool)) for s in (1, -1, 2)]
    there = None if available is None else jnp.array([HERE, HERE[::-1], ~HERE | HERE])

    def stacked(trees):
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)

    all_at_once = protocol.over_replicates(strategy)
    together = all_at_once.select(seeds, stacked(states), stacked(infos), jnp.int32(1), there)
    for place in range(3):
        mine = None if there is None else there[place]
        alone = strategy.select(seeds[place], states[place], infos[place], jnp.int32(1), mine)
        np.testing.assert_array_equal(together.ids[place], alone.ids)
    assert all_at_once.update is keep_state and all_at_once.requests == strategy.requests


@pytest.mark.slow
@pytest.mark.parametrize("name", ["afl", "fl_dp3s", "pow_d"])
def test_a_server_that_is_told_facts_selects_as_one_that_asks(name):
    """Facts that come from outside, step by step and without jit: the cohorts are those of the kit's compiled game."""
    strategy = strategies.make(name)
    table = World.ordinary(strategy, N, T, seed=1).sparse(K)._replace(missing=np.zeros((T, N), bool))
    world = jax.tree.map(jnp.asarray, table)
    key = jax.random.key(2)
    begin = jax.jit(lambda key, world: bench.initial_world(strategy, bench.Options(N, K, T), key, world))(key, world)
    begin = begin._replace(state=jax.tree.map(jnp.asarray, protocol.prepare(strategy, *begin)))
    wanted = jax.jit(lambda carry: bench.play_rounds(strategy, T, carry, key, world)[1])(begin)

    state, info = begin

    def tell(info, who, clients, round):
        for _, request in protocol.requests_to(strategy, who):
            if request.when.due(round):
                heard = jnp.zeros((N,), bool).at[jnp.asarray(clients, int)].set(True)
                info = protocol.enter_answers(info, request.kind, world.facts[request.kind][round], heard)
        return info

    for round in range(T):
        for_candidates, for_select = jax.random.split(jax.random.fold_in(key, round))
        there = world.available[round]
        present = set(np.flatnonzero(there).tolist())
        info = tell(info, ALL, sorted(present), round)
        state, candidates = protocol.observe(strategy, state, info, for_candidates, jnp.int32(round), there)
        if candidates is not None:
            info = tell(info, CANDIDATES, sorted(present & set(candidates.tolist())), round)
        cohort = strategy.select(for_select, state, info, jnp.int32(round), there)
        assert cohort.ids.tolist() == wanted.ids[round].tolist()
        info = tell(info, SELECTED, cohort.ids[cohort.mask], round)
        outcome = bench.outcome_of(strategy, world, jnp.int32(round), cohort)
        state, info, _ = protocol.learn(strategy, SelectionState(state, info), jnp.int32(round), cohort, outcome)


def test_nobody_else_calls_a_strategys_hooks():
    """The order is written once. The kit's log looks over a strategy's shoulder, and calls through."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            of_strategy = isinstance(called, ast.Attribute) and ast.unparse(called.value).split(".")[-1] == "strategy"
            if of_strategy and called.attr in HOOKS:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"strategies/protocol.py", "testing/__init__.py"}
