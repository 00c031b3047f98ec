"""Models on the server's examples: of the test set, for the curves, and of what a strategy asks it to use."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_sel.data.federation import Federation
from fedjax_sel.models.weights import Weights
from fedjax_sel.simulation import evaluation
from fedjax_sel.simulation.evaluation import Evaluator, Measured
from fedjax_sel.simulation.plan import Plan
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies.base import Evaluation


def evaluate_for_strategy(plan: Plan, federation: Federation, weights: Weights) -> Evaluation | None:
    """Return the server's own evaluation, where the strategy requests one; leaves [S]."""
    wanted = [request for request in plan.strategy.requests if request.kind == "server_metrics"]
    if not wanted:
        return None
    on_test = wanted[0].option("on", "validation") == "test"
    inputs = federation.test_images if on_test else federation.server_images
    targets = federation.test_labels if on_test else federation.server_labels
    measured = evaluate(plan, federation, weights, inputs, targets)
    loss = jnp.nan_to_num(measured.loss, nan=LARGEST, posinf=LARGEST)
    return Evaluation(measured.correct, measured.measures[plan.trainer.task.measure.name], loss)


def server_examples(plan: Plan, federation: Federation) -> int:
    """Count the examples that the server evaluates for the strategy in a round."""
    on_test = any(r.kind == "server_metrics" and r.option("on") == "test" for r in plan.strategy.requests)
    targets = federation.test_labels if on_test else federation.server_labels
    return jax.tree.leaves(targets)[0].shape[0]


def evaluator(plan: Plan, targets: Any) -> Evaluator:
    """Return what evaluates a plan's models on so many examples."""
    size = evaluation.block_size(jax.tree.leaves(targets)[0].shape[0], plan.evaluation_block)
    return Evaluator(plan.mesh, plan.trainer.model, plan.trainer.task, size, plan.blocks_at_once)


def evaluate(plan: Plan, federation: Federation, weights: Weights, inputs: Any, targets: Any) -> Measured:
    """Measure models on examples, leaves [S]."""
    return evaluation.on_examples(evaluator(plan, targets), federation, inputs, targets, weights)
