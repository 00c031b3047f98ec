"""What entries compute beside tables of runs: neighbours, profiles, descent, convergence, seconds."""

import dataclasses

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.errors import DamagedRunError
from fedjax_sel.reproduction import state, verdicts
from fedjax_sel.reproduction.entries import ENTRIES, embeddings, fedcor_proxy, fl_dp3s_profiles, gpfl_descent, gpfl_time
from fedjax_sel.reproduction.entry import Cell, Scale
from tests.reproduction import made_up
from tests.reproduction.small import SMALL


def test_purity_goes_by_the_angle():
    directions = np.array([[1.0, 0.0], [5.0, 0.5], [0.0, 1.0], [0.1, 0.2]]).T  # lengths do not matter
    assert embeddings.purity(directions, np.array([0, 0, 1, 1])) == 1.0
    assert embeddings.purity(directions, np.array([0, 1, 0, 1])) == 0.0
    assert embeddings.purity(directions, np.array([0, 0, 1, 2])) == 0.5
    assert embeddings.chance(np.repeat(np.arange(10), 10)) == pytest.approx(9 / 99)


def test_random_embeddings_are_as_pure_as_chance():
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(10), 10)
    found = [embeddings.purity(rng.normal(size=(15, 100)), labels) for _ in range(300)]
    assert np.mean(found) == pytest.approx(embeddings.chance(labels), abs=4 * np.std(found) / 300**0.5)


@pytest.mark.parametrize(
    "purity,verdict",
    [(0.9, verdicts.REPRODUCED), (0.3, verdicts.NOT_REPRODUCED), (0.0, verdicts.CONTRADICTED)],
)
def test_the_verdict_on_neighbours(monkeypatch, purity, verdict):
    monkeypatch.setattr(state, "after", lambda result: {".strategy.embeddings": np.ones((4, 2, 8))})
    monkeypatch.setattr(state, "main_labels", lambda result: np.tile(np.arange(8) % 4, (4, 1)))
    monkeypatch.setattr(embeddings, "purity", lambda one, labels: purity)
    monkeypatch.setattr(embeddings, "_figure", lambda one, labels: None)
    page = ENTRIES["fedcor/fig7"].judge({Cell("fmnist-1spc", "fedcor"): made_up.result(np.zeros((4, 2)))}, Scale())
    assert [row.verdict for row in page.rows] == [verdict]


@pytest.mark.slow
def test_the_state_of_a_run_is_read_from_its_folder(tmp_path):
    config = SMALL.replace(algo="fl_dp3s", rounds=1, seeds=2, out=str(tmp_path / "run"))
    result = fedjax_sel.run(config)
    arrays = state.after(result)
    similarity, profiles = arrays[".strategy.similarity"], arrays[".info[<flat index 0>].value"]
    assert similarity.shape == (2, 10, 10) and profiles.shape[:2] == (2, 10)
    distances = np.linalg.norm(profiles[:, :, None] - profiles[:, None], axis=3)
    for own, expected in zip(similarity, distances):
        others = ~np.eye(10, dtype=bool)
        assert np.corrcoef(own[others], expected[others])[0, 1] == pytest.approx(-1.0, abs=1e-4)  # Eq. 14
    labels = state.main_labels(result)
    assert labels.shape == (2, 10) and set(labels.ravel()) <= set(range(10))
    with pytest.raises(DamagedRunError, match="it has no checkpoint"):
        state.after(made_up.result(np.zeros((1, 1))))


def test_profiles_and_kernels(monkeypatch):
    rng = np.random.default_rng(0)
    clients = rng.normal(size=(8, 20, 5))
    made = {name: clients + 9.0 * place for place, name in enumerate(fl_dp3s_profiles.INITIALIZERS)}
    distances = np.linalg.norm(clients[:, :, None] - clients[:, None], axis=3)
    kernels = {name: 1 - distances / distances.max() for name in made}
    kernels["xavier-normal"] = rng.normal(size=(8, 20, 20))
    monkeypatch.setattr(fl_dp3s_profiles, "_profiles", lambda results: made)
    monkeypatch.setattr(fl_dp3s_profiles, "_kernels", lambda results: kernels)
    assert {row.verdict for row in ENTRIES["fl_dp3s/fig4"].judge({}, Scale()).rows} == {verdicts.REPRODUCED}
    for row in ENTRIES["fl_dp3s/fig5"].judge({}, Scale()).rows:
        assert row.verdict == (verdicts.CONTRADICTED if "xavier-normal" in row.what else verdicts.REPRODUCED)


def test_descent_by_hand():
    path = gpfl_descent.descend(0.01, 0.0)
    np.testing.assert_allclose(path[1], [0.99, 0.0])
    np.testing.assert_allclose(path[2], [0.99**2, 0.0])
    with_momentum = gpfl_descent.descend(0.01, 0.1)
    np.testing.assert_allclose(with_momentum[2], [0.99 - 0.01 * (0.1 + 0.99), -0.1])
    assert gpfl_descent.steps(path[:3]) == 2 and gpfl_descent.oscillation(path[:3]) == pytest.approx(1.0)


def test_slopes():
    rounds = np.arange(1, 1001)
    assert fedcor_proxy.slope(3.0 / rounds) == pytest.approx(-1.0)
    assert fedcor_proxy.slope(np.full(1000, 2.0)) == pytest.approx(0.0)


def test_seconds_in_order():
    def timed(seconds):
        return dataclasses.replace(made_up.result(np.zeros((1, 4))), round_seconds=np.full(4, seconds / 4))

    def verdicts_of(*seconds):
        runs = {
            Cell(column, row): timed(value)
            for column in gpfl_time.COLUMNS
            for row, value in zip(("random", "gpfl", "pow_d", "fedcor"), seconds)
        }
        return [row.verdict for row in ENTRIES["gpfl/fig6"].judge(runs, Scale()).rows if row.verdict]

    assert verdicts_of(1.0, 2.0, 3.0, 4.0) == [verdicts.REPRODUCED] * 3
    assert verdicts_of(2.0, 1.0, 3.0, 3.0) == [verdicts.CONTRADICTED, verdicts.REPRODUCED, verdicts.UNDECIDED]
