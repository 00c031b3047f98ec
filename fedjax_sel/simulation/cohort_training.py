"""The cohort's local training, and the sums over what it reports. What nobody reads of the result is not computed."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel import devices
from fedjax_sel.data import federation as fed
from fedjax_sel.models import Params
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.client_table import Kept
from fedjax_sel.simulation.round_context import RoundContext, ToTrain, to_train
from fedjax_sel.simulation.selecting import Cohort
from fedjax_sel.strategies import subset_loss
from fedjax_sel.strategies.dependencies import OutcomeReads
from fedjax_sel.strategies.requests import SELECTED
from fedjax_sel.training import client, server


class Trained(NamedTuple):
    """What the cohorts' training gave, [S, K, ...]."""

    updates: Params  # zeros, of which nothing is computed, where no strategy reads them
    finite: jax.Array
    loss_before: jax.Array
    loss_after: jax.Array
    training_loss: jax.Array
    path_lengths: jax.Array | None  # see `Outcome`; None where no strategy reads them
    kept: Kept
    carried: Any  # changes of what models carry beside their weights; None where no strategy averages models


class Sums(NamedTuple):
    """Of the finite reports, [S, ...]."""

    averaged: Any  # what the optimizer averages, and what models carry, with the aggregation's weights
    contributed: Any  # with 1/N each


def train_cohorts(
    context: RoundContext, cohort: Cohort, weights: jax.Array, reads: OutcomeReads
) -> tuple[Trained, Sums]:
    """Train all cohorts from their replicate's model.

    Args:
        context: of the round.
        cohort: who trains, and whose report arrives.
        weights: of the aggregation, float32 [S, K].
        reads: which parts of the outcome the strategy reads.

    Returns:
        What each client reports, and the sums over those whose training arrives.
    """
    plan, selection, reports = context.plan, cohort.selection, cohort.reports
    round = context.round
    num_replicates, num_selected = selection.ids.shape
    replicates, clients = devices.pairs(num_replicates, selection.ids)
    job_keys = jax.vmap(lambda s, k: keys.of_client(context.streams.training[s], round, k))(replicates, clients)
    wanted = [r for r in plan.strategy.requests if r.kind == "training_loss" and r.who == SELECTED]
    averages = subset_loss.requested(plan.strategy) is not None
    keep_updates = reads.updates or averages
    statistic = wanted[0].option("statistic", "mean") if wanted else None

    def train(shared: ToTrain, job):
        replicate, who, key, arrives = job
        federation, received = shared.federation, shared.received(replicate)
        kept = shared.kept(replicate, who)
        memory = shared.memory(replicate, kept)
        result = client.train_and_report(
            plan.trainer, federation, received, replicate, who, key, shared.round, statistic, kept.optimizer, memory
        )
        report = plan.trainer.optimizer.report(result.finished, memory)
        # The server does not have the change of a client whose report is lost.
        own = jax.tree.map(lambda new, old: jnp.where(arrives, new, old), report.own, memory.own)
        sums = Sums((report.averaged, result.update.carried), report.contributed)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)
        trained = jax.tree.map(jnp.add, received, result.update)
        finite = server.is_finite(sums)
        of_client = Trained(
            result.update.trained if keep_updates else None,
            finite,
            client.loss(plan.trainer, federation, received, part),
            client.loss(plan.trainer, federation, trained, part),
            result.training_loss,
            result.coefficient * result.learning_rate if reads.path_lengths else None,
            Kept(None if kept.optimizer is None else result.optimizer_state, own),
            result.update.carried if averages else None,
        )
        return of_client, server.finite_part(sums, finite)

    jobs = (replicates, clients, job_keys, reports.mask.reshape(-1))
    num_clients = context.federation.starts.shape[1]
    factors = Sums(weights, jnp.where(reports.mask, 1.0 / num_clients, 0.0))
    of_jobs, sums = devices.spread_and_add(plan.mesh, train, to_train(context), jobs, plan.clients_at_once, factors)
    trained: Trained = devices.unflatten(of_jobs, num_replicates)
    if not keep_updates:
        nothing = jax.tree.map(
            lambda w: jnp.zeros((w.shape[0], num_selected, *w.shape[1:]), w.dtype), context.carry.params.trained
        )
        trained = trained._replace(updates=nothing)
    return trained, sums
