"""Real clients that perturb their answers: bounds by brute force, the law of the noise, and the Selector's ledger."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedjax_sel
from fedjax_sel import UserError
from fedjax_sel.adapters import rounds
from fedjax_sel.adapters.jax_client import JaxClient, arrays_of
from fedjax_sel.adapters.rounds import Order, Question, ReceivedReport
from fedjax_sel.core import parsing
from fedjax_sel.selector import ClientNoise, Perturbed
from fedjax_sel.strategies import ALL, Request, always, privacy

accounting = pytest.importorskip("dp_accounting")
rng = np.random.default_rng(0)
N, K, T, EXAMPLES = 6, 2, 4, 5
BUDGET = "epsilon=1,delta=1e-5"
PARAMS = {"first": jnp.asarray(4 * rng.normal(size=(3, 4)), jnp.float32),
          "second": jnp.asarray(4 * rng.normal(size=(4, 3)), jnp.float32)}  # fmt: skip


class Phone(JaxClient):
    def fit(self, params, config):
        changed = jax.tree.map(lambda leaf: leaf + self.inputs.sum(), params)
        return changed, [[self.inputs.sum(axis=1) ** 2 / 10]]


def phone(name, inputs, targets):
    def apply(params, inputs):
        return jax.nn.relu(inputs @ params["first"]) @ params["second"]

    return Phone(
        name, apply, PARAMS, inputs, targets, num_classes=3, profile=lambda params, inputs: inputs @ params["first"]
    )


def federation():
    return {
        name: phone(name, rng.normal(size=(EXAMPLES + name, 3)).astype(np.float32), np.arange(EXAMPLES + name) % 3)
        for name in range(N)
    }


def make(strategy="pow_d[num_candidates=4]", **others):
    sizes = [EXAMPLES + name for name in range(N)]
    given = {"sizes": sizes, "privacy": BUDGET, "num_params": 24, "profile_size": 4, "num_classes": 3}
    return fedjax_sel.Selector(strategy, N, K, T, **given | others)


OPTIONS = [
    ("loss", {}), ("loss", {"statistic": "rms"}), ("loss", {"batch_size": 3}), ("profile", {}), ("gradient", {}),
    ("training_loss", {}), ("label_histogram", {}),
]  # fmt: skip


@pytest.mark.parametrize("kind,options", OPTIONS)
def test_no_example_changes_an_answer_by_more_than_its_sensitivity(kind, options):
    settings, unit = parsing.Privacy(1.0, loss=2.0, profile=0.5, gradient=0.3), "example"
    noise = ClientNoise(unit, privacy.bound(settings, kind), "gaussian", 0.0)
    inputs, targets = rng.normal(size=(EXAMPLES, 3)).astype(np.float32), np.array([0, 1, 2, 1, 0])

    def answer(inputs, targets):
        question = Question(kind, options, arrays_of(PARAMS), 0, noise=noise)
        return np.ravel(phone("phone", inputs, targets).answer(question).value).astype(np.float64)

    own, largest = answer(inputs, targets), (0.0, 0.0)
    for label in range(9):
        others, labels = inputs.copy(), targets.copy()
        others[0], labels[0] = 10.0 ** (label % 3) * rng.normal(size=3), label % 3
        moved = answer(others, labels) - own
        largest = max(largest[0], np.abs(moved).sum()), max(largest[1], np.linalg.norm(moved))
    request = Request(kind, ALL, always(), tuple(options.items()))
    examples = options.get("batch_size", EXAMPLES)
    l1, l2 = map(float, privacy.sensitivities(settings, unit, request, examples, own.size))
    assert 0 < largest[0] <= l1 * 1.0001 and 0 < largest[1] <= l2 * 1.0001


@pytest.mark.parametrize("kind", ["gradient", "update", "update_norm", "profile", "label_histogram"])
def test_all_of_a_client_is_bounded(kind):
    noise = ClientNoise("client", 0.5, "gaussian", 0.0)
    question = Question(kind, {}, arrays_of(PARAMS), 0, noise=noise)
    value = phone("phone", rng.normal(size=(9, 3)) * 100, np.arange(9) % 3).answer(question).value
    assert np.linalg.norm(np.ravel(value), ord=1 if kind == "label_histogram" else 2) <= 0.50001


@pytest.mark.parametrize("law,expected", [("laplace", stats.laplace), ("gaussian", stats.norm)])
def test_the_law_of_the_noise(law, expected):
    noise = ClientNoise("example", 1.0, law, 2.0)
    first, second = (rounds.perturb("profile", np.zeros(5000), noise).value for _ in range(2))
    assert stats.kstest(first, expected(scale=2.0).cdf).pvalue > 0.001
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1  # each answer has entropy of its own


def test_a_federation_spends_what_its_ledger_says(tmp_path):
    selector, clients, queries = make(), federation(), dict.fromkeys(range(N), 0)

    def ask(due, names):
        for name in names:
            queries[name] += 1
        return {
            name: clients[name].answer(Question(due.kind, due.options, arrays_of(PARAMS), 0, noise=due.noise[name]))
            for name in names
            if name != 3  # it never answers
        }

    for round in range(T):
        cohort, _ = rounds.choose(selector, None, ask)
        rounds.close(selector, {name: ReceivedReport({"all": np.zeros(24)}) for name in cohort}, {"all": np.zeros(24)})
        if round == 1:
            selector.save(tmp_path / "selector.npz")
            selector = make()
            selector.load(tmp_path / "selector.npz")
    noise = selector._terms.noise
    assert noise is not None and noise.law == "laplace" and 0 < queries[3] <= T
    for name, spent in selector.epsilons().items():
        accountant = accounting.pld.PLDAccountant()
        accountant.compose(accounting.LaplaceDpEvent(noise.multiplier), max(queries[name], 1))
        assert spent == pytest.approx(accountant.get_epsilon(1e-5) if queries[name] else 0, rel=1e-3)
        assert spent <= 1.00001
    with pytest.raises(UserError, match="belongs to another Selector \\(privacy\\)"):
        make(privacy="epsilon=2,delta=1e-5").load(tmp_path / "selector.npz")


def test_facts_of_training_are_perturbed():
    selector, clients = make("oort"), federation()
    cohort, _ = selector.select()
    (due,) = selector.asks()
    reports = {}
    for name in cohort:
        order = Order(arrays_of(PARAMS), 0, wanted={due.kind: due.options}, noise={due.kind: due.noise[name]})
        reports[name] = ReceivedReport({}, facts=clients[name].train(order).facts, seconds=1.0)
    rounds.close(selector, reports, {})
    assert sorted(name for name, spent in selector.epsilons().items() if spent) == sorted(cohort)


def test_the_scale_follows_the_number_of_examples():
    (due,) = make().asks()
    scales = {name: one.scale * (EXAMPLES + name) for name, one in due.noise.items()}
    assert due.clients == tuple(scales) and len(set(np.round(list(scales.values()), 5))) == 1
    (due,) = make("fedlecc", privacy="epsilon=1,loss=3").asks()
    assert {one.bound for one in due.noise.values()} == {100.0}


@pytest.mark.parametrize(
    "answer", [1.0, Perturbed(1.0, None), Perturbed(1.0, ClientNoise("example", 5.0, "laplace", 1e-3))]
)
def test_an_answer_without_its_noise_is_rejected(answer):
    selector = make()
    (due,) = selector.asks()
    answers = [rounds.perturb("loss", 1.0, noise) for noise in due.noise.values()]
    answers[1] = answer
    before = selector.epsilons()
    with pytest.raises(UserError, match=f"tell 'loss': client {due.clients[1]} did not perturb its answer"):
        selector.tell("loss", due.clients, answers)
    assert selector.epsilons() == before
    with pytest.raises(UserError, match="did not perturb"):
        selector.tell(due.kind, *rounds.fitting(due, dict(zip(due.clients, answers))))


def test_a_client_with_a_spent_budget_is_not_queried():
    selector, counts = make(privacy=BUDGET + ",answers=1"), np.zeros(N, int)
    for _ in range(T):
        for due in selector.asks():
            counts[list(due.clients)] += 1
            selector.tell("loss", due.clients, [rounds.perturb("loss", 1.0, due.noise[name]) for name in due.clients])
        cohort, _ = selector.select()
        selector.update(cohort)
    assert counts.max() == 1 and max(selector.epsilons().values()) == pytest.approx(1, rel=1e-3)


def test_loading_an_earlier_state_does_not_forget_answers(tmp_path):
    selector = make(privacy=BUDGET + ",answers=1")
    selector.save(tmp_path / "selector.npz")
    (due,) = selector.asks()
    selector.tell("loss", due.clients, [rounds.perturb("loss", 1.0, due.noise[name]) for name in due.clients])
    spent = selector.epsilons()
    selector.load(tmp_path / "selector.npz")
    assert selector.epsilons() == spent and max(spent.values()) > 0
    assert not set(selector.asks()[0].clients) & set(due.clients)


@pytest.mark.parametrize("how", ["load", "reopen"])
def test_queries_whose_answers_are_lost_spend_budget(tmp_path, how):
    selector = make(privacy=BUDGET + ",answers=2")
    selector.save(tmp_path / "selector.npz")
    candidates = selector.asks()[0].clients
    assert selector.asks()[0].clients == candidates  # a repeated call is no other query
    for spent in (1, 2):
        expected = {name: spent * (name in candidates) for name in range(N)}
        assert dict(enumerate(selector._now.perturbed())) == expected and selector.epsilons()[candidates[0]] > 0
        selector.load(tmp_path / "selector.npz") if how == "load" else selector.reopen()
        asks = selector.asks()
        assert asks[0].clients == (candidates if spent < 2 else ())
    selector.tell("loss", (), [])
    assert dict(enumerate(selector._now.account.perturbed)) == expected


def test_clients_that_were_asked_before_the_others_left_count():
    selector = make("fedlecc", privacy="epsilon=1,loss=3")
    (due,) = selector.asks()
    selector.tell(due.kind, due.clients, [rounds.perturb(due.kind, np.ones(3), due.noise[name]) for name in range(N)])
    assert selector.asks()[0].clients == tuple(range(N))
    (due,) = selector.asks(range(K))
    selector.tell("loss", due.clients, [rounds.perturb("loss", 1.0, due.noise[name]) for name in due.clients])
    assert selector._now.perturbed().tolist() == [2] * N


@pytest.mark.parametrize(
    "strategy,settings,message",
    [
        ("fedcor[warmup=2]", {}, "reads 'loss_change', which a server learns from models of several clients"),
        ("gpfl", {"privacy_unit": "client"}, "reads 'updates', which a server learns from the reports of training"),
        ("pow_d", {"privacy": "delta=1e-5"}, "epsilon is missing"),
        ("pow_d", {"privacy_unit": "clients"}, "privacy_unit"),
        ("ocs", {}, "'example' cannot protect the update_norm"),
    ],
)
def test_what_it_rejects(strategy, settings, message):
    with pytest.raises(UserError, match=message):
        make(strategy, **settings)


def test_without_privacy_nothing_is_spent_and_no_query_has_noise():
    selector = make(privacy=None)
    assert set(selector.epsilons().values()) == {0.0} and not selector.asks()[0].noise
