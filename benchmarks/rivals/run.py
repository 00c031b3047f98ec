"""The speed of fedjax_sel and its rivals on the same work, measured alternately; see README.md for the method.

python benchmarks/rivals/install.py
python benchmarks/rivals/run.py                                  writes results/rivals.json
python benchmarks/rivals/run.py --settings fmnist_mlp --rivals torch_loop pfl --repeats 1 --rounds 20
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import install
import ours
from settings import EXACT, RIVALS, SETTINGS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
import reports  # noqa: E402

EXACT_TOLERANCE = 0.01  # of test losses in the deterministic variant, relative to the change by training
ACCURACY_TOLERANCE = 0.01  # of accuracies, in addition to three standard errors
Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(flag: str, table: dict, nargs: str) -> None:
        parser.add_argument(
            flag,
            nargs=nargs,
            default=list(table),
            choices=table,
            metavar="NAME",
            help=f"choose from {', '.join(table)}",
        )

    names("--settings", SETTINGS, "+")
    names("--rivals", RIVALS, "*")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs per rival (default: 3)")
    parser.add_argument("--rounds", type=int, metavar="N", help="timed rounds (default: the setting's)")
    parser.add_argument("--together", type=int, default=5, metavar="N", help="seeds of ours in the multi-seed run")
    parser.add_argument("--synthetic", action="store_true", help="use synthetic images of the data sets' shapes")
    parser.add_argument("--dir", type=Path, default=install.DEFAULT_FOLDER, help="folder of the environments")
    parser.add_argument("--out", type=Path, default=Path("results/rivals.json"), help="JSON file to write")
    arguments = parser.parse_args()
    places = {
        str(arguments.dir): None,
        str(arguments.out): f"results/{arguments.out.name}",
    }  # reports contain no local paths
    recorded = [place for argument in sys.argv[1:] if (place := places.get(argument, argument)) is not None]
    report = reports.head([one for one in recorded if one != "--dir"]) | {
        "load_before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,  # load by other processes
        "settings": {},
    }
    for name in arguments.settings:
        print(f"{name}: {SETTINGS[name]['about']}", flush=True)
        report["settings"][name] = compare(setting(name, arguments), arguments)
        reports.write(arguments.out, report)


def setting(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return a setting with the command line's changes."""
    chosen = SETTINGS[name] | ({} if arguments.rounds is None else {"rounds": arguments.rounds})
    if chosen["rounds"] % chosen["chunk"]:
        sys.exit(f"--rounds: {chosen['rounds']} is not a multiple of the chunk length of {name}, {chosen['chunk']}")
    if arguments.synthetic:
        from synthetic import like

        chosen["config"] = chosen["config"] | {"dataset": like(ours.config_of(chosen).data.dataset, 50_000)}
    return chosen


def compare(setting: dict[str, Any], arguments: argparse.Namespace) -> Result:
    """Run all measurements of one setting."""
    seeds = arguments.together
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "data.npz")
        spec = specification(setting, data)
        size = int(start(sys.executable, "export.py", spec).split()[-1])
        known = [name for name in arguments.rivals if name in setting.get("rivals", RIVALS)]
        rivals = same_model(specification(exact(setting, size), data), known, arguments)
        able = [name for name in rivals if rivals[name].get("same_model")]
        runs, failed = turns(spec, able, arguments)
    answer: Result = {"about": setting["about"], "work": public(spec), "ours": summary(runs["ours"], spec["rounds"])}
    if seeds > 1:
        answer[f"ours_{seeds}_seeds"] = summary(runs["together"], spec["rounds"] * seeds)
    for name, why in failed.items():
        rivals[name]["failed"] = why
        print(f"  {name}: {rivals[name]}", flush=True)
    for name in (name for name in able if name not in failed):
        rivals[name] |= summary(runs[name], spec["rounds"]) | judgment(name, runs, seeds)
        print(f"  {name}: {line(rivals[name])}", flush=True)
    print(f"  ours: {answer['ours']['rounds_per_second']} rounds/s", flush=True)
    return answer | {"rivals": rivals}


def exact(setting: dict[str, Any], size: int) -> dict[str, Any]:
    """Return a setting's deterministic variant; its clients hold `size` examples."""
    config = setting["config"] | EXACT["config"] | {"batch_size": size}
    return setting | EXACT | {"config": config}


def specification(setting: dict[str, Any], data: str) -> dict[str, Any]:
    """Return the runners' input: the setting, with the local-training numbers of its configuration."""
    config = ours.config_of(setting).flat()
    numbers = ("local_steps", "batch_size", "learning_rate", "weight_decay", "num_selected")
    return setting | {name: config[name] for name in numbers} | {"dropout": config["model_dropout"], "data": data}


def same_model(spec: dict[str, Any], rivals: list[str], arguments: argparse.Namespace) -> dict[str, Result]:
    """Return which rivals are installed and reach our model in the deterministic variant."""
    own = measure("ours", spec | {"also_before": True}, arguments)
    change = abs(own["loss"] - own["loss_before"])
    answers: dict[str, Result] = {}
    for name in rivals:
        if not Path(install.python_of(arguments.dir / RIVALS[name]["venv"])).exists():
            answers[name] = {"not_installed": f"python benchmarks/rivals/install.py --only {RIVALS[name]['venv']}"}
        else:
            try:
                difference = abs(measure(name, spec, arguments)["loss"] - own["loss"]) / change
                answers[name] = {"exact_difference": round(difference, 6), "same_model": difference <= EXACT_TOLERANCE}
            except RuntimeError as error:
                answers[name] = {"failed": str(error)}
        print(f"  {name}: {answers[name]}", flush=True)
    return answers


def turns(
    spec: dict[str, Any], rivals: list[str], arguments: argparse.Namespace
) -> tuple[dict[str, list[Result]], dict[str, str]]:
    """Run ours, a rival, ours, the next rival, ..., ours, `--repeats` times; every run has its own seed.

    Our multi-seed run uses the same seeds in every repeat.

    Returns:
        The runs, and the errors of failed rivals, which get no further turns.
    """
    runs: dict[str, list[Result]] = {name: [] for name in ("ours", "together", *rivals)}
    failed: dict[str, str] = {}

    def go(name: str, key: str, **changes: Any) -> None:
        seed = sum(map(len, runs.values()))
        runs[key].append(measure(name, spec | {"seed": seed} | changes, arguments))

    for _ in range(arguments.repeats):
        if arguments.together > 1:
            go("ours", "together", seeds=arguments.together)
        go("ours", "ours")
        for name in rivals:
            if name not in failed:
                try:
                    go(name, name)
                except RuntimeError as error:
                    failed[name] = str(error)
            go("ours", "ours")  # even without the rival: `compared` finds adjacent runs by their position
    return runs, failed


def measure(name: str, spec: dict[str, Any], arguments: argparse.Namespace) -> Result:
    """Run ours or a rival in one process.

    Raises:
        RuntimeError: If the process fails; the message is its last line of stderr.
    """
    if name == "ours":
        output = start(sys.executable, "ours.py", spec)
    else:
        rival = RIVALS[name]
        python = install.python_of(arguments.dir / rival["venv"])
        output = start(python, rival["runner"], spec | rival.get("options", {}))
    return json.loads(output.strip().splitlines()[-1])


def start(python: str, script: str, spec: dict[str, Any]) -> str:
    """Run a script of this folder on a specification, and return its output."""
    argument = json.dumps({"seed": 0} | spec | {"launched": time.time()})
    plain = os.environ | {"JAX_TRACEBACK_FILTERING": "off"}  # otherwise the last line of stderr is not the error
    done = subprocess.run(
        [python, str(HERE / script), argument], capture_output=True, text=True, check=False, env=plain
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout


def summary(runs: list[Result], rounds: int) -> Result:
    """Return medians over the runs, and each run's seconds, accuracy and loss."""
    every = {name: [run[name] for run in runs] for name in ("seconds", "startup_seconds", "accuracy", "loss")}
    answer: Result = {
        "rounds_per_second": round(rounds / median(every["seconds"]), 3),
        "startup_seconds": round(median(every["startup_seconds"]), 2),
        "accuracy": round(mean(every["accuracy"]), 4),
        "loss": round(mean(every["loss"]), 4),
        "versions": runs[0]["versions"],
        "runs": [{name: round(run[name], 4) for name in every} for run in runs],
    }
    if "compile_seconds" in runs[0]:
        answer["compile_seconds"] = median(run["compile_seconds"] for run in runs)
    return answer


def judgment(name: str, runs: dict[str, list[Result]], seeds: int) -> Result:
    """Return a rival's seconds over ours, and whether the final accuracies agree."""
    seconds = {key: [run["seconds"] for run in runs[key]] for key in runs}
    place = list(runs).index(name) - 2  # index among the rivals; ours ran directly before and after it
    a_turn = len(runs) - 1  # our runs per repeat
    beside = [mean(seconds["ours"][i * a_turn + place :][:2]) for i in range(len(runs[name]))]
    ratios = [theirs / own for theirs, own in zip(seconds[name], beside)]
    answer: Result = {"ratio": round(median(ratios), 2), "ratios": [round(ratio, 2) for ratio in ratios]}
    if seeds > 1:
        answer[f"ratio_{seeds}_seeds"] = round(
            median(theirs * seeds / own for theirs, own in zip(seconds[name], seconds["together"])), 2
        )
    accuracies = {key: [run["accuracy"] for run in runs[key]] for key in ("ours", name)}
    error = stdev(accuracies["ours"]) * (1 / len(accuracies["ours"]) + 1 / len(accuracies[name])) ** 0.5
    difference = mean(accuracies[name]) - mean(accuracies["ours"])
    answer["accuracy_difference"] = round(difference, 4)
    answer["same_accuracy"] = abs(difference) <= 3 * error + ACCURACY_TOLERANCE
    return answer


def line(answer: Result) -> str:
    """Format a rival's result in one line."""
    together = [f", {key[6:].replace('_', ' ')} {answer[key]} x" for key in answer if key.startswith("ratio_")]
    return (
        f"{answer['rounds_per_second']} rounds/s, ours is {answer['ratio']} x as fast{''.join(together)}; "
        f"start-up {answer['startup_seconds']} s; accuracy {answer['accuracy_difference']:+.4f}"
    )


def public(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification without its file name."""
    return {name: value for name, value in spec.items() if name not in ("data", "about", "rivals")}


if __name__ == "__main__":
    main()
