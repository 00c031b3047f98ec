"""Files that are lost or damaged before a run goes on, or while it does: those that only describe it are not needed."""

import csv
import json
import shutil

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, UserError
from fedjax_sel.core.files import FolderLock
from fedjax_sel.runs import checkpoint, experiment, folder, reading, run_files
from tests.killed import run_until_killed

SMALL = Config().replace(
    algo="random", dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12,
    num_selected=3, local_epochs=1, rounds=7, chunk=2, seeds="3 1", checkpoint_every=2, model="logistic",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, fedjax_sel.run(SMALL.replace(out=str(out)))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was killed in its third checkpoint."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    run_until_killed(SMALL.replace(out=str(out)), 4)
    return out


@pytest.fixture
def unfinished(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def without_clocks(out):
    with (out / "metrics.csv").open(newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.endswith("_seconds")} for row in csv.DictReader(file)
        ]


def assert_ends_like(out, whole):
    assert without_clocks(out) == without_clocks(whole[0])
    assert (out / "cohorts.npy").read_bytes() == (whole[0] / "cohorts.npy").read_bytes()
    assert folder.stored_config(out).fingerprint() == SMALL.fingerprint()


def lost(path):
    path.unlink(missing_ok=True)


def damaged(path):
    path.write_text('{"resumed": 3' if path.exists() else "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "config,environment",
    [
        (lost, damaged),
        (damaged, lost),
        (lambda path: path.write_text("[1]"), lambda path: path.write_text("[]")),
    ],
)
def test_a_run_goes_on_without_what_only_describes_it(whole, unfinished, config, environment, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    config(unfinished / "config.json")
    environment(unfinished / "environment.json")
    for name in (".cohorts.npy.0123abcd.tmp", ".params.npz.tmp"):
        (unfinished / name).write_bytes(b"half")  # of the process that was killed
    fedjax_sel.run(SMALL.replace(out=str(unfinished)), progress=True)
    said = capsys.readouterr().err
    assert "resuming after round 4" in said
    assert_ends_like(unfinished, whole)
    about = json.loads((unfinished / "environment.json").read_text())
    assert [entry["after_round"] for entry in about["resumed"]] == [4] and "jax" in about["resumed"][0]["packages"]
    assert not list(unfinished.rglob("*.tmp")) and not list(unfinished.parent.glob("*aside*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "environment.json"])
def test_nothing_is_written_before_all_was_read(unfinished, name, monkeypatch):
    """A folder that cannot go on stays as it is, whatever else is lost there."""
    (unfinished / name).unlink()
    content = (unfinished / "cohorts.npy").read_bytes()
    (unfinished / "cohorts.npy").write_bytes(content[: len(content) // 3])
    before = {path: path.read_bytes() for path in unfinished.rglob("*") if path.is_file()}
    with pytest.raises(fedjax_sel.DamagedRunError, match="cannot be used"):
        fedjax_sel.run(SMALL.replace(out=str(unfinished)))
    assert {path: path.read_bytes() for path in unfinished.rglob("*") if path.is_file()} == before


def part(result, first, last):
    """Rounds of a result."""
    measured = {name: values[:, first:last] for name, values in result.measured.items()}
    ledger = type(result.ledger)(*(column[:, first:last] for column in result.ledger))
    return run_files.dataclasses.replace(
        result,
        measured=measured,
        cohorts=result.cohorts[:, first:last],
        ledger=ledger,
        elapsed_seconds=result.elapsed_seconds[first:last],
        round_seconds=result.round_seconds[first:last],
    )


@pytest.fixture
def writing(tmp_path):
    """A writer into an empty folder, and what it says."""
    out = tmp_path / "run"
    out.mkdir()
    said = []
    with FolderLock() as held:
        held.take(out)
        yield out, experiment.Writer(out, SMALL.run, {}, 0, held, said.append), said


def removed(file):
    file.unlink()


def cut(file):
    file.write_bytes(file.read_bytes()[:-20])


def emptied(file):
    file.write_bytes(b"")


def continued(file):
    with file.open("a") as opened:
        opened.write("3,99\n")


@pytest.mark.slow
@pytest.mark.parametrize("damage", [removed, cut, emptied, continued])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_rows_that_are_lost_while_a_run_goes_on_are_written_again(whole, writing, damage, after):
    out, writes, said = writing
    result = whole[1]
    for number, first in enumerate(range(0, 7, 2)):
        if number == after:
            damage(out / "metrics.csv")
        last = min(first + 2, 7)
        writes.chunk(part(result, first, last))
    assert (out / "metrics.csv").read_bytes() == (whole[0] / "metrics.csv").read_bytes()
    assert len(said) == 1 and "metrics.csv was removed or changed by another process" in said[0]
    damage(out / "metrics.csv")
    writes.checkpoint(None, result, False)
    assert (out / "metrics.csv").read_bytes() == (whole[0] / "metrics.csv").read_bytes()
    told = json.loads((out / "result.json").read_text())
    assert told["metrics"]["bytes"] == len((out / "metrics.csv").read_bytes()) and told["rounds"] == 7


@pytest.mark.slow
def test_a_run_whose_rows_are_removed_ends_like_one_whose_were_not(whole, tmp_path, monkeypatch):
    class Careless(experiment.Writer):
        def chunk(self, chunk):
            super().chunk(chunk)
            if self._rounds == 4:
                (tmp_path / "run" / "metrics.csv").unlink()

    monkeypatch.setattr(experiment, "Writer", Careless)
    fedjax_sel.run(SMALL.replace(out=str(tmp_path / "run")))
    assert_ends_like(tmp_path / "run", whole)
    assert reading.load(tmp_path / "run").finished


@pytest.mark.slow
@pytest.mark.parametrize("rows", [7, 0])
def test_a_run_that_died_before_its_first_save_leaves_nothing_behind(whole, tmp_path, capsys, rows):
    out = died_early(whole, tmp_path, rows)
    fedjax_sel.run(SMALL.replace(out=str(out)), progress=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"] and "set aside" not in capsys.readouterr().err
    assert_ends_like(out, whole)


def died_early(whole, tmp_path, rows):
    """The folder of a run that was killed with so many lines in its table, the last of them cut."""
    out = shutil.copytree(whole[0], tmp_path / "run")
    for name in ("cohorts.npy", "result.json", "curves.png"):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "checkpoints")
    lines = (out / "metrics.csv").read_text().splitlines(keepends=True)[:rows]
    (out / "metrics.csv").write_text("".join(lines)[:-9])
    if not rows:
        (out / "metrics.csv").unlink()
    return out


@pytest.mark.slow
def test_what_took_longer_or_was_saved_is_kept(whole, tmp_path):
    out = died_early(whole, tmp_path, 7)
    assert not folder.is_worth_keeping(out)
    rows = (out / "metrics.csv").read_text()
    first, *others = rows.splitlines()
    (out / "metrics.csv").write_text("\n".join([first, *(row.rsplit(",", 2)[0] + ",61.5," for row in others), ""]))
    assert folder.is_worth_keeping(out)
    (out / "metrics.csv").write_text("what is this\nnothing\n")
    assert folder.is_worth_keeping(out)
    (out / "metrics.csv").write_text(rows)
    for name in ("result.json", "checkpoints/damaged-1-round-00000007"):
        assert not folder.is_worth_keeping(out)
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).touch()
        assert folder.is_worth_keeping(out)
        (out / name).unlink()
    (out / "metrics.csv").unlink()
    assert not folder.is_worth_keeping(out)
    (out / "cohorts.npy").touch()
    assert folder.is_worth_keeping(out)


def test_checkpoints_are_sorted_by_their_rounds(tmp_path):
    """Eight digits until round 99,999,999, and more from then on."""
    for rounds in (99_999_990, 99_999_999, 100_000_000, 100_000_007):
        newest = checkpoint.save(tmp_path, rounds, {}, {"a": np.arange(3)}, keep=2)
        assert checkpoint.list_all(tmp_path)[0] == newest and newest.is_dir()
    assert [path.name for path in checkpoint.list_all(tmp_path)] == ["round-100000007", "round-100000000"]
    (tmp_path / "round-notes").mkdir()
    assert len(checkpoint.list_all(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["all", "the last"])
def test_weights_of_a_run_that_died_before_it_could_tell_that_it_was_done(whole, tmp_path, lost):
    """Its last checkpoint has all rounds, and `result.json` is older or absent: the next start writes the weights."""
    out = shutil.copytree(whole[0], tmp_path / "run")
    (out / "params.npz").unlink()
    if lost == "all":
        (out / "result.json").unlink()
    else:
        manifests = [checkpoint.read(place)[0] for place in checkpoint.list_all(out / "checkpoints")]
        older = next(one for one in manifests if one["rounds"] < 7)
        run_files.write(out / "result.json", {name: value for name, value in older.items() if name != "sha256"})
    assert fedjax_sel.load(out).finished and fedjax_sel.load(out).weights is None
    for again in (fedjax_sel.run(SMALL.replace(out=str(out))), fedjax_sel.load(out)):
        assert again.finished
        for ours, theirs in zip(jax.tree.leaves(again.weights), jax.tree.leaves(whole[1].weights), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("missing", ["rounds", "config", "plugins"])
def test_a_result_of_another_version_counts_as_lost(whole, tmp_path, missing):
    out = shutil.copytree(whole[0], tmp_path / "run")
    about = run_files.read(out / "result.json")
    run_files.write(out / "result.json", {name: about[name] for name in about if name != missing})
    with pytest.raises(run_files.DamagedError, match=r"^result\.json was written by another version of fedjax_sel; "):
        run_files.read(out / "result.json")
    assert fedjax_sel.load(out).num_rounds == 7  # from the last checkpoint
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(UserError, match=r"no intact result\.json or checkpoint, which verify its rounds"):
        fedjax_sel.load(out)


@pytest.mark.slow
def test_pictures_are_whole_or_not_there(whole, tmp_path, monkeypatch):
    from fedjax_sel.reporting import plots

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(UserError, match="cannot write the plot"):
        plots.curves({"random": whole[1]}, tmp_path / "curves.png")
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    for name in ("curves.png", "picture", "curves.pdf"):
        plots.curves({"random": whole[1]}, tmp_path / name)
    assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
