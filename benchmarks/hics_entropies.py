"""Do HiCS-FL's estimated label entropies follow the true ones? By learning rate, local epochs and temperature.

Runs HiCS-FL on `digits` (50 clients, Dirichlet 0.2, quickstart's other settings) for ten rounds, and correlates the
estimated entropies with those of the clients' labels, over the clients that reported:

    python benchmarks/hics_entropies.py --out results/hics_entropies.json
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import reports

import fedjax_sel
from fedjax_sel import callbacks
from fedjax_sel.experiment.problem import pose

WORK = ((0.05, 5), (0.05, 1), (0.01, 1))  # learning rate, local epochs
TEMPERATURES = {"paper": 0.0025, "ten_times": 0.025, "forty_times": 0.1}  # in units of the paper's
SETTINGS = {"algo": "hics_fl", "partition": "dirichlet", "alpha": 0.2}


def correlation(settings: dict[str, Any], temperature: float) -> float:
    """Return the correlation of estimated and true entropies after the run, the mean over seeds."""
    config = fedjax_sel.preset("quickstart").replace(**settings, algo_args={"temperature": temperature})
    snapshots = callbacks.Snapshots()
    fedjax_sel.run(config, callbacks=[snapshots])
    problem, state = pose(config), snapshots.states[-1]
    found = []
    for seed, part in enumerate(problem.partitions):
        counts = part.label_counts(problem.dataset.train_labels, problem.dataset.num_classes)
        shares = counts / counts.sum(axis=1, keepdims=True)
        true = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
        reported = (state.directions[seed] != 0).any(axis=1)
        found.append(np.corrcoef(state.entropies[seed][reported], true[reported])[0, 1])
    return float(np.mean(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each run (default: 10)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("results/hics_entropies.json"), help="JSON file to write")
    arguments = parser.parse_args()
    settings = SETTINGS | {"rounds": arguments.rounds, "seeds": arguments.seeds, "eval_every": arguments.rounds}
    report: dict[str, Any] = reports.head() | {"settings": settings, "cases": []}
    for learning_rate, local_epochs in WORK:
        own = settings | {"learning_rate": learning_rate, "local_epochs": local_epochs}
        row = {name: round(correlation(own, t), 3) for name, t in TEMPERATURES.items()}
        report["cases"].append({"work": f"{learning_rate:g}, {local_epochs}", **row})
        print(report["cases"][-1], flush=True)
        reports.write(arguments.out, report)


if __name__ == "__main__":
    main()
