"""FedCor's probes: random cohorts train, and all clients evaluate the resulting models, which are then discarded."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.adapters.clients import Arrays
from fedjax_sel.selector import Ask, Selector

Name = Any  # hashable
Train = Callable[[int, tuple[Name, ...]], Mapping[Name, tuple[Arrays, float]]]
"""Function from a probe's index and cohort to the reports by client name: weights and aggregation weight."""
Evaluate = Callable[[Arrays | None, tuple[Name, ...]], Mapping[Name, float]]
"""Function from a model (None: the round's model) and client names to losses by name."""


def loss_changes(
    selector: Selector, due: Ask, names: tuple[Name, ...], weights: Arrays, train: Train, evaluate: Evaluate
) -> dict[Name, Any]:
    """Run a round's probes.

    Args:
        selector: the Selector.
        due: its query.
        names: names of the clients to query.
        weights: the round's model.
        train: function that trains a cohort.
        evaluate: function that queries clients for a loss.

    Returns:
        For each client with complete answers, its loss on every probe's model minus its loss on the round's model, [S].
    """
    before = evaluate(None, names)
    changes: dict[Name, list[float]] = {name: [] for name in before}
    for number, cohort in enumerate(selector.probe_cohorts()):
        model = mean(weights, train(number, cohort).values())
        after = before if due.options.get("restored") else evaluate(model, tuple(changes))
        changes = {name: [*values, after[name] - before[name]] for name, values in changes.items() if name in after}
    return {name: np.asarray(values, np.float32) for name, values in changes.items()}


def mean(weights: Arrays, reports: Any) -> Arrays:
    """Return the weighted mean of the finite reports, or the initial model if every report is non-finite.

    Args:
        weights: the initial model.
        reports: pairs of trained weights and aggregation weight.
    """
    finite = [(own, share) for own, share in reports if all(np.isfinite(array).all() for array in own.values())]
    total = sum(share for _, share in finite)
    if not finite or total <= 0:
        return weights
    means = {name: sum(own[name] * (share / total) for own, share in finite) for name in weights}
    return {name: np.asarray(means[name], array.dtype) for name, array in weights.items()}
