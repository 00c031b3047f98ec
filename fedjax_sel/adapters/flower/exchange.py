"""A round's messages and their replies, by the clients' names; who does not answer in time is left out."""

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
    """With the clients of a round."""

    grid: Grid
    nodes: Nodes
    there: Mapping[str, int]  # who can be reached, and where
    round: int  # from 0
    seconds: float  # to wait for answers

    def send(self, content: RecordDict, message_type: str, names: tuple[str, ...]) -> dict[str, Message]:
        """Send one content to several clients; return the replies that came in time and hold no error."""
        sent = [
            Message(content, self.there[name], message_type, ttl=self.seconds) for name in names if name in self.there
        ]
        heard: dict[str, Message] = {}
        for reply in self.grid.send_and_receive(sent, timeout=self.seconds) if sent else ():
            name = self.nodes.name(reply)
            if reply.has_error():
                _log.warning("client %r did not answer %s: %s", name, message_type, reply.error.reason)
            elif name is not None:
                heard[name] = reply
        return heard

    def ask(
        self,
        kind: str,
        options: Mapping[str, Any],
        model: ArrayRecord | None,
        names: tuple[str, ...],
        said: Mapping[str, ConfigRecord] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Ask for a fact; return what those answered who did.

        Args:
            kind: of the fact.
            options: of its measurement.
            model: on which it is measured; None where it needs none.
            names: whom to ask.
            said: of training, where the answer takes one.
        """
        message_type, content = messages.question(kind, options, self.round, model, said)
        answers = {name: messages.answer_of(one, kind) for name, one in self.send(content, message_type, names).items()}
        return {name: answer for name, answer in answers.items() if answer is not None}
