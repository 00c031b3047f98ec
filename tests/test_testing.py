"""The conformance kit: it lets good strategies pass and finds what is wrong with broken ones."""

import dataclasses
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel import strategies, testing
from fedjax_sel.cli import test as command
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.afl import known_or_largest
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import (
    ALL,
    CANDIDATES,
    NEVER,
    SELECTED,
    SERVER,
    Request,
    always,
    at_start,
    every,
    rounds,
)
from fedjax_sel.testing import bench
from fedjax_sel.testing.bench import World
from tests.strategies import requested_bill

LOSS = Request("loss", ALL, always())


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    """A part of a state that every trace sees."""

    value: int


def init(key, now):
    return {"count": jnp.zeros(now.env.num_clients)}


def highest_loss(key, state, now):
    """A sound one: the K highest losses, ties at random."""
    loss = known_or_largest(*now.info.loss)
    loss = loss if now.available is None else jnp.where(now.available, loss, -jnp.inf)
    ids = sampling.top_k(key, loss, now.env.num_selected)
    return answer(state, ids, now.available)


def zero_if_silent(key, state, now):
    loss = now.info.loss.value if now.available is None else jnp.where(now.available, now.info.loss.value, jnp.inf)
    return answer(state, sampling.top_k(key, -loss, now.env.num_selected), now.available)


def uniform(key, state, now):
    """A sound one."""
    ids = sampling.uniform_without_replacement(key, state["count"].shape[0], now.env.num_selected, now.available)
    return answer(state, ids, now.available)


def answer(state, ids, available, weights=None):
    return Selection(ids, weights, jnp.ones(ids.shape, bool) if available is None else available[ids])


def count(state, now, selection, outcome):
    """A sound one: how often each client trained."""
    return {**state, "count": state["count"].at[selection.ids].add(selection.mask)}


def made(select, **fields):
    return Strategy("mine", select, **{"init": init, **fields})


def by_index(key, state, now):
    loss = now.info.loss.value if now.available is None else jnp.where(now.available, now.info.loss.value, -jnp.inf)
    del key
    return answer(state, lax.top_k(loss, now.env.num_selected)[1].astype(jnp.int32), now.available)


def by_index_though_it_has_a_key(key, state, now):
    """A key that only shuffles the places of the cohort."""
    ids = by_index(None, state, now).ids
    return answer(state, jax.random.permutation(key, ids), now.available)


def floating_ids(key, state, now):
    selection = uniform(key, state, now)
    return selection._replace(ids=selection.ids.astype(jnp.float32))


def too_many(key, state, now):
    ids = sampling.uniform_without_replacement(key, 12, now.env.num_selected + 1, now.available)
    return answer(state, ids, now.available)


def repeated(key, state, now):
    return answer(state, jax.random.randint(key, (now.env.num_selected,), 0, 12), now.available)


def out_of_range(key, state, now):
    selection = uniform(key, state, now)
    return selection._replace(ids=selection.ids + 1)


def drifting(state, now, selection, outcome):
    return {**state, "count": state["count"].astype(jnp.float16)}


def growing(state, now, selection, outcome):
    return {**state, "round": now.round}


def static_round(state, now, selection, outcome):
    return {**state, "t": Static(state["t"].value + 1)}


def with_a_key_in_the_state(key, now):
    return {**init(key, now), "key": key}


def raw_key(key, state, now):
    return uniform(state["key"], state, now)


def same_key_twice(key, state, now):
    noise = jax.random.uniform(key, state["count"].shape)
    loss = now.info.loss.value + 0.01 * noise
    loss = loss if now.available is None else jnp.where(now.available, loss, -jnp.inf)
    return answer(state, sampling.top_k(key, loss, now.env.num_selected), now.available)


def with_python_memory():
    calls = itertools.count()

    def select(key, state, now):
        shift = next(calls)
        return uniform(jax.random.fold_in(key, shift), state, now)

    return made(select)


def with_numpy_noise(key, state, now):
    noise = jnp.asarray(np.random.default_rng().normal(size=state["count"].shape))
    noise = noise if now.available is None else jnp.where(now.available, noise, -jnp.inf)
    ids = sampling.top_k(key, noise, now.env.num_selected)
    return answer(state, ids, now.available)


def blind_to_availability(key, state, now):
    return uniform(key, state, now._replace(available=None))


def stingy(key, state, now):
    """Leaves a place empty where not everybody is available."""
    selection = uniform(key, state, now)
    if now.available is None:
        return selection
    return selection._replace(mask=selection.mask.at[0].set(now.available.all()))


def weights_of(value):
    def select(key, state, now):
        selection = uniform(key, state, now)
        return selection._replace(weights=jnp.full(selection.ids.shape, value, jnp.float32))

    return select


def only_the_first_place(key, state, now):
    selection = MULTINOMIAL.select(key, state, now)
    first = jnp.arange(selection.ids.shape[0]) == 0
    return selection._replace(mask=selection.mask & first, weights=first.astype(jnp.float32))


MULTINOMIAL = strategies.make("random", variant="md")


def mean_update(state, now, selection, outcome):
    norms = jnp.sqrt(
        sum(jnp.sum(leaf.reshape(leaf.shape[0], -1) ** 2, axis=1) for leaf in jax.tree.leaves(outcome.updates))
    )
    return {**state, "count": state["count"].at[selection.ids].set(norms)}


def favors_the_first(key, state, now):
    weights = jnp.where(jnp.arange(state["count"].shape[0]) == 0, 3.0, 1.0)
    return answer(state, sampling.without_replacement(key, weights, now.env.num_selected, now.available), now.available)


def neighbors(key, state, now):
    """Every client equally often, but always beside the next one."""
    n, k = state["count"].shape[0], now.env.num_selected
    first = jax.random.randint(key, (), 0, n)
    ids = (first + jnp.arange(k, dtype=jnp.int32)) % n
    if now.available is None:
        return answer(state, ids, None)
    order = jnp.argsort(~now.available[(first + jnp.arange(n)) % n], stable=True)
    return answer(state, ((first + order[:k]) % n).astype(jnp.int32), now.available)


def concrete(key, state, now):
    if now.info.loss.value.max() > 1:
        return uniform(key, state, now)
    return highest_loss(key, state, now)


def divides_by_the_spread(state, now):
    loss = now.info.loss.value
    return {**state, "count": (loss - loss.mean()) / loss.std()}


def callback(key, state, now):
    """Asks the host, which remembers."""
    number = jax.pure_callback(
        lambda: np.int32(next(TICKS)), jax.ShapeDtypeStruct((), jnp.int32), vmap_method="sequential"
    )
    return uniform(jax.random.fold_in(key, number), state, now)


def direction_of_the_updates(state, now, selection, outcome):
    kept = selection.mask & (outcome.finite | ~outcome.reported)  # which forgets lost reports
    rows = jnp.where(kept[:, None], jax.tree.leaves(outcome.updates)[0].reshape(len(kept), -1), 1.0)
    directions = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    return {**state, "count": state["count"].at[selection.ids].add(directions[:, 0])}


TICKS = itertools.count()

BROKEN = {
    "index-order ties": (made(by_index, requests=(LOSS,)), "key used", "does not use its key: use it to break ties"),
    "index-order ties, hidden": (
        made(by_index_though_it_has_a_key, requests=(LOSS,)),
        "uniform",
        r"in round 0, client \d+: in (100|0)% of the cohorts instead of 25%",
    ),
    "wrong dtype": (made(floating_ids), "contract", r"`ids` of the selection is float32 \[3\] and must be int32 \[3\]"),
    "wrong shape": (made(too_many), "contract", r"`ids` of the selection is int32 \[4\] and must be int32 \[3\]"),
    "not a selection": (made(lambda *a: uniform(*a).ids), "contract", "select"),
    "repeated ids": (made(repeated), "cohort", "appears twice in the cohort with mask True; draw without replacement"),
    "ids out of range": (made(out_of_range), "cohort", "client ID 12 is outside 0 to 11"),
    "dtype of the state": (
        made(uniform, update=drifting),
        "contract",
        r"state\['count'\] as float16 \[12\], but `init` returns float32",
    ),
    "structure of the state": (made(uniform, update=growing), "contract", "a state with another structure"),
    "retraced every round": (
        made(uniform, init=lambda key, now: {**init(key, now), "t": Static(0)}, update=static_round),
        "contract",
        "a state with another structure",
    ),
    "undeclared fact": (made(highest_loss), "contract", "'mine' reads the fact 'loss' without buying it: add Request"),
    "undeclared metrics": (
        made(uniform, update=lambda s, now, sel, out: {**s, "count": s["count"] + out.metrics.after.loss}),
        "contract",
        "reads the fact 'server_metrics' without buying it",
    ),
    "unread fact": (made(uniform, requests=(LOSS,)), "facts read", "buys 'loss' from 'all' and never reads it"),
    "unread metrics": (
        made(uniform, requests=(Request("server_metrics", SERVER, always()),), update=count),
        "facts read",
        "buys 'server_metrics' from 'server' and never reads it",
    ),
    "raw key": (made(raw_key, init=with_a_key_in_the_state), "key used", "does not use its key"),
    "one key, two draws": (made(same_key_twice, requests=(LOSS,)), "key used once", "a key is consumed twice"),
    "Python memory": (with_python_memory(), "pure", "gives a different program each time"),
    "NumPy's generator": (made(with_numpy_noise), "pure", "gives a different program each time"),
    "memory on the host": (made(callback), "same key", "the same keys give another cohort in round"),
    "unavailable clients": (made(blind_to_availability), "availability", "an unavailable client is selected"),
    "zeros of silent clients": (
        made(zero_if_silent, requests=(Request("loss", ALL, at_start()),)),
        "silence",
        r"cohort of round \d depends on the entries of clients that never answered",
    ),
    "places left empty": (made(stingy), "availability", r"clients are selected, but \d+ are available and K = 3"),
    "weights that do not sum to 1": (made(weights_of(0.5)), "cohort", "weights sum to 1.5 over the mask"),
    "biased weights": (
        made(weights_of(0.5), inclusion=lambda *a: jnp.full((12,), 0.25)),
        "cohort",
        "weights sum to 1.5 on average and must sum to 1",
    ),
    "a client without a chance": (
        made(uniform, inclusion=lambda *a: jnp.full((12,), 0.25).at[3].set(0.0)),
        "cohort",
        "`inclusion` is 0 for an available client",
    ),
    "another expected number": (
        made(uniform, inclusion=lambda *a: jnp.full((12,), 1 / 12)),
        "cohort",
        r"client \d+ is selected [\d.]+ times per game, but `inclusion` adds up to 0.67",
    ),
    "a shape of inclusion": (
        made(uniform, inclusion=lambda *a: jnp.full((3,), 0.25)),
        "contract",
        r"`inclusion` must return float32 \[N\]",
    ),
    "nobody": (
        made(lambda *a: uniform(*a)._replace(mask=jnp.zeros(3, bool)), max_selected=lambda n, k: k),
        "cohort",
        "no client is ever selected; check the mask",
    ),
    "NaN of a lost report": (
        made(uniform, update=direction_of_the_updates),
        "no NaN",
        "ignore places of the cohort with outcome.reported False",
    ),
    "negative weights": (made(weights_of(-1.0)), "cohort", "a weight is negative or not finite"),
    "places of a draw with replacement": (
        MULTINOMIAL._replace(name="mine", select=only_the_first_place),
        "cohort",
        "has mask False in all of its places",
    ),
    "NaN of an update": (
        made(uniform, update=mean_update),
        "no NaN",
        "mask the updates of clients with outcome.finite",
    ),
    "NaN of equal losses": (
        made(uniform, requests=(LOSS,), observe=divides_by_the_spread),
        "no NaN",
        "NaN after round 0; look for a division by a spread",
    ),
    "prefers an index": (made(favors_the_first), "equivariant", r"do not use a client's index"),
    "prefers neighbors": (made(neighbors), "uniform", r"clients \d+ and \d+ together: in"),
    "concrete values": (made(concrete, requests=(LOSS,)), "contract", "needs the value of a traced array"),
    "unknown kind": (made(uniform, requests=(Request("weather", ALL, always()),)), "contract", "requests 'weather'"),
    "no cohort at the start": (
        made(uniform, requests=(Request("loss", SELECTED, at_start()),)),
        "contract",
        "before the first round",
    ),
    "nobody names candidates": (
        made(highest_loss, requests=(Request("loss", CANDIDATES, always()),)),
        "contract",
        "no `candidates` function",
    ),
    "candidates whom nobody asks": (
        made(uniform, candidates=lambda *a: jnp.arange(4)),
        "contract",
        "no request to CANDIDATES",
    ),
    "never due": (
        made(uniform, requests=(Request("loss", ALL, rounds(5, 2)),)),
        "contract",
        "which contains no rounds",
    ),
}


def all_but(*names):
    """All checks but these and what they need."""
    checks = {check.name: check for check in testing.CHECKS}
    kept = set(names).union(*(checks[name].needs for name in names))
    return [name for name in checks if name not in kept]


@pytest.mark.fast_cases(9)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found(name):
    strategy, check, sentence = BROKEN[name]
    report = testing.examine(strategy, run=False, skip=all_but(check))
    assert check in report.failed, str(report)
    report_of_it = report.findings[check].why
    assert re.search(sentence, report_of_it), report_of_it
    with pytest.raises(testing.ConformanceError, match="strategy 'mine' does not conform") as error:
        report.require()
    assert isinstance(error.value, AssertionError)
    assert len(str(error.value).splitlines()) == 1 + len(report.failed)


def learn_entropy(state, now, selection, outcome):
    """As HiCS-FL does: what the cohort's updates of the output bias tell of their labels."""
    shares = jax.nn.softmax(jnp.clip(now.env.output_layer.bias_of(outcome.updates), -1e3, 1e3))
    entropy = -jnp.sum(shares * jnp.log(shares + 1e-9), axis=1)
    rows = jnp.where(selection.mask & outcome.finite, selection.ids, state["count"].shape[0])
    return {**state, "count": state["count"].at[rows].set(entropy, mode="drop")}


def highest_count(key, state, now):
    count = state["count"] if now.available is None else jnp.where(now.available, state["count"], -jnp.inf)
    return answer(state, sampling.top_k(key, count, now.env.num_selected), now.available)


def shapley(state, now, selection, outcome):
    """The loss without each client of the cohort, less that of all."""
    k = selection.ids.shape[0]
    losses = outcome.subset_loss(jnp.concatenate([jnp.ones((1, k), bool), ~jnp.eye(k, dtype=bool)]))
    rows = jnp.where(selection.mask, selection.ids, state["count"].shape[0])
    return {**state, "count": state["count"].at[rows].set(losses[1:] - losses[0], mode="drop")}


def subsets(number):
    return (Request("subset_loss", SERVER, always(), (("subsets", number),)),)


@pytest.mark.slow
def test_what_the_server_computes_of_subsets_is_bought_and_read():
    strategy = made(highest_count, requests=subsets(4), update=shapley)
    testing.check_strategy(strategy, skip=["K = 1, N - 1, N"])  # the number of subsets is that of K = 3
    requested_bill.check(strategy)
    unread = testing.examine(made(uniform, requests=subsets(4), update=count), run=False)
    assert "buys 'subset_loss' from 'server' and never reads it" in unread.findings["facts read"].why


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        made(highest_count, update=learn_entropy),
        made(uniform, update=count),
        made(highest_loss, requests=(LOSS,)),
        made(
            highest_loss,
            requests=(Request("loss", ALL, at_start()), Request("loss", SELECTED, every(2, offset=1))),
        ),
        made(
            highest_loss,
            requests=(Request("loss", CANDIDATES, always()),),
            candidates=lambda key, state, now: sampling.uniform_without_replacement(
                key, now.env.num_clients, min(2 * now.env.num_selected, now.env.num_clients), now.available
            ),
        ),
    ],
    ids=["output layer", "counting", "losses", "stale losses", "candidates"],
)
def test_what_is_sound_passes(strategy):
    testing.check_strategy(strategy, run=strategy.candidates is not None)  # tests/strategies runs those of the table


def test_every_check_fails_for_some_strategy_or_is_tried_here():
    """A check that nothing can fail is no check."""
    failed = {check for _, check, _ in BROKEN.values()}
    assert failed | {"K = 1, N - 1, N", "real run"} == {check.name for check in testing.CHECKS}


def test_drawing_with_replacement_asks_for_weights():
    md = strategies.make("random", variant="md")

    def weightless(*arguments):
        return md.select(*arguments)._replace(weights=None)

    report = testing.examine(md._replace(select=weightless), run=False, skip=all_but("contract"))
    assert "returns no weights" in report.findings["contract"].why


@pytest.mark.slow
def test_a_bill_that_the_requests_do_not_imply_is_found(monkeypatch):
    strategy = made(highest_loss, requests=(LOSS,))
    requested_bill.check(strategy)
    monkeypatch.setattr(requested_bill, "length", lambda request, log: 2)
    with pytest.raises(AssertionError):
        requested_bill.check(strategy)


@pytest.mark.slow
def test_a_strategy_that_breaks_in_a_real_run_is_found():
    def breaks(state, now, selection, outcome):
        if now.env.num_params > 100:  # more than the kit's model has
            raise IndexError("pop from empty list")
        return state

    report = testing.examine(made(uniform, update=breaks), skip=all_but("real run"))
    assert report.failed == ("real run",) and "pop from empty list" in report.findings["real run"].why


@pytest.mark.slow
def test_a_strategy_that_breaks_at_k_1_fails_and_one_that_refuses_it_does_not():
    def refuses(key, now):
        if now.env.num_selected == 1:
            raise UserError("mine: needs --num-selected 2 or more")
        return init(key, now)

    def breaks(key, now):
        if now.env.num_selected == 1:
            raise IndexError("pop from empty list")
        return init(key, now)

    name = "K = 1, N - 1, N"
    report = testing.examine(made(uniform, init=refuses), run=False, skip=all_but(name))
    assert report.findings[name] == (
        "passed",
        "rejects K = 1: mine: needs --num-selected 2 or more",
    )
    report = testing.examine(made(uniform, init=breaks), run=False, skip=all_but(name))
    assert report.failed == (name,) and "with K = 1 of N = 12 it raises IndexError" in report.findings[name].why


def test_batched_and_single_cohorts_are_compared(monkeypatch):
    real = bench.play_rounds
    monkeypatch.setattr(
        bench, "play_rounds", lambda *given: real(*given[:4], jax.random.fold_in(given[4], 7), given[5])
    )
    report = testing.examine(made(uniform), run=False, skip=all_but("same key"))
    assert report.failed == ("same key",) and "scan and vmap" in report.findings["same key"].why


@pytest.mark.parametrize(
    "factory,sentence",
    [
        (lambda: 3, "returns int and must return"),
        (lambda d: made(uniform), "calling it without arguments raises TypeError"),
        (3, "calling it without arguments raises TypeError"),
    ],
)
def test_what_is_no_factory_is_said_to_be_none(factory, sentence):
    with pytest.raises(testing.ConformanceError, match=sentence):
        testing.check_strategy(factory)


@pytest.mark.slow
def test_skipping_and_unknown_names():
    report = testing.examine(made(neighbors), run=False, skip=["uniform", "equivariant"])
    assert not report.failed and report.findings["uniform"][:2] == ("skipped", "by request")
    with pytest.raises(ValueError, match="no check is named 'uniformity'"):
        testing.examine(made(uniform), skip=["uniformity"])
    for wrong in ({"games": 2}, {"rounds": 0}, {"num_selected": 0}, {"num_selected": 12}, {"num_clients": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            testing.examine(made(uniform), **wrong)


def test_the_facts_that_the_kit_serves():
    """Whom, when, and how old: written down by a strategy and compared with what is said of them."""
    requests = (
        Request("profile", ALL, at_start() | every(3, offset=2)),
        Request("loss", CANDIDATES, rounds(1, 2)),
        Request("training_loss", SELECTED, always()),
    )

    def at_first(key, now):
        zero = jnp.zeros((now.env.num_rounds, 4, now.env.num_clients), jnp.int32)
        return {"ages": zero, "count": jnp.zeros(now.env.num_clients)}

    def observe(state, now):
        return {**state, "ages": state["ages"].at[now.round, 0].set(now.info.profile.age)}

    def update(state, now, selection, outcome):
        ages = state["ages"].at[now.round, 1].set(now.info.loss.age).at[now.round, 2].set(now.info.training_loss.age)
        chosen = jnp.zeros(12, jnp.int32).at[selection.ids].set(1)
        return {**state, "ages": ages.at[now.round, 3].set(chosen)}

    strategy = made(
        uniform, init=at_first, observe=observe, update=update, requests=requests,
        candidates=lambda key, state, now: jnp.arange(4, dtype=jnp.int32) + now.round,
    )  # fmt: skip
    world = World.ordinary(strategy, 12, 8, seed=0)
    options = bench.Options(12, 3, 8)
    start = bench.start_of(strategy, options, jax.random.key(0), world)
    batch = bench.initial_carry(strategy, *jax.tree.map(lambda leaf: leaf[None], start))
    carry = jax.tree.map(lambda leaf: leaf[0], batch)
    last, _ = jax.jit(lambda carry: bench.play_rounds(strategy, options, 8, carry, jax.random.key(1), world))(carry)
    profile, loss, training_loss, chosen = np.asarray(last.state["ages"]).swapaxes(0, 1)
    assert profile[:, 5].tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    assert (loss[0] == NEVER).all()
    assert loss[2].tolist() == [NEVER, 1, 0, 0, 0, 0, *[NEVER] * 6]
    assert loss[4, :7].tolist() == [NEVER, 3, 2, 2, 2, 2, NEVER]
    for round in range(8):
        np.testing.assert_array_equal(training_loss[round] == 0, chosen[round] == 1)


def test_worlds_are_what_their_names_say():
    strategy = strategies.make("fl_dp3s", profile="representative-gradient")
    world = World.ordinary(strategy, 12, 8, seed=0)
    order = np.random.default_rng(1).permutation(12)
    other = world.relabelled(order)
    np.testing.assert_array_equal(other.facts["update"][3, 4], world.facts["update"][3, order[4]])
    np.testing.assert_array_equal(other.sizes, world.sizes[order])
    same = world.alike()
    assert (same.facts["update"] == same.facts["update"][:, :1]).all() and (same.sizes == same.sizes[0]).all()
    doubled = world.twins()
    kernel = doubled.updates["Dense_1"]["kernel"]
    np.testing.assert_array_equal(kernel[:, 2], kernel[:, 8])
    broken = world.diverging()
    finite = np.isfinite(broken.updates["Dense_1"]["kernel"]).all(axis=(2, 3))
    np.testing.assert_array_equal(finite, broken.finite)
    assert not broken.finite[4].any() and broken.finite[:4].any() and (~broken.finite).any(axis=0).all()
    few = world.sparse(3).available
    assert few.sum(axis=1).tolist() == [12, 6, 3, 2, 11, 1, 0, 4]
    assert bench.FEW > 1


@pytest.mark.parametrize(
    "when,expected",
    [
        (at_start(), [1, 0, 0, 0, 0, 0]),
        (always(), [1] * 6),
        (at_start() | always(), [2, 1, 1, 1, 1, 1]),
        (every(2, offset=1) | rounds(4, 4), [0, 1, 0, 1, 1, 1]),
    ],
)
def test_times_due(when, expected):
    assert [requested_bill.times_due(when, round) for round in range(6)] == expected


@pytest.mark.slow
def test_the_command(capsys):
    assert command.main(["random", "--algo-args", "variant=md", "--no-run"]) == 0
    assert capsys.readouterr().out.startswith("random: conforms\n")
    with pytest.raises(UserError, match="did you mean 'fl_dp3s'"):
        command.main(["fl_dp3"])


@pytest.mark.slow
def test_the_bill_of_a_strategy_that_buys_everything():
    """Every kind, from everybody, on overlapping schedules: the simulator and the plain count agree."""
    requests = (
        Request("loss", ALL, at_start() | every(3)),
        Request("loss", SELECTED, always()),
        Request("training_loss", CANDIDATES, rounds(1, 3)),
        Request("loss_change", ALL, every(4, offset=1), (("probes", 2),)),
        Request("profile", SELECTED, every(2)),
        Request("gradient", CANDIDATES, rounds(2, 2)),
        Request("update", ALL, rounds(4, 4)),
        Request("label_histogram", ALL, at_start()),
        Request("server_metrics", SERVER, always()),
    )

    def update(state, now, selection, outcome):
        read = sum(jnp.sum(getattr(now.info, kind).value) for kind in now.info.kinds()) + outcome.metrics.after.loss
        reported = jnp.where(outcome.finite, outcome.losses_before, 0.0).sum()  # one more float up from each
        return {**state, "count": jnp.clip(state["count"] + 1e-3 * (read + reported), -1.0, 1.0)}

    def candidates(key, state, now):
        return sampling.uniform_without_replacement(key, state["count"].shape[0], 5, now.available)

    strategy = made(uniform, requests=requests, update=update, candidates=candidates)
    report = testing.examine(strategy, skip=all_but("real run", "facts read"))
    assert not report.failed, str(report)
    requested_bill.check(strategy)
