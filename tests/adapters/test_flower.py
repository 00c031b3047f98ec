"""The adapter for Flower on a grid in this process: who is asked what, and what becomes of silence."""

import time

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr.serverapp.strategy", reason="Flower is not installed: pip install 'fedjax-sel[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedMedian, FedProx

import fedjax_sel
from fedjax_sel import UserError
from fedjax_sel.adapters import rounds
from fedjax_sel.adapters.flower import SelectorStrategy, messages
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import ALL, Request, always, at_start
from tests.adapters.made_up import FakeGrid, Line, N

K, T = 3, 6


def first():
    return ArrayRecord({"line": Array(np.zeros(2))})


def evaluation(arrays):
    x = np.linspace(-1, 3, 50)
    loss = float(np.mean((np.stack([x, np.ones_like(x)], axis=1) @ arrays["line"].numpy() - 3 * x + 1) ** 2))
    return {"accuracy": 1 / (1 + loss), "loss": loss, "correct": 50}


def made(strategy, **others):
    given = {"profile_size": 2, "num_classes": 3, "server_evaluation": evaluation, "answer_seconds": 5.0}
    return SelectorStrategy(strategy, N, K, T, **given | {"wait_seconds": 1.0} | others)


def run(strategy, grid=None, **others):
    made_one = made(strategy, **others)
    grid = FakeGrid([Line(number) for number in range(N)]) if grid is None else grid
    result = made_one.start(grid, first(), evaluate_fn=lambda number, arrays: MetricRecord(evaluation(arrays)))
    return made_one, grid, result


FEDCOR = "fedcor[warmup=2,interval=2,warmup_steps=3,steps=2,dimension=2]"


@pytest.mark.parametrize(
    "algo", ["random", "pow_d[num_candidates=5]", "fl_dp3s", "gpfl", FEDCOR, "afl", "divfl", "oort", "clustered"]
)
def test_a_federation_learns_the_line(algo):
    strategy, grid, result = run(algo)
    losses = [result.evaluate_metrics_serverapp[round]["loss"] for round in range(T + 1)]
    assert losses[-1] < losses[0] / 2
    assert strategy.selector.round == T and len(strategy.cohorts) == T
    bill = strategy.selector.bill()
    trained = [name for kind, name in grid.sent if kind == "train"]
    assert bill.total.models_up == len(trained)
    for client in grid.nodes.values():
        kinds = {kind for kind, *_ in client.asked} - {"train"}
        bought = {request.kind for request in fedjax_sel.strategies.make(algo.split("[")[0]).requests}
        assert kinds <= bought | {"loss"}


def test_facts_are_asked_by_messages_of_their_own():
    _, grid, _ = run("pow_d[num_candidates=5]")
    kinds = [kind for kind, _ in grid.sent]
    assert kinds[:N] == ["query.introduce"] * N
    assert kinds[N:] == (["query.loss"] * 5 + ["train"] * K) * T
    for round in range(T):
        start = N + round * (5 + K)
        asked = {name for _, name in grid.sent[start : start + 5]}
        assert {name for _, name in grid.sent[start + 5 : start + 5 + K]} <= asked


def test_what_the_cohort_is_asked_travels_with_its_training():
    _, grid, _ = run("afl")
    kinds = [kind for kind, _ in grid.sent]
    assert kinds == ["query.introduce"] * N + ["query.loss"] * N + ["train"] * K * T


def test_probes_train_a_cohort_and_ask_everybody_twice():
    strategy, grid, _ = run(FEDCOR)
    probed = [one for client in grid.nodes.values() for one in client.asked if one[0] == "train" and one[2] is not None]
    spent = strategy.selector.bill()
    questions = sum(kind == "query.loss" for kind, _ in grid.sent)
    assert probed and spent.total.models_up == K * T + len(probed)
    assert spent.total.floats_up == questions


def test_it_selects_as_a_selector_that_is_told_the_same():
    """The facts are the clients' own; who is named, and the bill, are those of a loop in plain Python."""
    strategy, _, _ = run("pow_d[num_candidates=5]")
    clients = [Line(number) for number in range(N)]
    plain = fedjax_sel.Selector("pow_d[num_candidates=5]", N, K, T, sizes=[c.num_examples for c in clients])
    line = np.zeros(2)
    for cohort in strategy.cohorts:
        (ask,) = plain.asks()
        plain.tell(ask.kind, ask.clients, [clients[k].loss({"line": line}) for k in ask.clients])
        names, _ = plain.select()
        assert tuple(map(str, names)) == cohort
        sizes = np.array([clients[k].num_examples for k in names])
        total = sizes.sum()
        line = sum(clients[k].trained(line) * (size / total) for k, size in zip(names, sizes))
        plain.update()
    assert plain.bill() == strategy.selector.bill()


def weights_of(monkeypatch, algo, grid, **others):
    """Run a federation; return its model, and the cohorts with their weights."""
    chosen, choose = [], rounds.choose
    monkeypatch.setattr(rounds, "choose", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    _, _, result = run(algo, grid, **others)
    return result.arrays["line"].numpy(), chosen


@pytest.mark.parametrize("algo", ["ocs", "kvib", "osmd", "delta"])
def test_weights_that_sum_to_one_only_on_average_are_used_as_they_are(monkeypatch, algo):
    """Client 1 never reports, and its weight stays on the old model; that of client 5, a NaN, goes to the others."""
    grid = FakeGrid([Line(number) for number in range(N)])
    plain = grid.nodes[105].train
    grid.nodes[105].train = lambda order: plain(order)._replace(weights={"line": np.full(2, np.nan)})
    grid.hears = lambda node, message: message.metadata.message_type != "train" or node != 101
    found, chosen = weights_of(monkeypatch, algo, grid)
    line, clients = np.zeros(2), [Line(number) for number in range(N)]
    for cohort, weights in chosen:
        shares = {int(name): float(weight) for name, weight in zip(cohort, weights) if name != "1"}
        finite = {name: weight for name, weight in shares.items() if name != 5}
        if finite:
            scale = sum(shares.values()) / sum(finite.values())
            line = line + sum(scale * weight * (clients[name].trained(line) - line) for name, weight in finite.items())
    np.testing.assert_allclose(found, line, rtol=1e-6)
    assert any(abs(weights.sum() - 1) > 0.01 for _, weights in chosen)
    assert {"1", "5"} <= {name for cohort, _ in chosen for name in cohort}


def test_reports_without_weight_leave_the_model():
    """Only the first client of a cohort has a weight, and its report is always lost."""

    def select(key, state, now):
        cohort = Selection.of(jnp.arange(K), None)
        return cohort._replace(weights=jnp.float32([1, 0, 0]))

    grid = FakeGrid([Line(number) for number in range(N)])
    grid.hears = lambda node, message: message.metadata.message_type != "train" or node != 100
    strategy, _, result = run(Strategy("first", select), grid)
    assert strategy.selector.round == T
    losses = [result.evaluate_metrics_serverapp[round]["loss"] for round in range(T + 1)]
    assert losses == losses[:1] * (T + 1)


@pytest.mark.parametrize("algo", ["clustered", "random[variant=md]"])
def test_weights_that_sum_to_one_are_averaged_over_the_reports(monkeypatch, algo):
    grid = FakeGrid([Line(number) for number in range(N)])
    grid.hears = lambda node, message: message.metadata.message_type != "train" or node != 101
    found, chosen = weights_of(monkeypatch, algo, grid)
    line, clients = np.zeros(2), [Line(number) for number in range(N)]
    for cohort, weights in chosen:
        shares = {int(name): float(weight) for name, weight in zip(cohort, weights) if name != "1"}
        total = sum(shares.values())
        line = sum(weight / total * clients[name].trained(line) for name, weight in shares.items())
    np.testing.assert_allclose(found, line, rtol=1e-6)
    assert "1" in {name for cohort, _ in chosen for name in cohort}


def test_only_trained_arrays_take_weights_that_do_not_sum_to_one(monkeypatch):
    """Batch statistics are averaged: a variance beyond those of the clients could be negative."""
    grid = FakeGrid([Line(number) for number in range(N)])
    for client in grid.nodes.values():
        plain = client.train

        def train(order, plain=plain):
            report = plain(order)
            return report._replace(weights={**report.weights, "variance": np.full(1, 0.25)})

        client.train = train
    made_one = made("kvib", trained=["line"])
    result = made_one.start(grid, ArrayRecord({"line": Array(np.zeros(2)), "variance": Array(np.ones(1))}))
    np.testing.assert_allclose(result.arrays["variance"].numpy(), 0.25, rtol=1e-6)


def test_other_aggregations_reject_weights_that_do_not_sum_to_one():
    clipping = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 3)
    for algo in ("ocs", "kvib", "osmd", "delta"):
        for inner in (FedAdam(), FedMedian(), clipping):
            words = rf"^inner: Flower's {type(inner).__name__} does not support the weights of '{algo}'"
            with pytest.raises(UserError, match=words):
                made(algo, inner=inner)
        made(algo, inner=FedProx(proximal_mu=0.1))
    run("clustered", inner=FedAdam(fraction_evaluate=0.0))

    def select(key, state, now):
        return Selection(jnp.arange(K, dtype=jnp.int32), jnp.full((K,), 0.5), jnp.ones((K,), bool))

    plugin = Strategy("halves", select)
    run(plugin)
    grid = FakeGrid([Line(number) for number in range(N)])
    with pytest.raises(UserError, match="FedAdam does not support the weights of 'halves'"):
        run(plugin, grid, inner=FedAdam(fraction_evaluate=0.0))
    assert "train" not in [kind for kind, _ in grid.sent]


class CountedGrid(FakeGrid):
    calls = 0

    def get_node_ids(self):
        self.calls += 1
        assert self.calls < 15, "Flower waits for a second node"
        return super().get_node_ids()


def test_a_federation_of_one():
    strategy = SelectorStrategy("random", 1, 1, 2)
    strategy.start(CountedGrid([Line(0)]), first())
    assert strategy.cohorts == [("0",), ("0",)]


def test_a_node_that_never_introduces_itself_delays_a_round_by_seconds():
    grid = FakeGrid([Line(number) for number in range(N + 1)])
    grid.hears = lambda node, message: node != 100 + N
    strategy, _, _ = run("random", grid, wait_seconds=600.0)
    assert strategy.selector.round == T
    asked = [kind for kind, name in grid.sent].count("query.introduce")
    assert asked == N + 1 + T  # it may still come
    longest = max(seconds for (kind, _), seconds in zip(grid.sent, grid.timeouts) if kind == "query.introduce")
    assert longest == messages.INTRODUCE_SECONDS < 60


class SlowGrid(FakeGrid):
    """Its nodes take half a minute to introduce themselves; `now` is the clock."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def send_and_receive(self, messages, *, timeout):
        replies = list(super().send_and_receive(messages, timeout=timeout))
        self.sleep(min(timeout, 30.0))
        return replies if timeout >= 30 else []


def test_slow_nodes_are_given_longer(monkeypatch):
    grid = SlowGrid([Line(number) for number in range(N)])
    monkeypatch.setattr(messages, "time", grid)
    assert len(messages.Nodes().wait(grid, lambda online: len(online) == N, 600.0, "8")) == N and grid.now < 120
    grid.now = 0.0
    with pytest.raises(UserError, match="0 of 8 required clients are available"):
        messages.Nodes().wait(grid, lambda online: len(online) == N, 40.0, "8")
    assert 40 <= grid.now < 41


def test_buffers_among_the_trained_arrays_end_in_one_sentence():
    """The answers hold parameters alone."""
    grid = FakeGrid([Line(number) for number in range(N)])
    arrays = ArrayRecord({"line": Array(np.zeros(2)), "running_mean": Array(np.zeros(3))})
    for algo in ("divfl[variant=ideal]", ASKS_FOR_UPDATES):
        words = r"^(gradient|update): no answer is of shape \[5\], and the last is of shape \[2\]; .*`trained` of"
        with pytest.raises(UserError, match=words):
            made(algo).start(grid, arrays)


ASKS_FOR_UPDATES = fedjax_sel.strategies.make("random")._replace(requests=(Request("update", ALL, at_start()),))


class Lagging(FakeGrid):
    """The clock of the third client is a minute late."""

    def send_and_receive(self, messages, *, timeout=None):
        for reply in super().send_and_receive(messages, timeout=timeout):
            reply.metadata.created_at -= 60 * (reply.metadata.src_node_id == 102)
            yield reply


def test_durations_run_from_the_message_to_the_reply():
    def select(key, state, now):
        return Selection(jnp.arange(K, dtype=jnp.int32), None, jnp.ones((K,), bool))

    def update(state, now, selection, outcome):
        return outcome.seconds, now.info.seconds.value

    def init(key, now):
        return jnp.zeros((K,)), jnp.zeros((N,))

    strategy = Strategy("timed", select, (Request("seconds", ALL, at_start()),), init, update)
    with pytest.raises(UserError, match="has_clock: strategy 'timed' requests durations"):
        made(strategy)

    def after(wait, call):
        return lambda given: time.sleep(wait) or call(given)

    grid = Lagging([Line(number) for number in range(N)])
    slow = grid.nodes[101]
    slow.answer, slow.train = after(0.2, slow.answer), after(0.2, slow.train)
    timed, _, _ = run(strategy, grid, has_clock=True)
    for (row,) in timed.selector._now.state:
        assert 0 <= row[0] <= row[1] - 0.19 and row[1] < 60 and row[2] == 0


@pytest.mark.parametrize(
    "algo,kinds",
    [
        ("afl", {"loss"}),
        (FEDCOR, {"loss"}),
        ("pow_d[variant=train-first]", {"training_loss"}),
        (ASKS_FOR_UPDATES, {"update"}),
    ],
)
def test_whoever_trains_knows_the_servers_configuration(algo, kinds):
    made_one, grid = made(algo), FakeGrid([Line(number) for number in range(N)])
    made_one.start(grid, first(), train_config=ConfigRecord({"rate": 0.5}))
    asked = [one for client in grid.nodes.values() for one in client.asked]
    assert {kind for kind, *_ in asked} == kinds | {"train"}
    for kind, round, _, config in asked:
        assert config == ({} if kind == "loss" else {"rate": 0.5, "server-round": round + 1})


def test_a_second_start_goes_on():
    whole, _, wanted = run("afl")
    twice, grid = made("afl"), FakeGrid([Line(number) for number in range(N)])
    twice.start(grid, first(), num_rounds=2)
    early = twice.cohorts
    assert len(early) == 2
    result = twice.start(FakeGrid(list(grid.nodes.values()), first_node=500), first())
    assert early + twice.cohorts == whole.cohorts
    np.testing.assert_array_equal(result.arrays["line"].numpy(), wanted.arrays["line"].numpy())


def test_silence_is_tolerated():
    grid = FakeGrid([Line(number) for number in range(N)])
    lost = {"query.loss": {"1", "2"}, "train": {"3"}}

    def hears(node, message):
        name, kind = grid.nodes[node].name, message.metadata.message_type
        return True if name not in lost.get(kind, ()) else ("error" if name == "1" else False)

    grid.hears = hears
    strategy, _, result = run("afl", grid)
    assert strategy.selector.round == T and result.evaluate_metrics_serverapp[T]["loss"] < 10
    trained = [name for kind, name in grid.sent if kind == "train"]
    reported = [name for name in trained if name != "3"]
    total = strategy.selector.bill().total
    assert total.models_up == len(reported)
    assert total.floats_up == N - 2 + len(reported)  # whoever did not answer sent nothing


def test_too_few_answers_are_asked_for_again_and_then_refused():
    grid = FakeGrid([Line(number) for number in range(N)])
    turns = []

    def hears(node, message):
        if message.metadata.message_type == "query.gradient":
            turns.append(node)
            return len(turns) > N  # nobody at the first time
        return True

    grid.hears = hears
    strategy, _, _ = run("divfl[variant=ideal]", grid)
    assert strategy.selector.round == T
    asked = [kind for kind, _ in grid.sent].count("query.gradient")
    assert asked == (T + 1) * N

    grid = FakeGrid([Line(number) for number in range(N)])
    grid.hears = lambda node, message: message.metadata.message_type != "query.gradient"
    with pytest.raises(UserError, match=r"0 of 8 clients are available, fewer than num_selected=3"):
        run("divfl[variant=ideal]", grid)


def test_answers_that_do_not_fit_count_as_none(caplog):
    clients = [Line(number) for number in range(N)]
    clients[0].answer = lambda question: [1.0, 2.0]
    clients[1].answer = lambda question: np.nan
    strategy, _, _ = run("pow_d[num_candidates=8]", FakeGrid(clients))
    assert "loss of client '0' is of shape [2], not of shape []; ignored" in caplog.text
    assert all("0" not in cohort for cohort in strategy.cohorts)
    assert all("1" in cohort for cohort in strategy.cohorts[:1])  # what is not finite is bad, not unknown


def test_probes_go_on_without_answers_that_do_not_fit(caplog):
    clients = [Line(number) for number in range(N)]
    turns = []
    plain = clients[0].answer
    clients[0].answer = lambda question: turns.append(question) or (plain(question) if len(turns) % 2 else [1.0, 2.0])
    clients[1].answer = lambda question: np.nan
    strategy, _, _ = run(FEDCOR, FakeGrid(clients))
    assert strategy.selector.round == T and len(turns) > 3
    assert "loss of client '0' is of shape [2], not of shape []" in caplog.text


def test_a_loss_that_diverges_on_a_probe_changes_by_the_largest_known_change(monkeypatch):
    def select(key, state, now):
        return Selection.of(jnp.arange(K), now.available)

    strategy = made(Strategy("probing", select, (Request("loss_change", ALL, always()),)))
    told, tell = [], fedjax_sel.Selector.tell
    monkeypatch.setattr(
        fedjax_sel.Selector, "tell", lambda self, *given: told.append(np.asarray(given[2])) or tell(self, *given)
    )
    clients = [Line(number) for number in range(N)]
    for client in clients:

        def answer(question, plain=client.answer):
            of_probe = (question.weights["line"] != strategy._weights["line"]).any()
            return np.nan if told and of_probe else plain(question)

        client.answer = answer
    strategy.start(FakeGrid(clients), first())
    assert len(told) == T and told[0].max() < 0
    for changes in told[1:]:
        np.testing.assert_array_equal(changes, np.full_like(changes, told[0].max()))


def test_a_broken_or_foreign_model_is_left_out(caplog):
    clients = [Line(number) for number in range(N)]
    plain = clients[0].train
    clients[0].train = lambda order: plain(order)._replace(weights={"line": np.full(2, np.nan)})
    clients[1].train = lambda order: plain(order)._replace(weights={"line": np.zeros(3)})
    strategy, _, result = run("random", FakeGrid(clients))
    assert np.isfinite(result.arrays["line"].numpy()).all()
    chosen = [name for cohort in strategy.cohorts for name in cohort]
    assert "0" in chosen and "1" in chosen
    assert "update of client '0' is not finite" in caplog.text
    assert "client '1' returned a model with other arrays than it received" in caplog.text


def test_a_killed_server_goes_on(tmp_path):
    whole, _, wanted = run("gpfl")
    for kill in (0, 3, 5):
        folder = tmp_path / f"killed {kill}"
        grid = FakeGrid([Line(number) for number in range(N)])
        killed = made("gpfl", folder=folder)

        def hears(node, message, kill=kill, killed=killed):
            if message.metadata.message_type == "train" and killed.selector.round == kill:
                raise KeyboardInterrupt
            return True

        grid.hears = hears
        with pytest.raises(KeyboardInterrupt):
            killed.start(grid, first())
        goes_on, _, result = run("gpfl", FakeGrid([Line(n) for n in range(N)], first_node=500), folder=folder)
        assert killed.cohorts[:kill] + goes_on.cohorts == whole.cohorts
        np.testing.assert_array_equal(result.arrays["line"].numpy(), wanted.arrays["line"].numpy())
        assert goes_on.selector.bill() == whole.selector.bill()
        assert sorted(result.evaluate_metrics_serverapp) == list(range(kill, T + 1))
    again, grid, result = run("gpfl", FakeGrid([]), folder=folder)
    assert not again.cohorts and not grid.sent
    np.testing.assert_array_equal(result.arrays["line"].numpy(), wanted.arrays["line"].numpy())
    assert sorted(path.name for path in folder.iterdir()) == ["clients.json", "selector.npz", "weights-000006.npz"]


@pytest.mark.parametrize("algo", ["gpfl", "pow_d[num_candidates=5]"])
def test_a_start_that_ended_within_a_round_is_repeated(algo):
    whole, _, wanted = run(algo)
    strategy, grid = made(algo), FakeGrid([Line(number) for number in range(N)])

    def hears(node, message):
        if message.metadata.message_type == "train" and strategy.selector.round == 3:
            raise RuntimeError
        return True

    grid.hears = hears
    with pytest.raises(RuntimeError):
        strategy.start(grid, first())
    before, grid.hears = strategy.cohorts[:3], lambda node, message: True
    result = strategy.start(grid, first())
    assert before + strategy.cohorts == whole.cohorts and strategy.selector.bill() == whole.selector.bill()
    np.testing.assert_array_equal(result.arrays["line"].numpy(), wanted.arrays["line"].numpy())


def test_a_second_server_does_not_write_into_the_folder(tmp_path):
    """Not even who its clients are, before they come; the first one goes on, and the second when it has ended."""
    folder = tmp_path / "federation"
    first_one, grid, second = made("random", folder=folder), FakeGrid([Line(number) for number in range(N)]), []
    other = made("random", folder=folder)

    def hears(node, message):
        if not second:
            with pytest.raises(
                UserError, match=r"^folder: another process is writing to \S+; wait for it, or give ano"
            ):
                other.start(FakeGrid([Line(number) for number in range(N)]), first())
            second.append([path.name for path in folder.iterdir()])
        return True

    grid.hears = hears
    first_one.start(grid, first(), num_rounds=2)
    assert second == [[".lock"]] and first_one.selector.round == 2
    grid.hears = lambda node, message: True
    other.start(grid, first(), num_rounds=4)
    assert len(other.cohorts) == 2  # not those again that the first one had
    result = first_one.start(grid, first())
    assert len(first_one.cohorts) == T - 4 and first_one.selector.round == T
    wanted, _, of_whole = run("random")
    np.testing.assert_array_equal(result.arrays["line"].numpy(), of_whole.arrays["line"].numpy())
    assert first_one.cohorts == wanted.cohorts[4:] and first_one.selector.bill() == wanted.selector.bill()


@pytest.mark.parametrize(
    "change,words",
    [
        ({"server_evaluation": None}, "server_evaluation: strategy 'gpfl' reads the server's evaluation"),
        ({"trained": ["other"]}, "trained: the model has no array 'other'; it has line"),
    ],
)
def test_what_is_missing_is_one_sentence_before_any_node_is_asked(change, words):
    grid = FakeGrid([Line(number) for number in range(N)])
    with pytest.raises(UserError) as found:
        run("gpfl", grid, **change)
    assert words in str(found.value) and not grid.sent


def test_a_missing_length_is_found_before_there_is_a_grid():
    with pytest.raises(UserError, match="profile_size: strategy 'fl_dp3s' requests 'profile'; pass profile_size"):
        SelectorStrategy("fl_dp3s", N, K, T)


def test_clients_that_do_not_come():
    with pytest.raises(UserError, match="5 of 8 required clients are available"):
        run("random", FakeGrid([Line(number) for number in range(5)]), wait_seconds=0.3)
    with pytest.raises(UserError, match="num_rounds: 7 exceeds the 6 rounds of this strategy"):
        made("random").start(FakeGrid([Line(number) for number in range(N)]), first(), num_rounds=T + 1)
    with pytest.raises(UserError, match="9 clients introduced themselves, not 8"):
        run("random", FakeGrid([Line(number) for number in range(9)]))


class Private(Line):
    """A client that perturbs its answers, unless it is the `careless` one."""

    careless = None

    def answer(self, question):
        value = super().answer(question)
        assert question.noise is not None
        return value if self.name == self.careless else rounds.perturb(question.kind, value, question.noise)

    def train(self, order):
        report = super().train(order)
        return report._replace(facts={k: rounds.perturb(k, v, order.noise[k]) for k, v in report.facts.items()})


@pytest.mark.parametrize("algo", ["pow_d[num_candidates=5]", "fed_cbs", "afl", "divfl"])
def test_clients_perturb_their_answers(algo):
    pytest.importorskip("dp_accounting")
    strategy, _, _ = run(algo, FakeGrid([Private(number) for number in range(N)]), privacy="epsilon=5,delta=1e-5")
    spent = strategy.selector.epsilons()
    assert 0 < max(spent.values()) <= 5.0001 and len(spent) == N


def test_a_client_that_does_not_perturb_ends_the_run():
    pytest.importorskip("dp_accounting")
    clients = [Private(number) for number in range(N)]
    clients[2].careless = "2"
    with pytest.raises(UserError, match="tell 'gradient': client '2' did not perturb its answer"):
        run("divfl", FakeGrid(clients), privacy="epsilon=5,delta=1e-5")
