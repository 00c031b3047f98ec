"""What a cohort sends back: to the Selector as arrays, to Flower's strategy in the form that it expects."""

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
    """Return what a client reports; None, and a line in the log, where it is no report.

    Args:
        name: of the client.
        reply: that it sent.
        weights: that it was sent.
        trained: names of the arrays that gradients move.
        losses: names of those that it was to send.
    """
    if reply.has_error():
        _log.warning("client %r did not report: %s", name, reply.error.reason)
        return None
    own = model(reply)
    if {key: array.shape for key, array in own.items()} != {key: array.shape for key, array in weights.items()}:
        _log.warning("client %r reports another model than it was sent; it is left out", name)
        return None
    beside = messages.arrays(reply.content.array_records.get(messages.OURS, ArrayRecord()))
    if missing := [key for key in losses if key not in beside]:
        _log.warning("client %r reports no %s; it is left out", name, " and no ".join(missing))
        return None
    if odd := [key for key in losses if beside[key].size != 1 or not _are_numbers(beside[key])]:
        _log.warning("client %r reports no single number as its %s; it is left out", name, " and its ".join(odd))
        return None
    if odd := [key for key in trained if not _are_numbers(own[key])]:
        _log.warning("client %r reports %s that are no numbers; it is left out", name, odd[0])
        return None
    return Reported(
        update={key: own[key] - weights[key] for key in trained},
        facts={key: value for key, value in beside.items() if key not in losses},
        losses={key: float(beside[key].item()) for key in losses},
        carried={key: array for key, array in own.items() if key not in trained},
    )


def _are_numbers(array: np.ndarray) -> bool:
    return bool(np.issubdtype(array.dtype, np.number))


def model(reply: Message) -> Arrays:
    """Return the weights in a reply; nothing where there is not one model in it."""
    models = [one for name, one in reply.content.array_records.items() if name != messages.OURS]
    return messages.arrays(models[0]) if len(models) == 1 else {}


def share(reply: Message, inner: Any) -> float:
    """Return how much a report weighs for Flower's strategy."""
    key = getattr(inner, "weighted_by_key", "num-examples")
    shares = [one[key] for one in reply.content.metric_records.values() if key in one]
    return float(shares[0]) if shares else 1.0  # pyright: ignore[reportArgumentType]


def for_inner(reply: Message, inner: Any, weight: float | None) -> Message:
    """Return a report as Flower's strategy expects it.

    Args:
        reply: that the client sent.
        inner: Flower's strategy.
        weight: that this package's strategy derives for it, or None.

    Raises:
        UserError: there is one and `inner` does not take any.
    """
    content = RecordDict({name: one for name, one in reply.content.items() if name != messages.OURS})
    if weight is not None:
        key = getattr(inner, "weighted_by_key", None)
        if key is None:
            raise UserError(
                "inner: this strategy derives the aggregation's weights, which Flower's "
                f"{type(inner).__name__} does not take; give FedAvg or one that is made of it"
            )
        for one in content.metric_records.values():
            one[key] = weight
    reply.content = content
    return reply


def finite(reports: Mapping[str, Reported]) -> list[str]:
    """Return whose updates are finite; of the others the log has a line."""
    for name in (name for name, report in reports.items() if not report.finite):
        _log.warning("the update of client %r is not finite; it is left out", name)
    return [name for name, report in reports.items() if report.finite]
