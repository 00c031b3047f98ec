"""Several strategies under the same conditions: the command, its table, and going on after a stop."""

import csv
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedjax_sel
from fedjax_sel import UserError, tasks
from fedjax_sel.cli import command_line, compare, train
from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import NonFiniteUpdateError
from fedjax_sel.experiment import Experiment
from fedjax_sel.reporting import comparison, plots
from fedjax_sel.runs import reading, sweep
from fedjax_sel.runs import sweep as jobs
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation.ledger import Ledger

QUICK = ["--rounds", "3", "--chunk", "3", "--num-clients", "10", "--num-selected", "2", "--seeds", "2"]
QUICK += ["--target-accuracy", "0.05", "--model", "logistic"]
PICTURES = {"accuracy_by_round.png", "accuracy_by_megabytes_down.png", "accuracy_by_megabytes_up.png"}


def command(capsys, *arguments):
    code = command_line.guarded(compare.main, list(map(str, arguments)))
    out, err = capsys.readouterr()
    return code, out, err


def table(path):
    with (path / "comparison.csv").open() as file:
        return {(row["setting"], row["algo"]): row for row in csv.DictReader(file)}


def test_items_of_algos():
    assert jobs.parse_algo("fedcor") == ("fedcor", {})
    assert jobs.parse_algo("fedcor[preset=code-2023,dimension=20]") == (
        "fedcor", {"dimension": "20", "preset": "code-2023"},
    )  # fmt: skip
    assert jobs.parse_algo("my.package:factory[x=1e-3]") == ("my.package:factory", {"x": "1e-3"})
    assert jobs.parse_algo(" fl_dp3s[ profile = fc1 ] ") == ("fl_dp3s", {"profile": "fc1"})
    for text in ("random", "a.b:c[p=1,q=x-y]"):
        assert jobs.label(*jobs.parse_algo(text)) == text
    for text in ("", "a b", "a[b", "a]b", "a[x]", "a[=1]", "a[x=1]b", "[x=1]", "a[x=1,x=2]"):
        with pytest.raises(UserError, match="--algos"):
            jobs.parse_algo(text)


BAD = [
    (["--algos"], ["--algos", "at least one"]),
    (["--algos", "random", "--alpha", "1"], ["--alpha 1", "without"]),
    (["--algos", "random", "fl_dps"], ["--algos fl_dps", "did you mean 'fl_dp3s'?"]),
    (["--algos", "random", "fl_dp3s[profil=fc1]"], ["fl_dp3s[profil=fc1]", "did you mean 'profile' or 'pool'?"]),
    (["--algos", "random", "fl_dp3s[profile=fc9]"], ["fl_dp3s[profile=fc9]", "did you mean 'fc1'?"]),
    (["--algos", "random", "fl_dp3s[profile]"], ["'profile'", "key=value"]),
    (["--algos", "random", "random"], ["'random'", "give it once"]),
    (["--algos", "random", "no_such_module:thing"], ["no_such_module:thing"]),
    (["--algo", "random", "--algos", "random"], ["--algo", "did you mean '--algos'?"]),
    (["--algos", "random", "--num-selected", "11", "--num-clients", "10"], ["--num-selected", "at most"]),
    (["--algos", "random", "--rounds", "0"], ["--rounds", "must be from 1 to"]),
    (["--algos", "random", "--preset", "fedcor/fmnist-3spc"], ["did you mean 'fedcor/fmnist-2spc'"]),
    (["--algos", "random", "--optimizer", "fedavg", "--optimizers", "fedprox"], ["--optimizer and --optimizers"]),
    (
        ["--algos", "random", "--local-epochs", "3", "--sweep", "local-steps", "5", "10"],
        ["--local-epochs and --sweep local-steps: give one of them"],
    ),
    (["--algos", "random", "--batch-size", "5000"], ["--batch-size", "largest client"]),
]


@pytest.mark.parametrize("arguments,words", BAD, ids=[" ".join(case[0]) for case in BAD])
def test_bad_input_is_one_sentence_before_anything_runs(capsys, tmp_path, arguments, words):
    out = tmp_path / "comparison"
    started = time.process_time()  # of this process: others may keep the machine busy
    code, printed, err = command(capsys, *arguments, "--out", out)
    assert time.process_time() - started < 5
    assert code == 2 and printed == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    for word in words:
        assert word in err, err
    assert not out.exists()


def test_a_folder_must_be_given_and_be_one(capsys, tmp_path):
    code, _, err = command(capsys, "--algos", "random")
    assert code == 2 and "--out" in err
    code, _, err = command(capsys, "--algos", "random", "--out", "")  # would be the working folder
    assert code == 2 and "--out" in err and "empty" in err and err.count("\n") == 1
    (tmp_path / "file").write_text("mine")
    code, _, err = command(capsys, *QUICK, "--algos", "random", "--out", tmp_path / "file")
    assert code == 2 and "--out" in err and err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_one_comparison_at_a_time_writes_to_a_folder(capsys, tmp_path):
    with FolderLock() as other:
        other.take(tmp_path)
        code, _, err = command(capsys, *QUICK, "--algos", "random", "--out", tmp_path)
    assert code == 2 and "another process is writing to" in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison") / "out"
    code = command_line.guarded(compare.main, [*QUICK, "--algos", "random[variant=md]", "fl_dp3s", "--out", str(out)])
    assert code == 0
    return out


@pytest.mark.slow
def test_a_comparison_with_a_clock_has_the_seconds_of_its_runs(capsys, tmp_path):
    code, *_ = command(capsys, *QUICK, "--algos", "random", "afl", "--timing", "tiers", "--out", tmp_path)
    page = (tmp_path / "comparison.md").read_text()
    assert code == 0 and "| simulated seconds |" in page and "| seconds to 5% |" in page
    assert {path.name for path in tmp_path.glob("*.png")} == PICTURES | {"accuracy_by_seconds.png"}
    seconds = {name: reading.load(tmp_path / name).seconds.sum(axis=1) for name in ("random", "afl")}
    for (_, algo), row in table(tmp_path).items():
        assert float(row["seconds_mean"]) == pytest.approx(seconds[algo].mean(), rel=1e-6)
        least = min(one.min() for one in seconds.values())
        assert float(row["equal_seconds"]) == pytest.approx(least, rel=1e-6)


def test_every_run_has_a_folder_and_the_whole_a_table_and_pictures(compared):
    names = {path.name for path in compared.iterdir()}
    assert names == PICTURES | {
        "comparison.md", "comparison.csv", "comparison_pairs.csv", "random-variant=md", "fl_dp3s",
    }  # fmt: skip
    for picture in PICTURES:
        assert (compared / picture).read_bytes().startswith(b"\x89PNG")
    text = (compared / "comparison.md").read_text()
    assert "fedjax-sel compare --rounds 3" in text and "digits (scikit-learn)" in text
    for algo in ("random[variant=md]", "fl_dp3s"):
        assert f"| {algo} |" in text
        assert (compared / algo.replace("[", "-").replace("]", "") / "curves.png").exists()


@pytest.mark.slow
def test_differences_to_the_first_strategy_stand_behind_the_table(compared, capsys, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(compared, out)
    (out / "comparison_pairs.csv").unlink()
    code, printed, _ = command(capsys, *QUICK, "--algos", "random[variant=md]", "fl_dp3s", "--out", out)
    page = (out / "comparison.md").read_text()
    assert page.count("| fl_dp3s minus random[variant=md] |") == 2
    assert page.index("| fl_dp3s |") < page.index("| fl_dp3s minus")
    assert "2 seeds are too few to tell (6 needed)." in page
    assert "No winner yet: 2 seeds are too few to tell (6 needed)" in printed
    assert code == 0 and comparison.NOTES_ON_PAIRS in page
    with (out / "comparison_pairs.csv").open() as file:
        accuracy, rounds = csv.DictReader(file)
    first, second = (reading.load(out / name).test_accuracy for name in ("random-variant=md", "fl_dp3s"))
    assert float(accuracy["difference"]) == pytest.approx((second - first).mean(), abs=1e-6)
    assert (accuracy["measure"], rounds["measure"]) == ("last_10_rounds", "rounds_to_target_restricted")
    assert (rounds["seeds"], rounds["horizon"], rounds["verdict"]) == ("2", "3", "too few seeds")


def test_the_end_is_a_verdict_of_80_columns(compared, capsys, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(compared, out)
    code, printed, err = command(capsys, *QUICK, "--algos", "random[variant=md]", "fl_dp3s", "--out", out)
    assert code == 0 and max(map(len, printed.splitlines()[:-3])) <= 80 and "timing the selection" not in err
    lines = printed.splitlines()
    heading = next(line for line in lines if line.startswith("strategy"))
    assert heading.split() == ["strategy", "accuracy", "difference", "leads", "verdict", "MB", "ratio"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[lines.index(heading) + 1 :][:2]}
    result, first = (reading.load(out / name) for name in ("fl_dp3s", "random-variant=md"))
    difference = (result.test_accuracy - first.test_accuracy).mean()
    moved, base = ((one.ledger.bytes_down + one.ledger.bytes_up).sum(axis=1).mean() / 1e6 for one in (result, first))
    leads = (result.test_accuracy.mean(axis=1) > first.test_accuracy.mean(axis=1)).sum()
    assert rows["fl_dp3s"] == [
        f"{result.test_accuracy.mean():.3f}", f"{difference:+.3f}", str(leads), "of", str(len(result.seeds)), "too",
        "few", "seeds", f"{moved:.3g}",
        f"{moved / base:.3g}x",
    ]  # fmt: skip
    assert rows["random[variant=md]"][1] == "baseline"
    assert lines[-2] == f"Report: fedjax-sel report {out} --target-accuracy 0.05 --html {out}/report.html"
    assert lines[-1] == "Next: the same command with --seeds 10 and another --out"
    assert "too few" not in err  # nothing is left to run


def test_pictures_for_a_publication_are_drawn_from_finished_runs(compared, capsys, tmp_path):
    out = shutil.copytree(compared, tmp_path / "out")
    flags = ["--format", "svg", "--style", "paper"]
    code, *_ = command(capsys, *QUICK, "--algos", "random[variant=md]", "fl_dp3s", *flags, "--out", out)
    assert code == 0 and (out / "accuracy_by_round.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_too_few_seeds_are_said_before_the_first_run(compared, capsys, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(compared / "random-variant=md", out / "random-variant=md")
    arguments = ["--algos", "random[variant=md]", "fl_dp3s", "--out", out]
    code, _, err = command(capsys, *QUICK, *arguments)
    said = "2 seeds are too few to tell (6 needed); --seeds 10 is a good start\n"
    assert code == 0 and said in err and err.index(said) < err.index("run 1 of 2")


@pytest.mark.slow
def test_runs_differ_in_their_strategy_only_and_equal_runs_of_their_own(compared):
    partitions, configs = [], []
    for name in ("random-variant=md", "fl_dp3s"):
        partitions.append(json.loads((compared / name / "result.json").read_text())["data"]["partitions"])
        configs.append(reading.load(compared / name).config.flat())
    assert partitions[0] == partitions[1]
    changed = {key for config in configs for key in config if config[key] != configs[0][key]}
    assert changed == {"algo", "algo_args", "out"}
    result = reading.load(compared / "fl_dp3s")
    alone = fedjax_sel.run(result.config.replace(out=None))
    np.testing.assert_array_equal(alone.test_accuracy, result.test_accuracy)
    np.testing.assert_array_equal(alone.cohorts, result.cohorts)


def test_the_tables_numbers_are_those_of_the_runs(compared):
    rows = table(compared)
    assert list(rows) == [("quickstart", algo) for algo in ("random[variant=md]", "fl_dp3s")]
    result = reading.load(compared / "fl_dp3s")
    row = rows["quickstart", "fl_dp3s"]
    down = result.ledger.bytes_down / 1e6
    reached = (result.test_accuracy >= 0.05).argmax(axis=1)
    assert (result.test_accuracy >= 0.05).any(axis=1).all()
    expected = {
        "seeds": 2,
        "rounds": 3,
        "final_accuracy_mean": result.test_accuracy[:, -1].mean(),
        "final_accuracy_sd": result.test_accuracy[:, -1].std(ddof=1),
        "last_rounds_accuracy_mean": result.test_accuracy.mean(),
        "rounds_to_target_mean": (reached + 1).mean(),
        "rounds_to_target_seeds_reached": 2,
        "megabytes_down_mean": down.sum(axis=1).mean(),
        "megabytes_down_to_target_mean": np.mean([down[seed, : reached[seed] + 1].sum() for seed in range(2)]),
        "gemd_mean": result.gemd.mean(),
        "clients_seen_mean": np.mean([len(set(result.cohorts[seed].ravel())) for seed in range(2)]),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(float(row[name]), value, rtol=1e-5, err_msg=name)
    assert row["seed_rounds_per_second"] == row["compilation_seconds"] == ""  # one chunk: it compiles
    assert row["rounds_until_all_seen_mean"] == "N/A" and row["rounds_until_all_seen_seeds_reached"] == "0"


@pytest.mark.slow
def test_finished_runs_are_read_and_unfinished_ones_run_again(compared, capsys, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(compared, out)
    monkeypatch.setattr(sweep, "run_experiment", lambda *_: pytest.fail("a finished run was repeated"))
    code, _, err = command(capsys, *QUICK, "--algos", "random[variant=md]", "--out", out)
    assert code == 0 and "run 1 of 1: random[variant=md], quickstart (finished before)" in err
    assert list(table(out)) == [("quickstart", "random[variant=md]")]
    monkeypatch.undo()

    (out / "fl_dp3s" / "cohorts.npy").unlink()
    shutil.rmtree(out / "fl_dp3s" / "checkpoints")
    code, _, err = command(capsys, *QUICK, "--algos", "random[variant=md]", "fl_dp3s", "--out", out)
    assert code == 0 and "run 2 of 2: fl_dp3s, quickstart\n" in err
    assert (out / "fl_dp3s.aside-1").is_dir()
    for key, row in table(compared).items():
        again = table(out)[key]
        assert {name for name in row if row[name] != again[name]} <= {
            "seed_rounds_per_second", "compilation_seconds",
        }  # fmt: skip

    code, _, err = command(capsys, *QUICK, "--algos", "fl_dp3s", "--out", out, "--learning-rate", "0.1")
    assert code == 2 and "learning_rate 0.05 in the folder, 0.1 given" in err


@pytest.mark.slow
def test_a_failed_run_is_reported_and_the_others_go_on(compared, capsys, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(compared / "fl_dp3s", out / "fl_dp3s")

    def fail(*_):
        raise NonFiniteUpdateError("round 2, seed 0: the update of client 7 is not finite")

    monkeypatch.setattr(sweep, "run_experiment", fail)
    code, printed, err = command(capsys, *QUICK, "--algos", "random", "fl_dp3s", "--out", out)
    assert code == 3
    assert err.rstrip().splitlines()[-1] == (
        "failed: random, quickstart: round 2, seed 0: the update of client 7 is not finite"
    )
    assert "fl_dp3s" in printed and "random" not in printed
    assert "client 7 is not finite" in (out / "comparison.md").read_text()
    assert list(table(out)) == [("quickstart", "fl_dp3s")]


@pytest.mark.slow
def test_an_interruption_keeps_what_is_finished(compared, capsys, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(compared / "fl_dp3s", out / "fl_dp3s")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "run_experiment", interrupt)
    code, printed, _ = command(capsys, *QUICK, "--algos", "fl_dp3s", "random", "--out", out)
    assert code == 130 and "1 of 2 runs are finished" in printed
    assert list(table(out)) == [("quickstart", "fl_dp3s")]
    assert "Not finished yet: 1 of 2 runs" in (out / "comparison.md").read_text()


@pytest.mark.slow
def test_ctrl_c_in_the_last_rounds_of_a_run_ends_the_others(compared, capsys, tmp_path, monkeypatch):
    class Stop:
        def chunk(self, chunk, first):
            os.kill(os.getpid(), signal.SIGINT)

    real = sweep.run_experiment
    monkeypatch.setattr(sweep, "run_experiment", lambda config, *_: real(config, watching=[Stop()]))
    out = tmp_path / "out"
    code, printed, _ = command(capsys, *QUICK, "--algos", "random", "fl_dp3s", "--out", out)  # one chunk each
    assert code == 130 and "1 of 2 runs are finished" in printed and not (out / "fl_dp3s").exists()
    assert list(table(out)) == [("quickstart", "random")]
    code, printed, _ = command(capsys, *QUICK, "--algos", "random", "fl_dp3s", "--out", out)
    assert code == 0 and len(table(out)) == 2  # nothing is left that it could end


@pytest.mark.slow
def test_ctrl_c_of_a_real_process(tmp_path):
    out = tmp_path / "out"
    arguments = ["--rounds", "100000", "--chunk", "5", "--num-clients", "10", "--num-selected", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedjax_sel", "compare", *arguments, "--algos", "random", "fl_dp3s", "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (out / "random" / "metrics.csv").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "0 of 2 runs are finished" in printed
    assert (out / "random" / "cohorts.npy").exists() and not (out / "fl_dp3s").exists()


@pytest.mark.slow
def test_a_killed_comparison_goes_on_without_repeating_what_is_finished(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--rounds", "200", "--chunk", "5", "--num-clients", "10", "--num-selected", "2",
                 "--checkpoint-every", "20", "--algos", "random", "fl_dp3s", "--out", str(out)]  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "fedjax_sel", "compare", *arguments], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list((out / "fl_dp3s" / "checkpoints").glob("round-*")):
        time.sleep(0.01)
    process.kill()
    process.wait(timeout=60)
    finished = (out / "random" / "metrics.csv").stat().st_mtime_ns
    assert not (out / "comparison.md").read_text().count("| fl_dp3s |")
    code, printed, err = command(capsys, *arguments)
    assert code == 0 and "random, quickstart (finished before)" in err and "resuming after round" in err
    assert (out / "random" / "metrics.csv").stat().st_mtime_ns == finished
    assert "\nrandom " in printed and "\nfl_dp3s " in printed


def test_folders_of_strategies(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(compare, "_compare", lambda jobs, *_: given.extend(jobs) or 0)
    arguments = ["--rounds", "3", "--algos", "random", "my.package:f[x=1]", "--out", str(tmp_path)]
    assert compare.main([*arguments, "--preset", "fedcor/fmnist-dir"]) == 0
    assert [Path(job.config.run.out) for job in given] == [tmp_path / "random", tmp_path / "my.package-f-x=1"]
    for job in given:
        algo, values = jobs.parse_algo(job.algo)
        config = fedjax_sel.preset("fedcor/fmnist-dir").replace(rounds=3, algo=algo, algo_args=values)
        assert job.config == config.replace(out=job.config.run.out)


def test_a_page_has_a_table_for_each_setting():
    result = made_up([[0.2, 0.7], [0.65, 0.5]], BYTES, COHORTS, target=0.6)
    rows = [comparison.row(setting, "a", result) for setting in ("one", "two")]
    page = comparison.document(
        rows, {"one": "first (its pixels)", "two": "second (its)"}, ["b, one: why"], 4, "the command"
    )
    assert page.index("the command") < page.index("## one\n\nfirst (its pixels)") < page.index("## two\n\nsecond (its)")
    assert page.count("| a |") == 2 and "* b, one: why" in page and "Not finished yet: 1 of 4 runs" in page


PLUGIN = """
from fedjax_sel.strategies.random import random
from fedjax_sel.strategies.facts import ALL, SERVER, Request, always

def validated():
    return random()._replace(name="validated", requests=(Request("server_metrics", SERVER, always()),))

def undeclared():
    strategy = random()
    def select(key, state, now):
        now.info.loss
        return strategy.select(key, state, now)
    return strategy._replace(name="undeclared", select=select)

def selfish():
    strategy = random()
    def update(state, now, selection, outcome):
        outcome.metrics.after
        return state
    return strategy._replace(name="selfish", update=update)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "compared_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "compared_plugin"
    sys.modules.pop("compared_plugin", None)


@pytest.mark.parametrize("name,fact", [("undeclared", "loss"), ("selfish", "server_metrics")])
def test_a_plug_in_that_reads_what_it_does_not_buy_is_found_before_the_first_run(capsys, tmp_path, plugin, name, fact):
    out = tmp_path / "out"
    code, _, err = command(capsys, *QUICK, "--algos", "random", f"{plugin}:{name}", "--out", out)
    assert code == 2 and f"{plugin}:{name}" in err and f"'{fact}'" in err and not out.exists()


def test_where_one_strategy_needs_the_server_to_hold_data_it_holds_them_for_all(tmp_path, plugin):
    config = fedjax_sel.preset("quickstart").replace(rounds=1, num_clients=10, num_selected=2, seeds=2)
    jobs = sweep.make_jobs({"here": Experiment(config)}, ["random", f"{plugin}:validated"], tmp_path / "out", False)
    checked = sweep.check(jobs)
    assert [one.job.config.data.server_validation for one in checked] == [0.05, 0.05]
    digests = [[part.digest() for part in one.problem.partitions] for one in checked]
    assert digests[0] == digests[1] and len(digests[0]) == 2
    assert len(checked[0].problem.dataset.server_images) > 0
    alone = sweep.check(jobs[:1])[0]
    assert alone.job.config == jobs[0].config and alone.job.config.data.server_validation is None
    assert [part.digest() for part in alone.problem.partitions] != digests[0]


def test_a_dry_run_shows_each_run_and_the_time_of_all(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "_timed", lambda program: (4.0, 2.0 * program.length, 3_000_000))
    arguments = [*QUICK, "--algos", "random", "fl_dp3s", "--out", tmp_path / "dry", "--dry-run"]
    code, out, _ = command(capsys, *arguments)
    assert code == 0 and not (tmp_path / "dry").exists()
    assert re.findall(r"^run \d of 2: (\w+), quickstart$", out, re.M) == ["random", "fl_dp3s"]
    assert len(re.findall(r"^memory +about 3 MB per device$", out, re.M)) == 2
    assert len(re.findall("^time +about 10 seconds", out, re.M)) == 2  # 4 + 3 rounds of 2
    assert out.endswith("all runs: about 20 seconds\n")


@pytest.mark.parametrize("layout", [{"seeds_at_once": 2}, {"mesh": "seeds=2"}])
def test_seeds_may_take_turns_or_be_dealt_out_in_a_comparison(tmp_path, layout):
    """A first look at one seed, which neither divides, is not what is refused."""
    config = fedjax_sel.preset("quickstart").replace(rounds=1, num_clients=10, num_selected=2, seeds=4, **layout)
    (checked,) = sweep.check(sweep.make_jobs({"here": Experiment(config)}, ["random"], tmp_path / "out", False))
    assert checked.problem.config.run == checked.job.config.run and len(checked.job.config.run.seeds) == 4


def made_up(accuracy, bytes_down, cohorts, target, num_clients=4):
    accuracy, cohorts = np.asarray(accuracy, np.float32), np.asarray(cohorts, np.int32)
    seeds, rounds = accuracy.shape
    config = fedjax_sel.preset("quickstart").replace(
        seeds=seeds, rounds=rounds, target_accuracy=target, num_clients=num_clients, num_selected=cohorts.shape[2]
    )
    counts = dict.fromkeys(Ledger._fields, np.zeros((seeds, rounds), np.int64))
    ledger = Ledger(**{**counts, "bytes_down": np.asarray(bytes_down), "bytes_up": 2 * np.asarray(bytes_down)})
    measured = dict.fromkeys(tasks.names(tasks.classification()), np.full((seeds, rounds), np.nan))
    measured |= {"test_accuracy": accuracy, "gemd": np.full((seeds, rounds), 0.5)}
    seconds = np.arange(1.0, rounds + 1)
    return Result(
        config,
        "made up",
        config.run.seeds,
        measured,
        cohorts,
        ledger,
        seconds,
    )


BYTES = np.array([[5_000_000, 1_000_000], [5_000_000, 3_000_000]])
COHORTS = [[[0, 1], [2, 3]], [[0, 1], [1, 2]]]


def test_a_seed_that_fails_makes_a_row_not_applicable_and_the_count_stands_beside_it():
    result = made_up([[0.2, 0.7], [0.1, 0.5]], BYTES, COHORTS, target=0.6)
    row = comparison.row("s", "a", result)
    assert row.rounds_to_target.reached == 1 and row.rounds_to_target.seeds == 2 and np.isnan(row.rounds_to_target.mean)
    assert row.megabytes_down_to_target.reached == 1 and np.isnan(row.megabytes_down_to_target.median)
    assert row.rounds_until_all_seen.reached == 1
    line = comparison.as_csv([row]).splitlines()
    cells = dict(zip(line[0].split(","), line[1].split(",")))
    for name in ("rounds_to_target", "megabytes_down_to_target", "megabytes_up_to_target", "rounds_until_all_seen"):
        assert [cells[f"{name}_{part}"] for part in ("mean", "sd", "median", "seeds_reached")] == ["N/A"] * 3 + ["1"]
    assert cells["clients_seen_mean"] == "3.5"
    assert comparison.as_markdown([row]).count("N/A (1 of 2 seeds)") == 4


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@sum"])
def test_no_name_is_a_formula_of_a_spreadsheet(name):
    results = [
        made_up(accuracy, BYTES, COHORTS, target=0.6) for accuracy in ([[0.2, 0.7], [0.1, 0.5]], [[0.1, 0.2]] * 2)
    ]
    rows = [comparison.row(name, algo, result, optimizer=name) for algo, result in zip(("random", name), results)]
    tables = [comparison.as_csv(rows), comparison.pairs_as_csv(comparison.pairs(rows, results))]
    for last in (list(csv.DictReader(text.splitlines()))[-1] for text in tables):
        assert (last["setting"], last["algo"], last["optimizer"]) == (f"'{name}",) * 3
    assert re.search(r",-0\.\d", tables[1])  # numbers stay numbers


def test_fairness_of_selections_and_of_clients():
    """Counts 1, 1, 1, 1 and 1, 2, 1, 0 in two rounds; client measures of one run only."""
    result = made_up([[0.2, 0.7], [0.1, 0.5]], BYTES, COHORTS, target=None)
    columns = ("worst_decile_accuracy", "gini_accuracy", "jain_accuracy")
    measured = result.measured | dict(zip(columns, np.array([[[9, 0.25]] * 2, [[9, 0.125]] * 2, [[9, 0.5]] * 2])))
    rows = [comparison.row("s", "a", result), comparison.row("s", "b", dataclasses.replace(result, measured=measured))]
    for row in rows:
        assert row.gini_of_selections.mean == pytest.approx((0 + 12 / 32) / 2)
        assert row.jain_of_selections.mean == pytest.approx((1 + 16 / 24) / 2)
        assert row.participation_gap.mean == (0 + 1) / 2
    assert rows[0].worst_decile is rows[0].gini_of_clients is rows[0].jain_of_clients is None
    cells = comparison.columns(rows)
    assert cells["worst tenth"] == ["", "0.250 ± 0.000"] and cells["Jain of clients"] == ["", "0.500 ± 0.000"]
    assert "worst tenth" not in comparison.columns(rows[:1])
    table = list(csv.DictReader(comparison.as_csv(rows).splitlines()))
    assert [line["gini_of_clients_mean"] for line in table] == ["", "0.125"]
    assert dict(result.summary())["participation gap"].tolist() == [0.0, 1.0]


def test_a_row_where_all_seeds_arrive():
    row = comparison.row("s", "a", made_up([[0.2, 0.7], [0.65, 0.5]], BYTES, COHORTS, target=0.6))
    assert row.rounds_to_target == (1.5, np.std([1, 2], ddof=1), 1.5, 2, 2)
    assert row.megabytes_down_to_target.mean == np.mean([6, 5])
    assert row.megabytes_up_to_target.mean == np.mean([12, 10])
    assert row.megabytes_up.mean == np.mean([12, 16])
    columns = comparison.columns([row])
    assert np.isnan(row.seed_rounds_per_second) and "seed-rounds/s" not in columns


def test_megabytes_of_small_models_are_not_rounded_away():
    made = {
        scale: comparison.row("s", "a", made_up([[0.2, 0.7]], BYTES[:1] // scale, COHORTS[:1], None))
        for scale in (1, 900)
    }
    found = {scale: comparison.columns([row]) for scale, row in made.items()}
    assert found[1]["MB down"] == ["6.0"] and found[900]["MB down"] == ["0.0067"] and found[900]["MB up"] == ["0.013"]


def test_speed_is_of_the_rounds_after_compilation_which_stands_apart():
    """Ten seconds of compilation, and two rounds of two seeds in half a second each."""
    result = made_up([[0.2] * 4] * 2, np.ones((2, 4), int), [[[0, 1]] * 4] * 2, target=0.6)
    times = {"elapsed_seconds": [5.5, 11.0, 11.5, 12.0], "round_seconds": [np.nan, np.nan, 0.5, 0.5]}
    result = dataclasses.replace(result, **{name: np.array(value) for name, value in times.items()})
    row = comparison.row("s", "a", result)
    assert (row.seed_rounds_per_second, row.compilation_seconds) == (4.0, 10.0)
    assert "| seed-rounds/s | s of compilation |" in comparison.as_markdown([row])
    assert comparison.as_markdown([row]).endswith("| 4 | 10 |")
    cells = dict(zip(*(line.split(",") for line in comparison.as_csv([row]).splitlines())))
    assert (cells["seed_rounds_per_second"], cells["compilation_seconds"]) == ("4", "10")


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: saved.append(figure))
    return saved


def test_bands_stay_where_the_measure_can_be(tmp_path, monkeypatch, figures):
    bands, draw = {}, Axes.fill_between

    def fill_between(axis, x, low, high, **named):
        bands[axis] = (low, high)
        return draw(axis, x, low, high, **named)

    monkeypatch.setattr(Axes, "fill_between", fill_between)
    result = made_up([[0.01, 0.99], [0.5, 0.6]], BYTES, COHORTS, target=0.6)
    spread = np.array([[0.01, 0.02], [1.5, 1.0]])
    plots.curves(
        {"a": dataclasses.replace(result, measured=result.measured | {"gemd": spread, "test_loss": 2 * spread})},
        tmp_path / "curves.png",
    )
    assert len(bands) == 4
    for axis, (low, high) in bands.items():
        assert (low >= 0).all() and (high > low).all() and axis.get_ylim()[0] >= 0
        assert (high <= 1).all() == ("accuracy" in axis.get_ylabel())
    assert sum((low == 0).any() for low, _ in bands.values()) == 4 and len(figures) == 1


def test_a_single_seed_has_no_deviation_and_no_target_no_columns():
    row = comparison.row("s", "a", made_up([[0.2, 0.7]], BYTES[:1], COHORTS[:1], target=None))
    assert row.rounds_to_target is None
    text = comparison.as_markdown([row])
    assert "±" not in text and "until" in text and "%" not in text
    cells = dict(zip(*(line.split(",") for line in comparison.as_csv([row]).splitlines())))
    assert cells["rounds_to_target_mean"] == cells["final_accuracy_sd"] == ""
    assert cells["final_accuracy_mean"] == "0.7"


@pytest.mark.slow
def test_tables_and_pictures_name_the_measure_of_the_task(tmp_path):
    """Of a regression: nothing speaks of accuracy, and the target is no share."""
    found = made_up([[0.9, 0.4], [0.8, 0.3]], BYTES, COHORTS, target=0.5)
    (_, accuracy), *others = found.measured.items()
    result = dataclasses.replace(
        found, measured={"test_absolute_error": accuracy, **dict(others)}, higher_is_better=False
    )
    row = comparison.row("s", "a", result)
    text = comparison.as_markdown([row])
    assert (
        "final test absolute error" in text and "rounds to 0.5 test absolute error" in text and "accuracy" not in text
    )
    assert row.rounds_to_target.mean == 2
    header = comparison.as_csv([row]).splitlines()[0].split(",")
    assert {"final_absolute_error_mean", "last_rounds_absolute_error_sd"} <= set(header)
    plots.draw_comparison([row], [result], tmp_path)
    assert (tmp_path / "absolute_error_by_round.png").exists() and not (tmp_path / "accuracy_by_round.png").exists()


@pytest.mark.slow
def test_pictures_of_eleven_strategies_where_nobody_arrives(tmp_path):
    rng = np.random.default_rng(0)
    results = [made_up(rng.uniform(size=(2, 2)), BYTES, COHORTS, target=1.0) for _ in range(11)]
    rows = [comparison.row("s", f"strategy {i}", result) for i, result in enumerate(results)]
    (tmp_path / "accuracy_by_seconds.png").touch()  # of an earlier comparison
    plots.draw_comparison(rows, results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == PICTURES


def test_styles_are_distinct_and_stay_when_strategies_are_added():
    others = (len(plots.COLORS) - 1) * len(plots.LINES) - (len(plots.KNOWN) - 1)  # gray is random selection's alone
    styles = plots.styles_of(f"strategy {i}" for i in range(others))
    assert len(set(styles.values())) == others
    assert len({style.color for style in list(styles.values())[:12]}) == 12
    few = plots.styles_of(f"strategy {i}" for i in range(5))
    assert all(styles[name] == style for name, style in few.items())
