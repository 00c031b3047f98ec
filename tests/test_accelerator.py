"""`python benchmarks/accelerator.py`: its budget, its file, what it makes of failures, and all of it in small."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
COMMAND = FOLDER / "accelerator.py"

FAKES = """
import os, time

def good(seconds, number=1):
    for index in range(number):
        yield {"index": index, "seconds_given": seconds}

def fails(seconds):
    yield {"index": 0}
    raise RuntimeError("broke in /home/somebody/file.py\\nand more")

def dies(seconds):
    yield {"index": 0}
    os._exit(3)

def hangs(seconds):
    yield {"pid": os.getpid()}
    time.sleep(600)

def some_fail(seconds, guess):
    from on_accelerator.child import each

    def measure(divisor):
        return {"quotient": 1 / divisor}

    cases = [{"divisor": 1}, {"divisor": 0}, {"divisor": 2}, {"divisor": 4}]
    yield from each(cases, seconds, guess, measure)
"""


@pytest.fixture
def accelerator(monkeypatch):
    """The modules of benchmarks/on_accelerator, which import each other by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    before = set(sys.modules)
    yield lambda name: importlib.import_module(f"on_accelerator.{name}")
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def make_day(accelerator, tmp_path):
    """(cases of a part .., seconds, begun so long ago) -> a day, whose children know the functions in FAKES."""
    (tmp_path / "fakes.py").write_text(FAKES)

    def make(*parts, seconds=100.0, gone=0.0, **more):
        day = accelerator("day")
        parts = [day.Part(f"part {number}", "", cases, str) for number, cases in enumerate(parts)]
        return day.Day(
            parts, seconds, tmp_path / "out.json", {"head": 1}, begun=time.monotonic() - gone, start=0.1, **more
        )

    return make


@pytest.fixture
def case_of(accelerator, tmp_path):
    """(function of FAKES, estimated seconds) -> a case."""

    def make(function, seconds=1.0, settings=None, **more):
        child = accelerator("children").Child(f"fakes:{function}", settings or {}, {"PYTHONPATH": str(tmp_path)})
        day = accelerator("day")
        return day.Case(function, seconds, day.alone(child), **more)

    return make


def found(report, part=0):
    return report["parts"][part]["cases"], report["parts"][part]["runs"]


@pytest.mark.slow
def test_what_fails_is_recorded_and_the_others_go_on(make_day, case_of, tmp_path):
    names = ("fails", "dies", "good")
    report = make_day([case_of(name) for name in names], [case_of("good", settings={"number": 2})]).run()
    assert report == json.loads((tmp_path / "out.json").read_text()) and report["head"] == 1
    cases, runs = found(report)
    assert [case["case"] for case in cases] == list(names)  # what was said before the failure is kept
    assert runs[0]["error"] == "exit code 1: RuntimeError: broke in file.py"
    assert runs[1]["error"].startswith("exit code 3") and "error" not in runs[2]
    assert [case["index"] for case in found(report, 1)[0]] == [0, 1]
    assert all(run["seconds"] > 0 and run["estimated_seconds"] > 0 for run in runs)


@pytest.mark.slow
def test_a_failing_case_does_not_end_those_of_its_process(make_day, case_of):
    cases, _ = found(make_day([case_of("some_fail", settings={"guess": 0.1})]).run())
    assert [case.get("quotient") for case in cases] == [1, None, 0.5, 0.25]
    assert cases[1]["error"] == "ZeroDivisionError: division by zero"


def test_a_process_begins_no_case_that_its_time_cannot_hold(accelerator, monkeypatch):
    child = accelerator("child")
    now = [0.0]
    monkeypatch.setattr(child, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(child, "_BEGUN", 0.0)

    def measure(divisor, wait=0.0):
        now[0] += wait
        return {"quotient": 1 / divisor}

    given = [{"divisor": 1}, {"divisor": 0}, {"divisor": 2, "wait": 2.0}, {"divisor": 4}]
    cases = list(child.each(given, 3.0, 0.5, measure))
    assert [case.get("quotient") for case in cases] == [1, None, 0.5, None]
    assert cases[3]["not_begun"] == "would take about 2 s, and 1 were left"


@pytest.mark.slow
def test_a_case_that_hangs_is_ended_and_the_next_one_begins(make_day, case_of):
    cases, runs = found(make_day([case_of("hangs", 0.5), case_of("good", 0.5)], seconds=10.0).run())
    assert re.fullmatch(r"killed at its limit of \d s", runs[0]["error"]) and "error" not in runs[1]
    assert not Path(f"/proc/{cases[0]['pid']}").exists()


@pytest.mark.slow
def test_nothing_is_begun_that_the_budget_cannot_hold_and_what_runs_over_is_ended(make_day, case_of):
    day = make_day([case_of("hangs", 3.5), case_of("good", 1.0)], [case_of("good", 50.0)], seconds=4.0)
    report = day.run()
    assert day.elapsed < 4.0 * 1.25 + 2.0
    assert "its limit" in found(report)[1][0]["error"]
    for part, name in ((0, 1), (1, 0)):
        run = found(report, part)[1][name]
        assert "were left" in run["not_begun"] and "seconds" not in run
    assert not found(report, 1)[0]


def test_first_tiers_come_first_and_estimates_follow_what_cases_take(make_day, accelerator):
    day = accelerator("day")
    ran = []

    def case(name, seconds, takes, **more):
        def work(launch):
            time.sleep(takes)
            ran.append(name)
            yield {"done": name}

        return day.Case(name, seconds, work, **more)

    # What should take 10 s takes 0.3 s. So what 70 s do not seem to hold at first, 100 s, is taken for 20 s then.
    first = [case("second tier", 100.0, 0.0, tier=2), case("too long at first", 100.0, 0.0), case("quick", 10.0, 0.3)]
    report = make_day(first, [case("other part", 10.0, 0.0)], seconds=170.0, gone=100.0).run()
    assert ran == ["quick", "other part", "second tier", "too long at first"]
    estimates = {run["case"]: run["estimated_seconds"] for run in found(report)[1]}
    assert estimates["quick"] == pytest.approx(10.1) and estimates["too long at first"] == pytest.approx(20.1)


@pytest.mark.slow
def test_a_flag_that_xla_does_not_know_costs_one_case(make_day, case_of):
    unknown = "--xla_no_such_flag=true"
    report = make_day([case_of("good", flags=(unknown,)), case_of("good")], flags=(unknown,)).run()
    _, runs = found(report)
    assert runs[0]["error"] == f"this jaxlib does not support {unknown}" and "error" not in runs[1]


DAY_THAT_HANGS = """
import sys, time
sys.path[:0] = sys.argv[1:3]
from pathlib import Path
from on_accelerator import children, day
case = day.Case("one", 1.0, day.alone(children.Child("fakes:hangs", {}, {"PYTHONPATH": sys.argv[2]})))
part = day.Part("part", "", [case], str)
day.Day([part], 100.0, Path(sys.argv[2]) / "out.json", {}, begun=time.monotonic(), start=0.1).run()
"""


def test_what_takes_the_rest_comes_last_and_ends_with_the_budget(make_day, accelerator):
    papers = accelerator("papers")

    def work(launch):
        yield {"finished": False}

    case = accelerator("day").Case("paper", 60.0, work, tier=9, takes_the_rest=True)
    day = make_day([case, case], seconds=100.0)
    report = day.run()
    assert [run["estimated_seconds"] for run in found(report)[1]] == [60.1, 60.1]  # however short the first one was
    assert papers.describe({"finished": False}) == "saved; the same command resumes it"


@pytest.mark.slow
def test_a_paper_is_reproduced_beside_the_file(tmp_path):
    report, _ = run_command(tmp_path / "here.json", "--minutes", "4", "--parts", "papers")
    (case,) = report["parts"][0]["cases"]
    assert case["finished"] and (tmp_path / "here" / "fedgp" / "fig1" / "README.md").exists()


ENDED = """
import sys, threading, time
sys.path[:0] = sys.argv[1:2]
from on_accelerator import papers
from studies.papers import command as reproduce
papers.SECONDS_TO_SAVE = 0.0
reproduce.main = lambda arguments: time.sleep(60)
print(next(papers.reproduce(0.1, []))["finished"])
"""


@pytest.mark.slow
def test_a_paper_that_the_minutes_end_is_not_finished():
    done = subprocess.run([sys.executable, "-c", ENDED, str(FOLDER)], capture_output=True, text=True, timeout=50)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
def test_a_killed_day_leaves_what_it_found_and_no_process(tmp_path):
    (tmp_path / "fakes.py").write_text(FAKES)
    process = subprocess.Popen([sys.executable, "-c", DAY_THAT_HANGS, str(FOLDER), str(tmp_path)])
    deadline, cases = time.monotonic() + 60, []
    while time.monotonic() < deadline and not cases:
        time.sleep(0.05)
        if (tmp_path / "out.json").exists():
            cases = json.loads((tmp_path / "out.json").read_text())["parts"][0]["cases"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    child = Path(f"/proc/{cases[0]['pid']}")
    while time.monotonic() < deadline and child.exists() and "zombie" not in (child / "status").read_text():
        time.sleep(0.05)
    assert not child.exists() or "zombie" in (child / "status").read_text()
    assert json.loads((tmp_path / "out.json").read_text())["parts"][0]["cases"] == cases


def trajectory(rounds=3, clients=((0, 1), (2, 3), (4, 5))):
    weights = np.cumsum(np.ones((rounds + 1, 4), np.float32), axis=0)
    return {"weights": weights, "cohorts": np.array(clients), "losses": np.ones(rounds, np.float32)}


def test_cohorts_and_weights_are_compared_as_long_as_cohorts_are_equal(accelerator):
    differences = accelerator("agreement").differences
    ours, theirs = trajectory(), trajectory(clients=((1, 0), (3, 2), (5, 4)))  # the order of a cohort says nothing
    ours["weights"][3] += 0.0003  # of the 3 that training changed
    assert differences(ours, theirs)["relative_error"] == pytest.approx(1e-4, rel=1e-2)
    ours["weights"][3] -= 0.0002
    ours["losses"][1] *= 1.5
    same = differences(ours, theirs)
    assert same["agrees"] and same["rounds_with_equal_cohorts"] == same["rounds"] == 3
    assert same["largest_relative_difference_of_a_loss"] == 0.5 and same["initial_weights_differ_by"] == 0
    ours["cohorts"][1] = (2, 7)
    other = differences(ours, theirs)
    assert not other["agrees"] and other["rounds_with_equal_cohorts"] == 1 and other["relative_error"] == 0
    ours = trajectory()
    ours["weights"][2, 0] = np.nan
    broken = differences(ours, theirs)
    assert not broken["agrees"] and broken["relative_error"] is None
    far = trajectory()
    far["weights"][3] += 0.003
    assert not differences(far, theirs)["agrees"]
    json.dumps([same, other, broken])


def test_runs_that_leave_other_bits_are_told_apart(accelerator, tmp_path):
    def leave(out, accuracy, digest):
        place = out / "checkpoints" / "round-00000004"
        place.mkdir(parents=True)
        (place / "manifest.json").write_text(json.dumps({"rounds": 4, "arrays": {"params/w": digest}}))
        (out / "metrics.csv").write_text(f"round,test_accuracy,elapsed_seconds\n1,{accuracy},{time.monotonic()}\n")
        (out / "cohorts.npy").write_bytes(b"cohorts")

    def launch(children):
        for name, child in children.items():
            leave(Path(child.settings["out"]) if name != "resumed" else tmp_path / "unused", 0.5, digests[name])
            yield name, {"done": True}

    resume = accelerator("resume")
    digests = {"whole": "a", "killed": "a", "resumed": "a"}
    (same,) = resume.judge(launch, "afl, mlp", True, True)
    assert same == {"rounds": 4, "killed_after_rounds": 4, "equal": True, "differ": []}
    digests["killed"] = "b"
    (tmp_path / "unused").rename(tmp_path / "before")
    (other,) = resume.judge(launch, "afl, mlp", True, False)
    assert not other["equal"] and other["differ"] == ["state params/w"]
    assert "same bits" in resume.describe(same) and "NOT THE SAME" in resume.describe(other)


def run_command(out, *arguments):
    # without what an installed package or the tests would add: a checkout alone must do
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    start = [sys.executable, str(COMMAND), "--out", str(out), *arguments]
    done = subprocess.run(start, cwd=out.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    assert not re.search(r"/(work|tmp|home|root|Users)/", text) and str(out.parent) not in text
    return json.loads(text), done.stdout


@pytest.mark.slow
def test_the_command_writes_a_file_that_says_how_it_was_made(tmp_path):
    report, printed = run_command(tmp_path / "here.json", "--minutes", "4", "--parts", "selection")
    assert report["command"] == "python benchmarks/accelerator.py --out here.json --minutes 4 --parts selection"
    assert report["small"] and report["minutes"] == 4.0 and report["seconds"] > 0
    assert set(report) >= {"commit", "date"}
    machine = report["machine"]
    assert machine["platform"] == "cpu" and machine["versions"]["jax"] and machine["python"] and machine["devices"]
    (part,) = report["parts"]
    assert [case["what"] for case in part["cases"]] == ["fit", "sample", "eigh"]
    for case in part["cases"]:
        assert case["compile_seconds"] >= 0 and case["program_megabytes"] >= 0
        assert case["milliseconds"]["p10"] <= case["milliseconds"]["median"] <= case["milliseconds"]["p90"]
        assert case["milliseconds"]["samples"] >= 3
    assert re.search(r"\[ *\d+ of 240 s\] selection, .*: fit, 20 clients, 2 seeds: [\d.]+ ms", printed)
    assert not any("tensorflow" in line for line in printed.splitlines())


@pytest.mark.slow
def test_everything_in_small(tmp_path):
    report, _ = run_command(tmp_path / "here.json", "--minutes", "12")
    cases = {part["name"]: part["cases"] for part in report["parts"]}
    failed = [run for part in report["parts"] for run in part["runs"] if "error" in run or "not_begun" in run]
    assert not [run for run in failed if "does not support" not in run.get("error", "")]
    assert not [case for part in cases.values() for case in part if "error" in case or "not_begun" in case]
    assert [case["agrees"] for case in cases["agreement"]] == [True]
    assert [case["equal"] for case in cases["resume"]] == [True]
    assert cases["resume"][0]["killed_after_rounds"] < cases["resume"][0]["rounds"]
    assert {(case["precision"], case["seeds"]) for case in cases["rounds"]} >= {("float32", 1), ("bfloat16", 2)}
    for case in cases["rounds"] + cases["graphs"]:
        assert case["seed_rounds_per_second"]["median"] > 0 and case["share_of_ceiling"] > 0
    assert {case["form"] for case in cases["convolutions"]} == {
        "winograd", "patches", "xla", "grouped NHWC", "grouped NCHW",
    }  # fmt: skip
    assert [case.get("unroll") for case in cases["graphs"]] == [2, None]


def test_every_part_has_its_cases_in_full(accelerator):
    """What a GPU would be asked to do: nothing is missing of what the parts promise, and nothing has a twin."""
    names = ["random", "fedcor"]
    speed, variants = accelerator("speed"), accelerator("variants")
    parts = [
        accelerator("agreement").part(False, names), accelerator("resume").part(False, True), speed.part(False, False),
        accelerator("convolving").part(False), accelerator("selecting").part(False), variants.graphs(False),
        variants.compilation(False), accelerator("papers").part(False, Path("pages"), Path("data")),
    ]  # fmt: skip
    for part in parts:
        labels = [case.name for case in part.cases]
        assert len(set(labels)) == len(labels) and any(case.tier == 1 for case in part.cases) != (part.name == "papers")
    rounds = " ".join(case.name for case in parts[2].cases)
    for preset in speed.PRESETS:
        for precision in ("float32", "tf32", "bfloat16"):
            assert f"{preset} {precision}, 1 and 64 seeds" in rounds
    assert "tf32" not in " ".join(case.name for case in speed.part(False, True).cases)
    flags = {flag for part in parts for case in part.cases for flag in case.flags}
    assert {"--xla_gpu_graph_min_graph_size=1", "--xla_gpu_experimental_enable_fusion_autotuner=false"} <= flags
