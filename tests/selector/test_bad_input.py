"""What does not fit is refused in one sentence, and the Selector stands where it stood."""

import copy

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, strategies
from fedjax_sel.simulation.availability import bounded
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import ALL, SERVER, Request, always

NAMES = ("ann", "bob", 3, ("c", 4), "eve", "fay")
N, K, T, P = 6, 2, 3, 5
BEFORE = {"correct": 10, "accuracy": 0.1, "loss": 2.5}


def make(strategy, **others):
    given = {"sizes": [4, 5, 6, 7, 8, 9], "clients": NAMES}
    return fedjax_sel.Selector(strategy, N, K, T, **given | others)


def make_gpfl():
    return make("gpfl", num_params=P)


@pytest.fixture(scope="module")
def of_losses():
    """FedSAE: losses of all at the start, then of the cohort."""
    return make("fedsae")


@pytest.fixture(scope="module")
def of_updates():
    """GPFL with its cohort: it reads updates, the step and the server's metrics."""
    selector = make_gpfl()
    selector.select()
    return selector


def refused(selector, what, *words):
    before, copied = (
        selector._now,
        copy.deepcopy((selector._now.words(), jax.tree.map(np.array, selector._now.arrays()))),
    )
    with pytest.raises(UserError) as found:
        what(selector)
    text = str(found.value)
    assert text.count(". ") == 0 and ";" in text and not text.endswith("."), text
    assert all(word in text for word in words), text
    assert selector._now is before
    chex.assert_trees_all_equal(copied, (before.words(), before.arrays()))


@pytest.mark.parametrize(
    "what,words",
    [
        (lambda s: s.tell("profile", [], []), ["'profile'", "does not request"]),
        (lambda s: s.tell(["loss"], [], []), ["does not request"]),
        (lambda s: s.tell("loss", ["zoe"], [1.0]), ["'zoe'", "not a client"]),
        (lambda s: s.tell("loss", [["ann"]], [1.0]), ["['ann']", "not a client"]),
        (lambda s: s.tell("loss", "ann", [1.0]), ["'ann'", "list"]),
        (lambda s: s.tell("loss", 3, [1.0]), ["list"]),
        (lambda s: s.tell("loss", ["ann", "ann"], [1.0, 2.0]), ["'ann'", "twice"]),
        (lambda s: s.tell("loss", ["ann", "bob"], [1.0]), ["shape is [1]", "[2]"]),
        (lambda s: s.tell("loss", ["ann"], [[1.0]]), ["shape is [1, 1]"]),
        (lambda s: s.tell("loss", ["ann", "bob"], [[1.0], [1.0, 2.0]]), ["not an array"]),
        (lambda s: s.tell("loss", ["ann"], ["1.0"]), ["dtype"]),
        (lambda s: s.tell("loss", ["ann"], [True]), ["dtype is bool"]),
        (lambda s: s.tell("loss", ["ann"], [1j]), ["dtype is complex128"]),
        (lambda s: s.tell("loss", ["ann"], [None]), ["dtype is object"]),
        (lambda s: s.tell("loss", ["ann", 3], [1.0, np.nan]), ["client 3", "NaN", "adapters.rounds.finite_losses"]),
        (lambda s: s.tell("loss", ["ann"], [1e300]), ["'ann'", "infinite"]),
        (lambda s: s.select(), ["'loss'", "was not reported"]),
        (lambda s: s.update(), ["no cohort"]),
        (lambda s: s.load("/nowhere/file"), ["load", "cannot be read"]),
        (lambda s: s.save("/nowhere/file"), ["save", "cannot be written"]),
    ],
)
def test_before_the_first_round(of_losses, what, words):
    refused(of_losses, what, *words)


def test_all_sizes_count_the_training_examples_too():
    with pytest.raises(UserError, match=r"^all_sizes: a client has fewer examples than in `sizes`; count its"):
        make("random", all_sizes=[3] * N)


def stranger(selector):
    return next(name for name in NAMES if name not in selector.asks()[0].clients)


@pytest.mark.parametrize(
    "change,words",
    [
        ({"updates": None}, ["reads updates"]),
        ({"step": None}, ["reads step"]),
        ({"metrics": None}, ["reads metrics"]),
        ({"updates": {"w": np.zeros((K, P + 1))}}, ["6 numbers", "num_params=5"]),
        ({"updates": {"w": np.zeros((K + 1, P))}}, ["length 2"]),
        ({"updates": {"w": np.full((K, P), np.nan)}}, ["updates", "NaN", "`broken`"]),
        ({"updates": {"w": np.full((K, P), "x")}}, ["dtype"]),
        ({"step": {"w": np.full((P,), np.inf)}}, ["step", "infinite"]),
        ({"metrics": {"accuracy": 1.0}}, ["pair"]),
        ({"metrics": (BEFORE, {"accuracy": 1.0, "loss": 2.0})}, ["correct after", "missing"]),
        ({"metrics": (BEFORE | {"loss": np.nan}, BEFORE)}, ["loss before", "NaN"]),
        ({"step": {"v": np.ones((P,))}}, ["step", "same arrays as updates"]),
        ({"updates": {"w": np.ones((K, P - 1)), "v": np.ones((K, 1))}}, ["step", "same arrays as updates"]),
        ({"updates": [[np.ones(P)], [np.ones(P - 1)]]}, ["updates"]),
        ({"reported": ["zoe"]}, ["'zoe'"]),
        ({"reported": 7}, ["reported: 7 is not a list"]),
        ({"reported": "ann"}, ["reported: 'ann' is not a list"]),
        ({"broken": 7}, ["broken: 7 is not a list"]),
        ({"reported": NAMES}, ["was not selected"]),
        ({"broken": ["zoe"]}, ["'zoe'"]),
        ({"reported": [], "updates": {"w": np.zeros((0, P))}, "broken": None}, ["not in `reported`"]),
    ],
)
def test_as_a_round_ends(of_updates, change, words):
    selection = of_updates._now.selection
    if change.get("broken", 0) is None:
        change = change | {"broken": [NAMES[selection.ids[0]]]}
    fine = {
        "updates": {"w": np.ones((K, P))},
        "step": {"w": np.ones((P,))},
        "metrics": (BEFORE, BEFORE),
    }
    refused(of_updates, lambda s: s.update(**fine | change), *words)
    refused(of_updates, lambda s: s.select(), "has its cohort")
    assert of_updates.reads == ("updates", "step", "metrics")


def timed():
    """A strategy that buys durations and reads those of the reports."""

    def select(key, state, now):
        return Selection(jnp.argsort(state + now.info.seconds.value)[:K].astype(jnp.int32), None, jnp.ones((K,), bool))

    def update(state, now, selection, outcome):
        return state.at[selection.ids].add(outcome.seconds)

    request = Request("seconds", ALL, always())
    return Strategy("timed", select, (request,), init=lambda key, now: jnp.zeros((N,)), update=update)


def test_durations_must_be_given_and_not_negative():
    with pytest.raises(UserError, match="has_clock: strategy 'timed' requests durations; measure them and pass"):
        make(timed())
    selector = make(timed(), has_clock=True)
    assert selector.reads == ("seconds",)
    selector.asks()
    refused(selector, lambda s: s.tell("seconds", NAMES[:2], [1.0, -1.0]), "'seconds'", "client 'bob'", "negative")
    refused(selector, lambda s: s.tell("seconds", NAMES[:2], [1.0, np.nan]), "client 'bob'", "NaN")
    selector.tell("seconds", NAMES, [3.0, 0.0, 5.0, 6.0, 1.0, 7.0])
    assert selector.select()[0] == ("bob", "eve")
    refused(selector, lambda s: s.update(), "reads seconds")
    refused(selector, lambda s: s.update(seconds=[1.0]), "shape is [1]")
    refused(selector, lambda s: s.update(seconds=[-0.5, 1.0]), "update: seconds", "client 'bob'", "negative")
    refused(selector, lambda s: s.update(["eve"], seconds=[np.inf]), "client 'eve'", "infinite")
    selector.update(["eve"], seconds=[4.0])
    assert selector._now.state[0].tolist() == [0, 0, 0, 0, 4, 0]


def test_each_case_of_bad_input_in_a_federation_under_way():
    """After rounds with answers, so that there is something that could be lost."""
    selector = make("pow_d[num_candidates=4]")
    a_round_of_bad_input(selector)
    a_round_of_bad_input(selector)


def a_round_of_bad_input(selector):
    asked = selector.asks(NAMES[:5])[0].clients
    assert set(asked) <= set(NAMES[:5])
    refused(selector, lambda s: s.tell("loss", ["fay"], [1.0]), "was not queried")  # a client that left
    refused(selector, lambda s: s.tell("loss", [stranger(s)], [1.0]), "was not queried")
    refused(selector, lambda s: s.tell("profile", asked, np.ones((4, 2))), "does not request")
    refused(selector, lambda s: s.tell("loss", asked, np.ones((4, 2))), "shape is [4, 2]")
    refused(selector, lambda s: s.tell("loss", asked, np.ones(3)), "shape is [3]")  # fewer answers than names
    refused(selector, lambda s: s.update(), "no cohort")  # out of turn
    refused(selector, lambda s: s.select(), "was not reported")
    refused(selector, lambda s: s.select(["ann"]), "'loss'", "was not reported")
    refused(selector, lambda s: s.asks(NAMES), "differs from")
    refused(selector, lambda s: s.asks(["zoe"]), "'zoe'")
    selector.tell("loss", asked[:3], np.ones(3))  # fewer answers than asked are welcome
    refused(selector, lambda s: s.tell("loss", asked[3:], [1.0]), "already reported")
    refused(selector, lambda s: s.select(asked[:1]), "1 of 6")  # the others left
    cohort, _ = selector.select()
    assert set(cohort) <= set(asked[:3])
    refused(selector, lambda s: s.select(), "has its cohort")
    refused(selector, lambda s: s.tell("loss", asked, np.ones(4)), "not due")
    refused(selector, lambda s: s.update(asked[3:]), "was not selected")
    selector.update(cohort[:1])


def test_too_few_who_left_and_all_over():
    selector = make("random")
    for _ in range(T):
        refused(selector, lambda s: s.select(["ann"]), "1 of 6", "num_selected=2")
        refused(selector, lambda s: s.select(["ann", "zoe"]), "'zoe'")
        selector.asks(["ann", "bob", 3])
        refused(selector, lambda s: s.select(["eve", "fay", "ann"]), "1 of 6")  # two were not there
        names, weights = selector.select(["bob", "ann", "fay"])
        assert set(names) == {"ann", "bob"} and weights is None
        refused(selector, lambda s: s.update([3]), "3 was not selected")
        selector.update(["ann"])
    for what in (lambda s: s.select(), lambda s: s.asks(), lambda s: s.update()):
        refused(selector, what, "all 3 rounds are over")
    refused(selector, lambda s: s.tell("loss", [], []), "nothing")
    assert [tuple(spent) for spent in selector.bill().rounds] == [(2, 1, 0)] * T


def test_asking_settles_nothing_where_nobody_is_asked():
    selector = make("random")
    assert selector.asks(["ann"]) == ()
    refused(selector, lambda s: s.select(), "1 of 6", "wait for more clients")
    assert selector.asks(["ann", "bob"]) == ()  # one waits
    assert set(selector.select()[0]) == {"ann", "bob"}


def test_update_knows_the_clients_that_left_after_they_were_asked():
    def learned(asked):
        selector, here = make("e3cs[quota=0.5]"), NAMES[:4]
        for _ in range(3):
            assert selector.asks(asked) == ()
            selector.select(here)
            selector.update()
        return np.asarray(selector._now.state.log_weights)

    np.testing.assert_array_equal(learned(NAMES), learned(NAMES[:4]))


def test_everyone_may_be_named_where_nobody_was():
    selector = make("fedcor[warmup=1,steps=1,warmup_steps=1,dimension=2]")
    (ask,) = selector.asks()
    selector.tell(ask.kind, NAMES, np.ones((N, *ask.shape)))
    assert selector.asks(NAMES) == ()
    refused(selector, lambda s: s.asks(NAMES[1:]), "differs from")


def test_who_does_not_answer_counts_as_unavailable():
    selector = make("pow_d[num_candidates=4]")
    for answering in (4, 1, 0):
        asked = selector.asks()[0].clients
        assert len(asked) == 4
        selector.tell("loss", asked[:answering], np.arange(answering, dtype=np.float64))
        refused(selector, lambda s: s.tell("loss", [], []), "already reported")
        refused(selector, lambda s: s.asks(["ann"]), "differs from")
        names, _ = selector.select()
        assert set(names) <= set(asked[:answering]) and len(names) == min(K, answering)
        assert selector.bill().rounds[-1] == (4, 0, answering)
        selector.update()

    everyone = make("fedcor[warmup=1,steps=1,warmup_steps=1,dimension=2]")
    for round in range(2):
        for ask in everyone.asks():
            assert ask.who == "all" and ask.clients == NAMES
            everyone.tell(ask.kind, NAMES[:3], np.ones((3, *ask.shape)))
            assert set(everyone.select()[0]) <= set(NAMES[:3])
            everyone.update()
            break
        else:
            assert round == 1


@pytest.mark.parametrize(
    "others,words",
    [
        ({"sizes": [1, 2]}, ["sizes"]),
        ({"sizes": [1, 2, 3, 4, 5, 0]}, ["sizes", "from 1"]),
        ({"sizes": dict.fromkeys(NAMES[1:], 3)}, ["'ann'"]),
        ({"sizes": dict.fromkeys((*NAMES, "zoe"), 3)}, ["'zoe'"]),
        ({"clients": NAMES[1:]}, ["5 names"]),
        ({"clients": ("ann",) * N}, ["'ann'", "twice"]),
        ({"clients": [[k] for k in range(N)]}, ["not hashable"]),
        ({"seed": -1}, ["seed"]),
        ({"num_params": 1.5}, ["num_params"]),
        ({"strategy": "pow-d"}, ["pow_d"]),
        ({"strategy": "pow_d[num_candidates"}, ["name[key=value"]),
        ({"strategy": "pow_d[num_candidates=1]"}, ["num_candidates=1"]),
        ({"strategy": 7}, ["neither"]),
        ({"strategy": "gpfl"}, ["num_params"]),
        ({"strategy": "divfl"}, ["num_params"]),
        ({"strategy": "fl_dp3s"}, ["profile_size"]),
    ],
    ids=str,
)
def test_as_it_is_made(others, words):
    with pytest.raises(UserError) as found:
        make(others.pop("strategy", "random"), **others)
    assert all(word in str(found.value) for word in words), found.value


def test_counts_that_cannot_be():
    for counts in ((0, 1, 1), (3, 4, 1), (3, 1, 0), (3, True, 1)):
        with pytest.raises(UserError):
            fedjax_sel.Selector("random", *counts, sizes=[1] * counts[0])


def test_a_strategy_that_names_nobody():
    def select(key, state, now):
        return Selection(np.array([1, 9], np.int32), None, np.ones((2,), bool))

    selector = make(strategies.make("random")._replace(select=lambda *a: jax.tree.map(jax.numpy.asarray, select(*a))))
    refused(selector, lambda s: s.select(), "[1, 9]")


MODEL = {"Dense_0": {"bias": np.zeros(4), "kernel": np.zeros((2, 4))}}
LAYER = (("Dense_0", "kernel"), ("Dense_0", "bias"))


def shapley():
    """A strategy that reads the output layer's bias and the losses of subsets."""

    def init(key, now):
        return {"found": jnp.zeros((K, now.env.num_classes)), "losses": jnp.zeros(3)}

    def select(key, state, now):
        return Selection(jnp.arange(K, dtype=jnp.int32), None, jnp.ones((K,), bool))

    def update(state, now, selection, outcome):
        losses = outcome.subset_loss(jnp.array([[True, True], [False, True], [False, False]]))
        return {"found": now.env.output_layer.bias_of(outcome.updates), "losses": losses}

    request = Request("subset_loss", SERVER, always(), (("subsets", 3),))
    return Strategy("shapley", select, (request,), init=init, update=update)


def test_the_output_layer_and_losses_of_subsets():
    selector = make(shapley(), params=MODEL, output_layer=LAYER, num_classes=4)
    assert selector.reads == ("updates", "subset_loss")
    cohort, _ = selector.select()
    bias = np.arange(8.0).reshape(K, 4)
    updates = {"Dense_0": {"bias": bias, "kernel": np.ones((K, 2, 4))}}
    refused(selector, lambda s: s.update(updates=updates), "reads subset_loss")
    refused(selector, lambda s: s.update(updates={"w": np.ones((K, 12))}, subset_loss=len), "same arrays as params")
    refused(selector, lambda s: s.update(updates=updates, subset_loss=lambda names: np.nan), "subset_loss", "NaN")
    asked = []
    selector.update(updates=updates, subset_loss=lambda names: asked.append(names) or 1.0 + len(names))
    assert asked == [cohort, cohort[1:], ()]
    np.testing.assert_array_equal(selector._now.state["found"][0], bias)
    assert selector._now.state["losses"][0].tolist() == [3.0, 2.0, 1.0]
    selector.select()
    selector.update(updates=updates, subset_loss=lambda names: 2e6 if names else -2e6)  # clipped as in the simulator
    np.testing.assert_array_equal(selector._now.state["losses"][0], bounded(jnp.float32([2e6, jnp.inf, -2e6])))


@pytest.mark.parametrize(
    "given,words",
    [
        ({"params": MODEL, "output_layer": ("Dense_1", None)}, "not a pair of paths"),
        ({"params": MODEL, "output_layer": 7}, "not a pair of paths"),
        ({"params": 7}, "params"),
        ({"params": MODEL, "num_params": 7}, "12 numbers"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(given, words):
    with pytest.raises(UserError, match=words):
        make("gpfl", **given)
