"""Evaluation on the server: the test set for curves, and a strategy's `server_metrics` and `subset_loss`."""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import evaluation
from fedjax_sel.simulation.evaluation import Evaluator, Measured
from fedjax_sel.simulation.plan import Plan
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies import subset_loss
from fedjax_sel.strategies.base import Evaluation, Unrequested
from fedjax_sel.strategies.requests import SERVER, Request
from fedjax_sel.strategies.subset_loss import SubsetLoss


def evaluate_for_strategy(plan: Plan, federation: Federation, weights: Weights) -> Evaluation | None:
    """Return the server's evaluation of the models, leaves [S]; None if the strategy does not request one."""
    wanted = [request for request in plan.strategy.requests if request.kind == "server_metrics"]
    if not wanted:
        return None
    inputs, targets = _examples(federation, wanted[0])
    measured = evaluate(plan, federation, weights, inputs, targets)
    loss = jnp.nan_to_num(measured.loss, nan=LARGEST, posinf=LARGEST)
    return Evaluation(measured.correct, measured.measures[plan.trainer.task.measure.name], loss)


class Reports(NamedTuple):
    """Inputs of averages over subsets of a cohort."""

    updates: Weights  # w_k - w, zero for lost reports, [S, K, ...]
    weights: jax.Array  # aggregation weights, zero for reports lost or not finite, float32 [S, K]
    params: Weights  # w, [S, ...]


def subsets(plan: Plan, federation: Federation, reports: Reports) -> SubsetLoss | Unrequested:
    """Return the `subset_loss` that `update` calls: the server's loss of averaged models of subsets of the cohort."""
    request = subset_loss.requested(plan.strategy)
    if request is None:
        return Unrequested(plan.strategy.name, subset_loss.KIND)
    inputs, targets = _examples(federation, request)
    count = jax.tree.leaves(targets)[0].shape[0]
    block = evaluation.block_size(count, plan.evaluation_block)
    starts = jnp.minimum(jnp.arange(-(-count // block)) * block, count - block)
    fresh = jnp.arange(-(-count // block)) * block  # first example of each block that is not in the block before

    def of_model(weights: Weights) -> jax.Array:
        def of_block(job: tuple[jax.Array, jax.Array]) -> jax.Array:
            start, first = job
            batch = fed.block(federation, inputs, start, block)
            answers = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, block), targets)
            losses = plan.trainer.task.losses(plan.trainer.model.apply(weights, batch, None).prediction, answers)
            return jnp.where(start + jnp.arange(block) >= first, losses, 0.0).sum()

        return lax.map(of_block, (starts, fresh)).sum() / count

    def loss(reports: Reports, mask: jax.Array) -> jax.Array:
        def of_subset(members: jax.Array) -> jax.Array:
            shares = jnp.where(members, reports.weights, 0.0)
            shares = shares / jnp.where(shares.sum() > 0, shares.sum(), 1.0)

            def average(w: jax.Array, updates: jax.Array) -> jax.Array:
                own = jnp.where(shares.reshape(-1, *[1] * w.ndim) > 0, updates, 0.0)
                return w + jnp.tensordot(shares, own, 1, precision=lax.Precision.HIGHEST)

            found = of_model(jax.tree.map(average, reports.params, reports.updates))
            return jnp.nan_to_num(found, nan=LARGEST, posinf=LARGEST)

        return lax.map(of_subset, mask)

    return subset_loss.of(plan.strategy, loss, reports)


def _examples(federation: Federation, request: Request) -> tuple[Any, Any]:
    """Return the inputs and targets on which the server evaluates a request."""
    if request.option("on", "validation") == "test":
        return federation.test_images, federation.test_labels
    return federation.server_images, federation.server_labels


def server_examples(plan: Plan, federation: Federation, evaluations: jax.Array | int) -> jax.Array | int:
    """Count the examples that the server evaluates for the strategy in a round.

    Args:
        plan: static configuration with the strategy.
        federation: the data.
        evaluations: number of evaluations of the global model for `server_metrics`.
    """
    counts = {}
    for request in plan.strategy.requests:
        if request.who == SERVER:
            times = evaluations if request.kind == "server_metrics" else request.option("subsets", 1)
            counts[request.kind] = times * jax.tree.leaves(_examples(federation, request)[1])[0].shape[0]
    return functools.reduce(operator.add, counts.values()) if counts else 0


def evaluator(plan: Plan, targets: Any) -> Evaluator:
    """Return the evaluation configuration for the examples of `targets`."""
    size = evaluation.block_size(jax.tree.leaves(targets)[0].shape[0], plan.evaluation_block)
    return Evaluator(plan.mesh, plan.trainer.model, plan.trainer.task, size, plan.blocks_at_once)


def evaluate(plan: Plan, federation: Federation, weights: Weights, inputs: Any, targets: Any) -> Measured:
    """Evaluate one model per replicate on the same examples, leaves [S]."""
    return evaluation.on_examples(evaluator(plan, targets), federation, inputs, targets, weights)
