"""What a round's facts cost, counted on the device as they are served."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import facts
from fedjax_sel.strategies.kinds import KINDS
from fedjax_sel.strategies.requests import Request


class Bill(NamedTuple):
    """What serving the requests of a round costs; leaves [S, ...]."""

    asked: jax.Array  # clients that received the round's model to answer, bool [S, N]
    trained: jax.Array  # clients that trained from the round's model to answer, bool [S, N]
    answers: jax.Array  # clients that answered each request, int32 [S, requests]
    probe_models_down: jax.Array  # int32 [S]: averaged copies sent to be evaluated
    probe_models_up: jax.Array  # int32 [S]: probe cohorts' models that arrived
    probe_reports_lost: jax.Array  # int32 [S]: those that did not
    examples_trained: jax.Array  # int32 [S], beside those of `trained` and of the cohort
    examples_evaluated: jax.Array  # int32 [S]
    losses_replaced: jax.Array  # int32 [S]: measured losses that were not finite


def nothing(num_replicates: int, num_clients: int, num_requests: int) -> Bill:
    """Return the bill of a round without requests."""
    zero = jnp.zeros((num_replicates,), jnp.int32)
    nobody = jnp.zeros((num_replicates, num_clients), bool)
    return Bill(nobody, nobody, jnp.zeros((num_replicates, num_requests), jnp.int32), *[zero] * 6)


def add(
    bill: Bill,
    position: int,
    request: Request,
    federation: Federation,
    asked: jax.Array,
    answered: jax.Array,
    loss_on: str,
) -> Bill:
    """Add what it costs that some clients are asked, and that their answers arrive.

    Args:
        bill: so far.
        position: of the request among the strategy's.
        request: static.
        federation: the data.
        asked: who receives the model and works for an answer, bool [S, N].
        answered: whose answer arrives, bool [S, N].
        loss_on: the configuration's.

    Returns:
        The bill.
    """
    kind = KINDS[request.kind]
    work = jnp.where(asked, facts.evaluated(request, federation, loss_on), 0).sum(axis=1)
    return bill._replace(
        asked=bill.asked | asked if kind.needs_model else bill.asked,
        trained=bill.trained | asked if kind.trains else bill.trained,
        answers=bill.answers.at[:, position].add(answered.sum(axis=1, dtype=jnp.int32)),
        examples_evaluated=bill.examples_evaluated + work,
    )


def add_probe(bill: Bill, took_part: jax.Array, reported: jax.Array, num_examples: jax.Array, asked: jax.Array) -> Bill:
    """Add the models of a probe round: its cohort's uploads, and averaged copies to everyone who is asked.

    Args:
        bill: so far.
        took_part: who of its cohort trained, bool [S, K].
        reported: whose training arrived, bool [S, K].
        num_examples: that they trained on, int32 [S].
        asked: bool [S, N].

    Returns:
        The bill.
    """
    return bill._replace(
        probe_models_down=bill.probe_models_down + asked.sum(axis=1, dtype=jnp.int32),
        probe_models_up=bill.probe_models_up + reported.sum(axis=1, dtype=jnp.int32),
        probe_reports_lost=bill.probe_reports_lost + (took_part & ~reported).sum(axis=1, dtype=jnp.int32),
        examples_trained=bill.examples_trained + num_examples,
    )
