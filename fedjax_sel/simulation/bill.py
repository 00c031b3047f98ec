"""The cost of a round's facts, counted on the device as they are served."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import facts
from fedjax_sel.strategies.kinds import KINDS
from fedjax_sel.strategies.requests import Request


class Bill(NamedTuple):
    """Cost of serving a round's requests; leaves [S, ...]."""

    asked: jax.Array  # clients that received the round's model to answer a query, bool [S, N]
    trained: jax.Array  # clients that trained from the round's model to answer a query, bool [S, N]
    answers: jax.Array  # number of clients that answered each request, int32 [S, requests]
    probe_models_down: jax.Array  # copies of probe models sent to clients for evaluation, int32 [S]
    probe_models_up: jax.Array  # reports of probe cohorts that arrived, int32 [S]
    probe_reports_lost: jax.Array  # reports of probe cohorts that did not arrive, int32 [S]
    examples_trained: jax.Array  # int32 [S]; excludes the training of `trained` and of the cohort
    examples_evaluated: jax.Array  # int32 [S]
    losses_replaced: jax.Array  # measured losses that were not finite, int32 [S]


def empty_bill(num_replicates: int, num_clients: int, num_requests: int) -> Bill:
    """Return the bill of a round without requests."""
    zero = jnp.zeros((num_replicates,), jnp.int32)
    no_clients = jnp.zeros((num_replicates, num_clients), bool)
    return Bill(no_clients, no_clients, jnp.zeros((num_replicates, num_requests), jnp.int32), *[zero] * 6)


def add(
    bill: Bill,
    position: int,
    request: Request,
    federation: Federation,
    queried: jax.Array,
    answered: jax.Array,
    loss_on: str,
) -> Bill:
    """Add the cost of one request: the queried clients' work and the answers that arrive.

    Args:
        bill: the round's bill so far.
        position: index of the request in the strategy's requests.
        request: the request; static.
        federation: the clients' data.
        queried: mask of the queried clients, which receive the model and compute an answer, bool [S, N].
        answered: mask of the clients whose answer arrives, bool [S, N].
        loss_on: part of the data that losses are measured on, from the configuration.

    Returns:
        The new bill.
    """
    kind = KINDS[request.kind]
    work = jnp.where(queried, facts.evaluated(request, federation, loss_on), 0).sum(axis=1)
    return bill._replace(
        asked=bill.asked | queried if kind.needs_model else bill.asked,
        trained=bill.trained | queried if kind.trains else bill.trained,
        answers=bill.answers.at[:, position].add(answered.sum(axis=1, dtype=jnp.int32)),
        examples_evaluated=bill.examples_evaluated + work,
    )


def add_probe(
    bill: Bill, took_part: jax.Array, reported: jax.Array, num_examples: jax.Array, queried: jax.Array
) -> Bill:
    """Add the cost of a probe round: its cohort's training and uploads, and a copy of its model per queried client.

    Args:
        bill: the round's bill so far.
        took_part: mask of the probe cohort's clients that trained, bool [S, K].
        reported: mask of those whose report arrived, bool [S, K].
        num_examples: examples that they trained on, int32 [S].
        queried: mask of the queried clients, bool [S, N].

    Returns:
        The new bill.
    """
    return bill._replace(
        probe_models_down=bill.probe_models_down + queried.sum(axis=1, dtype=jnp.int32),
        probe_models_up=bill.probe_models_up + reported.sum(axis=1, dtype=jnp.int32),
        probe_reports_lost=bill.probe_reports_lost + (took_part & ~reported).sum(axis=1, dtype=jnp.int32),
        examples_trained=bill.examples_trained + num_examples,
    )
