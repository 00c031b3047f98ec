"""Who is who: the names that clients give, and the nodes where they can be reached now.

A node's number is Flower's and another one after a new start; a client's name is its own.
"""

# pyright: reportMissingImports=false
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedjax_sel.adapters.flower import messages
from fedjax_sel.errors import UserError

POLL_SECONDS = 0.2

_log = logging.getLogger(__name__)


class Sizes(NamedTuple):
    """Of one client."""

    train: int
    all: int


class Nodes:
    """The nodes that have introduced themselves."""

    def __init__(self, known: Mapping[str, Sizes] | None = None):
        """Begin with nobody, or with the clients of an earlier start, of whom it is not known where they are."""
        self.clients: dict[str, Sizes] = dict(known or {})
        self.closed = known is not None  # no other clients are taken
        self._names: dict[int, str] = {}

    def online(self, grid: Grid, seconds: float) -> dict[str, int]:
        """Return the nodes of the clients that can be reached now, by name; ask new nodes for theirs.

        Args:
            grid: of the run.
            seconds: to wait for an introduction.
        """
        there = list(grid.get_node_ids())
        strangers = [node for node in there if node not in self._names]
        content = RecordDict({messages.OURS: ConfigRecord({"round": -1})})
        asked = [Message(content, node, messages.INTRODUCE, ttl=seconds) for node in strangers]
        for reply in grid.send_and_receive(asked, timeout=seconds) if asked else ():
            self._introduced(reply)
        return {self._names[node]: node for node in there if node in self._names}

    def wait(self, grid: Grid, enough: Callable[[dict[str, int]], bool], seconds: float, wanted: str) -> dict[str, int]:
        """Return who is online once they are enough.

        Args:
            grid: of the run.
            enough: whether they are.
            seconds: to wait at most.
            wanted: in words, for the message.

        Raises:
            UserError: they are not enough in time.
        """
        end = time.monotonic() + seconds
        while not enough(there := self.online(grid, max(POLL_SECONDS, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise UserError(
                    f"{len(there)} clients can be reached and {wanted} are needed; start more of them, or give more "
                    f"than {seconds:g} wait_seconds"
                )
            time.sleep(POLL_SECONDS)
        return there

    def name(self, message: Message) -> str | None:
        """Return who sent a message."""
        return self._names.get(message.metadata.src_node_id)

    def _introduced(self, reply: Message) -> None:
        node = reply.metadata.src_node_id
        wanted = {"name", "num-examples", "num-all-examples"}
        if reply.has_error() or not wanted <= set(reply.content.config_records.get(messages.OURS, {})):
            _log.warning("node %d did not introduce itself: its ClientApp is not `client_app`", node)
            return
        own = reply.content.config_records[messages.OURS]
        name, sizes = str(own["name"]), Sizes(int(own["num-examples"]), int(own["num-all-examples"]))  # pyright: ignore
        if self.closed and name not in self.clients:
            _log.warning(
                "client %r is none of the %d that this federation began with; it is left out", name, len(self.clients)
            )
            return
        for other in [other for other, its in self._names.items() if its == name]:
            del self._names[other]  # it was started anew
        if self.clients.setdefault(name, sizes) != sizes:
            _log.warning(
                "client %r had %d examples and has %d; the first number counts",
                name,
                self.clients[name].train,
                sizes.train,
            )
        self._names[node] = name


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in their order, numbers by value and before others."""
    return sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
