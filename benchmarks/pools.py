"""Diversity and cost of FL-DP3S when each round's k-DPP samples from a random pool of clients.

    python benchmarks/pools.py                             writes results/pools.json

Fashion-MNIST (or --dataset synthetic:..) in shards of one label, cohorts of 10, several numbers of clients. Reported
are the cohorts' mean GEMD (0: the population's labels) and the selection time per round without training. `pool` 0 is
random selection. GEMD comes from real runs of `--rounds` rounds with one training step each, which suffices because
profiles come from the initial model.
"""

import argparse
from pathlib import Path
from typing import Any

import reports

NUM_SELECTED = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="fashion_mnist", help="data set, as in fedjax-sel train")
    parser.add_argument("--num-clients", nargs="+", type=int, default=[100, 1000, 3550], metavar="N")
    parser.add_argument("--pools", nargs="+", type=int, default=[20, 50, 100, 200, 500], metavar="M")
    parser.add_argument("--rounds", type=int, default=100, metavar="T")
    parser.add_argument("--out", type=Path, default=Path("results/pools.json"), help="JSON file to write")
    arguments = parser.parse_args()
    report: dict[str, Any] = reports.head() | {"dataset": arguments.dataset, "rounds": arguments.rounds, "cases": []}
    print(f"{'N':>6} {'pool':>7} {'GEMD':>16} {'ms a round':>11}")
    for num_clients in arguments.num_clients:
        for pool in (None, *(size for size in arguments.pools if size < num_clients), 0):
            case = run_case(arguments.dataset, num_clients, pool, arguments.rounds)
            report["cases"].append(case)
            name = {None: "exact", 0: "random"}.get(pool, pool)
            print(
                f"{num_clients:6} {name:>7} {case['gemd']:8.4f} ± {case['gemd_sd']:5.4f} "
                f"{case['milliseconds_per_round']:11.2f}",
                flush=True,
            )
            reports.write(arguments.out, report)


def run_case(dataset: str, num_clients: int, pool: int | None, rounds: int) -> dict[str, Any]:
    """Measure one strategy: the exact k-DPP (pool None), a pooled one, or random selection (pool 0)."""
    import fedjax_sel
    from fedjax_sel import devices
    from fedjax_sel.experiment.problem import pose
    from studies import selection_cost

    algo = "random" if pool == 0 else "fl_dp3s"
    config = fedjax_sel.preset("fedcor/fmnist-1spc").replace(
        dataset=dataset, algo=algo, algo_args={} if not pool else {"pool": pool}, num_clients=num_clients,
        num_selected=NUM_SELECTED, holdout=0.0, loss_on="train", local_steps=1, batch_size=1, rounds=rounds,
        eval_every=rounds, train_metrics_every=0, target_accuracy=None, seeds=1,
    )  # fmt: skip
    devices.use_every_core()
    cost = selection_cost.measure(selection_cost.problem_setting(pose(config)))
    gemd = fedjax_sel.run(config).gemd[0]
    return {
        "num_clients": num_clients,
        "pool": pool,
        "algo": algo,
        "gemd": float(gemd.mean()),
        "gemd_sd": float(gemd.std(ddof=1)),
        "milliseconds_per_round": 1e3 * cost.seconds_per_round,
    }


if __name__ == "__main__":
    main()
