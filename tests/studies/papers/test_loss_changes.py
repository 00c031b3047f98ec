"""What is measured on finished runs, kept beside them, and judged: the law of FedCor's loss changes."""

import dataclasses
import os
import shutil
import signal
import time

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.errors import DamagedRunError
from studies.grid import Workers
from studies.papers import heading, loss_changes, runner, verdicts
from studies.papers.entries import ENTRIES, fedcor_stationarity
from studies.papers.entry import Cell, Part, Scale
from tests.studies.papers import made_up
from tests.studies.papers.small import SMALL, made_small

FEW = Scale(share=0.02)  # 20 cohorts
CELL = Cell("fmnist-2spc", "random")


def judged(name, monkeypatch, changes, scale=None, **flat_names):
    """The verdicts on loss changes that nobody measured, by what they are about."""
    monkeypatch.setattr(loss_changes, "read", lambda result, scale: changes)
    run = made_up.result(np.zeros((len(next(iter(changes.values()))), 4)))
    run = dataclasses.replace(run, config=run.config.replace(**flat_names))
    page = ENTRIES[name].judge({CELL: run}, Scale() if scale is None else scale)
    return {row.what: row.verdict for row in page.rows if row.verdict}


@pytest.mark.slow
@pytest.mark.parametrize(
    "law,fits,gaussian",
    [
        ("normal", verdicts.REPRODUCED, verdicts.REPRODUCED),
        ("exponential", verdicts.CONTRADICTED, verdicts.CONTRADICTED),
        ("gamma", verdicts.REPRODUCED, verdicts.CONTRADICTED),  # no eye sees it, and a thousand samples tell it
    ],
)
def test_the_verdicts_on_components(monkeypatch, law, fits, gaussian):
    rng = np.random.default_rng(0)
    draw = {"normal": rng.standard_normal, "exponential": rng.standard_exponential}.get(
        law, lambda shape: rng.standard_gamma(40.0, shape)
    )
    changes = draw((6, 1000, 4)) * [10.0, 3.0, 1.0, 0.1]
    found = list(judged("fedcor/fig2", monkeypatch, {14: changes}).values())
    assert found == [fits, gaussian]
    found = list(judged("fedcor/fig12", monkeypatch, {14: changes}).values())
    assert found == [fits] * 4 + [gaussian]
    assert set(judged("fedcor/fig2", monkeypatch, {14: changes}, Scale(share=0.5)).values()) == {
        verdicts.NOT_COMPARABLE
    }


@pytest.mark.parametrize(
    "turn,throughout,mostly",
    [
        (0.0, verdicts.AGREES, verdicts.AGREES),
        (0.3, verdicts.DIFFERS, verdicts.AGREES),
        (1.5, verdicts.DIFFERS, verdicts.DIFFERS),
    ],
)
def test_the_verdicts_on_covariances(monkeypatch, turn, throughout, mostly):
    rng = np.random.default_rng(0)

    def turned(angle):
        direction = np.array([np.cos(angle), np.sin(angle), 0.0])
        return rng.standard_normal((5, 1000, 1)) * direction + 0.01 * rng.standard_normal((5, 1000, 3))

    changes = {round: turned(turn * place) for place, round in enumerate(range(0, 40, 10))}
    kept = {"rounds": 40, "checkpoint_every": 10}
    assert list(judged("fedcor/fig3", monkeypatch, changes, **kept).values()) == [throughout]
    assert list(judged("fedcor/fig9", monkeypatch, changes, **kept).values()) == [mostly]
    scaled = {round: values * 10.0**round for round, values in changes.items()}  # only the shape counts
    assert list(judged("fedcor/fig3", monkeypatch, scaled, **kept).values()) == [throughout]
    del changes[20]
    assert list(judged("fedcor/fig9", monkeypatch, changes, **kept).values()) == [verdicts.NOT_COMPARABLE]


def test_covariances_are_written_with_their_seeds(monkeypatch):
    samples = np.random.default_rng(0).standard_normal((2, 100, 3))
    monkeypatch.setattr(loss_changes, "read", lambda result, scale: {0: samples, 10: samples})
    run = made_up.result(np.zeros((2, 4)))
    config = run.config.replace(rounds=20, checkpoint_every=10, seeds=(7, 9))
    page = ENTRIES["fedcor/fig3"].judge({CELL: dataclasses.replace(run, config=config, seeds=(7, 9))}, Scale())
    lines = [line.split(",") for line in page.tables["cosines.csv"].splitlines()]
    assert lines[0][:3] == ["setting", "seed", "round"]
    assert [line[:3] for line in lines[1:]] == [["fmnist-2spc", "7", "0"], ["fmnist-2spc", "9", "0"]]


def test_similarities_by_hand():
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((1, 6, 2))
    other = np.stack([samples[0][:, ::-1]])  # the two clients changed places
    found = fedcor_stationarity.similarities({0: samples, 10: other, 30: other}, 10)
    covariance = np.cov(samples[0].T)
    swapped = covariance[::-1, ::-1]
    assert found.rounds == (0,)  # 10 and 30 are not one interval apart
    square = (covariance**2).sum()
    assert found.cosines[0, 0] == pytest.approx((covariance * swapped).sum() / square)
    assert found.printed[0, 0] == pytest.approx((covariance * swapped).sum() / square**2)
    halves = [np.cov(half.T) for half in (samples[0, :3], samples[0, 3:])]
    expected = (halves[0] * halves[1]).sum() / np.sqrt((halves[0] ** 2).sum() * (halves[1] ** 2).sum())
    assert found.halves[0, 0] == pytest.approx(expected)


def test_what_is_measured_when():
    config = fedjax_sel.preset("fedcor/fmnist-2spc")
    assert loss_changes.rounds_of(config.replace(rounds=14)) == (14,)
    assert loss_changes.rounds_of(config.replace(rounds=30, checkpoint_every=10)) == (0, 10, 20)
    for name, entry in ENTRIES.items():
        if entry.measure is loss_changes.MEASURE:
            for config in entry.runs.values():
                rounds = loss_changes.rounds_of(config)
                assert config.run.keep >= len(rounds) and all(round % config.run.chunk == 0 for round in rounds[:-1])
                cifar = config.data.dataset == "cifar10"
                if name in ("fedcor/fig3", "fedcor/fig9"):
                    assert rounds[1] == (50 if cifar else 10) and len(rounds) == (40 if cifar else 50)
                else:
                    assert rounds == (19 if cifar else 14,)  # the last round of the warm-up
    assert loss_changes.cohorts(Scale()) == loss_changes.cohorts(Scale(rounds=3)) == 1000
    assert loss_changes.cohorts(FEW) == 20


@pytest.mark.parametrize(
    "took,said",
    [
        ((60.0, 90.0), "which took 2 minutes more."),
        ((60.0, np.nan), "which took 60 seconds more, 1 of the runs not counted."),
        ((np.nan, np.nan), "which is not counted in."),  # an earlier version did not write it down
    ],
)
def test_a_page_says_what_measuring_took(tmp_path, took, said):
    """Twelve minutes of measuring beside a run of twenty seconds are what someone who repeats it waits for."""
    entry, cells = ENTRIES["fedcor/fig9"], (CELL, Cell("fmnist-1spc", "random"), Cell("fmnist-dir", "random"))
    run = made_up.result(np.zeros((1, 4)))
    runs = [dataclasses.replace(run, config=run.config.replace(out=str(tmp_path / name))) for name in "aab"]
    measure = entry.measure._replace(took=lambda result, _: took["ab".index(str(result.config.run.out)[-1])])
    found = runner.Found(dict(zip(cells, runs, strict=True)), {}, False)
    text = "\n".join(heading.lines(dataclasses.replace(entry, measure=measure), Scale(), ["command"], found))
    assert f" What is judged was measured on them afterwards, {said}\n" in text
    without = dataclasses.replace(entry, measure=None)
    assert "What is judged" not in "\n".join(heading.lines(without, Scale(), ["command"], found))


@pytest.fixture
def finished(tmp_path):
    """A run that keeps its states."""
    config = SMALL.replace(
        algo="random", rounds=3, seeds=2, chunk=1, checkpoint_every=1, keep=9, out=str(tmp_path / "run")
    )
    return fedjax_sel.run(config)


@pytest.mark.slow
def test_what_is_measured_is_kept(finished, tmp_path):
    begun = time.monotonic()
    lines = list(loss_changes.measure(finished, FEW))
    assert [line for line in lines if line] == [
        f"loss changes of 20 cohorts after round {round} ({round + 1} of 3)" for round in range(3)
    ]
    before = loss_changes.read(finished, FEW)
    assert list(before) == [0, 1, 2] and all(changes.shape == (2, 20, 10) for changes in before.values())
    assert not np.array_equal(before[0], before[1])
    assert 0 < loss_changes.took(finished, FEW) < time.monotonic() - begun
    assert list(loss_changes.measure(finished, FEW)) == [] and loss_changes.read(finished, Scale(share=0.03)) == {}

    folder = tmp_path / "run" / "loss_changes"
    (folder / "round-00000001-20.npz").write_bytes(b"nothing")
    assert list(loss_changes.read(finished, FEW)) == [0, 2]
    assert [line for line in loss_changes.measure(finished, FEW) if line] == [
        "loss changes of 20 cohorts after round 1 (2 of 3)"
    ]
    np.testing.assert_array_equal(loss_changes.read(finished, FEW)[1], before[1])

    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "round-00000002")
    with pytest.raises(DamagedRunError, match="it has no checkpoint after round 2; remove it to run it again"):
        list(loss_changes.measure(finished, FEW))
    assert list(loss_changes.read(finished, FEW)) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_measuring_goes_on(tmp_path, number):
    entry, said = made_small(ENTRIES["fedcor/fig3"], 1), []

    def stop(line):
        said.append(line)
        if "(1 of" in line:
            os.kill(os.getpid(), number)

    scale = Scale(share=0.5)  # 2 rounds, 500 cohorts
    found = runner.run(entry, Part(), tmp_path, scale, stop, lambda found: None)
    assert found.stopped and found.stopped_by == number and not found.failed
    found = runner.run(entry, Part(), tmp_path, scale, said.append, lambda found: None)
    assert not found.stopped and list(found.results) == list(entry.runs)
    assert [line for line in said if "cohorts" in line] == [
        f"loss changes of 500 cohorts after round {round} ({round + 1} of 2)" for round in range(2)
    ]
    assert entry.judge(found.results, scale).rows


@pytest.mark.slow
def test_what_cannot_be_measured_is_a_failure(tmp_path, monkeypatch):
    entry = made_small(ENTRIES["fedcor/fig2"])
    first, second = (str(config.run.out) for config in runner.configurations(entry, tmp_path, FEW).values())
    assert first == second  # made small, both settings are one
    monkeypatch.setattr(loss_changes, "_after", lambda *given: (_ for _ in ()).throw(DamagedRunError("gone")))
    for _ in range(2):  # the second time the run is there, and not measured
        found = runner.run(entry, Part(), tmp_path, FEW, lambda line: None, lambda found: None)
        assert not found.results and {str(why) for why in found.failed.values()} == {"gone"}


@pytest.mark.slow
def test_workers_measure_what_they_ran(tmp_path):
    pytest.importorskip("distributed")
    entry, scale = made_small(ENTRIES["fedcor/fig2"], 1), Scale(rounds=2)
    pages = [
        entry.judge(
            runner.run(entry, Part(), tmp_path / name, scale, lambda line: None, lambda found: None, workers).results,
            scale,
        )
        for name, workers in (("one", None), ("two", Workers(2)))
    ]
    assert pages[0].rows and pages[0].rows == pages[1].rows
