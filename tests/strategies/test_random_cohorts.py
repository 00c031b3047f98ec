"""Strategies whose cohort size is random: places, weights, bill, clock, Selector, and the kit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, testing
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Strategy, independent_selection
from studies import selection_cost
from tests.selector.recording import Recording

N, K, PLACES, T = 12, 2, 8, 12
SMALL = {
    "dataset": f"synthetic:train_size={20 * N},test_size=20,num_classes=4,image_size=4", "num_clients": N,
    "num_selected": K, "local_steps": 2, "batch_size": 8, "rounds": T, "chunk": 4, "eval_every": T,
    "model": "logistic",
}  # fmt: skip


def bernoulli(factor=1.0, max_selected=sampling.independent_places, **hooks):
    """Every available client is in the cohort with probability K / N; `factor` spoils the weights."""

    def inclusion(state, now):
        n, k = now.env.num_clients, now.env.num_selected
        probabilities = jnp.full((n,), k / n, jnp.float32)
        return probabilities if now.available is None else jnp.where(now.available, probabilities, 0.0)

    def select(key, state, now):
        places = max_selected(now.env.num_clients, now.env.num_selected)
        drawn = independent_selection(key, inclusion(state, now), now.env.importance, places, now.available)
        assert drawn.weights is not None
        return drawn._replace(weights=factor * drawn.weights)

    return Strategy("bernoulli", select, inclusion=inclusion, max_selected=max_selected, **hooks)


def run(strategy=None, **settings):
    return fedjax_sel.run(fedjax_sel.Experiment.of(**SMALL | settings, algo=strategy or bernoulli()))


def test_cohorts_have_places_and_the_ledger_bills_those_who_train(tmp_path):
    result = run(out=str(tmp_path / "run"), aggregation="unbiased", available="0.8", report_failure_rate=0.3)
    trained = result.cohorts >= 0
    sizes = trained.sum(axis=2)
    assert result.cohorts.shape == (1, T, PLACES) and len(np.unique(sizes)) > 2 and sizes.max() > K
    assert (np.diff(trained.astype(int), axis=2) <= 0).all()  # empty places come last
    np.testing.assert_array_equal(result.ledger.models_down, sizes)
    np.testing.assert_array_equal(result.ledger.models_up + result.ledger.reports_lost, sizes)
    assert result.ledger.reports_lost.sum() > 0
    np.testing.assert_array_equal(fedjax_sel.load(tmp_path / "run").cohorts, result.cohorts)


@pytest.mark.slow
def test_the_clock_waits_for_all_selected_clients():
    patient, hurried = run(timing="tiers"), run(timing="tiers", deadline="q0.5")
    sizes = (patient.cohorts >= 0).sum(axis=2)
    assert (sizes > K).any() and (patient.ledger.models_up == sizes).all()  # not only the first K reports
    late = hurried.ledger.reports_lost > 0
    assert late.any() and len(np.unique(hurried.seconds[late])) == 1  # the deadline
    assert (hurried.seconds <= hurried.seconds[late].max()).all()
    with pytest.raises(UserError, match="--over-select: bernoulli decides how many clients it selects"):
        run(timing="tiers", over_select=1.5)


@pytest.mark.slow
def test_the_outcome_has_places():
    shapes = []

    def update(state, now, selection, outcome):
        shapes.append((selection.ids.shape, outcome.losses_after.shape, jax.tree.leaves(outcome.updates)[0].shape[:1]))
        return state + outcome.losses_after.sum()

    strategy = bernoulli(init=lambda key, now: jnp.float32(0), update=update)
    run(strategy)
    selection_cost.selection_seconds(fedjax_sel.Experiment.of(**SMALL, algo=strategy), budget_seconds=1e-3)
    assert set(shapes) == {((PLACES,),) * 3}


@pytest.mark.slow
def test_a_selector_names_the_clients_that_the_mask_keeps():
    recording = Recording(bernoulli(), 8, available="0.9", lost=0.2)
    selector = recording.selector()
    recording.play(selector)  # compares names, weights and bill
    sizes = {len(cohort.ids[cohort.mask]) for (cohort,) in recording.answered["cohort"].values()}
    assert len(sizes) > 2


def test_the_average_is_unbiased():
    """The expected weight of each client is p_k, up to the factor 1 - d of the limited number of places."""
    sizes = jnp.arange(10.0, 10.0 + N)
    importance, probabilities = sizes / sizes.sum(), jnp.linspace(0.02, 0.4, N)
    available = jnp.arange(N) != 3

    def weights(key):
        drawn = independent_selection(key, jnp.where(available, probabilities, 0.0), importance, PLACES, available)
        return jnp.zeros((N,)).at[drawn.ids].add(drawn.weights)

    drawn = np.asarray(jax.jit(jax.vmap(weights))(jax.random.split(jax.random.key(1), 100_000)))
    expected = np.where(available, importance, 0.0) / np.asarray(importance)[np.asarray(available)].sum()
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - expected) <= 4 * error + 1e-3 * expected).all()


@pytest.mark.slow
def test_the_kit_passes_it_and_finds_biased_weights():
    testing.check_strategy(bernoulli)
    report = testing.examine(lambda: bernoulli(factor=0.5), run=False)
    assert report.failed == ("cohort", "availability")
    assert all("on average and must sum to 1" in report.findings[name].why for name in report.failed)


@pytest.mark.parametrize("count", [K - 1, N + 1, 3.0])
def test_invalid_places_are_rejected_before_the_run(count):
    with pytest.raises(UserError, match=f"`max_selected` returns {count} for N = 12 and K = 2; return an integer"):
        run(bernoulli(max_selected=lambda n, k: count))


def test_a_mesh_divides_the_places():
    with pytest.raises(UserError, match="8 clients per round cannot be split into 3 equal shares"):
        run(mesh="seeds=1,clients=3")
