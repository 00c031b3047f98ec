"""The cost of selection alone, per strategy and number of clients; training and client queries are stubbed.

    python benchmarks/selection_cost.py                            writes results/selection_cost.json

One seed, cohorts of 10 (--num-selected), FedCor's MLP on 28x28 images. Each case runs in its own process. Reported are
milliseconds per round, compile seconds, and the bytes of the strategy's state, its facts and the whole compiled program
(XLA's `memory_analysis`). The time is a mean over a run's rounds, warm-up included, in calls of ten rounds within the
budget. A case above the memory limit, such as an N x N or N x P state for many clients, is reported as skipped.

    python benchmarks/selection_cost.py --num-clients 1000000 --num-selected 100 --rounds 10 --memory 14000 \
        --algos random pow_d afl oort gpfl "fedcor[dimension=15,warmup=1,interval=1000,warmup_steps=1]" \
        "fedcor[warmup=1,interval=1000,warmup_steps=1]" --out results/many_clients.json
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import reports

NUM_CLASSES, IMAGE = 10, (28, 28, 1)
SIZES = (50, 151)  # range of a client's number of examples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--algos", nargs="+", metavar="ALGO", help="strategies, as in fedjax-sel compare (default: all)"
    )
    parser.add_argument("--num-clients", nargs="+", type=int, default=[100, 1_000, 10_000], metavar="N")
    parser.add_argument("--num-selected", type=int, default=10, metavar="K", help="cohort size (default: 10)")
    parser.add_argument("--available", type=float, default=1.0, metavar="SHARE", help="fraction of available clients")
    parser.add_argument("--rounds", type=int, default=200, metavar="T", help="rounds per run (default: 200)")
    parser.add_argument("--budget", type=float, default=20.0, metavar="SECONDS", help="timed seconds per case")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="time limit per case")
    parser.add_argument("--memory", type=float, default=1000.0, metavar="MB", help="memory limit per case")
    parser.add_argument("--out", type=Path, default=Path("results/selection_cost.json"), help="JSON file to write")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(**json.loads(arguments.case))))
        return

    from fedjax_sel import strategies

    report: dict[str, Any] = reports.head() | {"cases": []}
    print(f"{'strategy':28} {'N':>6} {'ms a round':>11} {'rounds':>6} {'compiled':>9} {'peak MB':>9} {'state MB':>9}")
    for algo in arguments.algos or strategies.names():
        for num_clients in arguments.num_clients:
            case = {"algo": algo, "num_clients": num_clients, "rounds": arguments.rounds}
            case |= {"num_selected": arguments.num_selected, "budget": arguments.budget, "memory": arguments.memory}
            case |= {} if arguments.available == 1 else {"available": arguments.available}
            report["cases"].append(case | in_own_process(case, arguments.limit))
            print(describe(report["cases"][-1]), flush=True)
            reports.write(arguments.out, report)


def in_own_process(case: dict[str, Any], limit: float) -> dict[str, Any]:
    """Run a case in a child process; a failure is recorded as the case's result."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"skipped": f"not done after {limit:g} s"}
    if done.returncode == 0:
        return json.loads(done.stdout)
    last_line = (done.stderr.strip().splitlines() or [""])[-1]
    return {"failed": f"exit code {done.returncode}: {last_line}"}


def describe(case: dict[str, Any]) -> str:
    """Format a case in one line."""
    name = f"{case['algo']:28} {case['num_clients']:6}"
    for word in ("skipped", "failed"):
        if word in case:
            return f"{name} {word}: {case[word]}"
    return (
        f"{name} {case['milliseconds_per_round']:11.3f} {case['rounds_timed']:6} {case['compile_seconds']:7.1f} s "
        f"{case['peak_bytes'] / 1e6:9.1f} {case['state_bytes'] / 1e6:9.2f}"
    )


def run_case(
    algo: str,
    num_clients: int,
    rounds: int,
    num_selected: int,
    budget: float,
    memory: float,
    available: float = 1.0,
) -> dict[str, Any]:
    """Time one case in this process."""
    from fedjax_sel import devices

    devices.use_every_core()
    import jax
    import numpy as np

    from fedjax_sel import models, strategies
    from fedjax_sel.errors import UserError
    from fedjax_sel.runs.sweep import parse_algo
    from studies import selection_cost

    name, values = parse_algo(algo)
    setting = selection_cost.Setting(
        strategy=strategies.make(name, **values),
        model=models.make("mlp", IMAGE, NUM_CLASSES),
        num_classes=NUM_CLASSES,
        cohort_size=num_selected,
        num_rounds=rounds,
        sizes=np.random.default_rng(0).integers(*SIZES, (1, num_clients), dtype=np.int32),
        available=None if available == 1.0 else available,
    )
    try:
        cost = selection_cost.measure(setting, budget, int(memory * 1e6))
    except (MemoryError, UserError) as error:
        return {"skipped": str(error)}
    return {
        "milliseconds_per_round": round(1e3 * cost.seconds_per_round, 4),
        "rounds_timed": cost.rounds,
        "compile_seconds": round(cost.compile_seconds, 2),
        "peak_bytes": cost.peak_bytes,
        "state_bytes": cost.state_bytes,
        "fact_bytes": cost.fact_bytes,
        "devices": f"{len(jax.devices())} x {jax.devices()[0].device_kind}",
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    main()
