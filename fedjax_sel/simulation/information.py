"""Serving a strategy's requests: what is measured, on whom, and what it costs.

A fact is measured at the model that opens the round, for all replicates at once, spread over the devices.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.errors import UserError
from fedjax_sel.models import Model, Params
from fedjax_sel.simulation import devices, keys
from fedjax_sel.strategies.base import NEVER, Fact, Information, Request, Strategy
from fedjax_sel.training import client, schedule
from fedjax_sel.training.client import Trainer


class Bill(NamedTuple):
    """What serving the requests of a round costs, per replicate."""

    asked: jax.Array  # clients that received the model to answer, bool [S, N]
    answers: jax.Array  # int32 [S, requests]
    examples_trained: jax.Array  # int32 [S]
    examples_evaluated: jax.Array  # int32 [S]


class Kind(NamedTuple):
    """A kind of fact.

    Attributes:
        measure: (trainer, request, federation, params, replicate, client, key, round) -> [floats].
        floats: length of one answer, given the model.
        trains: whether a client trains to answer (else it evaluates its data once).
    """

    measure: Callable[..., jax.Array]
    floats: Callable[[Model], int]
    trains: bool


def _profile(trainer, request, federation, params, replicate, who, key, round):
    part = fed.all_parts(federation, replicate, who)
    return client.profile(trainer, federation, params, part, relu=dict(request.options).get("relu", False))


def _gradient(trainer, request, federation, params, replicate, who, key, round):
    part = fed.all_parts(federation, replicate, who)
    return ravel_pytree(client.gradient(trainer, federation, params, part))[0]


def _update(trainer, request, federation, params, replicate, who, key, round):
    return ravel_pytree(client.train(trainer, federation, params, replicate, who, key, round))[0]


KINDS: dict[str, Kind] = {
    "profile": Kind(_profile, lambda model: model.profile_size, trains=False),
    "gradient": Kind(_gradient, lambda model: model.num_params, trains=False),
    "update": Kind(_update, lambda model: model.num_params, trains=True),
}


def check(strategy: Strategy) -> None:
    """Refuses requests that nobody serves.

    Raises:
        UserError: an unknown kind, or one kind requested twice.
    """
    kinds = [request.kind for request in strategy.requests]
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"strategy {strategy.name!r} requests {kind!r}; the simulator serves {', '.join(KINDS)}")
        if kinds.count(kind) > 1:
            raise UserError(f"strategy {strategy.name!r} requests {kind!r} twice; join the schedules with |")


def floats_per_answer(strategy: Strategy, model: Model) -> tuple[int, ...]:
    """The length of one answer to each request."""
    return tuple(KINDS[request.kind].floats(model) for request in strategy.requests)


def empty(strategy: Strategy, model: Model, num_replicates: int, num_clients: int) -> Information:
    """The tables before anything is known."""
    lengths = floats_per_answer(strategy, model)
    facts = {
        request.kind: Fact(
            jnp.zeros((num_replicates, num_clients, length), jnp.float32),
            jnp.full((num_replicates, num_clients), NEVER, jnp.int32),
        )
        for request, length in zip(strategy.requests, lengths)
    }
    return Information(strategy.name, facts)


def serve_all(
    mesh: Mesh,
    trainer: Trainer,
    request: Request,
    federation: Federation,
    params: Params,
    training_keys: jax.Array,
    round: jax.Array,
    at_once: int,
) -> Fact:
    """Measures one request on every client of every replicate.

    An `update` is trained on the stream of (round, client), so a client selected in the same round would repeat it.
    """
    num_replicates, num_clients = federation.starts.shape
    replicates, clients = devices.pairs(num_replicates, jnp.arange(num_clients))
    job_keys = jax.vmap(lambda s, k: keys.of_client(training_keys[s], round, k))(replicates, clients)

    def measure(shared, job):
        federation, params, round = shared
        replicate, who, key = job
        return KINDS[request.kind].measure(
            trainer, request, federation, devices.of_replicate(params, replicate), replicate, who, key, round
        )

    jobs = (replicates, clients, job_keys)
    value = devices.spread(mesh, measure, (federation, params, round), jobs, at_once)
    return Fact(devices.unflatten(value, num_replicates), jnp.zeros((num_replicates, num_clients), jnp.int32))


def bill_all(trainer: Trainer, strategy: Strategy, federation: Federation, served: list[jax.Array | bool]) -> Bill:
    """What it costs that every client answers the requests that were served (a Boolean a request)."""
    num_replicates, num_clients = federation.starts.shape
    served_flags = [jnp.asarray(flag, bool) for flag in served]
    zero = jnp.zeros((num_replicates,), jnp.int32)
    trained, evaluated, asked = zero, zero, jnp.zeros((), bool)
    for request, flag in zip(strategy.requests, served_flags):
        asked |= flag
        if KINDS[request.kind].trains:
            trained += jnp.where(flag, schedule.num_examples(trainer.work, federation.train_sizes).sum(axis=1), 0)
        else:
            evaluated += jnp.where(flag, federation.sizes.sum(axis=1), 0)
    answers = jnp.array([jnp.where(flag, num_clients, 0) for flag in served_flags], jnp.int32)
    return Bill(
        asked=jnp.broadcast_to(asked, (num_replicates, num_clients)),
        answers=jnp.broadcast_to(answers, (num_replicates, len(strategy.requests))),
        examples_trained=trained,
        examples_evaluated=evaluated,
    )


def measure(
    mesh: Mesh,
    trainer: Trainer,
    strategy: Strategy,
    info: Information,
    federation: Federation,
    params: Params,
    training_keys: jax.Array,
    round: jax.Array,
    at_once: int,
) -> tuple[Information, Bill]:
    """Opens a round: serves the requests that are due.

    Whether a request is due depends on the round number alone, which is never batched: `cond` stays a real branch.
    """
    served: list[jax.Array | bool] = []
    for request in strategy.requests:
        if not request.when.rules:
            served.append(False)
            continue

        def fresh(_: Fact, request: Request = request) -> Fact:
            return serve_all(mesh, trainer, request, federation, params, training_keys, round, at_once)

        due = request.when.due(round)
        fact = lax.cond(due, fresh, lambda old: old, getattr(info, request.kind))
        info = info.replace(request.kind, fact)
        served.append(due)
    return info, bill_all(trainer, strategy, federation, served)


def age(info: Information) -> Information:
    """Closes a round: every fact is one round older."""
    for kind in info.kinds():
        fact = getattr(info, kind)
        info = info.replace(kind, Fact(fact.value, jnp.minimum(fact.age + 1, NEVER)))
    return info


def measure_at_start(
    mesh: Mesh,
    trainer: Trainer,
    strategy: Strategy,
    at_once: int,
    info: Information,
    federation: Federation,
    params: Params,
    training_keys: jax.Array,
) -> Information:
    """Serves the requests that are due before the first round. The first round bills them."""
    for request in strategy.requests:
        if request.when.before_first_round:
            arguments: Any = (federation, params, training_keys, jnp.int32(0), at_once)
            info = info.replace(request.kind, serve_all(mesh, trainer, request, *arguments))
    return info
