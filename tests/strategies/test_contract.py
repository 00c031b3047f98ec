"""A plug-in that breaks the contract is refused with one sentence, before any data are read."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.cli import command_line, train
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import checks, make, names
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import CANDIDATES, SELECTED, Request, Rule, Schedule, always, every

N, K, T = 12, 3, 8


class State(NamedTuple):
    scores: jax.Array  # [N]


def init(key, now):
    return State(jnp.zeros((now.env.num_clients,)))


def ids(key, k=K):
    return jax.random.permutation(key, N)[:k].astype(jnp.int32)


def select(key, state, now):
    return Selection(ids(key), None, jnp.ones((K,), bool))


def answering(**changes):
    return lambda *given: select(*given)._replace(**changes)


def candidates(key, state, now):
    return ids(key, 6)


SOUND = Strategy("mine", select, init=init)
LOSS = Request("loss", CANDIDATES, always())
BROKEN = {
    "ids of another length": (
        SOUND._replace(select=lambda key, *rest: Selection(ids(key, K + 1), None, jnp.ones((K,), bool))),
        "`ids` of the selection is int32 [4] and must be int32 [3]",
    ),
    "float ids": (SOUND._replace(select=answering(ids=jnp.zeros((K,)))), "`ids` of the selection is float32 [3]"),
    "ids of two axes": (SOUND._replace(select=answering(ids=jnp.zeros((K, 1), int))), "int32 [3, 1] and must be"),
    "an integer mask": (SOUND._replace(select=answering(mask=jnp.ones((K,), int))), "`mask` of the selection is int32"),
    "no mask": (SOUND._replace(select=answering(mask=None)), "has no `mask`"),
    "integer weights": (SOUND._replace(select=answering(weights=jnp.ones((K,), int))), "`weights` of the selection"),
    "not a Selection": (SOUND._replace(select=lambda key, *rest: ids(key)), "returns a"),
    "ids as a list": (SOUND._replace(select=answering(ids=[0, 1, 2])), "`ids` of the selection is list"),
    "a request by name": (SOUND._replace(requests=("loss",)), "write requests=(Request(...),)"),
    "a list of requests": (SOUND._replace(requests=[Request("loss", SELECTED, always())]), "is not a tuple"),
    "no schedule": (SOUND._replace(requests=(Request("loss", SELECTED, 3),)), "has no schedule"),
    "a period of nothing": (
        SOUND._replace(requests=(Request("loss", SELECTED, every(0)),)),
        "which contains no rounds",
    ),
    "rounds backwards": (
        SOUND._replace(requests=(Request("loss", SELECTED, Schedule(False, (Rule(5, 2, 1),))),)),
        "which contains no rounds",
    ),
    "options of three": (
        SOUND._replace(requests=(Request("loss", SELECTED, always(), (("on", "train", 1),)),)),
        "not pairs",
    ),
    "options by name": (SOUND._replace(requests=(Request("loss", SELECTED, always(), ("on",)),)), "not pairs"),
    "candidates unasked": (SOUND._replace(candidates=candidates), "no request to CANDIDATES"),
    "float candidates": (
        SOUND._replace(requests=(LOSS,), candidates=lambda *given: jnp.zeros((6,))),
        "must return int32 [d]",
    ),
    "more candidates than clients": (
        SOUND._replace(requests=(LOSS,), candidates=lambda key, *rest: jnp.arange(N + 1, dtype=jnp.int32)),
        "returns 13 IDs; return at most N = 12",
    ),
    "an undeclared fact": (
        SOUND._replace(select=lambda key, state, now: answering(ids=now.info.loss.value[:K].astype(int))(key)),
        "reads the fact 'loss' without buying it",
    ),
    "undeclared metrics": (
        SOUND._replace(update=lambda state, now, selection, outcome: outcome.metrics.after),
        "reads the fact 'server_metrics' without buying it",
    ),
    "a hook that raises": (
        SOUND._replace(observe=lambda *given: 1 / 0),
        "`observe` cannot be traced: ZeroDivisionError: division by zero",
    ),
    "a hook of other arguments": (SOUND._replace(update=lambda state: state), "`update` cannot be traced: TypeError"),
    "Python's if": (
        SOUND._replace(select=lambda key, state, *rest: select(key, state, *rest) if state.scores[0] > 0 else None),
        "`select` needs the value of a traced array",
    ),
    "NumPy on tracers": (
        SOUND._replace(update=lambda state, *rest: state._replace(scores=np.sort(state.scores))),
        "`update` needs the value of a traced array",
    ),
    "NumPy's argsort": (
        SOUND._replace(update=lambda state, *rest: state._replace(scores=1.0 * np.argsort(state.scores))),
        "`update` cannot be compiled",
    ),
    "init that raises": (
        SOUND._replace(init=lambda key, now: now.env.nothing),
        "`init` cannot be traced: AttributeError",
    ),
    "a state that grows": (
        SOUND._replace(update=lambda state, *rest: state._replace(scores=jnp.append(state.scores, 0.0))),
        "`update` returns state.scores as float32 [13], but `init` returns float32 [12]",
    ),
    "a state of another dtype": (
        SOUND._replace(observe=lambda state, *rest: state._replace(scores=state.scores.astype(int))),
        "`observe` returns state.scores as int32 [12]",
    ),
    "a state of another structure": (
        SOUND._replace(update=lambda state, *rest: state.scores),
        "`update` returns a state with another structure",
    ),
    "a hook that is no function": (SOUND._replace(update=3), "`update` cannot be traced: TypeError"),
}


def refusal(strategy: Strategy) -> str:
    with pytest.raises(UserError) as caught:
        checks.requests(strategy)
        checks.check(strategy, (N, K, T), everyone_available=True)
    return str(caught.value)


@pytest.mark.parametrize("way", BROKEN)
def test_a_broken_strategy_is_refused_with_one_sentence(way):
    strategy, expected = BROKEN[way]
    message = refusal(strategy)
    assert expected in message and "\n" not in message


@pytest.mark.parametrize("everyone_available", [False, True])
@pytest.mark.parametrize("own", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_sound_strategies_are_let_through(own, everyone_available):
    with_candidates = SOUND._replace(requests=(LOSS,), candidates=candidates)
    for strategy in (SOUND, with_candidates) if own else map(make, names()):
        checks.requests(strategy)
        checks.check(strategy, (N, K, T), everyone_available)


PLUGIN = """
import jax.numpy as jnp
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import Request

def too_many():
    def select(key, state, now):
        return Selection(jnp.arange(4, dtype=jnp.int32), None, jnp.ones((3,), bool))
    return Strategy("mine", select)

def by_name():
    return Strategy("mine", None, requests=("loss",))
"""


@pytest.mark.parametrize("factory", ["too_many", "by_name"])
def test_the_command_refuses_before_it_reads_data(factory, tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_plugin.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    started = time.perf_counter()
    # the data set is not there: nobody gets as far as to notice
    given = ["--algo", f"broken_plugin:{factory}", "--dataset", "mnist", "--data-dir", str(tmp_path / "no")]
    code = command_line.guarded(train.main, given)
    error = capsys.readouterr().err
    assert code == 2 and time.perf_counter() - started < 10
    assert "strategy 'mine'" in error and "Traceback" not in error and not (tmp_path / "runs").exists()
