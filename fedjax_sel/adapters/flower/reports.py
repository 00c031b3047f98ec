"""Conversion of a cohort's replies: to arrays for the Selector, and to messages for Flower's strategy."""

# pyright: reportMissingImports=false
import logging
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from fedjax_sel.adapters.clients import Arrays
from fedjax_sel.adapters.flower import messages
from fedjax_sel.adapters.rounds import Reported
from fedjax_sel.errors import UserError

_log = logging.getLogger(__name__)


def read(
    name: str, reply: Message, weights: Arrays, trained: Collection[str], losses: Collection[str]
) -> Reported | None:
    """Return a client's report; log a warning and return None if it is invalid.

    Args:
        name: name of the client.
        reply: its reply.
        weights: the model that it received.
        trained: names of the trained arrays.
        losses: names of the requested losses.
    """
    if reply.has_error():
        _log.warning("client %r did not report: %s", name, reply.error.reason)
        return None
    own = model(reply)
    if {key: array.shape for key, array in own.items()} != {key: array.shape for key, array in weights.items()}:
        _log.warning("client %r returned a model with other arrays than it received; ignored", name)
        return None
    answers = messages.arrays(reply.content.array_records.get(messages.OURS, ArrayRecord()))
    if missing := [key for key in losses if key not in answers]:
        _log.warning("client %r returned no %s; ignored", name, " and no ".join(missing))
        return None
    if invalid := [key for key in losses if answers[key].size != 1 or not _are_numbers(answers[key])]:
        _log.warning("client %r did not return a single number as %s; ignored", name, " and ".join(invalid))
        return None
    if invalid := [key for key in trained if not _are_numbers(own[key])]:
        _log.warning("client %r returned non-numeric values for %s; ignored", name, invalid[0])
        return None
    return Reported(
        update={key: own[key] - weights[key] for key in trained},
        facts={key: value for key, value in answers.items() if key not in losses},
        losses={key: float(answers[key].item()) for key in losses},
        carried={key: array for key, array in own.items() if key not in trained},
    )


def _are_numbers(array: np.ndarray) -> bool:
    return bool(np.issubdtype(array.dtype, np.number))


def model(reply: Message) -> Arrays:
    """Return the weights in a reply; {} unless the reply has exactly one model."""
    models = [one for name, one in reply.content.array_records.items() if name != messages.OURS]
    return messages.arrays(models[0]) if len(models) == 1 else {}


def share(reply: Message, inner: Any) -> float:
    """Return the aggregation weight of a report in Flower's strategy."""
    key = getattr(inner, "weighted_by_key", "num-examples")
    shares = [one[key] for one in reply.content.metric_records.values() if key in one]
    return float(shares[0]) if shares else 1.0  # pyright: ignore[reportArgumentType]


def for_inner(reply: Message, inner: Any, weight: float | None) -> Message:
    """Return a report in the format of Flower's strategy.

    Args:
        reply: the client's reply.
        inner: Flower's strategy.
        weight: aggregation weight from the selection strategy, or None.

    Raises:
        UserError: `weight` is given, but `inner` does not support aggregation weights.
    """
    content = RecordDict({name: one for name, one in reply.content.items() if name != messages.OURS})
    if weight is not None:
        key = getattr(inner, "weighted_by_key", None)
        if key is None:
            raise UserError(
                f"inner: Flower's {type(inner).__name__} does not support the aggregation weights of this strategy; "
                "use FedAvg or a subclass"
            )
        for one in content.metric_records.values():
            one[key] = weight
    reply.content = content
    return reply


def finite(reports: Mapping[str, Reported]) -> list[str]:
    """Return the names of the clients with finite updates, and log a warning for each of the others."""
    for name in (name for name, report in reports.items() if not report.finite):
        _log.warning("the update of client %r is not finite; ignored", name)
    return [name for name, report in reports.items() if report.finite]
