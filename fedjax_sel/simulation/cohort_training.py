"""The cohort's local training and the weighted sums of its reports. Unread results are not computed."""

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
    """Each client's training result, leaves [S, K, ...]."""

    updates: Params  # w_k - w^t; zeros, at no cost, if the strategy does not read them
    finite: jax.Array  # bool
    loss_before: jax.Array  # nats
    loss_after: jax.Array  # nats
    training_loss: jax.Array  # nats; zero if not requested
    path_lengths: jax.Array | None  # see `Outcome`; None if the strategy does not read them
    kept: Kept  # the client's new row of the client table
    carried: Any  # changes of the non-trained model state; None unless the strategy averages models


class Sums(NamedTuple):
    """Weighted sums of the finite reports, leaves [S, ...]."""

    averaged: Any  # pair: `Report.averaged`, and changes of non-trained model state; by aggregation weight
    contributed: Any  # `Report.contributed`, weighted by 1/N


def train_cohorts(
    context: RoundContext, cohort: Cohort, weights: jax.Array, reads: OutcomeReads
) -> tuple[Trained, Sums]:
    """Train each cohort from its replicate's model w^t, with all S * K clients spread over the devices.

    Args:
        context: the round's inputs.
        cohort: the selected clients, and the mask of arriving reports.
        weights: aggregation weights, float32 [S, K].
        reads: the parts of the outcome that the strategy reads.

    Returns:
        Each client's result, and the weighted sums of the arriving finite reports.
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
        # The server never receives the change in a lost report, so the client keeps its old memory.
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
        zeros = jax.tree.map(
            lambda w: jnp.zeros((w.shape[0], num_selected, *w.shape[1:]), w.dtype), context.carry.params.trained
        )
        trained = trained._replace(updates=zeros)
    return trained, sums
