"""Bitwise reproducibility of a --deterministic run that is killed and resumed.

Three processes: one runs to the end, one is killed (SIGKILL) right after a checkpoint, one resumes the killed run. They
share no compiled programs, so each autotunes its operations itself. The first two share a CPU or a GPU.
"""

import csv
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from on_accelerator.children import Child
from on_accelerator.day import Case, Launch, Part

_DATA = "synthetic:train_size={size},test_size=500,num_classes=10,image_size={side}"
_COMMON = {
    "deterministic": True,
    "rounds": 12,
    "chunk": 2,
    "checkpoint_every": 4,
    "seeds": 2,
    "keep": 9,
    "num_clients": 20,
}
_FITS = {"warmup": 3, "interval": 3, "warmup_steps": 20, "steps": 10}
_TINY = {"batch_size": 5, "local_epochs": 1, "model_dropout": 0.0, "mesh": "seeds=1,clients=1"}
_SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # by default, one process reserves most GPU memory
_RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedcor, mlp": ("fedcor/fmnist-2spc", {"algo": "fedcor", "algo_args": _FITS}),
    "divfl, cnn_small": ("fl_dp3s/mnist-xi1", {"algo": "divfl"}),
    "afl, mlp": ("fedcor/fmnist-2spc", {"algo": "afl"}),
}


def part(small: bool, shared: bool) -> Part:
    """Return the part: FedCor, which fits a Gaussian process, and DivFL, which compares a CNN's updates.

    Args:
        small: whether the runs are tiny.
        shared: whether two processes can use the device at once.
    """

    def case(name: str, tier: int) -> Case:
        starts = 2 if shared else 3
        return Case(
            name, starts * (5 if small else 15), lambda launch: judge(launch, name, small, shared), tier, starts
        )

    cases = [case("afl, mlp", 1)] if small else [case("fedcor, mlp", 1), case("divfl, cnn_small", 2)]
    return Part("resume", "--deterministic: a killed and resumed run gives the same bits", cases, describe)


def describe(record: dict[str, Any]) -> str:
    """Format a record in one line."""
    if record["equal"]:
        return f"the same bits after {record['killed_after_rounds']} of {record['rounds']} rounds and a kill"
    return f"NOT THE SAME: {', '.join(record['differ'])}"


def judge(launch: Launch, name: str, small: bool, shared: bool) -> Iterator[dict[str, Any]]:
    """Run the three processes and yield whether what they leave is equal."""
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"

        def process(out: Path, dies: bool) -> Child:
            settings = {"name": name, "small": small, "out": str(out), "dies": dies}
            return Child("on_accelerator.resume:run_once", settings, _SHARED, kills_itself=dies)

        first = {"whole": process(whole, False), "killed": process(killed, True)}
        for together in [first] if shared else [{key: child} for key, child in first.items()]:
            list(launch(together))
        survived = rounds_saved(killed)
        list(launch({"resumed": process(killed, False)}))
        one, other = left_by(whole), left_by(killed)
        differ = sorted(key for key in one | other if one.get(key) != other.get(key))
        yield {"rounds": rounds_saved(whole), "killed_after_rounds": survived, "equal": not differ, "differ": differ}


def rounds_saved(out: Path) -> int:
    """Return the newest checkpoint's number of rounds."""
    return json.loads(_manifest(out).read_text())["rounds"]


def left_by(out: Path) -> dict[str, Any]:
    """Return a run's reproducible outputs by name: metrics without times, cohorts, digests of the state's arrays.

    Args:
        out: a run's folder.
    """
    with (out / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {name: [row[name] for row in rows] for name in rows[0] if not name.endswith("_seconds")}
    arrays = json.loads(_manifest(out).read_text())["arrays"]
    return (
        columns | {"cohorts": (out / "cohorts.npy").read_bytes()} | {f"state {name}": arrays[name] for name in arrays}
    )


def _manifest(out: Path) -> Path:
    return max((out / "checkpoints").glob("round-*")) / "manifest.json"


def run_once(seconds: float, name: str, small: bool, out: str, dies: bool) -> Iterator[dict[str, Any]]:
    """Run in a folder; if `dies`, kill this process after the second checkpoint (in a child process)."""
    del seconds
    import fedjax_sel
    from fedjax_sel.runs import checkpoint

    if dies:
        save, saved = checkpoint.save, []

        def save_and_die(*arguments: Any) -> Path:
            saved.append(save(*arguments))
            if len(saved) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return saved[-1]

        checkpoint.save = save_and_die
    preset, own = _RUNS[name]
    data = _DATA.format(size=200 if small else 4000, side=8 if small else 28)
    config = fedjax_sel.preset(preset).replace(**_COMMON, **own, dataset=data, out=out)
    fedjax_sel.run(config.replace(**_TINY) if small else config)
    yield {"done": True}
