"""Runs that must end: a strategy that names nobody, and a server whose step is not finite. What stays is whole."""

import shutil
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, NonFiniteUpdateError, UserError
from fedjax_sel.cli import command_line, train
from fedjax_sel.runs import checkpoint, reading
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import CANDIDATES, Request, always

SMALL = Config().replace(
    algo="random", dataset="synthetic:train_size=240,test_size=60,num_classes=4,image_size=4", num_clients=14,
    num_selected=3, local_epochs=1, rounds=6, chunk=2, seeds="3 1", checkpoint_every=2,
)  # fmt: skip
PLUGIN = f"{__name__}:faulty"
Fault = Literal["none", "far", "masked", "negative", "twice", "far candidates", "candidates twice", "weights"]


def faulty(*, fault: Fault = "none", after: int = 3) -> Strategy:
    """Names everybody in turn; from some round on it does something that it must not."""

    def wrong(round, value, fine):
        return jnp.where(round < after, fine, jnp.asarray(value, fine.dtype))

    def select(key, state, now):
        ids = (jnp.arange(3, dtype=jnp.int32) + now.round) % 14
        mask, weights = jnp.ones(3, bool), None
        if fault == "far":
            ids = wrong(now.round, [1000, 1001, 2], ids)
        if fault == "masked":
            ids, mask = wrong(now.round, [14, 1, 2], ids), wrong(now.round, [False, True, True], mask)
        if fault == "negative":
            ids = wrong(now.round, [-1, 1, 2], ids)
        if fault == "twice":
            ids = wrong(now.round, [1, 1, 2], ids)
        if fault == "weights":
            weights = wrong(now.round, [0.5, jnp.nan, 0.5], jnp.full(3, 1 / 3, jnp.float32))
        return Selection(ids, weights, mask)

    def candidates(key, state, now):
        told = [0, 99] if fault == "far candidates" else [5, 5]
        return wrong(now.round, told, jnp.array([0, 1], jnp.int32))

    asks = "candidates" in fault
    return Strategy(
        "faulty", select, (Request("loss", CANDIDATES, always()),) if asks else (),
        candidates=candidates if asks else None,
    )  # fmt: skip


def arguments(config, *more):
    flags = ["--dataset", "--num-clients", "--num-selected", "--rounds", "--chunk", "--checkpoint-every"]
    values = [config.data.dataset, "14", "3", "6", "2", "2"]
    given = [text for pair in zip(flags, values) for text in pair]
    local = (
        ["--local-steps", "1", "--learning-rate", "1e3"]
        if "--server-learning-rate" in more
        else ["--local-epochs", "1"]
    )
    return [*given, *local, "--seeds", "3", "1", "--out", str(config.run.out), *more]


def newest_state(out):
    manifest, arrays = checkpoint.read(checkpoint.list_all(out / "checkpoints")[0])
    return manifest["rounds"], arrays


def assert_equal(result, expected):
    for name in ("test_accuracy", "test_loss", "gemd", "cohorts"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    for name, column in result.ledger._asdict().items():
        np.testing.assert_array_equal(column, getattr(expected.ledger, name))


NAMES = {
    "far": r"`select` returns clients 1000, 1001, but client IDs range from 0 to 13: clip the IDs",
    "masked": r"`select` returns client 14, but client IDs range from 0 to 13",
    "negative": r"`select` returns client -1, but client IDs range from 0 to 13",
    "twice": r"`select` returns client 1 more than once: .* mask to first_occurrence",
    "far candidates": r"`candidates` returns client 99, but client IDs range from 0 to 13",
    "candidates twice": r"`candidates` returns client 5 more than once: draw without replacement",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "negative",
        "far candidates",
        "far",
        "masked",
        "twice",
        "candidates twice",
    ],
)
def test_a_strategy_that_names_nobody_ends_the_run(fault, tmp_path):
    out = tmp_path / "run"
    config = SMALL.replace(algo=PLUGIN, algo_args={"fault": fault}, out=str(out))
    with pytest.raises(UserError, match=rf"--algo {PLUGIN}: round 4, seed 3: {NAMES[fault]}.*fedjax_sel test "):
        fedjax_sel.run(config)
    assert reading.load(out).num_rounds == 3
    assert newest_state(out)[0] == 2


@pytest.mark.slow
def test_two_of_a_kind_in_places_that_do_not_train_are_nobodys_harm():
    variant = SMALL.replace(algo_args={"variant": "md"}, rounds=4)
    assert (fedjax_sel.run(variant).cohorts == -1).any()


@pytest.mark.slow
def test_the_command_says_so_and_a_mended_strategy_goes_on(tmp_path, monkeypatch, capsys):
    out, source = tmp_path / "run", tmp_path / "strategy_of_mine.py"
    source.write_text(f"from {__name__} import faulty\ndef make():\n    return faulty(fault='far', after=3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = SMALL.replace(algo="strategy_of_mine:make", out=str(out))
    assert command_line.guarded(train.main, arguments(config, "--algo", config.selection.algo)) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("error: --algo strategy_of_mine:make: round 4, seed 3: `select` returns clients 1000, 1001")
    before = {path: path.read_bytes() for path in (out / "checkpoints").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="round 4"):
        fedjax_sel.run(config)
    assert all(path.read_bytes() == content for path, content in before.items())
    import strategy_of_mine  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(strategy_of_mine, "make", faulty)
    assert_equal(fedjax_sel.run(config), fedjax_sel.run(config.replace(out=str(tmp_path / "whole"))))


POLICIES = ("stop", "skip")
# Updates that are finite, of more than one, times nearly the largest number that is.
HUGE = {"server_learning_rate": 3e38, "learning_rate": 1e3, "local_steps": 1, "model_dropout": 0.0}
STEPS = {
    "sgd": (HUGE, "round 1, seed 3", r"server optimizer fedavg, server learning rate 3e\+38"),
    "named": (
        {"server_optimizer": "sgd", **HUGE},
        "round 1, seed 3",
        r"server optimizer sgd, server learning rate 3e\+38",
    ),
    # the second moment is infinite, the model stands still for ever, and is finite
    "moment": (
        {"optimizer": "fedadam", "learning_rate": 1e25, "local_steps": 1, "model_dropout": 0.0},
        "round 1, seed 3",
        r"server optimizer fedadam, server learning rate 0\.01\); lower --server-learning-rate, or --learning-rate",
    ),
    "weights": (
        {"algo": PLUGIN, "algo_args": {"fault": "weights"}},
        "round 4, seed 3",
        rf"because the aggregation weights of the strategy {PLUGIN} are not finite",
    ),
}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "case,policy",
    [
        ("weights", "stop"),
        ("moment", "skip"),
        pytest.param("weights", "skip", marks=pytest.mark.slow),
        pytest.param("moment", "stop", marks=pytest.mark.slow),
        *(pytest.param(case, policy, marks=pytest.mark.slow) for case in ("sgd", "named") for policy in POLICIES),
    ],
)
def test_a_step_of_the_server_that_is_not_finite_ends_the_run(case, policy, tmp_path):
    changes, where, why = STEPS[case]
    out = tmp_path / "run"
    with pytest.raises(NonFiniteUpdateError, match=f"{where}: the server's step is not finite, .*{why}"):
        fedjax_sel.run(SMALL.replace(**changes, on_nonfinite=policy, out=str(out)))
    if case == "weights":
        rounds, arrays = newest_state(out)
        assert rounds == 2 and all(np.isfinite(array).all() for array in arrays.values())
        assert reading.load(out).num_rounds == 3
    else:
        assert not checkpoint.list_all(out / "checkpoints")


@pytest.mark.slow
def test_the_command_ends_with_three_and_blames_no_client(tmp_path, capsys):
    config = SMALL.replace(out=str(tmp_path / "run"))
    more = ("--algo", "random", "--server-learning-rate", "3e38", "--on-nonfinite", "skip")
    assert command_line.guarded(train.main, arguments(config, *more)) == 3
    said = capsys.readouterr().err
    assert "the server's step is not finite" in said and "the update of client" not in said


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    """A run whose updates are not finite from round 4 on, and that stopped there."""
    out = tmp_path_factory.mktemp("wild") / "run"
    config = SMALL.replace(learning_rate_milestones=(3,), learning_rate_decay=1e30, out=str(out))
    with pytest.raises(NonFiniteUpdateError, match=r"round 4, seed 3: .* --on-nonfinite skip, with which .* resumes"):
        fedjax_sel.run(config)
    return config


@pytest.mark.slow
def test_a_run_that_stopped_before_its_first_checkpoint_begins_again_in_its_place(tmp_path):
    wild = {"learning_rate_milestones": (1,), "learning_rate_decay": 1e30, "checkpoint_every": None}
    config = SMALL.replace(**wild, out=str(tmp_path / "run"))
    for _ in range(2):
        with pytest.raises(NonFiniteUpdateError, match=r"with which the same command starts over in "):
            fedjax_sel.run(config)
        assert [path.name for path in tmp_path.iterdir()] == ["run"]  # nothing was worth setting aside
    assert fedjax_sel.run(config.replace(on_nonfinite="skip")).finished


@pytest.mark.slow
def test_skip_goes_on_in_the_folder_of_a_run_that_stopped(wild, tmp_path):
    out = shutil.copytree(wild.run.out, tmp_path / "run")
    skips = wild.replace(on_nonfinite="skip")
    assert newest_state(out)[0] == 2
    result = fedjax_sel.run(skips.replace(out=str(out), resume="must"))
    assert result.finished and (result.ledger.updates_skipped[:, 3:] == 3).all()
    assert_equal(result, fedjax_sel.run(skips.replace(out=str(tmp_path / "whole"))))
    ours, theirs = newest_state(out)[1], newest_state(tmp_path / "whole")[1]
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name])

    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for rounds in (6, 8):
        with pytest.raises(UserError, match=r"--on-nonfinite stop: the run in .* skipped an update in round 4"):
            fedjax_sel.run(wild.replace(out=str(out), rounds=rounds))
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_the_same_command_with_skip_is_followable(wild, tmp_path, capsys):
    out = shutil.copytree(wild.run.out, tmp_path / "run")
    more = ["--algo", "random", "--learning-rate-milestones", "3", "--learning-rate-decay", "1e30"]
    assert command_line.guarded(train.main, arguments(wild.replace(out=str(out)), *more)) == 3
    assert "--on-nonfinite skip" in capsys.readouterr().err
    assert command_line.guarded(train.main, arguments(wild.replace(out=str(out)), *more, "--on-nonfinite", "skip")) == 0


@pytest.mark.slow
def test_a_run_that_left_nothing_out_is_the_same_under_both(tmp_path):
    out = tmp_path / "run"
    result = fedjax_sel.run(SMALL.replace(on_nonfinite="skip", rounds=4, out=str(out)))
    assert_equal(fedjax_sel.run(SMALL.replace(rounds=4, out=str(out))), result)
    longer = fedjax_sel.run(SMALL.replace(out=str(out), resume="must"))
    np.testing.assert_array_equal(longer.test_loss[:, :4], result.test_loss)


@pytest.mark.slow
def test_until_an_update_is_left_out_both_are_one_program():
    from fedjax_sel.experiment.problem import pose
    from fedjax_sel.simulation import layout, run

    def text(policy):
        problem = pose(SMALL.replace(on_nonfinite=policy))
        laid_out = layout.lay_out(problem, 2)
        host, plan, _ = laid_out
        carry = run.shapes_of_group(problem, laid_out)
        streams = jax.eval_shape(lambda: run.keys.streams(run._roots(problem)))
        return str(jax.make_jaxpr(run.rounds(plan, 2))(carry, jnp.int32(0), host, streams))

    assert text("stop") == text("skip")
