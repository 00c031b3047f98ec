"""Real processes, killed at seeded moments and started again, end with the bytes of one that was never interrupted."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import strategies
from fedjax_sel.runs import checkpoint

SMALL = fedjax_sel.preset("quickstart").replace(
    dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12, num_selected=3,
    local_epochs=1, rounds=23, chunk=2, seeds=2, checkpoint_every=4, train_metrics_every=5,
)  # fmt: skip
ARGUMENTS = {"fedcor": {"warmup": 4, "interval": 3, "warmup_steps": 3, "steps": 2}}
EXTRA = {"gpfl": {"server_validation": 0.2}, "tifl": {"timing": "tiers"}, "fedcs": {"timing": "tiers"}}

CHILD = """
import json, os, signal, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)  # as in the tests: the same programs
import fedjax_sel
from fedjax_sel.runs import checkpoint, experiment as writer

place, number = sys.argv[1], int(sys.argv[2])
count = 0

def die_here():
    global count
    count += 1
    if count == number:
        os.kill(os.getpid(), signal.SIGKILL)

def before(owner, name):
    real = getattr(owner, name)
    def wrapped(*arguments, **options):
        die_here()
        return real(*arguments, **options)
    setattr(owner, name, wrapped)

if place == "half a row":
    real_text = writer.run_files.csv_text
    def half(*arguments, **options):
        global count
        count += 1
        text = real_text(*arguments, **options)
        if count == number:
            with open(os.path.join(sys.argv[3], "metrics.csv"), "a") as file:
                file.write(text[: len(text) // 2 + 3])
            os.kill(os.getpid(), signal.SIGKILL)
        return text
    writer.run_files.csv_text = half
elif place == "before the data":
    before(checkpoint, "_write_arrays")
elif place == "between data and manifest":
    before(checkpoint, "_write_manifest")
elif place == "before the rename":
    before(checkpoint, "_commit")
elif place == "after the save":
    real_save = checkpoint.save
    def save(*arguments):
        real_save(*arguments)
        die_here()
    checkpoint.save = save
elif place == "before the cohorts":
    before(writer.folder, "write_array")
elif place == "before the result":
    before(writer.Writer, "_seal")

print("ready", flush=True)
config = fedjax_sel.Config.from_json(json.load(sys.stdin)).replace(out=sys.argv[3])
fedjax_sel.run(config)
"""
PLACES = (
    "half a row", "before the data", "between data and manifest", "before the rename", "after the save",
    "before the cohorts", "before the result", "any moment",
)  # fmt: skip


def config_of(algo):
    return SMALL.replace(algo=algo, algo_args=ARGUMENTS.get(algo, {}), **EXTRA.get(algo, {}))


def killed(config, out, place, number):
    """Starts a process that dies at the given place, if it comes there; whether it did."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, place, str(number), str(out)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdin.write(json.dumps(config.to_json()))
    process.stdin.close()
    if place == "any moment":
        known = newest(out)
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:  # once it has saved
            if newest(out) != known:
                break
            time.sleep(0.002)
        time.sleep(0.003 * number)
        process.kill()
    assert process.wait(timeout=300) in (0, -signal.SIGKILL), process.stderr.read()
    return process.returncode != 0


def newest(out):
    return next(iter(checkpoint.list_all(out / "checkpoints")), None)


def left(out: Path):
    """What must be equal: rows without clocks, cohorts, and the state's digests."""
    with (out / "metrics.csv").open() as file:
        rows = [
            {name: cell for name, cell in row.items() if not name.endswith("_seconds")} for row in csv.DictReader(file)
        ]
    manifest = json.loads((newest(out) / "manifest.json").read_text())
    return rows, (out / "cohorts.npy").read_bytes(), manifest["rounds"], manifest["arrays"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo,place,number",
    [
        ("fl_dp3s", "half a row", 6),
        ("afl", "between data and manifest", 3),
        ("random", "before the result", 6),  # after the last checkpoint
        ("oort", "any moment", 4),
        ("divfl", "after the save", 3),  # asynchronous
    ],
)
def test_a_killed_run_ends_like_one_that_was_not(algo, place, number, tmp_path):
    more = {
        "any moment": {"rounds": 103, "checkpoint_every": 20},
        "between data and manifest": {"rounds": 24},
        "after the save": {"timing": "tiers", "concurrency": 9, "available": "daily", "availability_seconds": 0.5},
    }
    config = config_of(algo).replace(**more.get(place, {}))  # with and without a short last chunk
    whole = fedjax_sel.run(config.replace(out=str(tmp_path / "whole")))
    out = tmp_path / "killed"
    assert killed(config, out, place, number)
    assert newest(out) is not None, "it died before there was anything to lose"
    result = fedjax_sel.run(config.replace(out=str(out), resume="must"))
    assert left(out) == left(tmp_path / "whole")
    for name in ("test_accuracy", "test_loss", "train_loss", "gemd", "cohorts"):
        np.testing.assert_array_equal(getattr(result, name), getattr(whole, name))
    assert not [path for path in out.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.slow
@pytest.mark.parametrize("algo", strategies.TABLE)
def test_twenty_kills_of_every_strategy(algo, tmp_path):
    config = config_of(algo).replace(rounds=403)
    fedjax_sel.run(config.replace(out=str(tmp_path / "whole")))
    draw = random.Random(algo)
    kills = 0
    while kills < 20:
        place, number = PLACES[kills % len(PLACES)], draw.randint(1, 4)
        out = tmp_path / "killed"
        kills += killed(config, out, place, number)
    fedjax_sel.run(config.replace(out=str(out)))
    assert left(out) == left(tmp_path / "whole"), f"seed {algo!r}"


@pytest.mark.slow
def test_a_signal_saves_and_the_next_start_goes_on(tmp_path):
    """SIGTERM, which schedulers send: exit code 0, and the same command goes on."""
    out = tmp_path / "run"
    arguments = [
        "--algo", "random", "--dataset", SMALL.data.dataset, "--num-clients", "12", "--num-selected", "3",
        "--rounds", "100000", "--chunk", "5", "--out", str(out),
    ]  # fmt: skip
    start = [sys.executable, "-m", "fedjax_sel.train", *arguments]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (out / "metrics.csv").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    printed, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    rounds = len((out / "metrics.csv").read_text().splitlines()) - 1
    assert "the same command resumes from there" in printed.replace("\n", " ") and rounds % 5 == 0
    assert checkpoint.read(newest(out))[0]["rounds"] == rounds
    environment = os.environ | {"COLUMNS": "300"}
    again = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while time.monotonic() < deadline and len((out / "metrics.csv").read_text().splitlines()) - 1 <= rounds:
        time.sleep(0.05)
    again.send_signal(signal.SIGINT)
    _, error = again.communicate(timeout=60)
    assert again.returncode == 130 and f"resuming after round {rounds}" in error
