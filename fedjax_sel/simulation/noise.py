"""Noise in what clients send for selection and in the mean update: drawn per round, counted, limited by the budget."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fedjax_sel.numerics import privacy
from fedjax_sel.simulation import keys, ledger
from fedjax_sel.simulation.ledger import Bill, distinct
from fedjax_sel.simulation.state import Carry, Cohort, Plan, RoundContext, Sums, Trained
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.facts import KINDS, Request
from fedjax_sel.strategies.protocol import SelectionState
from fedjax_sel.training import server

_OF_TRAINED = {"updates": "updates", "losses_before": "loss_before", "losses_after": "loss_after"}


def answered(context: RoundContext, bill: Bill) -> jax.Array | None:
    """Return the number of perturbed answers of each client so far, int32 [S, N]; None without noise."""
    before = context.carry.answered
    return None if before is None or bill.perturbed is None else before + bill.perturbed


def trainings(context: RoundContext, reports: Selection) -> jax.Array | None:
    """Return the number of reports of each client so far, int32 [S, N]; None without --private-training."""
    before = context.carry.trainings
    if before is None:
        return None
    return before + distinct(reports.ids, reports.mask, before.shape[1])


def epsilons(context: RoundContext, bill: Bill, reports: Selection) -> jax.Array | None:
    """Return the epsilon that each client has spent, float32 [S, N]; None without noise."""
    training, places = context.plan.private_training, answered(context, bill)
    if (trained := trainings(context, reports)) is not None and training is not None:
        places = trained if places is None else places * (training.trainings + 1) + trained
    return None if places is None else jnp.asarray(context.plan.epsilons, jnp.float32)[places]


def may_train(plan: Plan, carry: Carry, available: jax.Array | None) -> jax.Array | None:
    """Return the mask of available clients, bool [S, N], without those that have trained R times; None: all."""
    if plan.private_training is None or not plan.private_training.stops:
        return available
    below = carry.trainings < plan.private_training.trainings
    return below if available is None else available & below


def within_budget(context: RoundContext, bill: Bill, ids: jax.Array, answers: int = 1) -> jax.Array | bool:
    """Return whether the clients `ids`, int32 [S, M], may send `answers` more answers; True without a limit."""
    noise, counts = context.plan.noise, answered(context, bill)
    if noise is None or counts is None or not noise.stops:
        return True
    return jnp.take_along_axis(counts + answers < noise.answers + 1, ids, axis=1)


def count(bill: Bill, ids: jax.Array, arrives: jax.Array, answers: int = 1) -> Bill:
    """Add `answers` perturbed answers of the clients `ids`, int32 [S, M], whose message `arrives`, bool [S, M]."""
    assert bill.perturbed is not None
    clients = distinct(ids, arrives, bill.perturbed.shape[1])
    return bill._replace(perturbed=bill.perturbed + answers * clients)


def perturb(
    context: RoundContext, place: int, request: Request, ids: jax.Array, values: Any, at_start: bool = False
) -> Any:
    """Return answers, leaves [S, M, ...], within their bounds and with the noise of their clients and round.

    The noise depends on the request's position `place`, the client, the round, and whether this is before the first.
    """
    noise, round = context.plan.noise, keys.START if at_start else context.round
    assert noise is not None
    examples = ledger.answer_examples(request, context.federation, context.plan.loss_on)

    def of_client(stream: jax.Array, who: jax.Array, value: Any, examples: jax.Array) -> Any:
        key = jax.random.fold_in(keys.client_key(stream, jnp.int32(round), who), place)
        numbers, restored = ravel_pytree(value)
        return restored(noise.private(key, request, numbers, examples))

    over_clients = jax.vmap(of_client, (None, 0, 0, 0))
    return jax.vmap(over_clients)(context.streams.privacy, ids, values, jnp.take_along_axis(examples, ids, axis=1))


def perturb_reports(
    context: RoundContext, cohort: Cohort, known: SelectionState, trained: Trained
) -> tuple[Cohort, SelectionState, Trained]:
    """Return the cohort's reports as the strategy sees them: with noise, and without the clients over their budget.

    The aggregation has already taken the plain updates. Changes of non-trained model state are left out.
    """
    if context.plan.noise is None:
        return cohort, known, trained
    trained = trained._replace(finite=jnp.ones_like(trained.finite))  # it depends on the data, and would have no noise
    requests = {place: request for place, request in context.plan.noise.requests.items() if request.kind not in KINDS}
    if not requests:
        return cohort, known, trained
    reports, bill = cohort.reports, known.bill
    shown = reports.mask & within_budget(context, bill, reports.ids, len(requests))
    for place, request in requests.items():
        name = _OF_TRAINED[request.kind]
        values = perturb(context, place, request, reports.ids, getattr(trained, name))
        trained = trained._replace(**{name: values})
    trained = trained._replace(carried=jax.tree.map(jnp.zeros_like, trained.carried))
    known = known._replace(bill=count(bill, reports.ids, shown, len(requests)))
    return cohort._replace(reports=reports._replace(mask=shown)), known, trained


def addend(plan: Plan, sums: Sums, finite: jax.Array) -> Sums:
    """Return what a client adds to the sums: zeros if it is not finite; clipped with --private-training."""
    sums = server.finite_part(sums, finite)
    return sums if plan.private_training is None else privacy.clipped_tree(sums, plan.private_training.clip)


def private_mean(context: RoundContext, mean: Any) -> Any:
    """Return the mean of the clipped updates, leaves [S, ...], with the noise of the round."""
    training = context.plan.private_training
    assert training is not None

    def of_replicate(stream: jax.Array, mean: Any) -> Any:
        key = jax.random.fold_in(keys.round_key(stream, context.round), keys.AGGREGATE)
        numbers, restored = ravel_pytree(mean)
        return restored(numbers + privacy.draw(key, "gaussian", training.standard_deviation, numbers.shape))

    return jax.vmap(of_replicate)(context.streams.privacy, mean)
