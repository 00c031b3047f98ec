"""A Selector goes on from its file exactly, between any two rounds; nothing else is read as one."""

import concurrent.futures

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, strategies

N, K, T = 6, 2, 4
CALLS = 3  # of `one_call` in a round of power-of-choice


def make(**others):
    given = {"sizes": range(4, 4 + N), "seed": 3, "clients": [("phone", k) for k in range(N)]}
    return fedjax_sel.Selector("pow_d[num_candidates=4]", N, K, T, **given | others)


def one_call(selector, log):
    """What a server does next."""
    asks = selector.asks([("phone", k) for k in range(1, N)] if selector.round == 1 else None)
    if asks:
        values = [(3 * k + 5 * selector.round) % 7 for _, k in asks[0].clients]
        selector.tell("loss", asks[0].clients[:3], values[:3])
    elif selector._now.selection is None:
        log.append(selector.select())
    else:
        selector.update(log[-1][0][:1])


def test_numbers_and_names_of_numpy_are_plain_ones(tmp_path):
    given = fedjax_sel.Selector("random", np.int64(4), np.int32(2), 3, sizes=[1] * 4, clients=list(np.arange(4)))
    given.save(tmp_path / "selector.npz")
    fedjax_sel.Selector("random", 4, 2, 3, sizes=[1] * 4).load(tmp_path / "selector.npz")


def test_several_may_save_at_once(tmp_path):
    path, selector = tmp_path / "selector.npz", make()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for saved in [pool.submit(selector.save, path) for _ in range(60)]:
            saved.result()
    make().load(path)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_what_is_no_file_is_one_sentence(path):
    with pytest.raises(UserError, match=r"^save: \S+ cannot be written \(Is a directory\); choose another path$"):
        make().save(path)


def test_sizes_may_add_up_to_more_than_an_int32():
    selector = fedjax_sel.Selector("random[variant=md]", 3, 1, 40, sizes=[2**31 - 1, 2**31 - 1, 2**30])
    counts = np.zeros(3, int)
    for _ in range(40):
        cohort, _ = selector.select()
        counts[list(cohort)] += 1
        selector.update(cohort)
    assert counts.sum() == 40 and counts.min() > 0


def test_it_goes_on_exactly(tmp_path):
    whole, wanted = make(), []
    for _ in range(CALLS * T):
        one_call(whole, wanted)
    assert whole.round == T and len(wanted) == T

    log, selector = [], make()
    for place in range(CALLS * T):
        if place % CALLS == 0:
            selector.save(tmp_path / "selector.npz")
            selector = make()
            selector.load(str(tmp_path / "selector.npz"))
        else:
            with pytest.raises(UserError, match=r"^save: round \d has begun; save after `update`"):
                selector.save(tmp_path / "selector.npz")
        one_call(selector, log)
    assert log == wanted and selector.bill() == whole.bill()
    (tmp_path / "usual").touch()
    assert {path.name for path in tmp_path.iterdir()} == {"selector.npz", "usual"}
    assert (tmp_path / "selector.npz").stat().st_mode == (tmp_path / "usual").stat().st_mode  # a group may read it


def test_other_files_and_other_selectors_are_refused(tmp_path):
    path, selector = tmp_path / "selector.npz", make()
    selector.save(path)
    for others, word in (({"seed": 4}, "seed"), ({"clients": None}, "clients"), ({"sizes": [9] * N}, "sizes")):
        with pytest.raises(UserError, match=rf"another Selector \({word}\)"):
            make(**others).load(path)
    one, federation = tmp_path / "one.npz", {"sizes": range(4, 4 + N), "seed": 3}
    for strategy, same, other in (
        ("pow_d[num_candidates=4]", "pow_d[num_candidates=4]", "pow_d[num_candidates=5]"),
        ("afl[alpha3=0.10]", "afl", "afl[alpha3=0.2]"),
        (strategies.make("afl"), strategies.make("afl"), strategies.make("afl", alpha3=0.2)),
    ):
        fedjax_sel.Selector(strategy, N, K, T, **federation).save(one)
        fedjax_sel.Selector(same, N, K, T, **federation).load(one)
        with pytest.raises(UserError, match=r"another Selector \(its parameters\)"):
            fedjax_sel.Selector(other, N, K, T, **federation).load(one)
    before, content = selector._now, path.read_bytes()
    flipped = content[:200] + bytes([content[200] ^ 1]) + content[201:]
    for damaged in (b"", content[:100], content[: len(content) // 2], b"x" * 50, b"PK\x03\x04" + b"0" * 80, flipped):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="not an intact Selector file"):
            selector.load(path)
    assert selector._now is before


@pytest.mark.parametrize("how", ["load", "reopen"])
def test_a_round_with_too_few_answers_starts_again(tmp_path, how):
    path, selector = tmp_path / "selector.npz", make()
    selector.save(path)
    few = [("phone", k) for k in range(4)]
    (ask,) = selector.asks(few)
    with pytest.raises(UserError, match="is due"):
        selector.select()
    selector.tell("loss", ask.clients, np.ones(len(ask.clients)))
    with pytest.raises(
        UserError, match=r"1 of 6 clients .* num_selected=2; `reopen` the round and wait for more clients, or make"
    ):
        selector.select(few[:1])
    selector.load(path) if how == "load" else selector.reopen()
    (ask,) = selector.asks()  # all clients now
    selector.tell("loss", ask.clients, np.ones(4))
    assert len(selector.select()[0]) == K


def test_a_state_of_types_that_numpy_lacks_is_saved(tmp_path):
    def count(state, now, selection, outcome):
        return state + 1

    def init(key, now):
        return jnp.zeros((2,), jnp.bfloat16)

    usual = strategies.make("random")
    selector = fedjax_sel.Selector(usual._replace(init=init, update=count), 4, 2, 3, sizes=[1] * 4)
    selector.select()
    selector.update()
    selector.save(tmp_path / "selector.npz")
    other = fedjax_sel.Selector(usual._replace(init=init, update=count), 4, 2, 3, sizes=[1] * 4)
    other.load(tmp_path / "selector.npz")
    assert other._now.state.dtype == jnp.bfloat16 and other._now.state.tolist() == [[1.0, 1.0]]
