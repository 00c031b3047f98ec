"""A finished run is believed only as far as its files and its data are what they were."""

import hashlib
import itertools
import json
import shutil

import numpy as np
import pytest

from fedjax_sel import Config, UserError, data
from fedjax_sel.cli import command_line, compare, report, train
from fedjax_sel.data import cache, download
from fedjax_sel.runs import checkpoint, experiment, reading
from fedjax_sel.runs.run_files import Result

SMALL = Config().replace(
    algo="random", num_clients=12, num_selected=3, local_epochs=1, rounds=5, chunk=2, seeds="3 1", checkpoint_every=2,
    available="who.csv", timing="devices.csv", model="logistic",
)  # fmt: skip
FLAGS = [
    "--dataset", "mnist", "--num-clients", "12", "--num-selected", "3", "--local-epochs", "1", "--rounds", "5",
    "--chunk", "2", "--seeds", "3", "1", "--checkpoint-every", "2", "--available", "who.csv",
    "--timing", "devices.csv", "--model", "logistic",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A comparison of two finished runs of the data in A, data of the same name in B, a trace, and devices."""
    place = tmp_path_factory.mktemp("finished")
    for name, seed in (("A", 0), ("B", 1)):
        blobs = data.load(f"synthetic:train_size=600,test_size=100,image_size=8,seed={seed}")
        blobs = data.Dataset(**{**vars(blobs), "name": "mnist"})
        cache.write(cache.path_of(place / name, "mnist", download.fingerprint("mnist")), blobs)
    who = np.ones((12, 6), int)
    who[0, 1] = 0
    np.savetxt(place / "who.csv", who, fmt="%d", delimiter=",")
    devices = "".join(f"{client},0.01,1e6,1e6,0.1\n" for client in range(12))
    (place / "devices.csv").write_text(f"client,seconds_per_example,down,up,latency\n{devices}")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        code = command_line.guarded(compare.main, ["--algos", "random", "oort", *FLAGS, *of("A"), "--out", "out"])
        assert code == 0
    return place


def of(name):
    return ["--data-dir", name]


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of all that."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(experiment, "pose", lambda config: pytest.fail("the run was repeated"))
    return tmp_path / "here"


def command(capsys, main, *arguments):
    code = command_line.guarded(main, list(arguments))
    printed, error = capsys.readouterr()
    assert "Traceback" not in error and (code == 0 or error.splitlines()[-1].startswith("error: "))
    return code, printed, error.splitlines()[-1] if error else ""


def bytes_of(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def edited(run):
    """One digit of one accuracy."""
    rows = (run / "metrics.csv").read_text().splitlines(keepends=True)
    cells = rows[4].split(",")
    cells[2] = "0.9" + cells[2][3:]
    rows[4] = ",".join(cells)
    (run / "metrics.csv").write_text("".join(rows))


def doubled(run):
    rows = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(rows + rows[1:]))


def of_another_seed(run):
    np.save(run / "cohorts.npy", np.load(run / "cohorts.npy")[::-1])


def of_one_seed(run):
    np.save(run / "cohorts.npy", np.load(run / "cohorts.npy")[:1])


def longer(run):
    cohorts = np.load(run / "cohorts.npy")
    np.save(run / "cohorts.npy", np.concatenate([cohorts, cohorts], axis=1))


def without_bytes(run):
    (run / "cohorts.npy").write_bytes(b"")


def without_rounds(run):
    np.save(run / "cohorts.npy", np.load(run / "cohorts.npy")[:, :0])


def archive(run):
    with (run / "cohorts.npy").open("wb") as file:
        np.savez(file, cohorts=np.zeros((2, 5, 3), np.int32))


DAMAGES = [edited, of_another_seed, of_one_seed, without_bytes, archive]
EXTRA = [doubled, longer]  # without `result.json`, a run's later rounds are run again


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage,known",
    [
        *itertools.product(DAMAGES, ["both", "result.json", "checkpoints"]),
        *itertools.product(EXTRA, ["both", "result.json"]),
    ],
)
def test_files_that_are_not_what_they_were_are_refused(here, capsys, damage, known):
    run = here / "out" / "random"
    if known == "result.json":
        shutil.rmtree(run / "checkpoints")  # as with --keep 0
    elif known == "checkpoints":
        (run / "result.json").unlink(missing_ok=True)  # as an earlier version left it
    damage(run)
    before = bytes_of(here / "out")
    for main, arguments in (
        (train.main, ["--algo", "random", *FLAGS, *of("A"), "--out", "out/random"]),
        (compare.main, ["--algos", "random", "oort", *FLAGS, *of("A"), "--out", "out"]),
        (report.main, ["out/random", "out/oort"]),
    ):
        code, printed, error = command(capsys, main, *arguments)
        assert code == 2 and "| random |" not in printed and "final test accuracy" not in printed
        assert "out/random: the run is damaged" in error and "--resume never" in error
    assert bytes_of(here / "out") == before


@pytest.mark.slow
def test_rounds_that_are_missing_are_not_made_up_for_without_a_checkpoint(here, capsys):
    without_rounds(here / "out" / "random")
    code, _, error = command(capsys, report.main, "out/random")
    assert code == 2 and "cohorts.npy was truncated" in error


@pytest.mark.slow
def test_what_is_whole_is_reported_in_every_command(here, capsys):
    before = bytes_of(here / "out" / "random")
    code, printed, _ = command(capsys, train.main, "--algo", "random", *FLAGS, *of("A"), "--out", "out/random")
    assert code == 0 and "already finished" in printed
    code, printed, _ = command(capsys, compare.main, "--algos", "random", "oort", *FLAGS, *of("A"), "--out", "out")
    assert code == 0 and "\nrandom " in printed and "\noort " in printed
    code, printed, _ = command(capsys, report.main, "out/random", "out/oort")
    assert code == 0 and "| random |" in printed and "| oort |" in printed
    assert bytes_of(here / "out" / "random") == before


def test_without_any_digest_a_run_is_not_read(here):
    run = here / "out" / "random"
    (run / "result.json").unlink(missing_ok=True)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UserError, match=r"no intact result\.json or checkpoint, which verify its rounds; wait for"):
        reading.load(run)
    assert reading.finished_result(run, reading.folder.stored_config(run), lambda share: {}) is None


def test_the_rounds_of_an_interrupted_run_are_checked_too(here):
    run = here / "out" / "random"
    (run / "result.json").unlink(missing_ok=True)
    shutil.rmtree(checkpoint.list_all(run / "checkpoints")[0])  # of the last round
    assert reading.load(run).num_rounds == 4
    edited(run)
    with pytest.raises(UserError, match=r"damaged .*metrics.csv was changed"):
        reading.load(run)


@pytest.mark.slow
def test_other_data_under_the_same_name_are_refused(here, capsys):
    message = "used different data (the SHA-256 of the images and labels differs)"
    code, _, error = command(capsys, train.main, "--algo", "random", *FLAGS, *of("B"), "--out", "out/random")
    assert code == 2 and message in error
    (here / "out" / "oort" / "result.json").unlink(missing_ok=True)  # only one of them is finished
    before = bytes_of(here / "out")
    for algos in (["random", "oort"], ["oort", "divfl"]):
        code, printed, error = command(capsys, compare.main, "--algos", *algos, *FLAGS, *of("B"), "--out", "out")
        assert code == 2 and message in error and printed == ""
    assert bytes_of(here / "out") == before


@pytest.mark.parametrize(
    "name,old,new,what",
    [("who.csv", "1,0", "0,0", "trace of --available"), ("devices.csv", "3,0.01", "3,0.02", "devices of --timing")],
)
def test_an_edited_file_is_refused(here, capsys, name, old, new, what):
    file = here / name
    file.write_text(file.read_text().replace(old, new, 1))
    message = f"used different data (the SHA-256 of the {what} differs)"
    code, _, error = command(capsys, train.main, "--algo", "random", *FLAGS, *of("A"), "--out", "out/random")
    assert code == 2 and message in error
    code, _, error = command(capsys, compare.main, "--algos", "random", "oort", *FLAGS, *of("A"), "--out", "out")
    assert code == 2 and message in error


def test_data_that_cannot_be_read_are_not_taken_for_the_same(here, capsys):
    shutil.rmtree("A")
    code, _, error = command(capsys, train.main, "--algo", "random", *FLAGS, *of("A"), "--out", "out/random")
    assert code == 2 and "does not exist" in error and "fedjax-sel report shows it without its data" in error
    code, printed, _ = command(capsys, report.main, "out/random")
    assert code == 0 and "| random |" in printed


@pytest.mark.slow
def test_runs_of_one_table_must_be_of_the_same_data(here, capsys):
    """As if the second had been run with --data-dir B: its own files are whole."""
    code, printed, _ = command(capsys, report.main, "out/random", "out/oort")
    assert code == 0 and printed.count("| final test accuracy |") == 1
    for file in manifests(here / "out" / "oort"):
        told = json.loads(file.read_text())
        told["data"]["dataset"] = "0" * 64
        rewrite(file, told)
    code, printed, _ = command(capsys, report.main, "out/random", "out/oort")
    assert code == 0 and printed.count("| final test accuracy |") == 2
    assert "Different setting: data or partition (the SHA-256 differs)" in printed


def manifests(run):
    return [file for file in (run / "result.json", *run.glob("checkpoints/*/manifest.json")) if file.exists()]


def rewrite(file, about):
    about = {name: value for name, value in about.items() if name != "digest"}
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps({**about, "digest": digest}))


@pytest.mark.parametrize("how", ["lost", "empty", "another", "fewer rounds"])
def test_a_configuration_that_was_lost_is_not_needed(here, capsys, how):
    file = here / "out" / "random" / "config.json"
    nested, fewer = json.loads(file.read_bytes()), json.loads(file.read_bytes())
    nested["training"]["learning_rate"] = 0.5
    fewer["run"]["rounds"] = 3
    texts = {"empty": "", "another": json.dumps(nested), "fewer rounds": json.dumps(fewer)}
    file.write_text(texts[how]) if how in texts else file.unlink()
    assert reading.load(here / "out" / "random").config.training.learning_rate == 0.05
    code, printed, error = command(capsys, train.main, "--algo", "random", *FLAGS, *of("A"), "--out", "out/random")
    assert code == 0 and "already finished" in printed, error


@pytest.mark.slow
def test_curves_that_were_lost_are_drawn_again(here, capsys):
    for name in ("random", "oort"):
        (here / "out" / name / "curves.png").unlink()
    code, _, _ = command(capsys, train.main, "--algo", "random", *FLAGS, *of("A"), "--out", "out/random")
    assert code == 0 and (here / "out" / "random" / "curves.png").read_bytes().startswith(b"\x89PNG")
    code, _, _ = command(capsys, compare.main, "--algos", "oort", *FLAGS, *of("A"), "--out", "out")
    assert code == 0 and (here / "out" / "oort" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_only_describes_a_finished_run_may_be_lost(here, capsys):
    (here / "out" / "random" / "environment.json").unlink()
    code, printed, _ = command(capsys, train.main, "--algo", "random", *FLAGS, *of("A"), "--out", "out/random")
    assert code == 0 and "already finished" in printed
    result: Result = reading.load(here / "out" / "random")
    assert result.data_source == "synthetic Gaussian blobs"
