"""Messages and replies of a round, by client name; late replies are dropped."""

# pyright: reportMissingImports=false
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedjax_sel.adapters.flower import messages
from fedjax_sel.adapters.flower.nodes import Nodes

_log = logging.getLogger(__name__)


class Exchange(NamedTuple):
    """Message exchange with the clients of a round."""

    grid: Grid
    nodes: Nodes
    there: Mapping[str, int]  # available clients: name -> node ID
    round: int  # from 0
    seconds: float  # timeout

    def send(self, content: RecordDict, message_type: str, names: tuple[str, ...]) -> dict[str, Message]:
        """Send one content to several clients; return the timely replies without errors, by name."""
        sent = [
            Message(content, self.there[name], message_type, ttl=self.seconds) for name in names if name in self.there
        ]
        replies: dict[str, Message] = {}
        for reply in self.grid.send_and_receive(sent, timeout=self.seconds) if sent else ():
            name = self.nodes.name(reply)
            if reply.has_error():
                _log.warning("client %r did not answer %s: %s", name, message_type, reply.error.reason)
            elif name is not None:
                replies[name] = reply
        return replies

    def ask(
        self,
        kind: str,
        options: Mapping[str, Any],
        model: ArrayRecord | None,
        names: tuple[str, ...],
        config: Mapping[str, ConfigRecord] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Query clients for a fact, and return the answers by name.

        Args:
            kind: kind of the fact.
            options: options of the measurement.
            model: model to measure; None if the fact does not need it.
            names: names of the clients to query.
            config: training configuration, if the answer requires training.
        """
        message_type, content = messages.question(kind, options, self.round, model, config)
        answers = {name: messages.answer_of(one, kind) for name, one in self.send(content, message_type, names).items()}
        return {name: answer for name, answer in answers.items() if answer is not None}
