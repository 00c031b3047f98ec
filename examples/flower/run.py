"""FedCor, FL-DP3S, power-of-choice and GPFL in Flower's simulation engine.

pip install -e ".[flower]" "flwr[simulation]" torch
python examples/flower/run.py                          digits, PyTorch clients, all four strategies
python examples/flower/run.py --clients simulator      clients of the simulator, compared with its own run
python examples/flower/run.py --dataset fashion_mnist --strategies pow_d --clients jax
python examples/flower/run.py --strategies gpfl --folder standing      resumes after a crash
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
    """Return the client of a node."""
    clients = importlib.import_module(f"{kind}_clients")
    return clients.client(setting, int(context.node_config["partition-id"]))


def apps(
    kind: str, setting: Setting, strategy: str, folder: Path | None
) -> tuple[ServerApp, ClientApp, dict[str, Any]]:
    """Return the server app, the client app, and the dict that receives the server's results."""
    clients = importlib.import_module(f"{kind}_clients")
    server_app, results = ServerApp(), {}

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
        results["cohorts"] = [[int(name) for name in cohort] for cohort in selecting.cohorts]
        results["accuracy"] = [measured[round]["accuracy"] for round in sorted(measured) if round > 0]
        results["bill"] = [list(spent) for spent in selecting.selector.bill().rounds]

    return server_app, client_app(functools.partial(make_client, kind, setting)), results


def simulated(setting: Setting, strategy: str) -> dict[str, Any]:
    """Return cohorts, accuracies and bill of the simulator's own run."""
    result = fedjax_sel.run(setting.config(strategy))
    ledger = result.ledger
    return {
        "cohorts": [[int(client) for client in cohort if client >= 0] for cohort in result.cohorts[0]],
        "accuracy": result.test_accuracy[0].tolist(),
        "bill": [list(map(int, row)) for row in zip(ledger.models_down[0], ledger.models_up[0], ledger.floats_up[0])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--strategies", nargs="+", default=list(STRATEGIES), metavar="NAME", help="strategies of fedjax_sel"
    )
    parser.add_argument(
        "--clients", choices=("torch", "jax", "simulator"), default="torch", help="implementation of the clients"
    )
    parser.add_argument("--dataset", default="digits", help="a data set of fedjax_sel, such as digits or fashion_mnist")
    parser.add_argument("--data-dir", help="folder prepared by tensorflow-datasets")
    parser.add_argument("--num-clients", type=int, default=20, metavar="N")
    parser.add_argument("--num-selected", type=int, default=5, metavar="K")
    parser.add_argument("--rounds", type=int, default=20, metavar="T")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="CPU cores for clients, one per actor")
    parser.add_argument("--folder", type=Path, help="folder for the server's state, to resume from")
    parser.add_argument("--out", type=Path, help="write cohorts, accuracies and bills as JSON")
    given = parser.parse_args()
    setting = Setting(
        given.dataset, given.data_dir, given.num_clients, given.num_selected, given.rounds, given.seed
    )  # fmt: skip
    report: dict[str, Any] = {}
    for name in given.strategies:
        strategy = STRATEGIES.get(name, str(name))
        folder = None if given.folder is None else given.folder / name
        server_app, clients, results = apps(given.clients, setting, strategy, folder)
        run_simulation(
            server_app,
            clients,
            num_supernodes=setting.num_clients,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {"num_cpus": given.cores, "include_dashboard": False},
            },
        )
        if not results:
            raise SystemExit(f"{name}: the server ended early; see its log")
        report[name] = {"flower": results}
        if given.clients == "simulator":
            report[name]["simulator"] = simulated(setting, strategy)
    for name, both in report.items():
        total = [sum(column) for column in zip(*both["flower"]["bill"])]
        line = f"{name:10} accuracy {both['flower']['accuracy'][-1]:.3f}   models down {total[0]}, up {total[1]}, "
        line += f"floats up {total[2]}"
        if "simulator" in both:
            cohorts = both["flower"]["cohorts"]  # a resumed run has only the remaining rounds
            same = ["cohorts"] if cohorts == both["simulator"]["cohorts"][-len(cohorts) :] else []
            same += ["bill"] if both["flower"]["bill"] == both["simulator"]["bill"] else []
            line += f"   equal to the simulator: {' and '.join(same) or 'none'}"
        print(line)
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
