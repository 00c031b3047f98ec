"""Conversion of queries, training orders and their replies to and from Flower's records.

A query is a message `query.KIND` with the round's model. An order is a message `train` with the content of Flower's own
strategy. Both have an additional record `fedjax_sel`.
"""

# pyright: reportMissingImports=false
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedjax_sel.adapters.clients import Arrays, Order, Question, Report

OURS = "fedjax_sel"
INTRODUCE = "query.introduce"


def record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """Return arrays as a record."""
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def arrays(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record."""
    return {name: value.numpy() for name, value in record.items()}


def question(
    kind: str, options: Mapping[str, Any], round: int, model: ArrayRecord | None, config: Mapping[str, ConfigRecord]
) -> tuple[str, RecordDict]:
    """Return the type and the content of a query; `config` is the server's training configuration."""
    own = ConfigRecord({"round": round, **{f"option.{k}": v for k, v in options.items()}})
    content = RecordDict({**config, OURS: own})
    if model is not None:
        content["arrays"] = model
    return f"query.{kind}", content


def question_of(message: Message) -> Question:
    """Return the query in a message."""
    own = message.content.config_records[OURS]
    models = [one for name, one in message.content.array_records.items() if name != OURS]
    kind = message.metadata.message_type.partition(".")[2]
    model = arrays(models[0]) if models else None
    return Question(kind, _options(own, "option"), model, int(own["round"]), _config(message))  # pyright: ignore


def order(
    content: RecordDict,
    round: int,
    wanted: Mapping[str, Mapping[str, Any]],
    losses: tuple[str, ...],
    probe: int | None = None,
) -> RecordDict:
    """Return the content of an order: the message of Flower's strategy and the record of this package."""
    own: dict[str, Any] = {"round": round, "probe": -1 if probe is None else probe}
    if wanted:
        own["wanted"] = list(wanted)
    if losses:
        own["losses"] = list(losses)
    for kind, options in wanted.items():
        own |= {f"{kind}.{name}": value for name, value in options.items()}
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
    )


def answer(message: Message, values: Mapping[str, Any]) -> Message:
    """Return a client's answer to a query."""
    return Message(RecordDict({OURS: record(values)}), reply_to=message)


def answer_of(message: Message, name: str) -> np.ndarray | None:
    """Return one value of a client's answer; None if it is missing."""
    own = message.content.array_records.get(OURS, {})
    return own[name].numpy() if name in own else None


def report(message: Message, trained: Report) -> Message:
    """Return a client's report in the format of Flower's strategies, with the requested facts and losses."""
    metrics = MetricRecord({"num-examples": trained.num_examples, **trained.metrics})
    content = RecordDict({"arrays": record(trained.weights), "metrics": metrics})
    if trained.facts or trained.losses:
        content[OURS] = record({**trained.facts, **trained.losses})
    return Message(content, reply_to=message)


def _config(message: Message) -> dict[str, Any]:
    """Return the server's training configuration, without the record of this package."""
    records = message.content.config_records.items()
    return {key: value for name, one in records if name != OURS for key, value in one.items()}


def _options(own: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): value for name, value in own.items() if name.startswith(f"{prefix}.")}
