"""ClientApp that answers the queries of a SelectorStrategy."""

# pyright: reportMissingImports=false
from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedjax_sel.adapters.clients import Client
from fedjax_sel.adapters.flower import messages
from fedjax_sel.strategies.kinds import KINDS

MakeClient = Callable[[Context], Client]


def client_app(make_client: MakeClient, app: ClientApp | None = None) -> ClientApp:
    """Return a ClientApp that handles training and queries with a `Client`.

    Args:
        make_client: function from the context to this node's client. Every message calls it, so cache expensive work.
        app: ClientApp to extend, such as one with its own `evaluate`; None: a new one.
    """
    answering: Any = ClientApp() if app is None else app

    @answering.query("introduce")
    def introduce(message: Message, context: Context) -> Message:
        client = make_client(context)
        identity = {
            "name": str(client.name),
            "num-examples": int(client.num_examples),
            "num-all-examples": int(client.num_all_examples),
        }
        return Message(RecordDict({messages.OURS: ConfigRecord(identity)}), reply_to=message)

    def answer(kind: str, message: Message, context: Context) -> Message:
        return messages.answer(message, {kind: make_client(context).answer(messages.question_of(message))})

    for kind, about in KINDS.items():
        if about.has_table and kind != "loss_change":  # `probes` derives a loss_change from several loss queries
            answering.query(kind)(partial(answer, kind))

    @answering.train()
    def train(message: Message, context: Context) -> Message:
        return messages.report(message, make_client(context).train(messages.order_of(message)))

    return answering
