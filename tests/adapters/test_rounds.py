"""Rounds where clients answer or do not, without any framework."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError
from fedjax_sel.adapters import rounds
from fedjax_sel.adapters.rounds import ReceivedReport
from fedjax_sel.selector import Ask
from fedjax_sel.simulation import availability
from fedjax_sel.strategies import ALL, Request, always, from_numpy
from fedjax_sel.strategies.facts import NEVER

NAMES = ("ann", "bob", "cid", "dan", "eve", "fay")
N, K, T = len(NAMES), 2, 4


def make(strategy, **others):
    return fedjax_sel.Selector(strategy, N, K, T, **{"sizes": range(4, 4 + N), "clients": NAMES} | others)


def loss_of(options=None, shape=()):
    return Ask("loss", "all", NAMES, options or {}, shape, True)


def test_what_fits_is_told_in_the_order_of_the_question(caplog):
    answers = {"fay": 3, "bob": 1.5, "ann": [1.0], "cid": "much", "zoe": 1.0, "dan": np.float64(2)}
    names, values = rounds.fitting(loss_of(), answers)
    assert names == ("bob", "dan", "fay") and values.dtype == np.float32 and values.tolist() == [1.5, 2, 3]
    assert (
        "client 'ann' is of shape [1], not of shape []" in caplog.text and "client 'cid' is not numeric" in caplog.text
    )
    assert rounds.fitting(loss_of(), {})[1].shape == (0,)
    assert rounds.fitting(loss_of(shape=(2,)), {})[1].shape == (0, 2)


def test_a_loss_that_is_not_finite_is_bad_and_not_unknown(caplog):
    answers = {"ann": np.nan, "bob": 4.0, "cid": np.inf, "dan": -np.inf}
    names, values = rounds.fitting(loss_of(), answers)
    assert names == NAMES[:4] and values.tolist() == [4.0, 4.0, 1e6, -1e6]
    assert rounds.finite_losses([np.nan]).tolist() == [1e6]
    assert rounds.fitting(loss_of()._replace(largest_known=7.0), answers)[1].tolist() == [7.0, 4.0, 1e6, -1e6]
    names, values = rounds.fitting(loss_of({"nonfinite": "missing"}), answers)
    assert names == NAMES[:4] and values.tolist()[1:] == [4.0, np.inf, -np.inf]
    profile = Ask("profile", "all", NAMES, {}, (2,), True)
    assert rounds.fitting(profile, {"ann": [1, np.nan], "bob": [1, 2]})[0] == ("bob",)
    assert "client 'ann' is not finite; ignored" in caplog.text


def test_a_nan_that_counts_as_missing_leaves_its_client_selectable():
    """As in the simulator: the fact is unknown, with a stand-in value, and the client answered."""
    seen, losses = [], dict.fromkeys(NAMES, 1.0)
    bought = [Request("loss", ALL, always(), (("nonfinite", "missing"),))]
    selector = make(from_numpy("mine", lambda rng, state, now: seen.append(now) or [0, 1], requests=bought))
    for losses["ann"] in (2.0, np.nan):
        cohort, _ = rounds.choose(selector, None, lambda due, names: losses)
        assert cohort == ("ann", "bob")
        selector.update()
    assert seen[-1].info.loss.value.tolist() == [2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert seen[-1].info.loss.age.tolist() == [NEVER, 0, 0, 0, 0, 0]


def test_nan_is_the_largest_loss_of_now_and_before():
    selector = make("pow_d[num_candidates=6]")
    (first,) = selector.asks()
    assert first.largest_known == -np.inf
    selector.tell("loss", first.clients, [9.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    selector.select()
    selector.update()
    (ask,) = selector.asks()
    assert ask.largest_known == 9.0
    given = jnp.array([[1.0, jnp.nan, 2.0, jnp.inf, 3.0, 0.5]])
    known = jnp.array([9.0])
    theirs, _, _ = jax.vmap(availability.replace_nonfinite)(given, jnp.ones_like(given, bool), known)
    names, ours = rounds.fitting(ask, dict(zip(ask.clients, np.asarray(given[0]))))
    assert names == ask.clients
    np.testing.assert_array_equal(ours, theirs[0])


def test_those_who_did_not_answer_are_asked_again_where_too_few_did():
    turns = []

    def ask(due, names):
        turns.append(names)
        return {} if len(turns) == 1 else {names[-1]: 5.0, names[0]: 4.0, "zoe": 9.0}

    selector = make("pow_d[num_candidates=4]")
    cohort, weights = rounds.choose(selector, None, ask)
    assert turns[0] == turns[1] and len(turns) == 2 and weights is None
    assert set(cohort) == {turns[0][0], turns[0][-1]}
    rounds.close(selector, {}, {})

    turns.clear()
    with pytest.raises(UserError, match="0 of 6 clients are available"):
        rounds.choose(make("divfl[variant=ideal]", num_params=1), None, lambda due, names: turns.append(names) or {})
    assert len(turns) == 2

    turns.clear()
    rounds.choose(selector, NAMES[:5], lambda due, names: turns.append(names) or dict.fromkeys(names[:2], 1.0))
    assert len(turns) == 1  # two are enough


def test_nan_is_replaced_after_the_last_attempt():
    turns = []

    def ask(due, names):
        turns.append(names)
        return {"ann": np.nan} if len(turns) == 1 else {"bob": 4.0, "cid": 2.0}

    selector = make("pow_d[num_candidates=6]")
    cohort, _ = rounds.choose(selector, None, ask)
    assert len(turns) == 2 and "ann" not in turns[1]
    assert set(cohort) <= {"ann", "bob"}
    np.testing.assert_array_equal(selector._now.info.loss.value[0, :3], [4.0, 4.0, 2.0])


def test_where_no_answer_has_the_models_length_the_server_says_so():
    due = Ask("gradient", "all", NAMES, {}, (5,), True)
    assert rounds.fitting(due, {"ann": np.zeros(3), "bob": np.zeros(5)})[0] == ("bob",)
    assert rounds.fitting(due, {})[0] == ()
    with pytest.raises(UserError, match=r"gradient: no answer is of shape \[5\], and the last is of shape \[3\]"):
        rounds.fitting(due, {"ann": np.zeros(3), "bob": np.zeros(3)})
    assert rounds.fitting(due._replace(kind="profile"), {"ann": np.zeros(3)})[0] == ()


def test_a_round_is_closed_with_what_came():
    selector = make("gpfl", num_params=3)
    metrics = ({"accuracy": 0.1, "loss": 2.0, "correct": 1}, {"accuracy": 0.2, "loss": 1.0, "correct": 2})
    step = {"w": np.ones(2), "b": np.ones(1)}
    for heard in (2, 1, 0):
        cohort, _ = rounds.choose(selector, None, lambda due, names: {})
        reports = {name: ReceivedReport({"w": np.full(2, 0.5), "b": np.full(1, np.nan if heard == 1 else 0.5)})
                   for name in cohort[:heard]}  # fmt: skip
        rounds.close(selector, reports, step, metrics)
        assert selector.bill().rounds[-1].models_up == heard
    assert selector.round == 3


def test_facts_travel_with_reports():
    selector = make("oort")
    cohort, _ = rounds.choose(selector, None, lambda due, names: {})
    assert [due.kind for due in selector.asks()] == ["training_loss"]
    reports = {cohort[0]: ReceivedReport({}, {"training_loss": 2.0}), cohort[1]: ReceivedReport({})}
    rounds.close(selector, reports, {})
    assert selector.bill().rounds[0] == (2, 2, 1)
