"""Flower's clients, in a separate module because Ray's actors import it.

An actor loads the work once and then acts as the client that each message names.
"""

# pyright: reportMissingImports=false
import functools
import json
import os
from typing import cast

import torch
import torch_models
import work as work_
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp


@functools.cache
def loaded(text: str):
    """Return an actor's own copy of the work, the network and the clients, made on first use."""
    torch.set_num_threads(1)
    work = work_.Work(json.loads(text))
    torch.manual_seed(work.seed + os.getpid())
    clients = {number: torch_models.tensors(*data) for number, data in work.selected_clients().items()}
    return work, torch_models.build(work), clients


def app(text: str) -> ClientApp:
    """Return the client app; `text` is the work as JSON."""
    clients_app = ClientApp()

    @clients_app.train()
    def train(message: Message, context: Context) -> Message:
        del context
        work, network, clients = loaded(text)
        config = message.content.config_records["config"]
        network.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(network.parameters(), work.learning_rate, weight_decay=work.weight_decay)
        round, client = (cast(int, config[name]) for name in ("round", "client"))
        images, labels = clients[client]
        for batch in torch.from_numpy(work.order(work.generator(round, client))):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": len(labels)})
        content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return clients_app
