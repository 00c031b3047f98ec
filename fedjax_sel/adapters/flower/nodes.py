"""Map from Flower's nodes to client names.

Flower assigns the node IDs, and assigns new ones after a restart. Client names are permanent.
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
    """Number of examples of one client, without and with held-out examples."""

    train: int
    all: int


class Nodes:
    """Registry of the nodes that have introduced themselves."""

    def __init__(self, saved: Mapping[str, Sizes] | None = None):
        """Start empty, or with the clients of an earlier start, whose nodes are still unknown."""
        self.clients: dict[str, Sizes] = dict(saved or {})
        self.closed = saved is not None  # if True, further clients are rejected
        self._names: dict[int, str] = {}

    def online(self, grid: Grid, seconds: float) -> dict[str, int]:
        """Return the available clients' node IDs by name, and query new nodes for their names.

        Args:
            grid: Flower's grid.
            seconds: timeout of an introduction, in seconds.
        """
        online = list(grid.get_node_ids())
        strangers = [node for node in online if node not in self._names]
        content = RecordDict({messages.OURS: ConfigRecord({"round": -1})})
        queries = [Message(content, node, messages.INTRODUCE, ttl=seconds) for node in strangers]
        for reply in grid.send_and_receive(queries, timeout=seconds) if queries else ():
            self._register(reply)
        return {self._names[node]: node for node in online if node in self._names}

    def wait(self, grid: Grid, enough: Callable[[dict[str, int]], bool], seconds: float, wanted: str) -> dict[str, int]:
        """Wait for enough clients, and return the node IDs by name.

        Args:
            grid: Flower's grid.
            enough: predicate of the node IDs by name.
            seconds: maximum waiting time, in seconds.
            wanted: required number of clients, as text for the message.

        Raises:
            UserError: too few clients appear in time.
        """
        end = time.monotonic() + seconds
        while not enough(online := self.online(grid, max(POLL_SECONDS, end - time.monotonic()))):
            if time.monotonic() >= end:
                raise UserError(
                    f"{len(online)} of {wanted} required clients are available; start more clients, or set "
                    f"wait_seconds above {seconds:g}"
                )
            time.sleep(POLL_SECONDS)
        return online

    def name(self, message: Message) -> str | None:
        """Return the name of the client that sent a message; None if the node is unknown."""
        return self._names.get(message.metadata.src_node_id)

    def _register(self, reply: Message) -> None:
        node = reply.metadata.src_node_id
        required = {"name", "num-examples", "num-all-examples"}
        if reply.has_error() or not required <= set(reply.content.config_records.get(messages.OURS, {})):
            _log.warning("node %d did not introduce itself; build its ClientApp with `client_app`", node)
            return
        own = reply.content.config_records[messages.OURS]
        name, sizes = str(own["name"]), Sizes(int(own["num-examples"]), int(own["num-all-examples"]))  # pyright: ignore
        if self.closed and name not in self.clients:
            _log.warning(
                "client %r is not among the %d clients at the federation's start; ignored", name, len(self.clients)
            )
            return
        for other in [other for other, its in self._names.items() if its == name]:
            del self._names[other]  # the client restarted under a new node ID
        if self.clients.setdefault(name, sizes) != sizes:
            _log.warning(
                "client %r had %d examples and now reports %d; the first number is used",
                name,
                self.clients[name].train,
                sizes.train,
            )
        self._names[node] = name


def in_order(names: Iterable[str]) -> list[str]:
    """Return sorted names: numbers first, by value, then all other names."""
    return sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
