"""The time of a server's calls to a Selector, for few and for many clients.

    python benchmarks/selector.py                                  writes results/selector.json

Cohorts of 10 (--num-selected); facts are random numbers with the lengths of a small model. A round's milliseconds are
summed over its calls of `asks`, `tell`, `select` and `update`. Start-up (`begin`) and the first round, which compiles,
are reported separately, in seconds. A kernel above a quarter of --memory is skipped, because its decomposition needs
the rest.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import reports
from timing import spread

STRATEGIES = ("random", "pow_d", "afl", "oort", "gpfl", "fl_dp3s")
PARAMETERS, CLASSES, PROFILE = 5_000, 10, 64
CALLS = ("asks", "tell", "select", "update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES, metavar="NAME", help="strategies, by name")
    parser.add_argument("--num-clients", nargs="+", type=int, default=[100, 10_000], metavar="N")
    parser.add_argument("--num-selected", type=int, default=10, metavar="K", help="cohort size (default: 10)")
    parser.add_argument("--rounds", type=int, default=31, metavar="T", help="rounds per case; the first one compiles")
    parser.add_argument(
        "--budget", type=float, default=10.0, metavar="SECONDS", help="seconds per case after round one"
    )
    parser.add_argument(
        "--memory", type=float, default=500.0, metavar="MB", help="memory limit of a kernel and its decomposition"
    )
    parser.add_argument("--out", type=Path, default=Path("results/selector.json"), help="JSON file to write")
    given = parser.parse_args()
    if given.rounds < 2 or given.budget <= 0:
        parser.error(
            "--rounds, --budget: the first round only compiles; give at least two rounds and a positive budget"
        )

    from on_accelerator import machine

    found = next(machine.look(0.0))
    kept = ("platform", "devices", "python", "versions")
    report: dict[str, Any] = reports.head() | {
        "machine": {name: found[name] for name in kept},
        "parameters": PARAMETERS,
        "cases": [],
    }
    print(f"{'strategy':20} {'N':>6} {'begin s':>8} {'first s':>8} {'ms a round':>11}   of which")
    for name in given.strategies:
        for num_clients in given.num_clients:
            case: dict[str, Any] = {"strategy": name, "num_clients": num_clients, "num_selected": given.num_selected}
            if name.startswith("fl_dp3s") and 4 * num_clients**2 > given.memory * 1e6 / 4:
                case["skipped"] = "its N x N kernel, decomposed in float64, exceeds --memory"
            else:
                case |= measured(name, num_clients, given.num_selected, given.rounds, given.budget)
            report["cases"].append(case)
            print(described(case), flush=True)
    reports.write(given.out, report)


def measured(name: str, num_clients: int, num_selected: int, rounds: int, budget: float) -> dict[str, Any]:
    """Time one case."""
    from fedjax_sel import Selector

    rng = np.random.default_rng(0)
    sizes = rng.integers(50, 151, num_clients)
    clock: dict[str, float] = dict.fromkeys(("begin", *CALLS), 0.0)

    def timed(what: str, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        answer = call()
        clock[what] += time.perf_counter() - started
        return answer

    def tell_all() -> None:
        while asks := timed("asks", selector.asks):
            for ask in asks:
                values = rng.uniform(0.1, 2.0, (len(ask.clients), *ask.shape)).astype(np.float32)
                timed("tell", lambda ask=ask, values=values: selector.tell(ask.kind, ask.clients, values))

    selector = timed(
        "begin",
        lambda: Selector(
            name, num_clients, num_selected, rounds, sizes=sizes, num_params=PARAMETERS, num_classes=CLASSES,
            profile_size=PROFILE,
        ),
    )  # fmt: skip
    evaluation = {"correct": 500, "accuracy": 0.5, "loss": 1.5}
    done: list[dict[str, float]] = []
    while len(done) < rounds and sum(sum(round.values()) for round in done[1:]) < budget:
        clock_before = dict(clock)
        tell_all()
        names, _ = timed("select", selector.select)
        tell_all()
        reports: dict[str, Any] = {
            "updates": {"w": rng.normal(size=(len(names), PARAMETERS)).astype(np.float32)},
            "step": {"w": rng.normal(size=PARAMETERS).astype(np.float32)},
            "losses_before": rng.uniform(1, 2, len(names)),
            "losses_after": rng.uniform(0, 1, len(names)),
            "metrics": (evaluation, evaluation),
        }
        timed("update", lambda reports=reports: selector.update(**{what: reports[what] for what in selector.reads}))
        done.append({call: clock[call] - clock_before[call] for call in CALLS})
    later = done[1:]
    return {
        "begin_seconds": round(clock["begin"], 3),
        "first_round_seconds": round(sum(done[0].values()), 3),
        "milliseconds": spread([1e3 * sum(round.values()) for round in later]),
        "of_which": {call: round(float(np.median([1e3 * one[call] for one in later])), 3) for call in CALLS},
    }


def described(case: dict[str, Any]) -> str:
    """Format a case in one line."""
    name = f"{case['strategy']:20} {case['num_clients']:6}"
    if "skipped" in case:
        return f"{name} skipped: {case['skipped']}"
    parts = ", ".join(f"{call} {value:.2f}" for call, value in case["of_which"].items())
    times = f"{case['begin_seconds']:8.2f} {case['first_round_seconds']:8.2f} {case['milliseconds']['median']:11.2f}"
    return f"{name} {times}   {parts}"


if __name__ == "__main__":
    main()
