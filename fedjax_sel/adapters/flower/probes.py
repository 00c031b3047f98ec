"""FedCor's probes: random cohorts train, and all clients evaluate the models that come of it, which are thrown away."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedjax_sel.adapters.clients import Arrays
from fedjax_sel.selector import Ask, Selector

Name = Any  # hashable
Train = Callable[[int, tuple[Name, ...]], Mapping[Name, tuple[Arrays, float]]]
"""(which probe, its cohort) -> the weights and the aggregation's weight of those who reported."""
Evaluate = Callable[[Arrays | None, tuple[Name, ...]], Mapping[Name, float]]
"""(a probe's model, or None for the round's; whom to ask) -> their losses."""


def loss_changes(
    selector: Selector, due: Ask, names: tuple[Name, ...], weights: Arrays, train: Train, evaluate: Evaluate
) -> dict[Name, Any]:
    """Run a round's probes.

    Args:
        selector: that asks.
        due: what it asks.
        names: of whom.
        weights: the round's model.
        train: has a cohort train.
        evaluate: asks clients for a loss.

    Returns:
        Client -> its loss on each probe's model less its loss on the round's, [S], of those who answered every time.
    """
    before = evaluate(None, names)
    changes: dict[Name, list[float]] = {name: [] for name in before}
    for number, cohort in enumerate(selector.probe_cohorts()):
        model = mean(weights, train(number, cohort).values())
        after = before if due.options.get("restored") else evaluate(model, tuple(changes))
        changes = {name: [*values, after[name] - before[name]] for name, values in changes.items() if name in after}
    return {name: np.asarray(values, np.float32) for name, values in changes.items()}


def mean(weights: Arrays, reports: Any) -> Arrays:
    """Return the weighted mean of those reports that are finite; the model itself where there is none.

    Args:
        weights: the model from which they started.
        reports: pairs of weights and the aggregation's weight.
    """
    finite = [(own, share) for own, share in reports if all(np.isfinite(array).all() for array in own.values())]
    total = sum(share for _, share in finite)
    if not finite or total <= 0:
        return weights
    means = {name: sum(own[name] * (share / total) for own, share in finite) for name in weights}
    return {name: np.asarray(means[name], array.dtype) for name, array in weights.items()}
