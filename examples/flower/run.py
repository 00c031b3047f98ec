"""Four strategies in Flower's own simulation engine.

pip install -e ".[flower]" "flwr[simulation]" torch
python examples/flower/run.py                          digits, clients of PyTorch, FedCor, FL-DP3S, pow-d and GPFL
python examples/flower/run.py --clients simulator      clients that do what the simulator's do, and both compared
python examples/flower/run.py --dataset fashion_mnist --strategies pow_d --clients jax
python examples/flower/run.py --strategies gpfl --folder standing      kill it, and the same command goes on
"""

# pyright: reportMissingImports=false
import argparse
import functools
import importlib
import json
import os
from pathlib import Path
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import setting as settings
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from setting import STRATEGIES, Setting

import fedjax_sel
from fedjax_sel.adapters.flower import SelectorStrategy, client_app
from fedjax_sel.adapters.flower.messages import arrays, record


def make_client(kind: str, setting: Setting, context: Context) -> Any:
    """Return the client that a node is."""
    clients = importlib.import_module(f"{kind}_clients")
    return clients.client(setting, int(context.node_config["partition-id"]))


def apps(
    kind: str, setting: Setting, strategy: str, folder: Path | None
) -> tuple[ServerApp, ClientApp, dict[str, Any]]:
    """Return both sides, and where the server writes what it found."""
    clients = importlib.import_module(f"{kind}_clients")
    server_app, found = ServerApp(), {}

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        tests, own = settings.for_tests(setting), settings.of_server(setting)

        def on(examples: settings.Examples, model: ArrayRecord) -> dict[str, float]:
            return clients.evaluate(setting, arrays(model), examples)

        selecting = SelectorStrategy(
            strategy,
            setting.num_clients,
            setting.num_selected,
            setting.rounds,
            profile_size=clients.PROFILE_SIZE,
            seed=setting.seed,
            server_evaluation=functools.partial(on, own),
            folder=folder,
        )
        result = selecting.start(
            grid, record(clients.initial(setting)), evaluate_fn=lambda round, model: MetricRecord({**on(tests, model)})
        )
        measured = result.evaluate_metrics_serverapp
        found["cohorts"] = [[int(name) for name in cohort] for cohort in selecting.cohorts]
        found["accuracy"] = [measured[round]["accuracy"] for round in sorted(measured) if round > 0]
        found["bill"] = [list(spent) for spent in selecting.selector.bill().rounds]

    return server_app, client_app(functools.partial(make_client, kind, setting)), found


def simulated(setting: Setting, strategy: str) -> dict[str, Any]:
    """Return the same of the simulator's own run."""
    result = fedjax_sel.run(setting.config(strategy))
    ledger = result.ledger
    return {
        "cohorts": [[int(who) for who in cohort if who >= 0] for cohort in result.cohorts[0]],
        "accuracy": result.test_accuracy[0].tolist(),
        "bill": [list(map(int, row)) for row in zip(ledger.models_down[0], ledger.models_up[0], ledger.floats_up[0])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), metavar="NAME", help="of fedjax_sel")
    parser.add_argument("--clients", choices=("torch", "jax", "simulator"), default="torch", help="what trains")
    parser.add_argument("--dataset", default="digits", help="digits, fashion_mnist, or any other of fedjax_sel")
    parser.add_argument("--data-dir", help="folder that tensorflow-datasets has prepared")
    parser.add_argument("--num-clients", type=int, default=20, metavar="N")
    parser.add_argument("--num-selected", type=int, default=5, metavar="K")
    parser.add_argument("--rounds", type=int, default=20, metavar="T")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="for clients; each actor takes one")
    parser.add_argument("--folder", type=Path, help="where the federation's standing is kept, one folder a strategy")
    parser.add_argument("--out", type=Path, help="write cohorts, accuracies and bills as JSON")
    given = parser.parse_args()
    setting = Setting(
        given.dataset, given.data_dir, given.num_clients, given.num_selected, given.rounds, given.seed
    )  # fmt: skip
    report: dict[str, Any] = {}
    for name in given.strategies:
        strategy = STRATEGIES.get(name, str(name))
        folder = None if given.folder is None else given.folder / name
        server_app, clients, found = apps(given.clients, setting, strategy, folder)
        run_simulation(
            server_app,
            clients,
            num_supernodes=setting.num_clients,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {"num_cpus": given.cores, "include_dashboard": False},
            },
        )
        if not found:
            raise SystemExit(f"{name}: the server's log says why it ended")
        report[name] = {"flower": found}
        if given.clients == "simulator":
            report[name]["simulator"] = simulated(setting, strategy)
    for name, both in report.items():
        total = [sum(column) for column in zip(*both["flower"]["bill"])]
        line = f"{name:10} accuracy {both['flower']['accuracy'][-1]:.3f}   models down {total[0]}, up {total[1]}, "
        line += f"floats up {total[2]}"
        if "simulator" in both:
            cohorts = both["flower"]["cohorts"]  # of this start's rounds: a folder may have had others
            same = ["cohorts"] if cohorts == both["simulator"]["cohorts"][-len(cohorts) :] else []
            same += ["bill"] if both["flower"]["bill"] == both["simulator"]["bill"] else []
            line += f"   as the simulator's: {' and '.join(same) or 'nothing'}"
        print(line)
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
