"""Runs followed in other tools: the numbers of here, a run there for a run here, a sentence where a tool is missing."""

import importlib
import importlib.util
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, logs
from fedjax_sel.cli import command_line, compare, train
from fedjax_sel.logs import steps

REPOSITORY = Path(fedjax_sel.__file__).parents[1]
SMALL = fedjax_sel.preset("quickstart").replace(
    rounds=4, chunk=1, num_clients=10, num_selected=2, seeds=(3, 1), algo="random", checkpoint_every=1
)


@pytest.fixture(autouse=True)
def _at_home(tmp_path, monkeypatch):
    """Nothing leaves this machine, and nothing is left on it."""
    for name, value in {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": None,
        "WANDB_CACHE_DIR": str(tmp_path / "cache"), "WANDB_CONFIG_DIR": str(tmp_path / "config"),
        "WANDB_DATA_DIR": str(tmp_path / "data"), "WANDB_PROJECT": None, "WANDB_ERROR_REPORTING": "false",
    }.items():  # fmt: skip
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)


class Kept(logs.Log):
    """A tool of one's own, with what the page asks for: it forgets nothing, and does not answer in one round."""

    silent_in: int | None = None

    def begin(self, config, before):
        self.steps = [] if before is None else self.steps
        return "one"

    def write(self, found):
        if any(step == self.silent_in for step, _ in found):
            self.silent_in = None
            raise RuntimeError("the tool does not answer")
        self.steps += found

    def finish(self, finished):
        pass


@pytest.mark.slow
def test_rounds_that_were_not_written_there_are_written_when_a_run_goes_on(tmp_path):
    out, tool = tmp_path / "run", Kept(tmp_path / "run-log")
    tool.silent_in = 3
    with pytest.raises(RuntimeError, match="does not answer"):
        fedjax_sel.run(SMALL, out=str(out), callbacks=tool)
    result = fedjax_sel.run(SMALL, out=str(out), callbacks=tool)
    assert [step for step, _ in tool.steps] == [1, 2, 3, 4]
    assert [values["gemd/seed_3"] for _, values in tool.steps] == [pytest.approx(one) for one in result.gemd[0]]
    late = Kept(tmp_path / "late")  # of a run that has its rounds behind it
    fedjax_sel.run(SMALL.replace(rounds=5), out=str(out), callbacks=late)
    assert [step for step, _ in late.steps] == [1, 2, 3, 4, 5]


class StopOnce:
    def chunk(self, rounds, first):
        return first == 0


def made_up(accuracy, seconds):
    shape = np.shape(accuracy)
    ledger = types.SimpleNamespace(bytes_down=np.full(shape, 2_000_000), bytes_up=np.full(shape, 1_000_000))
    return types.SimpleNamespace(
        measured={"test_accuracy": np.asarray(accuracy, np.float32)}, seeds=(3, 1), num_rounds=shape[1], ledger=ledger,
        round_seconds=np.asarray(seconds),
    )  # fmt: skip


def test_what_is_written_of_a_round():
    found = steps(made_up([[0.5, np.nan], [0.25, 0.125]], [np.nan, 2.0]), first=10)
    moved = {f"megabytes_{way}/{who}": size for way, size in (("down", 2.0), ("up", 1.0))
             for who in ("seed_3", "seed_1", "mean")}  # fmt: skip
    assert found == [
        (11, {"test_accuracy/seed_3": 0.5, "test_accuracy/seed_1": 0.25, "test_accuracy/mean": 0.375, **moved}),
        (12, {"test_accuracy/seed_1": 0.125, **moved, "round_seconds": 2.0}),
    ]


@pytest.mark.parametrize("name", logs.NAMES)
def test_a_missing_package_is_one_sentence_before_anything_runs(name, monkeypatch, tmp_path, capsys):
    real = importlib.import_module
    package = {"tensorboard": "tensorboardX"}.get(name, name)

    def without(module, *rest):
        if module == package:
            raise ImportError(module)
        return real(module, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    said = f'--log {name}: the package {package} is missing; pip install "fedjax-sel[{name}]", or leave --log out\n'
    for main, arguments in ((train.main, []), (compare.main, ["--algos", "random"])):
        out = tmp_path / "run"
        assert command_line.guarded(main, [*arguments, "--log", name, "--out", str(out)]) == 2
        assert capsys.readouterr() == ("", f"error: {said}") and not out.exists()
    with pytest.raises(UserError, match=re.escape(said.strip())):
        logs.NAMES[name](str(tmp_path / "log"))


def test_a_tool_that_is_not_there_is_one_sentence(capsys):
    assert command_line.guarded(train.main, ["--log", "wandbb"]) == 2
    error = capsys.readouterr().err
    assert "--log" in error and "wandbb" in error and "tensorboard" in error and error.count("\n") == 1


@pytest.mark.slow
def test_no_tool_is_imported_before_it_is_asked_for():
    code = "import sys, fedjax_sel.logs, fedjax_sel.callbacks, fedjax_sel.cli.train as t; t.make_parser()\n"
    code += "print({'wandb', 'tensorboardX'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout == "set()\n", done.stderr


def wandb_runs(folder):
    """Of offline runs: identity -> {curve: {round: value}}."""
    from wandb.proto import wandb_internal_pb2

    found = {}
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        curves = found.setdefault(file.stem.removeprefix("run-"), {})
        for data in leveldb_records(file.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                step = json.loads(items["_step"])
                for name, text in items.items():
                    curves.setdefault(name, {})[step] = json.loads(text)
    return found


def leveldb_records(content, block=2**15, magic=7):
    """The records of a log in LevelDB's format, as Weights & Biases writes it behind seven bytes of its own."""
    place, whole = magic, b""
    while place < len(content):
        if block - place % block < 7:  # no room for a header: the rest of a block is empty
            place += block - place % block
            continue
        size, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def tensorboard_runs(folder):
    from tensorboardX.proto import event_pb2

    curves = {}
    for file in sorted(folder.glob("events.*")):
        content, place = file.read_bytes(), 0
        while place < len(content):
            size = int.from_bytes(content[place : place + 8], "little")
            event = event_pb2.Event.FromString(content[place + 12 : place + 12 + size])
            place += 12 + size + 4
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    curves.setdefault(value.tag, {})[event.step] = value.simple_value
    return {"one": curves}


READ = {"wandb": wandb_runs, "tensorboard": tensorboard_runs}
PACKAGES = {"tensorboard": "tensorboardX"}


@pytest.mark.parametrize("name", logs.NAMES)
@pytest.mark.slow
def test_a_run_that_is_interrupted_is_one_run_there_with_the_numbers_of_here(name, tmp_path):
    pytest.importorskip(PACKAGES.get(name, name))
    out = tmp_path / "run"
    first = fedjax_sel.run(SMALL, out=str(out), callbacks=[*logs.make([name], out), StopOnce()])
    assert first.num_rounds == 2
    result = fedjax_sel.run(SMALL, out=str(out), callbacks=logs.make([name], out))
    assert result.finished
    runs = READ[name](tmp_path / "run-log")
    (curves,) = runs.values()
    for measure in ("test_accuracy", "test_loss", "gemd"):
        for place, seed in enumerate((3, 1)):
            values = {step: pytest.approx(value) for step, value in enumerate(result.measured[measure][place], 1)}
            assert curves[f"{measure}/seed_{seed}"] == values
        mean = result.measured[measure].mean(axis=0)
        assert curves[f"{measure}/mean"] == {step: pytest.approx(value, rel=1e-5) for step, value in enumerate(mean, 1)}
    moved = result.ledger.bytes_up / 1e6
    assert curves["megabytes_up/seed_1"] == {step: pytest.approx(value) for step, value in enumerate(moved[1], 1)}


@pytest.mark.parametrize("name", logs.NAMES)
def test_a_run_after_one_that_failed_is_another_run_there(name, tmp_path):
    pytest.importorskip(PACKAGES.get(name, name))

    class Fails:
        def chunk(self, rounds, first):
            raise RuntimeError("disk of my own is full")

    one, other = tmp_path / "one", tmp_path / "other"
    with pytest.raises(RuntimeError, match="disk of my own"):
        fedjax_sel.run(SMALL, out=str(one), callbacks=[*logs.make([name], one), Fails()])
    result = fedjax_sel.run(SMALL, out=str(other), callbacks=logs.make([name], other))
    curves = [run.get("test_loss/mean", {}) for run in READ[name](tmp_path / "other-log").values()]
    wanted = {step: pytest.approx(value, rel=1e-5) for step, value in enumerate(result.test_loss.mean(axis=0), 1)}
    assert wanted in curves and all(len(curve) <= 1 for curve in curves if curve != wanted)


@pytest.mark.parametrize("name", [name for name in logs.NAMES if name != "tensorboard"])
def test_a_run_that_is_made_anew_is_another_run_there(name, tmp_path):
    pytest.importorskip(PACKAGES.get(name, name))
    out = tmp_path / "anew"
    for resume in ("auto", "never"):
        fedjax_sel.run(SMALL.replace(resume=resume, rounds=1), out=str(out), callbacks=logs.make([name], out))
    assert len(READ[name](tmp_path / "anew-log")) == 2


@pytest.mark.slow
def test_the_commands_follow_runs_in_several_tools(tmp_path, monkeypatch, capsys):
    names = [name for name in logs.NAMES if importlib.util.find_spec(PACKAGES.get(name, name))]
    if not names:
        pytest.skip("no logging tool is installed")
    monkeypatch.chdir(tmp_path)
    quick = ["--rounds", "2", "--num-clients", "10", "--num-selected", "2", "--log", *names, names[0]]
    assert command_line.guarded(train.main, [*quick, "--out", "runs/one"]) == 0
    assert command_line.guarded(compare.main, [*quick, "--algos", "random", "afl", "--out", "runs/two"]) == 0
    for name in names:
        for folder in ("runs/one-log", "runs/two/random-log", "runs/two/afl-log"):
            assert len(READ[name](tmp_path / folder)) == 1, (name, folder)
    capsys.readouterr()


def test_weights_and_biases_without_a_login_is_one_sentence(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")

    def refuse(**_):
        raise wandb.errors.UsageError("No API key configured. Use `wandb login` to log in.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(UserError, match=r"--log wandb: Weights & Biases does not start \(No API key") as caught:
        fedjax_sel.run(SMALL, callbacks=[logs.WandB(tmp_path / "log")])
    assert "\n" not in str(caught.value) and "WANDB_MODE=offline" in str(caught.value)
