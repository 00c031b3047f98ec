"""The command as a person meets it."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedjax_sel.cli import command_line, data, report, train
from fedjax_sel.cli import test as kit

QUICK = ["--rounds", "2", "--chunk", "1", "--num-clients", "20", "--num-selected", "3"]


def command(capsys, *arguments):
    code = command_line.guarded(train.main, list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


BAD = [
    (["--algo", "fl_dps"], ["algo", "'fl_dps'", "did you mean 'fl_dp3s'?"]),
    (["--preset", "fedcor/fmnist-3spc"], ["--preset", "did you mean 'fedcor/fmnist-2spc' or"]),
    (["--model", "mpl"], ["--model", "did you mean 'mlp'?"]),
    (["--partition", "shard"], ["--partition", "did you mean 'shards'?"]),
    (["--initializer", "kaiming"], ["--initializer", "kaiming-normal"]),
    (["--dataset", "fashion_mnst"], ["fashion_mnist"]),
    (["--num-client", "5"], ["--num-client", "did you mean '--num-clients'?"]),
    (["--bananas"], ["--bananas", "--help"]),
    (["stray"], ["'stray'", "--help"]),
    (["--rounds"], ["--rounds", "expected one argument"]),
    (["--rounds", "many"], ["--rounds", "'many'", "whole number"]),
    (["--rounds", "1.5"], ["--rounds", "'1.5'", "whole number"]),
    (["--learning-rate", "fast"], ["--learning-rate", "'fast'", "a number"]),
    (["--learning-rate", "nan"], ["--learning-rate", "must be finite and above 0"]),
    (["--learning-rate", "-1"], ["--learning-rate", "must be above 0"]),
    (["--rounds", "0"], ["--rounds", "must be from 1 to"]),
    (["--num-selected", "0"], ["--num-selected", "must be from 1 to"]),
    (["--num-clients", "0"], ["--num-clients", "must be from 1 to"]),
    (["--num-selected", "51"], ["--num-selected", "51", "50", "at most"]),
    (["--batch-size", "0"], ["--batch-size", "must be from 1 to"]),
    (["--batch-size", "5000"], ["--batch-size", "5000", "28", "largest client"]),
    (["--local-steps", "0"], ["--local-steps", "from 1 to 100000"]),
    (["--local-steps", "99999999"], ["--local-steps", "from 1 to 100000"]),
    (["--rounds", "99999999999"], ["--rounds", "2147483647"]),
    (["--max-staleness", "99999999999"], ["--max-staleness", "2147483647"]),
    (["--train-metrics-every", "99999999999"], ["--train-metrics-every", "2147483647"]),
    (["--out", "x" * 300], ["--out", "another folder"]),
    (["--algo-args", "profile=fc1", "profile=fc1-relu"], ["--algo-args", "twice"]),
    (["--data-dir", "no/such/folder"], ["no/such/folder"]),
    (["--local-steps", "3", "--local-epochs", "2"], ["--local-steps", "exactly one"]),
    (["--seeds", "0"], ["--seeds", "count"]),
    (["--seeds", "1", "1"], ["--seeds", "duplicate"]),
    (["--seeds", "-1", "2"], ["--seeds", "outside"]),
    (["--seeds", "a"], ["--seeds", "'a'"]),
    (["--holdout", "1"], ["--holdout", "must be from 0 to 1 (excluded)"]),
    (["--model-dropout", "1.0"], ["--model-dropout", "must be from 0 to 1 (excluded)"]),
    (["--loss-on", "holdout"], ["--loss-on", "--holdout 0.2"]),
    (["--target-accuracy", "62"], ["--target-accuracy", "fraction"]),
    (["--learning-rate-milestones", "30", "10"], ["--learning-rate-milestones", "increasing"]),
    (["--eval-every", "0"], ["--eval-every", "must be from 1 to"]),
    (["--chunk", "0"], ["--chunk", "must be from 1 to"]),
    (["--weight-decay", "-0.1"], ["--weight-decay", "must be at least 0"]),
    (["--algo-args", "profile"], ["--algo-args", "key=value"]),
    (["--algo-args", "profil=fc1"], ["fl_dp3s", "did you mean 'profile' or 'pool'?"]),
    (["--algo-args", "profile=fc9"], ["profile", "did you mean 'fc1'?"]),
    (["--partition", "dirichlet_qp", "--alpha", "0"], ["--alpha", "must be above 0"]),
    (["--num-clients", "5000"], ["5000"]),
    (["--partition", "natural"], ["natural"]),
    (["--data-dir", "no/such/folder", "--dataset", "mnist"], ["no/such/folder"]),
    (["--model", "cnn_small"], ["cnn_small", "16x16", "(8, 8, 1)"]),
    (["--resume", "always"], ["--resume", "'always'", "auto, must, never"]),
    (["--resume", "must"], ["--resume must", "no checkpoint"]),
    (["--keep", "-1"], ["--keep", "must be from 0 to"]),
    (["--checkpoint-every", "0"], ["--checkpoint-every", "must be from 1 to"]),
    (["--checkpoint-seconds", "0"], ["--checkpoint-seconds", "must be above 0"]),
    (["--on-nonfinite", "ignore"], ["--on-nonfinite", "skip, stop"]),
    (["--available", "0"], ["--available", "outside"]),
    (["--available", "1.5"], ["--available", "outside"]),
    (["--available", "often"], ["--available", "'often'", "neither a fraction"]),
    (["--available", "nowhere.csv"], ["--available", "nowhere.csv", "No such file"]),
    (["--available", "words.csv"], ["--available", "words.csv", "0 and 1"]),
    (["--available", "ragged.csv"], ["--available", "ragged.csv", "columns changed from 2 to 1 at row 2); give"]),
    (["--available", "thesis.csv"], ["--available", "thesis.csv", "Is a directory"]),
    (["--available", "zeros.csv"], ["--available", "zeros.csv", "could not convert"]),
    (["--available", "bytes.csv"], ["--available", "bytes.csv", "UTF-8"]),
    (["--available", "long.csv"], ["--available", "long.csv", "not rows of 0 and 1"]),
    (["--available", "empty.csv"], ["--available", "empty.csv", "empty"]),
    (["--available", "empty.npy"], ["--available", "empty.npy", "not an intact .npy"]),
    (["--available", "zipped.npy"], ["--available", "zipped.npy", "not a .npy file"]),
    (["--available", "texts.npy"], ["--available", "texts.npy", "its values are not rows of 0 and 1"]),
    (["--available", "complex.npy"], ["--available", "complex.npy", "its values are not rows of 0 and 1"]),
    (["--available", "twos.csv"], ["--available", "twos.csv", "0 and 1"]),
    (["--available", "small.csv"], ["--available", "2 clients and 3 rounds", "50 clients and 100 rounds"]),
    (["--available", "objects.npy"], ["--available", "objects.npy"]),
    (["--report-failure-rate", "1"], ["--report-failure-rate", "must be from 0 to 1 (excluded)"]),
    (["--server-validation", "1"], ["--server-validation", "must be from 0 to 1 (excluded)"]),
    (["--algo", "gpfl", "--server-validation", "0"], ["gpfl", "--server-validation 0.05"]),
    (["--mesh", "seeds=2"], ["--mesh", "1 seeds cannot be split into 2"]),
    (["--mesh", "rows=2"], ["--mesh", "seeds=2,clients=4"]),
    (["--seeds-at-once", "3", "--seeds", "5"], ["--seeds-at-once"]),
    (["--cohort-batch", "-1"], ["--cohort-batch", "must be from 0 to"]),
    (["--momentum", "1"], ["--momentum", "must be from 0 to 1 (excluded)"]),
    (["--learning-rate-decay", "0"], ["--learning-rate-decay", "must be above 0"]),
    (["--server-learning-rate", "0"], ["--server-learning-rate", "must be above 0"]),
    (["--shards-per-client", "0"], ["--shards-per-client", "must be from 1 to"]),
    (["--train-metrics-every", "-1"], ["--train-metrics-every", "must be from 0 to"]),
    (["--model-seed", "-3"], ["--model-seed", "must be from 0 to"]),
    (["--dataset", "synthetic:size=3"], ["synthetic", "size"]),
    (["--dataset", "../secrets"], ["unknown data set '../secrets'"]),
    (["--algo", "no.such.module:factory"], ["no.such.module"]),
    (["--algo", "json:loads"], ["json:loads"]),
    (["--out", "words.csv"], ["--out", "words.csv", "is a file"]),
    (["--out", "thesis"], ["thesis", "has no readable run"]),
    (["--out", ""], ["--out", "empty"]),
    (["--data-dir", "", "--dataset", "mnist"], ["--data-dir", "empty"]),
    (["--data-dir", "~nosuchuser/x", "--dataset", "mnist"], ["~nosuchuser/x", "does not exist"]),
    (["--available", "1e-300"], ["--available", "'1e-300' of 50 clients is on average fewer than one in 100 rounds"]),
    (["--learning-rate-milestones", "3000000000"], ["--learning-rate-milestones", "from 1 to 2147483647"]),
    (["--rounds", "9" * 5000], ["--rounds", "(5002 characters)", "whole number"]),
    (["--dataset", "synthetic:train_size=1000000000000"], ["out of memory", "the data set"]),
    (["--dataset", "synthetic:image_size=1000000"], ["out of memory", "the data set"]),
    (["--dataset", "synthetic:num_writers=" + "9" * 30], ["num_writers", "whole number"]),
    (["--dataset", "synthetic:seed=" + "9" * 5000], ["seed", "(5002 characters)"]),
    (["--model-args", "width=3"], ["--model-args", "unknown 'width'", "hidden"]),
    (["--available", "nobody.csv"], ["available", "no client is available in any of the 100 rounds"]),
    (["--available", "unknown.npy"], ["--available", "unknown.npy", "its values are not rows of 0 and 1"]),
    (["--available", "1.0000001"], ["--available", "'1.0000001'", "outside"]),
    (["--dataset", "synthetic:seed=1,seed=2"], ["seed", "given twice"]),
    (["--dataset", "synthetic:train_size=1_000"], ["train_size", "'1_000'"]),
    (
        ["--client-optimizer", "adam", "--client-optimizer-args", "b1=nan"],
        ["--client-optimizer-args b1=nan of adam", "must be finite"],
    ),
    (["--alpha", "0.5"], ["--alpha 0.5", "without --partition dirichlet_qp or dirichlet"]),
    (["--partition", "iid", "--shards-per-client", "2"], ["--shards-per-client 2", "without --partition shards"]),
    (["--skewness", "0.5"], ["--skewness 0.5", "without --partition skewness"]),
    (["--skewness-main", "random"], ["--skewness-main random", "without --partition skewness"]),
    (["--dirichlet-form", "hsu"], ["--dirichlet-form hsu", "without --partition dirichlet;"]),
    (["--partition", "dirichlet", "--min-client-size", "9"], ["--min-client-size 9", "--dirichlet-form yurochkin"]),
    (["--full-batch", "--batch-size", "20"], ["--batch-size 20", "without --no-full-batch"]),
    (["--learning-rate-decay", "0.1"], ["--learning-rate-decay 0.1", "without --learning-rate-milestones"]),
    (["--momentum-buffer", "persistent"], ["--momentum-buffer persistent", "without --momentum above 0"]),
    (["--loss-on", "all"], ["--loss-on all", "without --holdout"]),
    (["--checkpoint-every", "5", "--keep", "0"], ["--checkpoint-every 5", "without --keep above 0"]),
    (
        ["--data-dir", "."],
        ["--data-dir .", "without a --dataset other than digits, shakespeare, synthetic or a plug-in"],
    ),
    (["--server-validation", "1e-9"], ["--server-validation", "1e-09 of 1,442 training examples is less than one"]),
    (["--algo", "gpfl", "--server-validation", "1e-9"], ["--server-validation", "1e-09 of 1,442", "at least 0.00069"]),
]
NEEDS_DATA = {
    "--batch-size 5000", "--num-clients 5000", "--partition natural", "--model cnn_small", "--server-validation 1e-9",
}  # fmt: skip
"""Refused only when the data are there, or because they are not."""


def make_bad_files(folder):
    """What the table above names."""
    (folder / "words.csv").write_text("yes,no\n" * 50)
    (folder / "ragged.csv").write_text("0,1\n0\n")
    (folder / "twos.csv").write_text("0,2\n" * 50)
    (folder / "small.csv").write_text("0 1 1\n1 1 0\n")
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    (folder / "zeros.csv").write_bytes(bytes(2**12))
    (folder / "bytes.csv").write_bytes(b"\xff\xfe\xfd" * 50)
    (folder / "long.csv").write_text("1" * 10**6)
    for name in ("empty.csv", "empty.npy"):
        (folder / name).touch()
    np.savez(folder / "zipped.npz", np.ones((50, 100), bool))
    (folder / "zipped.npz").rename(folder / "zipped.npy")
    (folder / "nobody.csv").write_text(("0," * 100 + "\n") * 50)
    np.save(folder / "unknown.npy", np.full((50, 100), np.nan))
    np.save(folder / "texts.npy", np.full((50, 100), "1"))
    np.save(folder / "complex.npy", np.ones((50, 100), complex))
    (folder / "thesis.csv").mkdir()
    (folder / "thesis").mkdir()
    (folder / "thesis" / "chapter.txt").write_text("mine")


@pytest.mark.fast_cases(70)
@pytest.mark.parametrize("arguments,words", BAD, ids=[" ".join(case[0])[:60] for case in BAD])
def test_bad_input_is_one_sentence(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    make_bad_files(tmp_path)
    text = " ".join(arguments)
    if not any(name in text for name in (*NEEDS_DATA, "--dataset", "--data-dir", "must")):
        monkeypatch.setattr("fedjax_sel.data.load", lambda *_: pytest.fail("the data were read"))
    started = time.process_time()  # of this process: others may keep the machine busy
    code, out, err = command(capsys, *arguments)
    assert time.process_time() - started < 3
    assert code == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    assert "  " not in err and "pickle" not in err
    for word in words:
        assert word in err, err
    assert not list((tmp_path / "runs").glob("*/metrics.csv"))
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def test_bad_input_of_the_other_commands_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for main, arguments, words in (
        (report.main, [""], "path is empty"),
        (report.main, ["run", "--out", "pictures"], "is a folder"),
        (data.main, ["--out", "/"], "is a folder"),
        (data.main, ["--out", ""], "path is empty"),
        (kit.main, ["random", "--rounds", "0"], "--rounds: 0 is below 1"),
    ):
        code = command_line.guarded(main, arguments)
        out, err = capsys.readouterr()
        assert code == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert command_line.picture("curves").name == "curves.png" and command_line.picture("a.pdf").name == "a.pdf"


@pytest.mark.slow
def test_a_run_prints_a_table_and_writes_curves(capsys, tmp_path):
    out = tmp_path / "run"
    code, printed, err = command(capsys, *QUICK, "--seeds", "2", "--out", str(out), "--target-accuracy", "0.99")
    assert code == 0, err
    assert "final test accuracy" in printed and "megabytes down" in printed and str(out) in printed.replace("\n", "")
    assert "rounds to 99% test accuracy" in printed and "N/A (0 of 2 seeds)" in printed
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    code, printed, _ = command(capsys, *QUICK, "--seeds", "2", "--out", str(out))
    assert code == 0 and "already finished" in printed and "final test accuracy" in printed


def test_a_flag_wins_over_the_preset(capsys):
    parser = command_line.make_parser("x", "", "")
    config, _ = command_line.parse(parser, ["--preset", "fedcor/fmnist-1spc", "--rounds", "7", "--seeds", "2"])
    assert (config.run.rounds, config.run.seeds, config.model.model_dropout) == (7, (0, 1), 0.5)


def test_a_folder_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = command(capsys, *QUICK, "--out", str(tmp_path / "file" / "run"))
    assert code == 2 and "--out" in err and err.count("\n") == 1


def test_a_dry_run_shows_sizes_costs_and_times(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = command(capsys, *QUICK, "--dry-run")
    assert code == 0
    for text in (
        "6,420 parameters",
        "steps of 10 examples",
        "MB up per round",
        "compilation",
        "seed-rounds/s",
    ):
        assert text in out, out
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_dry_run_begins_with_ten_lines_for_a_person(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = command(capsys, *QUICK, "--seeds", "2", "--algo", "random", "--dry-run")
    ten = out.splitlines()
    names = ["experiment", "rounds", "clients", "model", "local work", "bytes", "mesh", "memory", "time", "output"]
    assert code == 0 and [re.match(r"(.+?)  ", line)[1] for line in ten] == names
    said = dict(zip(names, ten))
    assert "2 for each of 2 seeds, all at once" in said["rounds"] and "20, 3 per round" in said["clients"]
    model = 4 * 6420 / 1e6  # megabytes
    assert f"{3 * model:.2f} MB down and {3 * model:.2f} MB up per round and seed, " in said["bytes"]
    assert f" {2 * 2 * 3 * model:,.0f} MB down and {2 * 2 * 3 * model:,.0f} MB up in total; " in said["bytes"]
    assert "random adds: nothing; fedavg adds: nothing" in said["bytes"] and "--mesh seeds=" in said["mesh"]
    assert re.search(
        r"about \d+ seconds: [\d.]+ s of compilation, then ([\d.]+ seed-rounds/s|[\d.]+ s per seed-round)$",
        said["time"],
    )


@pytest.mark.slow
def test_an_update_that_is_not_finite_has_exit_code_three(capsys, tmp_path):
    code, _, err = command(capsys, *QUICK, "--learning-rate", "1e20", "--out", str(tmp_path / "run"))
    assert code == 3 and "lower --learning-rate" in err


def python(*arguments, **kind):
    return subprocess.Popen(
        [sys.executable, "-m", "fedjax_sel.train", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kind,
    )  # fmt: skip


def test_help_and_errors_of_a_real_process():
    helped = python("--help")
    out, _ = helped.communicate(timeout=60)
    assert helped.returncode == 0 and "examples:" in out and "--num-selected" in out
    wrong = python("--rounds", "0")
    _, err = wrong.communicate(timeout=60)
    assert wrong.returncode == 2 and err.count("\n") == 1
    debugged = python("--rounds", "0", "--debug")
    _, err = debugged.communicate(timeout=60)
    assert debugged.returncode == 2 and "Traceback" in err


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_done(tmp_path):
    out = tmp_path / "run"
    arguments = ["--rounds", "100000", "--chunk", "5", "--num-clients", "20", "--num-selected", "3", "--out", str(out)]
    process = python(*arguments, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (out / "metrics.csv").exists():
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "Interrupted after round" in printed
    rounds = len((out / "metrics.csv").read_text().splitlines()) - 1
    assert rounds >= 5 and rounds % 5 == 0
    assert np.load(out / "cohorts.npy").shape == (1, rounds, 3)
    assert (out / "curves.png").exists()


@pytest.mark.slow
def test_a_report_puts_runs_side_by_side(capsys, tmp_path):
    for algo in ("random", "fl_dp3s"):
        command(capsys, *QUICK, "--algo", algo, "--out", str(tmp_path / algo))
    picture = tmp_path / "both.png"
    code = command_line.guarded(
        report.main, [str(tmp_path / "random"), str(tmp_path / "fl_dp3s"), "--out", str(picture)]
    )
    out, _ = capsys.readouterr()
    assert code == 0 and "| random |" in out and "| fl_dp3s |" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert command_line.guarded(report.main, [str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err
