"""Clients that cannot be reached, and clients whose training never reaches the server: seeded, equal, and billed."""

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config
from fedjax_sel.data import availability
from fedjax_sel.errors import UserError

SMALL = Config().replace(
    algo="random", dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12,
    num_selected=4, local_epochs=1, rounds=6, chunk=3, seeds=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    table = (np.random.default_rng(0).uniform(size=(12, 8)) < 0.5).astype(int)
    table[:, 2] = 0  # nobody in the third round
    path = tmp_path_factory.mktemp("trace") / "who.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in table) + "\n")
    return path, table


def test_a_trace_is_read_from_text_and_from_numpy(trace, tmp_path):
    path, table = trace
    np.testing.assert_array_equal(availability.load(path, 12, 8), table.T == 1)
    np.save(tmp_path / "who.npy", table.astype(bool))
    np.testing.assert_array_equal(availability.load(tmp_path / "who.npy", 12, 6), table.T == 1)
    with pytest.raises(UserError, match="12 clients and 8 rounds, and the run has 12 clients and 9 rounds"):
        availability.load(path, 12, 9)


@pytest.mark.parametrize("algo", [pytest.param("random", marks=pytest.mark.slow), "fl_dp3s"])
def test_nobody_trains_who_the_trace_says_is_away(trace, algo, tmp_path):
    path, table = trace
    result = fedjax_sel.run(SMALL.replace(algo=algo, available=str(path), out=str(tmp_path / "run")))
    for t in range(6):
        there = set(np.flatnonzero(table[:, t]))
        for cohort in result.cohorts[:, t]:
            chosen = set(cohort[cohort >= 0].tolist())
            assert chosen <= there and len(chosen) == min(4, len(there))
    np.testing.assert_array_equal(result.ledger.models_down[:, 2], 0)
    np.testing.assert_array_equal(result.test_loss[:, 2], result.test_loss[:, 1])
    longer = fedjax_sel.run(SMALL.replace(algo=algo, available=str(path), out=str(tmp_path / "run"), rounds=8))
    np.testing.assert_array_equal(longer.cohorts[:, :6], result.cohorts)
    assert all(set(cohort[cohort >= 0].tolist()) <= set(np.flatnonzero(table[:, 7])) for cohort in longer.cohorts[:, 7])
    path.with_name("other.csv").write_text(path.read_text().replace("1", "0", 1))
    with pytest.raises(UserError, match="another configuration"):
        fedjax_sel.run(SMALL.replace(algo=algo, available=str(path.with_name("other.csv")), out=str(tmp_path / "run")))


def test_lost_reports_are_the_same_whatever_the_strategy_and_cost_what_they_cost():
    everyone = SMALL.replace(num_selected=12, report_failure_rate=0.3)
    random, other = (fedjax_sel.run(everyone.replace(algo=algo)) for algo in ("random", "fl_dp3s"))
    lost = random.ledger.reports_lost
    np.testing.assert_array_equal(lost, other.ledger.reports_lost)  # all are selected: the same clients fail
    assert 0 < lost.sum() < lost.size * 12 * 0.6
    assert (random.cohorts >= 0).all()  # they did train
    none = fedjax_sel.run(SMALL.replace(num_selected=12))
    np.testing.assert_array_equal(random.ledger.models_down, none.ledger.models_down)
    np.testing.assert_array_equal(random.ledger.examples_trained, none.ledger.examples_trained)
    np.testing.assert_array_equal(random.ledger.models_up, none.ledger.models_up - lost)
    assert none.ledger.reports_lost.sum() == 0
    assert (random.test_loss != none.test_loss).any()


def test_without_a_single_report_the_model_stays_and_no_strategy_learns():
    never = fedjax_sel.run(SMALL.replace(algo="oort", report_failure_rate=0.999999))
    assert (never.ledger.reports_lost == 4).all() and (never.ledger.models_up == 0).all()
    assert (never.test_loss == never.test_loss[:, :1]).all()
    assert np.isnan(never.gemd).all()  # nobody's labels reached the server


def test_skipped_updates_are_counted():
    wild = SMALL.replace(learning_rate=1e20, on_nonfinite="skip", local_epochs=3)
    result = fedjax_sel.run(wild)
    assert (result.ledger.updates_skipped == 4).all()
    assert (result.test_loss == result.test_loss[:, :1]).all()  # an all-skipped cohort leaves the model unchanged
