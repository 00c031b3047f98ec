"""Runs with --privacy: sensitivities by brute force, the spent epsilon by hand, and all that they combine with."""

import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Experiment, UserError, strategies
from fedjax_sel.core import parsing
from fedjax_sel.experiment import checking, experiment_of, problem
from fedjax_sel.simulation import noise, queries, run
from fedjax_sel.strategies import ALL, CANDIDATES, Request, Selection, Strategy, always, at_start, every, privacy
from fedjax_sel.strategies.contract import Now
from fedjax_sel.strategies.facts import Counts
from fedjax_sel.training import client
from fedjax_sel.training.optimizers import Memory
from tests.killed import run_until_killed

pytest.importorskip("dp_accounting")
TINY = {
    "dataset": "synthetic:train_size=60,test_size=20,num_classes=4,image_size=6", "num_clients": 10,
    "num_selected": 3, "rounds": 4, "chunk": 2, "local_epochs": 1, "batch_size": 5, "keep": 0, "partition": "iid",
    "model": "logistic",
}  # fmt: skip
BUDGET = "epsilon=1,delta=1e-5"


def tiny(**more):
    return fedjax_sel.Config().replace(**(TINY | more))


def first_cohort(key, state, now):
    return Selection.of(jax.random.permutation(key, now.env.num_clients)[: now.env.num_selected], now.available)


def made(*requests, **hooks):
    return Strategy("made", first_cohort, requests, **hooks)


# Sensitivities: one example of client 0 is replaced by every other example of the data.
@pytest.fixture(scope="module")
def neighbors(tmp_path_factory):
    """A program with large weights, and its data with one example of client 0 replaced, a list of federations."""
    settings = tiny(algo="random", privacy=BUDGET, out=str(tmp_path_factory.mktemp("run")))
    program = run.prepare(problem.pose(experiment_of(settings)))
    program = program._replace(carry=program.carry._replace(params=jax.tree.map(lambda w: 9 * w, program.carry.params)))
    data = program.federation
    place = int(data.order[0, data.starts[0, 0]])
    return program, [
        data._replace(images=data.images.at[place].set(data.images[other]), labels=data.labels.at[place].set(label))
        for other, label in itertools.product(range(0, 60, 7), range(4))
    ]


OPTIONS = [
    ("loss", ()), ("loss", (("statistic", "rms"),)), ("loss", (("batch_size", 4),)), ("profile", ()),
    ("profile", (("relu", True),)), ("gradient", ()), ("training_loss", ()),
]  # fmt: skip


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("kind,options", OPTIONS)
def test_no_example_changes_an_answer_by_more_than_its_sensitivity(neighbors, kind, options):
    program, others = neighbors
    request = Request(kind, CANDIDATES, always(), options)
    settings = parsing.Privacy(1.0, loss=300.0 if kind == "training_loss" else 2.0, profile=0.5, gradient=0.3)
    bounds = client.Bounds(settings.loss, settings.profile, settings.gradient)
    trainer, first, carry = program.plan.trainer._replace(bounds=bounds), jnp.int32(0), program.carry
    params, kept = (
        jax.tree.map(lambda leaf: leaf[0], carry.params),
        jax.tree.map(lambda leaf: leaf[0, 0], carry.clients),
    )
    keys = program.streams.training[0], program.streams.facts[0]

    @jax.jit
    def answer(federation):
        question = queries.Question(
            trainer,
            request,
            "train",
            federation,
            params,
            kept,
            Memory(kept.own, carry.shared),
            first,
            first,
            *keys,
            first,
        )
        found = queries.ANSWERS[kind](question).ravel()
        return jnp.clip(found, 0, settings.loss) if kind == "training_loss" else found

    own = np.asarray(answer(program.federation), np.float64)
    changes = np.array([np.asarray(answer(other), np.float64) - own for other in others])
    sizes = program.federation.train_sizes if kind == "loss" else program.federation.sizes
    examples = min(int(sizes[0, 0]), dict(options).get("batch_size", 1000))
    l1, l2 = (float(one) for one in privacy.sensitivities(settings, "example", request, examples, own.size))
    largest = np.abs(changes).sum(axis=1).max(), np.linalg.norm(changes, axis=1).max()
    assert 0 < largest[0] <= l1 * 1.0001 and 0 < largest[1] <= l2 * 1.0001
    if not options and kind != "training_loss":
        assert largest[1] > 0.3 * l2  # the bounds are not loose


def noiseless(kind, unit="client", **bounds):
    noise = privacy.Noise(parsing.Privacy(1.0, **bounds), unit, "gaussian", 0.0, 1, False, {})
    return lambda value, examples=6: np.asarray(
        noise.private(jax.random.key(0), Request(kind, ALL, always()), jnp.float32(value), examples)
    )


@pytest.mark.parametrize(
    "kind", ["label_histogram", "loss", "profile", "gradient", "update", "updates", "update_norm", "losses_after"]
)
def test_no_client_changes_an_answer_by_more_than_its_sensitivity(kind):
    answer, rng = (
        noiseless(kind, loss=2.0, profile=0.5, gradient=0.3, update=0.7, label_histogram=4),
        np.random.default_rng(1),
    )
    length = 1 if "loss" in kind or kind == "update_norm" else 3
    extremes = 50 * np.eye(3, length)
    values = [*(rng.exponential(9, length) for _ in range(20)), *extremes, *-extremes, np.full(length, np.nan)]
    if kind == "label_histogram":  # counts of six examples
        values = [*rng.multinomial(6, [0.5, 0.3, 0.2], 20), *6 * np.eye(3)]
    answers = np.array([answer(value) for value in values])
    changes = (answers[:, None] - answers[None]).reshape(-1, length)
    settings = parsing.Privacy(1.0, loss=2.0, profile=0.5, gradient=0.3, update=0.7, label_histogram=4)
    l1, l2 = privacy.sensitivities(settings, "client", Request(kind, ALL, always()), 6, length)
    assert np.abs(changes).sum(axis=1).max() <= l1 * 1.0001
    assert np.linalg.norm(changes, axis=1).max() == pytest.approx(
        float(l2), rel=1e-4
    )  # some pair of clients reaches it


def test_one_example_moves_two_counts():
    answer = noiseless("label_histogram", "example")
    np.testing.assert_array_equal(answer([3, 2, 200]), [3, 2, 200])  # no bound is needed
    found = privacy.sensitivities(parsing.Privacy(1.0), "example", Request("label_histogram", ALL, at_start()), 9, 4)
    assert found == pytest.approx((2, 2**0.5))


def test_changes_of_losses_are_differences_of_two_bounded_losses():
    request = Request("loss_change", ALL, always(), (("probes", 3),))
    found = privacy.sensitivities(parsing.Privacy(1.0, loss=2.0), "example", request, 8, 3)
    assert found == pytest.approx((3 * 2 * 2 / 8, 3**0.5 * 2 * 2 / 8))


def test_the_law_with_less_noise_is_chosen():
    counts = Counts(39, 4, 50)

    def law(kind, when, delta=1e-5):
        noise = privacy.planned(
            f"epsilon=1,delta={delta}", "example", made(Request(kind, ALL, when)), (200, 10, 100), counts
        )
        assert noise is not None
        return noise.law

    assert law("label_histogram", at_start()) == "laplace" and law("loss", at_start()) == "laplace"
    assert law("loss", always()) == "gaussian" and law("profile", at_start()) == "gaussian"
    assert law("profile", at_start(), 0.0) == "laplace"


# The spent epsilon. At delta = 0, Laplace noise spends in proportion to the answers.
PURE = "epsilon=1,delta=0"


def result_of(strategy, **more):
    return fedjax_sel.run(Experiment.of(tiny(**{"privacy": PURE, "rounds": 12, **more}), algo=strategy))


def all_rows(result, name):
    return result.measured[name][0]


@pytest.mark.parametrize(
    "when,answers",
    [
        pytest.param(at_start(), [1] * 12, marks=pytest.mark.slow),
        pytest.param(always(), range(1, 13), marks=pytest.mark.slow),
        pytest.param(every(10), [1] * 10 + [2, 2], marks=pytest.mark.slow),
        (at_start() | every(5), [2] * 5 + [3] * 5 + [4, 4]),
    ],
)
def test_epsilon_of_each_schedule(when, answers):
    result = result_of(made(Request("loss", ALL, when)))
    expected = np.array([*answers]) / [*answers][-1]
    for name in ("largest_epsilon", "mean_epsilon"):
        np.testing.assert_allclose(all_rows(result, name), expected, rtol=1e-5)


def ten_of(key, state, now):
    return jax.random.permutation(key, now.env.num_clients)[:4].astype(jnp.int32)


def test_epsilon_of_candidates():
    """Four of ten clients answer in each of 12 rounds, of which each may be one: 1/12 for each answer."""
    result = result_of(made(Request("loss", CANDIDATES, always()), candidates=ten_of))
    np.testing.assert_allclose(all_rows(result, "mean_epsilon"), np.arange(1, 13) * 4 / 10 / 12, rtol=1e-5)
    assert result.ledger.floats_up[0].tolist() == [4] * 12
    answers = 12 * result.epsilons[0]
    np.testing.assert_allclose(answers, np.round(answers), atol=1e-5)
    assert (np.round(np.diff(answers, axis=0)).sum(axis=1) == 4).all()
    assert (all_rows(result, "largest_epsilon") <= 1).all()


def test_a_client_stops_when_its_answers_are_used_up():
    """With 2 answers per client, each spends 1/2; the tables of the others keep old values."""
    result = result_of(made(Request("loss", CANDIDATES, always()), candidates=ten_of), privacy=PURE + ",answers=2")
    assert all_rows(result, "largest_epsilon").max() == 1 and result.ledger.floats_up.sum() <= 20
    assert result.ledger.floats_up[0, :3].tolist()[0] == 4
    np.testing.assert_allclose(
        all_rows(result, "mean_epsilon"), np.cumsum(result.ledger.floats_up[0]) / 10 / 2, rtol=1e-5
    )


def test_lost_reports_spend_nothing():
    def update(state, now, selection, outcome):
        return state + outcome.losses_before.sum()

    strategy = made(init=lambda key, now: now.env.importance[0], update=update)
    result = result_of(strategy, report_failure_rate=0.5)
    arrived = result.ledger.models_up[0]
    np.testing.assert_allclose(all_rows(result, "mean_epsilon"), np.cumsum(arrived) / 10 / 12, rtol=1e-5)


# Runs.
UNITS = {"clustered", "delta", "gpfl", "greedyfed", "hics_fl", "kvib", "ocs", "osmd"}


@pytest.mark.parametrize(
    "algo", [pytest.param(name, marks=() if name == "afl" else pytest.mark.slow) for name in strategies.names()]
)
def test_every_strategy(algo):
    """With absent clients, lost reports, a clock and another optimizer; without a flag, other facts are the same."""
    unit = "client" if algo in UNITS else "example"
    settings = tiny(
        algo=algo, privacy=BUDGET, privacy_unit=unit, available=0.8, report_failure_rate=0.2, timing="tiers",
        optimizer="scaffold",
    )  # fmt: skip
    result = fedjax_sel.run(settings)
    if privacy.perturbed(strategies.make(algo), settings.size):
        largest, mean = result.largest_epsilon, result.mean_epsilon
        assert (np.diff(largest) >= 0).all() and (mean <= largest + 1e-6).all() and largest.max() <= 1.00001
    else:
        plain = fedjax_sel.run(settings.replace(privacy=None))
        np.testing.assert_array_equal(result.cohorts, plain.cohorts)
        assert "largest_epsilon" not in result.measured


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits(tmp_path):
    settings = tiny(algo="divfl", privacy=BUDGET, rounds=6, keep=1, checkpoint_every=2)
    whole = fedjax_sel.run(settings.replace(out=str(tmp_path / "whole")))
    settings = settings.replace(out=str(tmp_path / "cut"))
    run_until_killed(settings, 4)
    resumed = fedjax_sel.run(settings)
    assert (np.diff(whole.mean_epsilon) > 0).all()
    for name in ("test_accuracy", "largest_epsilon", "mean_epsilon", "cohorts"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name), err_msg=name)


def test_the_table_has_the_noise_that_the_strategy_is_told():
    """The histograms of many seeds differ from the true ones by noise of the announced standard deviation."""

    def init(key, now: Now):
        return now.info.label_histogram.value, now.env.noise.get("label_histogram", now.env.importance)

    strategy = made(Request("label_histogram", ALL, at_start()), init=init)
    posed = problem.pose(Experiment.of(tiny(seeds=30, privacy=BUDGET), algo=strategy))
    program = run.prepare(posed)
    seen, announced = program.carry.strategy
    noise = np.asarray(seen) - np.asarray(program.federation.label_counts)
    assert np.allclose(announced, 2 * 2**0.5, rtol=1e-3)
    assert noise.std() == pytest.approx(2 * 2**0.5, rel=0.1)
    assert len(np.unique(noise)) > 0.9 * noise.size  # independent over seeds and clients


@pytest.mark.parametrize(
    "given,message",
    [
        ("delta=1e-5", "epsilon is missing"),
        ("epsilon=-1", "epsilon=-1 is not a positive number"),
        ("epsilon=1,delta=2", "delta=2 is outside"),
        ("epsilon=1,loss=nan", "loss=nan is not a positive number"),
        ("epsilon=1,norm=2", "unknown 'norm'"),
        ("epsilon=1,answers=0", "answers=0 is not a positive number"),
    ],
)
def test_wrong_budgets(given, message):
    with pytest.raises(UserError, match=message):
        checking.check(experiment_of(tiny(privacy=given)))


@pytest.mark.parametrize("algo", sorted(UNITS))
def test_updates_have_no_sensitivity_to_an_example(algo):
    with pytest.raises(UserError, match="--privacy-unit: 'example' cannot protect"):
        checking.check(experiment_of(tiny(algo=algo, privacy=BUDGET)))


def test_more_rounds_are_another_run():
    """The noise of each answer depends on their number."""
    one, other = (tiny(privacy=BUDGET, rounds=rounds).fingerprint() for rounds in (4, 5))
    assert one != other and tiny(rounds=4).fingerprint() == tiny(rounds=5).fingerprint()


def test_the_strategy_does_not_see_which_updates_are_finite():
    plan = SimpleNamespace(noise=SimpleNamespace(requests={}))
    trained = SimpleNamespace(_replace=dict, finite=jnp.array([[True, False]]))
    assert noise.perturb_reports(SimpleNamespace(plan=plan), None, None, trained)[2]["finite"].all()
