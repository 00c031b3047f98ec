"""Runs with --private-training: sensitivity, law of the noise, spent epsilon by hand, and all that it combines with."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedjax_sel
from fedjax_sel import Experiment, UserError
from fedjax_sel.experiment import checking, experiment_of, problem
from fedjax_sel.simulation import run
from fedjax_sel.simulation.round import one_round
from fedjax_sel.strategies import ALL, Request, Selection, Strategy, always, at_start, privacy
from tests.killed import run_until_killed

accounting = pytest.importorskip("dp_accounting")
TINY = {
    "dataset": "synthetic:train_size=60,test_size=20,num_classes=4,image_size=6", "num_clients": 10, "algo": "random",
    "num_selected": 3, "rounds": 6, "chunk": 2, "local_epochs": 1, "batch_size": 5, "keep": 0, "partition": "iid",
    "private_training": "epsilon=8,delta=1e-5", "model": "logistic",
}  # fmt: skip
K, CLIP = 3, 0.01  # smaller than any update


def tiny(**more):
    return fedjax_sel.Config().replace(**(TINY | more))


@functools.cache
def program_of(noise=0.0, clip=CLIP, **more):
    """A program whose noise has another multiplier, and the function of one round."""
    settings = tiny(**{"private_training": f"epsilon=8,clip={clip}", "mesh": "seeds=1,clients=1", **more})
    program = run.prepare(problem.pose(experiment_of(settings)))
    plan = program.plan
    training = plan.private_training
    if training is not None:
        plan = plan._replace(private_training=training._replace(multiplier=noise))
    step = jax.jit(lambda federation, round: one_round(plan, program.carry, round, federation, program.streams))
    return program, lambda federation=program.federation, round=0: jax.device_get(step(federation, jnp.int32(round)))


def flat(weights):
    return np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(weights)]).astype(np.float64)


def test_no_client_changes_the_sum_by_more_than_twice_the_bound():
    program, one = program_of()
    data, rng = program.federation, np.random.default_rng(0)
    first, records = one()
    who = int(records.cohort[0, 0])
    places = np.asarray(data.order)[0, int(data.starts[0, who]) :][: int(data.sizes[0, who])]
    largest = 0.0
    for label in range(8):
        images = data.images.at[places].set(rng.integers(256, size=data.images[places].shape).astype(data.images.dtype))
        other, again = one(data._replace(images=images, labels=data.labels.at[places].set(label % 4)))
        np.testing.assert_array_equal(again.cohort, records.cohort)
        largest = max(largest, K * float(np.linalg.norm(flat(other.params) - flat(first.params))))
    assert CLIP < largest <= 2 * CLIP * 1.0001


def test_lost_reports_count_as_zero():
    program, one = program_of(report_failure_rate=0.5)
    seen = set()
    for round in range(6):
        carry, records = one(round=round)
        arrived = int(records.events.models_up[0])
        seen.add(arrived)
        moved = K * np.linalg.norm(flat(carry.params) - flat(program.carry.params))
        assert moved <= arrived * CLIP * 1.0001 and (moved > 0) == (arrived > 0)
        assert carry.trainings.sum() == arrived
    assert len(seen) > 1


def test_the_law_of_the_noise():
    plain, noisy = program_of(0.0)[1], program_of(1.5)[1]
    both = [flat(noisy(round=round)[0].params) - flat(plain(round=round)[0].params) for round in (0, 1)]
    deviation = 1.5 * 2 * CLIP / K
    for noise in both:
        assert stats.kstest(noise, stats.norm(scale=deviation).cdf).pvalue > 0.01
    assert abs(np.corrcoef(*both)[0, 1]) < 0.1


def test_without_noise_and_clipping_it_is_fedavg():
    private, plain = program_of(clip=1e6)[1](), program_of(private_training=None)[1]()
    np.testing.assert_allclose(flat(private[0].params), flat(plain[0].params), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epsilon,delta,trainings", [(8.0, 1e-5, 6), (1.0, 1e-6, 2)])
def test_calibration(epsilon, delta, trainings):
    found = privacy.planned_training(f"epsilon={epsilon},delta={delta},rounds={trainings}", 100, 10)
    assert found is not None and found.stops
    accountant = accounting.pld.PLDAccountant()
    accountant.compose(accounting.GaussianDpEvent(found.multiplier), trainings)
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-3)
    assert found.standard_deviation == pytest.approx(found.multiplier * 2 / 10)


def counts_of(result):
    chosen = result.cohorts[0][..., None] == np.arange(10)
    return np.cumsum(chosen.any(axis=1), axis=0)


def test_epsilon_of_each_client_and_round():
    result = fedjax_sel.run(tiny())
    found = privacy.planned_training(TINY["private_training"], 6, K)
    assert found is not None
    for counts, spent in zip(counts_of(result), result.epsilons[0]):
        expected = [count and accounting.get_epsilon_gaussian(found.multiplier / count**0.5, 1e-5) for count in counts]
        np.testing.assert_allclose(spent, expected, rtol=1e-5)
    np.testing.assert_array_equal(result.largest_epsilon, result.epsilons.max(axis=2))
    assert result.largest_epsilon.max() <= 8.00001
    assert result.summary()[-2][0] == "largest epsilon (hides one client)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind,when,law", [("label_histogram", at_start(), "laplace"), ("profile", always(), "gaussian")]
)
def test_answers_and_trainings_are_composed(kind, when, law):
    def select(key, state, now):
        return Selection.of(jax.random.permutation(key, now.env.num_clients)[: now.env.num_selected], now.available)

    strategy = Strategy("made", select, (Request(kind, ALL, when),))
    posed = Experiment.of(tiny(privacy="epsilon=2,delta=1e-5"), algo=strategy)
    plan = run.prepare(problem.pose(posed)).plan
    assert plan.noise.law == law
    result = fedjax_sel.run(posed)
    event = accounting.LaplaceDpEvent if law == "laplace" else accounting.GaussianDpEvent
    for round in (0, 5):
        trained = counts_of(result)[round]
        for who in (0, 1, 2):
            accountant = accounting.pld.PLDAccountant()
            accountant.compose(event(plan.noise.multiplier), 1 if law == "laplace" else round + 1)
            if trained[who]:
                accountant.compose(accounting.GaussianDpEvent(plan.private_training.multiplier), int(trained[who]))
            exact = accountant.get_epsilon(1e-5)
            assert (1 - 1e-5) * exact < result.epsilons[0, round, who] < 1.004 * exact  # rounded up


def test_a_client_trains_in_at_most_r_rounds():
    result = fedjax_sel.run(tiny(private_training="epsilon=8,rounds=2"))
    counts = counts_of(result)[-1]
    assert counts.max() == 2 and counts.sum() == 18  # of the 20 trainings that ten clients have
    assert result.largest_epsilon[0, -1] == pytest.approx(8, rel=1e-5)


LATE = {"timing": "tiers", "timing_args": {"jitter": 0.2}, "deadline": "q0.8", "report_failure_rate": 0.2}
OTHERS = [
    {"algo": "pow_d", "optimizer": "fedyogi", "available": 0.8},
    {"algo": "oort", "optimizer": "fedprox", **LATE, "over_select": 1.3},
    {"algo": "gpfl", "privacy": "epsilon=1,delta=1e-5", "privacy_unit": "client", **LATE},
    {"algo": "fl_dp3s", "concurrency": 6, "private_training": "epsilon=8,rounds=3", **LATE},
]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("settings", OTHERS, ids=lambda one: one["algo"])
def test_it_combines_with_other_settings(settings):
    result = fedjax_sel.run(tiny(**settings))
    assert np.isfinite(result.test_loss).all() and (np.diff(result.epsilons, axis=1) >= 0).all()
    assert result.epsilons.max() > 0 and ("privacy" in settings or result.epsilons.max() <= 8.00001)


@pytest.mark.slow
def test_asynchronous_rounds_with_as_many_clients_as_reports_are_synchronous():
    timed = {"timing": "tiers", "private_training": "epsilon=8,rounds=3"}
    one, other = fedjax_sel.run(tiny(**timed)), fedjax_sel.run(tiny(**timed, concurrency=3))
    np.testing.assert_array_equal(one.cohorts, other.cohorts)
    np.testing.assert_array_equal(one.epsilons, other.epsilons)
    np.testing.assert_allclose(one.test_loss, other.test_loss, rtol=1e-5)


@pytest.mark.slow
def test_several_devices_choose_the_same_cohorts():
    settings = {"algo": "pow_d", "num_selected": 4, "seeds": 2}
    whole = fedjax_sel.run(tiny(**settings, mesh="seeds=1,clients=1"))
    for other in ({"mesh": "seeds=2,clients=1"}, {"mesh": "seeds=1,clients=2"}, {"seeds_at_once": 1}):
        found = fedjax_sel.run(tiny(**settings | other))
        np.testing.assert_array_equal(found.cohorts, whole.cohorts)
        np.testing.assert_array_equal(found.epsilons, whole.epsilons)
        np.testing.assert_allclose(found.test_loss, whole.test_loss, rtol=1e-4)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits(tmp_path):
    settings = tiny(keep=1, checkpoint_every=2)
    whole = fedjax_sel.run(settings.replace(out=str(tmp_path / "whole")))
    settings = settings.replace(out=str(tmp_path / "cut"))
    run_until_killed(settings, 4)
    resumed = fedjax_sel.run(settings)
    assert whole.epsilons.shape == (1, 6, 10)
    for name in ("test_loss", "largest_epsilon", "epsilons", "cohorts"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name), err_msg=name)
    np.testing.assert_array_equal(fedjax_sel.load(tmp_path / "cut").epsilons, whole.epsilons)
    np.save(tmp_path / "cut" / "epsilons.npy", whole.epsilons * 0)
    with pytest.raises(UserError, match=r"epsilons.npy was removed or changed"):
        fedjax_sel.load(tmp_path / "cut")


def test_noise_alone_is_a_step():
    """No update is finite, but the model moves, so reports go stale."""
    settings = {"learning_rate": 1e30, "on_nonfinite": "skip", "timing": "tiers", "concurrency": 6}
    assert np.nanmax(fedjax_sel.run(tiny(**settings)).measured["staleness"]) > 0


@pytest.mark.parametrize(
    "settings,message",
    [
        ({"private_training": "delta=1e-5"}, "epsilon is missing"),
        ({"private_training": "epsilon=8,delta=0"}, "delta=0 is impossible"),
        ({"private_training": "epsilon=8,clip=0"}, "clip=0 is not a positive number"),
        ({"private_training": "epsilon=8,answers=2"}, "unknown 'answers'"),
        ({"private_training": "epsilon=8,rounds=1"}, "give rounds=2 or more"),
        ({"aggregation": "samples"}, "give --aggregation uniform instead of samples"),
        ({"privacy": "epsilon=1,delta=1e-6"}, "delta differs from that of --privacy"),
        ({**LATE, "late_reports": "use"}, "give --late-reports drop"),
        ({"optimizer": "scaffold"}, "scaffold send more than their updates"),
        ({"optimizer": "fednova"}, "fednova send more than their updates"),
        ({"algo": "fedcor"}, "fedcor trains probe cohorts without noise"),
        ({"algo": "full"}, "full chooses the size of its cohort"),
        ({"algo": "ocs"}, "ocs chooses the size of its cohort"),
        ({"algo": "kvib"}, "kvib chooses the size of its cohort"),
        ({"algo": "osmd"}, "osmd chooses the size of its cohort or the weights"),
    ],
)
def test_what_it_rejects(settings, message):
    with pytest.raises(UserError, match=message):
        checking.check(experiment_of(tiny(**settings)))
