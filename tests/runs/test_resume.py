"""Runs that go on from a checkpoint, runs that may not, and checkpoints that are damaged."""

import dataclasses
import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.cli import command_line, train
from fedjax_sel.core.files import FolderLock
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import checkpoint, experiment, folder, reading
from tests.killed import run_until_killed

SMALL = Config().replace(
    algo="oort", dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12,
    num_selected=3, local_epochs=1, rounds=7, chunk=2, seeds="3 1", checkpoint_every=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, fedjax_sel.run(SMALL.replace(out=str(out)))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was killed after its second checkpoint, when rows of a third chunk were written."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    run_until_killed(SMALL.replace(out=str(out)), 4)
    assert len((out / "metrics.csv").read_text().splitlines()) == 1 + 2 * 6
    return out


@pytest.fixture
def unfinished(stopped, tmp_path):
    """A copy of it."""
    return shutil.copytree(stopped, tmp_path / "run")


def assert_equal(result, expected):
    for name in ("test_accuracy", "test_loss", "gemd", "cohorts"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    for name, column in result.ledger._asdict().items():
        np.testing.assert_array_equal(column, getattr(expected.ledger, name))


def bytes_of(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_goes_on_to_the_same_bits(whole, unfinished):
    result = fedjax_sel.run(SMALL.replace(out=str(unfinished), resume="must"))
    assert json.loads((unfinished / "config.json").read_text())["run"]["resume"] == "auto"  # for --config
    assert_equal(result, whole[1])
    assert (np.diff(result.elapsed_seconds) > 0).all()
    assert_equal(reading.load(unfinished), whole[1])
    environment = json.loads((unfinished / "environment.json").read_text())
    assert [entry["after_round"] for entry in environment["resumed"]] == [4]


@pytest.mark.slow
def test_the_first_chunk_of_every_process_is_left_out_of_its_speed(whole, unfinished):
    """It compiles. What the killed process measured after its own first chunk still counts."""
    _, result = whole
    np.testing.assert_array_equal(np.isnan(result.round_seconds), [True] * 2 + [False] * 5)
    np.testing.assert_allclose(result.round_seconds[2:], np.diff(result.elapsed_seconds)[1:], rtol=1e-6)
    goes_on = fedjax_sel.run(SMALL.replace(out=str(unfinished)))
    for found in (goes_on, reading.load(unfinished)):
        known = ~np.isnan(found.round_seconds)
        np.testing.assert_array_equal(known, [False, False, True, True, False, False, True])
        speed = 2 * 3 / found.round_seconds[known].sum()
        np.testing.assert_allclose(found.seed_rounds_per_second, speed)
        total = found.elapsed_seconds[-1] - 2 * 7 / speed
        np.testing.assert_allclose(found.compilation_seconds, max(total, 0), atol=2e-3)


@pytest.mark.slow
def test_rows_of_another_version_are_rejected_in_one_line(tmp_path):
    out = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        columns = experiment.run_files.columns
        patch.setattr(experiment.run_files, "columns", lambda measured: columns(measured)[:-1])
        patch.setattr(experiment.run_files, "STEADY_CLOCK", "elapsed_seconds")
        fedjax_sel.run(SMALL.replace(out=str(out), rounds=4))
    with pytest.raises(fedjax_sel.DamagedRunError, match="does not start with the column names of this version"):
        fedjax_sel.run(SMALL.replace(out=str(out)))


def test_only_the_newest_checkpoints_stay(whole):
    assert [path.name for path in checkpoint.list_all(whole[0] / "checkpoints")] == ["round-00000007", "round-00000006"]


@pytest.mark.slow
def test_keep_zero_saves_none_and_must_insists(tmp_path):
    config = SMALL.replace(out=str(tmp_path / "run"), keep=0, rounds=2)
    fedjax_sel.run(config)
    assert not (tmp_path / "run" / "checkpoints").exists()
    folder.start_run(tmp_path / "run", pose(config.replace(rounds=3)))  # no file describes rounds that are gone
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"config.json", "environment.json"}
    with pytest.raises(UserError, match=r"--resume must: .* has no checkpoint"):
        fedjax_sel.run(SMALL.replace(out=str(tmp_path / "other"), resume="must"))


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 20, 60])
def test_a_row_that_was_cut_anywhere_does_not_count(whole, unfinished, length):
    """Also where what is left of it looks like a row of another round."""
    rows = (unfinished / "metrics.csv").read_text().splitlines(keepends=True)
    assert rows[-1].startswith("1,6,")
    (unfinished / "metrics.csv").write_text("".join([*rows[:-1], rows[-1][:length]]))
    assert reading.load(unfinished).num_rounds == 4  # as many as have cohorts
    if length == 2:
        assert_equal(fedjax_sel.run(SMALL.replace(out=str(unfinished))), whole[1])


@pytest.mark.parametrize("resume", ["auto", "never"])
def test_a_folder_of_something_else_is_never_touched(tmp_path, resume):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="has no readable run"):
        fedjax_sel.run(SMALL.replace(out=str(tmp_path), resume=resume))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_never_sets_aside_and_starts_again(whole, unfinished, tmp_path):
    before = bytes_of(unfinished)
    result = fedjax_sel.run(SMALL.replace(out=str(unfinished), resume="never"))
    assert_equal(result, whole[1])
    assert bytes_of(tmp_path / "run.aside-1") == before


@pytest.mark.slow
def test_a_link_stays_and_what_it_leads_to_is_set_aside(unfinished, tmp_path):
    before, link = bytes_of(unfinished), tmp_path / "link"
    link.symlink_to(unfinished)
    fedjax_sel.run(SMALL.replace(out=str(link), resume="never", rounds=1))
    assert link.readlink() == unfinished and reading.load(unfinished).num_rounds == 1
    assert bytes_of(tmp_path / "run.aside-1") == before


def test_a_folder_that_the_process_works_in_is_not_set_aside(unfinished, monkeypatch):
    (unfinished / "deeper").mkdir()
    before = bytes_of(unfinished)
    for where, out in ((unfinished, "."), (unfinished / "deeper", "..")):
        monkeypatch.chdir(where)
        with pytest.raises(
            UserError, match=r"^--out: cannot set aside the run in \S+run, which contains the working directory;"
        ):
            fedjax_sel.run(SMALL.replace(out=out, resume="never"))
    assert bytes_of(unfinished) == before


@pytest.mark.slow
@pytest.mark.parametrize("seconds, kept", [(0.0, True), (3600.0, False)])
def test_long_rounds_without_a_checkpoint_are_set_aside(seconds, kept, whole, unfinished, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "SECONDS_TO_LOSE", seconds)
    shutil.rmtree(unfinished / "checkpoints")
    assert_equal(fedjax_sel.run(SMALL.replace(out=str(unfinished))), whole[1])
    assert (tmp_path / "run.aside-1" / "metrics.csv").exists() == kept


@pytest.mark.slow
def test_more_rounds_continue_a_finished_run(whole, tmp_path):
    out = shutil.copytree(whole[0], tmp_path / "run")
    longer = fedjax_sel.run(SMALL.replace(out=str(out), rounds=12))
    at_once = fedjax_sel.run(SMALL.replace(rounds=12))
    assert longer.finished and longer.num_rounds == 12
    np.testing.assert_array_equal(longer.cohorts[:, :7], whole[1].cohorts)
    np.testing.assert_array_equal(longer.cohorts, at_once.cohorts)
    np.testing.assert_allclose(longer.test_loss, at_once.test_loss, rtol=1e-5)
    assert_equal(reading.load(out), longer)
    with pytest.raises(UserError, match="7 is less than the 12 rounds of the run in"):
        fedjax_sel.run(SMALL.replace(out=str(out)))


@pytest.mark.slow
def test_an_extended_run_does_not_keep_the_evaluation_of_its_earlier_last_round(tmp_path):
    config = SMALL.replace(eval_every=3, out=str(tmp_path / "run"))
    assert not np.isnan(fedjax_sel.run(config.replace(rounds=4)).test_loss[:, 3]).any()
    longer, at_once = fedjax_sel.run(config.replace(rounds=8)), fedjax_sel.run(SMALL.replace(eval_every=3, rounds=8))
    np.testing.assert_allclose(longer.test_loss, at_once.test_loss, rtol=1e-5)
    assert np.isnan(longer.test_loss[:, 3]).all()
    assert_equal(reading.load(tmp_path / "run"), longer)


def test_rows_of_more_rounds_without_a_checkpoint_leave_the_finished_rounds_readable(whole, tmp_path):
    class Broken:
        def chunk(self, *given):
            raise RuntimeError("broken")

    out = shutil.copytree(whole[0], tmp_path / "run")
    with pytest.raises(RuntimeError, match="broken"):
        fedjax_sel.run(SMALL.replace(out=str(out), rounds=12), callbacks=[Broken()])
    assert len((out / "metrics.csv").read_bytes()) > len((whole[0] / "metrics.csv").read_bytes())
    assert_equal(reading.load(out), whole[1])


def test_a_result_is_evaluated_without_the_devices_of_its_run(whole):
    elsewhere = dataclasses.replace(whole[1], config=whole[1].config.replace(mesh="seeds=1,clients=8"))
    for found in (fedjax_sel.per_client(elsewhere), fedjax_sel.per_client(elsewhere, elsewhere.config)):
        np.testing.assert_array_equal(found["loss"], fedjax_sel.per_client(whole[1])["loss"])


@pytest.mark.slow
def test_who_finds_no_round_left_writes_the_last_files(whole, tmp_path, monkeypatch):
    """Another process finished the run after this one had looked, and before it had the lock."""
    out = shutil.copytree(whole[0], tmp_path / "run")
    monkeypatch.setattr(experiment, "finished", lambda *given: None)
    again = fedjax_sel.run(SMALL.replace(out=str(out)))
    assert again.finished and again.weights is not None
    assert_equal(again, whole[1])
    for name in ("params.npz", "metrics.csv", "cohorts.npy"):
        assert (out / name).read_bytes() == (whole[0] / name).read_bytes(), name
    monkeypatch.undo()
    assert fedjax_sel.run(SMALL.replace(out=str(out))).weights is not None  # by what `result.json` says of them


def test_rounds_after_the_last_checkpoint_are_removed(whole, tmp_path):
    """A process that died before `result.json` left them."""
    out = shutil.copytree(whole[0], tmp_path / "run")
    (out / "result.json").unlink()
    rows = (out / "metrics.csv").read_text().splitlines(keepends=True)
    (out / "metrics.csv").write_text("".join(rows + rows[1:]))
    np.save(out / "cohorts.npy", np.tile(whole[1].cohorts, (1, 2, 1)))
    assert_equal(fedjax_sel.run(SMALL.replace(out=str(out))), whole[1])
    assert_equal(reading.load(out), whole[1])
    for name in ("metrics.csv", "cohorts.npy"):
        assert (out / name).read_bytes() == (whole[0] / name).read_bytes(), name


@pytest.mark.slow
def test_a_strategy_that_plans_for_all_rounds_cannot_be_made_longer(tmp_path):
    config = SMALL.replace(algo="gpfl", server_validation=0.2, rounds=2, out=str(tmp_path / "run"))
    fedjax_sel.run(config)
    with pytest.raises(UserError, match="--rounds: selections of gpfl depend on the total number of rounds"):
        fedjax_sel.run(config.replace(rounds=4))


@pytest.mark.parametrize("change", [{"learning_rate": 0.1}, {"algo": "random"}, {"seeds": 2}, {"chunk": 1}])
def test_another_trajectory_is_refused_with_what_differs(unfinished, change):
    before = bytes_of(unfinished)
    (name,) = change
    with pytest.raises(UserError, match=f"another configuration .*{name} .* in the folder, .* given"):
        fedjax_sel.run(SMALL.replace(out=str(unfinished), **change))
    assert bytes_of(unfinished) == before


def test_other_data_are_refused(unfinished, monkeypatch):
    before = bytes_of(unfinished)
    monkeypatch.setattr("fedjax_sel.data.dataset.Dataset.digest", lambda self: "0" * 64)
    with pytest.raises(UserError, match="used different data"):
        fedjax_sel.run(SMALL.replace(out=str(unfinished)))
    assert bytes_of(unfinished) == before


@pytest.mark.slow
def test_other_versions_and_layouts_go_on_with_a_word(unfinished, whole, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")
    result = fedjax_sel.run(SMALL.replace(out=str(unfinished), mesh="clients=1"), progress=True)
    assert "may differ in rounding" in capsys.readouterr().err
    np.testing.assert_array_equal(result.cohorts, whole[1].cohorts)
    np.testing.assert_allclose(result.test_loss, whole[1].test_loss, rtol=1e-5)


def test_two_processes_cannot_write_to_one_folder(unfinished):
    before = bytes_of(unfinished)
    with FolderLock() as other:
        other.take(unfinished)
        with pytest.raises(UserError, match="another process is writing"):
            fedjax_sel.run(SMALL.replace(out=str(unfinished)))
    assert bytes_of(unfinished) == before


def broken(content, damage):
    """A file's bytes after a damage; None: deleted."""
    if damage == "empty":
        return b""
    if damage == "half":
        return content[: len(content) // 2]
    if damage == "a bit":
        place = len(content) // 2
        return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    return None


@pytest.mark.parametrize("damage", ["empty", "half", "a bit", "deleted"])
def test_every_damage_to_every_file_is_found(stopped, tmp_path, damage):
    (newest, _) = checkpoint.list_all(stopped / "checkpoints")
    checkpoint.read(newest)
    names = [path.relative_to(newest) for path in newest.rglob("*") if path.is_file()]
    assert len(names) > 5
    for position, name in enumerate(names):
        copy = shutil.copytree(newest, tmp_path / str(position))
        content = broken((copy / name).read_bytes(), damage)
        if content == (copy / name).read_bytes():
            continue  # an empty file cannot be emptied
        (copy / name).unlink() if content is None else (copy / name).write_bytes(content)
        with pytest.raises(checkpoint.DamagedError):
            checkpoint.read(copy)


@pytest.mark.parametrize("change", [{"rounds": 2}, {"fingerprint": "0"}, {"metrics": {"bytes": 5, "sha256": ""}}])
def test_an_edited_manifest_is_found(stopped, tmp_path, change):
    copy = shutil.copytree(checkpoint.list_all(stopped / "checkpoints")[0], tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(checkpoint.DamagedError, match="manifest"):
        checkpoint.read(copy)


@pytest.mark.slow
def test_the_checkpoint_before_a_damaged_one_is_used(whole, unfinished, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "1000")
    newest, _ = checkpoint.list_all(unfinished / "checkpoints")
    (newest / "manifest.json").unlink()
    result = fedjax_sel.run(SMALL.replace(out=str(unfinished)), progress=True)
    said = capsys.readouterr().err
    assert "round-00000004 cannot be used" in said and "resuming after round 2" in said
    assert_equal(result, whole[1])
    assert (unfinished / "checkpoints" / "damaged-1-round-00000004").is_dir()


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("name", ["checkpoints", "metrics.csv", "cohorts.npy"])
def test_without_a_whole_checkpoint_the_run_ends_clearly_and_nothing_is_touched(unfinished, capsys, name):
    if name == "checkpoints":
        for place in checkpoint.list_all(unfinished / name):
            (place / "manifest.json").write_text("{}")
    else:
        content = (unfinished / name).read_bytes()
        (unfinished / name).write_bytes(content[: len(content) // 3])
    before = bytes_of(unfinished)
    with pytest.raises(DamagedRunError, match=r"cannot be used.*--resume never"):
        fedjax_sel.run(SMALL.replace(out=str(unfinished)))
    flags = ["--" + name.replace("_", "-") for name in ("algo", "dataset")]
    arguments = [flags[0], "oort", flags[1], SMALL.data.dataset, "--num-clients", "12", "--num-selected", "3",
                 "--local-epochs", "1", "--rounds", "7", "--chunk", "2", "--seeds", "3", "1"]  # fmt: skip
    assert command_line.guarded(train.main, [*arguments, "--out", str(unfinished)]) == 4
    assert "cannot be used" in capsys.readouterr().err
    assert bytes_of(unfinished) == before


@pytest.mark.slow
@pytest.mark.parametrize("step", ["_write_arrays", "_write_manifest", "_commit"])
def test_a_full_or_read_only_disk_ends_the_run_and_leaves_what_is_good(whole, unfinished, monkeypatch, step):
    story = 'RESOURCE_EXHAUSTED: Error writing "0": Failed to write 4 bytes to file 15: No space left on device'
    errors = {
        "_write_arrays": ValueError(f"{story} [os_error_code='28']"),  # what orbax makes of it
        "_write_manifest": OSError(28, "No space left on device"),
        "_commit": OSError(30, "Read-only file system"),
    }

    def full(*_):
        raise errors[step]

    good = bytes_of(unfinished / "checkpoints")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, step, full)
        why = r"\((No space left on device|Read-only file system)\); .*the same command resumes"
        with pytest.raises(UserError, match=rf"cannot write a checkpoint to \S+ {why}"):
            fedjax_sel.run(SMALL.replace(out=str(unfinished)))
    assert bytes_of(unfinished / "checkpoints") == good
    if step == "_commit":
        assert_equal(fedjax_sel.run(SMALL.replace(out=str(unfinished))), whole[1])


@pytest.mark.parametrize("algo", [pytest.param(name, marks=pytest.mark.slow) for name in fedjax_sel.strategies.TABLE])
def test_every_strategy_goes_on_to_the_same_bits(algo, tmp_path):
    """In one process, from every checkpoint of a run."""
    extra = {"gpfl": {"server_validation": 0.2}, "tifl": {"timing": "tiers"}, "fedcs": {"timing": "tiers"}}
    config = SMALL.replace(algo=algo, keep=10, **extra.get(algo, {}))
    expected = fedjax_sel.run(config.replace(out=str(tmp_path / "whole")))
    for rounds in (2, 4, 6):
        out = shutil.copytree(tmp_path / "whole", tmp_path / str(rounds))
        for place in checkpoint.list_all(out / "checkpoints"):
            if int(place.name[-8:]) > rounds:
                shutil.rmtree(place)
        cohorts = np.load(out / "cohorts.npy")[:, :rounds]
        folder.write_array(out / "cohorts.npy", cohorts)
        assert_equal(fedjax_sel.run(config.replace(out=str(out))), expected)


@pytest.mark.slow
def test_an_update_that_is_not_finite_leaves_the_last_finite_checkpoint(tmp_path):
    out = tmp_path / "run"
    config = SMALL.replace(learning_rate_milestones=(5,), learning_rate_decay=1e30, out=str(out))
    for _ in range(2):  # the second start goes on from the checkpoint, and to the same end
        with pytest.raises(NonFiniteUpdateError, match="round 6, seed 3"):
            fedjax_sel.run(config)
        newest = checkpoint.list_all(out / "checkpoints")[0]
        manifest, arrays = checkpoint.read(newest)
        assert manifest["rounds"] == 4 and all(np.isfinite(array).all() for array in arrays.values())
        assert reading.load(out).num_rounds == 5


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
def test_on_a_gpu_a_deterministic_run_goes_on_to_the_same_bits(tmp_path):
    """In processes of their own: the flag must come before JAX starts its devices."""
    flags = ["--rounds", "6", "--chunk", "2", "--checkpoint-every", "2", "--keep", "9", "--deterministic"]
    start = [sys.executable, "-m", "fedjax_sel.train", *flags, "--out"]
    subprocess.run([*start, str(tmp_path / "whole")], check=True)
    out = shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for place in checkpoint.list_all(out / "checkpoints")[:2]:
        shutil.rmtree(place)
    folder.write_array(out / "cohorts.npy", np.load(out / "cohorts.npy")[:, :2])
    subprocess.run([*start, str(out)], check=True)
    assert_equal(reading.load(out), reading.load(tmp_path / "whole"))


KEYED = """
from typing import NamedTuple
import jax
import jax.numpy as jnp
from fedjax_sel.strategies.contract import Selection, Strategy

class State(NamedTuple):
    key: jax.Array
    empty: jax.Array
    places: jax.Array

def make():
    def init(key, now):
        return State(jax.random.split(key)[0], jnp.zeros((0, 3)), jnp.zeros((now.env.num_selected,), bool))

    def select(key, state, now):
        ids = jax.random.permutation(state.key, 12)[: len(state.places)]
        return Selection(ids.astype(jnp.int32), None, ~state.places)

    def update(state, now, selection, outcome):
        return state._replace(key=jax.random.split(state.key)[1])

    return Strategy("keyed", select, init=init, update=update)
"""


@pytest.mark.slow
def test_a_state_of_random_keys_and_empty_arrays_goes_on(tmp_path, monkeypatch):
    (tmp_path / "keyed_strategy.py").write_text(KEYED)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "run"
    config = SMALL.replace(algo="keyed_strategy:make", keep=10, seeds_at_once=1, out=str(out))
    expected = fedjax_sel.run(config)
    for place in checkpoint.list_all(out / "checkpoints")[:2]:
        shutil.rmtree(place)
    folder.write_array(out / "cohorts.npy", expected.cohorts[:, :4])
    assert_equal(fedjax_sel.run(config.replace(resume="must")), expected)


@pytest.mark.slow
def test_seeds_that_take_turns_go_on_too(tmp_path):
    config = SMALL.replace(seeds_at_once=1, keep=10)
    expected = fedjax_sel.run(config.replace(out=str(tmp_path / "run")))
    for place in checkpoint.list_all(tmp_path / "run" / "checkpoints")[:2]:
        shutil.rmtree(place)
    folder.write_array(tmp_path / "run" / "cohorts.npy", expected.cohorts[:, :4])
    assert_equal(fedjax_sel.run(config.replace(out=str(tmp_path / "run"))), expected)
