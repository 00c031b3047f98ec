"""Rival: Flower's simulation of federated averaging, with one Ray actor per core and one PyTorch thread each."""

# pyright: reportMissingImports=false
import os
import sys
import time

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import flower_client
import torch_models
import work as work_
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class Scripted(FedAvg):
    """FedAvg with cohorts from a list; each message names the client that the node represents."""

    def __init__(self, cohorts, num_clients):
        super().__init__(fraction_evaluate=0.0)
        self.cohorts = cohorts
        self.num_clients = num_clients

    def configure_train(self, server_round, arrays, config, grid):
        """Send the model to the round's clients."""
        while len(nodes := sorted(grid.get_node_ids())) < self.num_clients:
            time.sleep(0.1)  # nodes register one by one
        messages = []
        for number in self.cohorts[server_round - 1]:
            own = ConfigRecord({"round": server_round - 1, "client": int(number)})
            content = RecordDict({"arrays": arrays, "config": own})
            messages.append(Message(content=content, message_type="train", dst_node_id=nodes[number]))
        return messages

    def aggregate_train(self, server_round, replies):
        """Average the replies; fail if any is missing, because Flower itself would continue without them."""
        replies = list(replies)
        if len(replies) < len(self.cohorts[0]) or any(reply.has_error() for reply in replies):
            raise RuntimeError("a client of the round failed")
        return super().aggregate_train(server_round, replies)


def main() -> None:
    work = work_.read()
    clock = work_.Clock(work)
    network = torch_models.build(work)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        del context

        def after_round(server_round: int, arrays: ArrayRecord):
            del arrays
            if server_round > 0:
                clock()

        result = Scripted(work.cohorts, len(work.clients)).start(
            grid, ArrayRecord(network.state_dict()), num_rounds=work.total_rounds, evaluate_fn=after_round
        )
        network.load_state_dict(result.arrays.to_torch_state_dict())

    cores = work_.num_cores()
    run_simulation(
        server_app,
        flower_client.app(sys.argv[1]),
        num_supernodes=len(work.clients),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
    work_.report(clock, *torch_models.test(network, work), packages=["flwr", "ray", "torch"])


if __name__ == "__main__":
    main()
