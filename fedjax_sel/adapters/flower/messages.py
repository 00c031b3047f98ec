"""Records and messages between the Flower strategy and its nodes."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedjax_sel.adapters.rounds import Arrays, Client, Order, Question, TrainingReport
from fedjax_sel.errors import UserError
from fedjax_sel.selector import ClientNoise, Perturbed
from fedjax_sel.strategies.facts import KINDS

# pyright: reportMissingImports=false

OURS, NOISE = "fedjax_sel", "fedjax_sel.noise"
INTRODUCE = "query.introduce"


def record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """Return arrays as a record."""
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def arrays(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record."""
    return {name: value.numpy() for name, value in record.items()}


def question(
    options: Mapping[str, Any],
    round: int,
    model: ArrayRecord | None,
    config: Mapping[str, ConfigRecord],
    noise: ClientNoise | None,
) -> RecordDict:
    """Return the content of a query; `config` is the server's training configuration."""
    own = ConfigRecord({"round": round, **{f"option.{k}": v for k, v in options.items()}, **_flat("noise", noise)})
    content = RecordDict({**config, OURS: own})
    if model is not None:
        content["arrays"] = model
    return content


def _flat(prefix: str, noise: ClientNoise | None) -> dict[str, Any]:
    return {} if noise is None else {f"{prefix}.{name}": value for name, value in noise._asdict().items()}


def _noise(own: Mapping[str, Any], prefix: str) -> ClientNoise | None:
    found = _options(own, prefix)
    return ClientNoise(**found) if found else None


def question_of(message: Message) -> Question:
    """Return the query in a message."""
    own = message.content.config_records[OURS]
    models = [one for name, one in message.content.array_records.items() if name != OURS]
    kind = message.metadata.message_type.partition(".")[2]
    model = arrays(models[0]) if models else None
    noise = _noise(own, "noise")
    return Question(kind, _options(own, "option"), model, int(own["round"]), _config(message), noise)  # pyright: ignore


def order(
    content: RecordDict,
    round: int,
    wanted: Mapping[str, Mapping[str, Any]],
    losses: tuple[str, ...],
    probe: int | None = None,
    noise: Mapping[str, ClientNoise] = {},
) -> RecordDict:
    """Return the content of an order: the message of Flower's strategy and the record of this package."""
    own: dict[str, Any] = {"round": round, "probe": -1 if probe is None else probe}
    if wanted:
        own["wanted"] = list(wanted)
    if losses:
        own["losses"] = list(losses)
    for kind, options in wanted.items():
        own |= {f"{kind}.{name}": value for name, value in options.items()} | _flat(f"noise.{kind}", noise.get(kind))
    return RecordDict({**content, OURS: ConfigRecord(own)})


def order_of(message: Message) -> Order:
    """Return the order in a message."""
    content = message.content
    own = content.config_records[OURS]
    (model,) = [one for name, one in content.array_records.items() if name != OURS]
    wanted: Any = own.get("wanted", [])
    losses: Any = own.get("losses", [])
    probe: Any = own["probe"]
    return Order(
        weights=arrays(model),
        round=int(own["round"]),  # pyright: ignore
        probe=None if probe < 0 else probe,
        config=_config(message),
        wanted={kind: _options(own, kind) for kind in wanted},
        losses=tuple(losses),
        noise={kind: found for kind in wanted if (found := _noise(own, f"noise.{kind}"))},
    )


def seconds(sent: float, reply: Message) -> float:
    """Return the seconds from a timestamp of the server's clock to the creation of a reply by the client's clock."""
    return max(0.0, reply.metadata.created_at - sent)  # clocks can differ


def facts_record(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records of a client's answers: their values, and the noise that they carry."""
    plain = {kind: one.value if isinstance(one, Perturbed) else one for kind, one in facts.items()}
    noises = [_flat(kind, one.noise) for kind, one in facts.items() if isinstance(one, Perturbed)]
    own = {key: value for flat in noises for key, value in flat.items()}
    return {OURS: record(plain), **({NOISE: ConfigRecord(own)} if own else {})}


def facts_of(message: Message) -> dict[str, Any]:
    """Return a client's answers by kind; `Perturbed` with the noise that an answer carries."""
    own = message.content.config_records.get(NOISE, {})
    found = arrays(message.content.array_records.get(OURS, ArrayRecord()))
    return {kind: Perturbed(value, noise) if (noise := _noise(own, kind)) else value for kind, value in found.items()}


def report(message: Message, trained: TrainingReport) -> Message:
    """Return a client's report in the format of Flower's strategies, with the requested facts and losses."""
    metrics = MetricRecord({"num-examples": trained.num_examples, **trained.metrics})
    answers = {**trained.facts, **trained.losses}
    own = facts_record(answers) if answers else {}
    return Message(RecordDict({"arrays": record(trained.weights), "metrics": metrics, **own}), reply_to=message)


def _config(message: Message) -> dict[str, Any]:
    """Return the server's training configuration, without the record of this package."""
    records = message.content.config_records.items()
    return {key: value for name, one in records if name != OURS for key, value in one.items()}


def _options(own: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): value for name, value in own.items() if name.startswith(f"{prefix}.")}


# Flower assigns the node IDs, and assigns new ones after a restart. Client names are permanent.

POLL_SECONDS = 0.2
INTRODUCE_SECONDS = 10.0  # a node that never answers delays a round by this time; Flower pulls replies every 3 s

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
        """Return the available clients' node IDs by name; query new nodes for their names, at most `seconds`."""
        online = list(grid.get_node_ids())
        strangers = [node for node in online if node not in self._names]
        content = RecordDict({OURS: ConfigRecord({"round": -1})})
        queries = [Message(content, node, INTRODUCE, ttl=seconds) for node in strangers]
        for reply in grid.send_and_receive(queries, timeout=seconds) if queries else ():
            self._register(reply)
        return {self._names[node]: node for node in online if node in self._names}

    def wait(self, grid: Grid, enough: Callable[[dict[str, int]], bool], seconds: float, wanted: str) -> dict[str, int]:
        """Wait at most `seconds` until the node IDs by name are `enough`; `wanted` is for the message."""
        start, waited, poll = time.monotonic(), 0.0, INTRODUCE_SECONDS
        while not enough(online := self.online(grid, max(POLL_SECONDS, min(poll, seconds - waited)))):
            waited = time.monotonic() - start
            poll = max(INTRODUCE_SECONDS, waited)  # longer each time, because an answer after its poll is lost
            if waited >= seconds:
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
        if reply.has_error() or not required <= set(reply.content.config_records.get(OURS, {})):
            _log.warning("node %d did not introduce itself; build its ClientApp with `client_app`", node)
            return
        own = reply.content.config_records[OURS]
        name, sizes = str(own["name"]), Sizes(int(own["num-examples"]), int(own["num-all-examples"]))  # pyright: ignore
        if self.closed and name not in self.clients:
            _log.warning(
                "client %r is not among the %d clients at the federation's start; ignored", name, len(self.clients)
            )
            return
        for other in [other for other, its in self._names.items() if its == name]:
            del self._names[other]  # the client restarted under a new node ID
        if self.clients.setdefault(name, sizes) != sizes:
            first = self.clients[name].train
            _log.warning("client %r had %d examples and now reports %d; the first is used", name, first, sizes.train)
        self._names[node] = name


def in_order(names: Iterable[str]) -> list[str]:
    """Return sorted names: numbers first, by value, then all other names."""
    return sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))


def client_app(make_client: Callable[[Context], Client]) -> ClientApp:
    """Return a ClientApp that handles training and queries with a `Client`.

    Args:
        make_client: function from the context to this node's client. Every message calls it, so cache expensive work.
    """
    answering: Any = ClientApp()

    @answering.query("introduce")
    def introduce(message: Message, context: Context) -> Message:
        client = make_client(context)
        sizes = {"num-examples": int(client.num_examples), "num-all-examples": int(client.num_all_examples)}
        return Message(RecordDict({OURS: ConfigRecord({"name": str(client.name), **sizes})}), reply_to=message)

    def answer(kind: str, message: Message, context: Context) -> Message:
        own = facts_record({kind: make_client(context).answer(question_of(message))})
        return Message(RecordDict(own), reply_to=message)

    for kind, about in KINDS.items():
        if about.has_table and kind != "loss_change":  # `probes` derives a loss_change from several loss queries
            answering.query(kind)(partial(answer, kind))

    @answering.train()
    def train(message: Message, context: Context) -> Message:
        return report(message, make_client(context).train(order_of(message)))

    return answering
