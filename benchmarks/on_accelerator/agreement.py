"""Agreement of the accelerator's cohorts and weights with the CPU's, round by round, for every strategy.

Both run the same small experiment in float32 on one device each. Cohorts must be equal. Weights are compared up to the
first different cohort, by |difference| / |weights - initial weights|, the error relative to the change by training.
"""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from on_accelerator.children import Child, described
from on_accelerator.day import Case, Launch, Part

TOLERANCE = 1e-4  # maximum relative error after the last round; rounding gives 1e-6, TF32 more than 1e-4
AT_ONCE = 4  # concurrent compilations: in threads for the accelerator, in processes for the CPU

_FITS = {"warmup": 2, "interval": 3, "warmup_steps": 20, "steps": 10}
_DATA = "synthetic:train_size={0},test_size=500,num_classes=10,image_size={1},channels={2}"
_FULL = {"preset": "fedcor/fmnist-2spc", "num_clients": 50, "rounds": 8, "data": (6000, 28, 1)}
_SMALL = {"preset": "quickstart", "num_clients": 10, "rounds": 2, "data": (300, 8, 1)}
_NETWORKS = {  # with random selection
    "cnn": {"preset": "fedcor/cifar10-2spc", "num_clients": 50, "rounds": 3, "data": (4000, 32, 3)},
    "cnn_small": {"preset": "fl_dp3s/mnist-xi1", "num_clients": 50, "rounds": 3, "data": (3000, 28, 1)},
}
_OWN: dict[str, dict[str, Any]] = {
    "fedgp": {"algo_args": _FITS},
    "fedcor": {"algo_args": _FITS},
    "gpfl": {"server_validation": 0.1},
    "tifl": {"timing": "tiers"},
    "fedcs": {"timing": "tiers"},
}


def part(small: bool, strategies: list[str]) -> Part:
    """Return the part: all strategies, and the two convolutional networks."""
    names = ["fl_dp3s"] if small else strategies
    cases = [Case("strategies", 8 if small else 90, lambda launch: compare(launch, names, small))]
    if not small:
        cases.append(Case("networks", 30, lambda launch: compare(launch, list(_NETWORKS), small), tier=2))
    return Part("agreement", "Cohorts and weights against the CPU's", cases, describe)


def describe(record: dict[str, Any]) -> str:
    """Format a record in one line."""
    error = record["relative_error"]
    return (
        f"{record['name']} {'agrees' if record['agrees'] else 'DOES NOT AGREE'}: equal cohorts in "
        f"{record['rounds_with_equal_cohorts']} of {record['rounds']} rounds, weights differ by "
        f"{'infinity' if error is None else f'{error:.1e}'} of the change by training"
    )


def compare(launch: Launch, names: list[str], small: bool) -> Iterator[dict[str, Any]]:
    """Run the experiments on both devices and yield a record of the differences per experiment.

    Args:
        launch: function that starts processes.
        names: the strategies or networks.
        small: whether the experiments are tiny.
    """
    at_once = 1 if small else AT_ONCE
    with tempfile.TemporaryDirectory() as folder:

        def child(side: str, own: list[str], threads: int, environment: dict[str, str]) -> Child:
            settings = {"names": own, "small": small, "threads": threads, "folder": f"{folder}/{side}"}
            return Child("on_accelerator.agreement:run_all", settings, environment)

        sides = {"accelerator": child("accelerator", names, at_once, {})}
        for number in range(min(at_once, len(names))):
            sides[f"cpu {number}"] = child("cpu", names[number::at_once], 1, {"JAX_PLATFORMS": "cpu"})
        said: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in names}
        for process, record in launch(sides):
            name, side = record["name"], process.split()[0]
            both = said[name]
            both[side] = record
            if len(both) < 2:
                continue
            errors = [f"{side}: {one['error']}" for side, one in both.items() if "error" in one]
            if errors:
                yield {"name": name, "error": "; ".join(errors)}
                continue
            ours, theirs = ({**np.load(f"{folder}/{side}/{name}.npz", allow_pickle=False)} for side in both)
            seconds = {f"seconds_{side}": one["seconds"] for side, one in both.items()}
            yield {"name": name, **differences(ours, theirs), **seconds}


def differences(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the differences between two runs, as plain values.

    Args:
        ours: cohorts int32 [T, K], test losses float32 [T] (nats), weights float32 [T + 1, P], initial ones first.
        theirs: the CPU's arrays, of the same form.
    """
    rounds = len(ours["cohorts"])
    same = (np.sort(ours["cohorts"]) == np.sort(theirs["cohorts"])).all(axis=1)
    equal = int(np.argmin(same)) if not same.all() else rounds
    last = max(equal, 1)  # weights depend on the round's cohort; the first round is always reported
    changed = np.linalg.norm(theirs["weights"][last] - theirs["weights"][0])
    gap = ours["weights"][: last + 1] - theirs["weights"][: last + 1]
    error = float(np.linalg.norm(gap[last]) / max(changed, np.finfo(np.float32).tiny))
    losses = np.abs(ours["losses"][:last] / theirs["losses"][:last] - 1)
    finite = bool(np.isfinite(gap).all() and np.isfinite(losses).all())
    return {
        "rounds": rounds,
        "rounds_with_equal_cohorts": equal,
        "relative_error": error if finite else None,
        "largest_difference_of_a_weight": float(np.abs(gap).max()) if finite else None,
        "largest_relative_difference_of_a_loss": float(losses.max()) if finite else None,
        "initial_weights_differ_by": float(np.abs(gap[0]).max()),
        "agrees": finite and equal == rounds and error <= TOLERANCE,
    }


def run_all(seconds: float, names: list[str], small: bool, threads: int, folder: str) -> Iterator[dict[str, Any]]:
    """Run each experiment on one device and save its cohorts, losses and weights (in a child process).

    Args:
        seconds: unused, because each experiment is short.
        names: the experiments' names.
        small: whether the experiments are tiny.
        threads: number of concurrent experiments.
        folder: the folder of the files.

    Yields:
        A name, with its run time in seconds or its error.
    """
    del seconds
    Path(folder).mkdir(exist_ok=True)
    with ThreadPoolExecutor(threads) as pool:
        running = {pool.submit(_run, name, small, folder): name for name in names}
        for done in as_completed(running):
            error = done.exception()
            found = {"seconds": done.result()} if error is None else {"error": described(error)}
            yield {"name": running[done]} | found


def _run(name: str, small: bool, folder: str) -> float:
    import time

    import jax

    import fedjax_sel
    from fedjax_sel.experiment.problem import pose
    from fedjax_sel.simulation import run

    begun = time.perf_counter()
    setting = _NETWORKS.get(name) or (_SMALL if small else _FULL)
    algo, own = ("random", {}) if name in _NETWORKS else (name, _OWN.get(name, {}))
    config = fedjax_sel.preset(setting["preset"]).replace(
        dataset=_DATA.format(*setting["data"]), num_clients=setting["num_clients"], rounds=setting["rounds"], chunk=1,
        train_metrics_every=0, seeds=1, algo=algo, mesh="seeds=1,clients=1", **own,
    )  # fmt: skip
    program = run.prepare(pose(config))
    weights, cohorts, losses = [_flat(program.carry.params)], [], []
    for chunk in run.chunks(program):
        weights.append(_flat(chunk.copy(lambda carry: carry).params))
        records = jax.device_get(chunk.records)
        cohorts.append(records.cohort[0, 0])
        losses.append(records.measured["test_loss"][0, 0])
    np.savez(f"{folder}/{name}.npz", weights=np.stack(weights), cohorts=np.stack(cohorts), losses=np.array(losses))
    return round(time.perf_counter() - begun, 1)


def _flat(params: Any) -> np.ndarray:
    import jax

    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.device_get(params))])
