"""FedAvg (McMahan et al. 2017): clients do SGD, the server takes the weighted mean of their updates.

Traffic: the baseline, a model down and a model up for each client of the cohort.
"""

from fedjax_sel.training.optimizers.base import FederatedOptimizer


def fedavg() -> FederatedOptimizer:
    """Make FedAvg; with a `--server-learning-rate` other than 1 the server goes only so far, or farther.

    Returns:
        The optimizer.
    """
    return FederatedOptimizer("fedavg")
