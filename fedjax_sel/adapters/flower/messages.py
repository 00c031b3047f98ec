"""What travels: questions, orders and their answers as Flower's records.

A question is a message `query.KIND` with the round's model, an order is `train` with what Flower's own strategy puts
into it; beside that either holds a record `fedjax_sel`.
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
    kind: str, options: Mapping[str, Any], round: int, model: ArrayRecord | None, said: Mapping[str, ConfigRecord]
) -> tuple[str, RecordDict]:
    """Return the type and the content of a question; `said` is what the server says of training."""
    own = ConfigRecord({"round": round, **{f"option.{k}": v for k, v in options.items()}})
    content = RecordDict({**said, OURS: own})
    if model is not None:
        content["arrays"] = model
    return f"query.{kind}", content


def question_of(message: Message) -> Question:
    """Return what a client is asked."""
    own = message.content.config_records[OURS]
    models = [one for name, one in message.content.array_records.items() if name != OURS]
    kind = message.metadata.message_type.partition(".")[2]
    model = arrays(models[0]) if models else None
    return Question(kind, _options(own, "option"), model, int(own["round"]), _said(message))  # pyright: ignore


def order(
    content: RecordDict,
    round: int,
    wanted: Mapping[str, Mapping[str, Any]],
    losses: tuple[str, ...],
    probe: int | None = None,
) -> RecordDict:
    """Return the content of an order: what Flower's strategy sends, and what is wanted beside it."""
    own: dict[str, Any] = {"round": round, "probe": -1 if probe is None else probe}
    if wanted:
        own["wanted"] = list(wanted)
    if losses:
        own["losses"] = list(losses)
    for kind, options in wanted.items():
        own |= {f"{kind}.{name}": value for name, value in options.items()}
    return RecordDict({**content, OURS: ConfigRecord(own)})


def order_of(message: Message) -> Order:
    """Return what a client is to train."""
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
        config=_said(message),
        wanted={kind: _options(own, kind) for kind in wanted},
        losses=tuple(losses),
    )


def answer(message: Message, values: Mapping[str, Any]) -> Message:
    """Return a client's answer to a question."""
    return Message(RecordDict({OURS: record(values)}), reply_to=message)


def answer_of(message: Message, name: str) -> np.ndarray | None:
    """Return a value of a client's answer; None where it has none."""
    own = message.content.array_records.get(OURS, {})
    return own[name].numpy() if name in own else None


def report(message: Message, found: Report) -> Message:
    """Return a client's report, in the form that Flower's strategies take, and what was wanted beside it."""
    metrics = MetricRecord({"num-examples": found.num_examples, **found.metrics})
    content = RecordDict({"arrays": record(found.weights), "metrics": metrics})
    if found.facts or found.losses:
        content[OURS] = record({**found.facts, **found.losses})
    return Message(content, reply_to=message)


def _said(message: Message) -> dict[str, Any]:
    """Return what the server says of training, beside what is ours."""
    records = message.content.config_records.items()
    return {key: value for name, one in records if name != OURS for key, value in one.items()}


def _options(own: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(f"{prefix}."): value for name, value in own.items() if name.startswith(f"{prefix}.")}
