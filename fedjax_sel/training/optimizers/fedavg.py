"""FedAvg (McMahan et al. 2017): clients run SGD, the server takes the weighted mean of their updates.

Traffic: the baseline, one model down and one model up for each client of the cohort.
"""

from fedjax_sel.training.optimizers.base import FederatedOptimizer


def fedavg() -> FederatedOptimizer:
    """Build FedAvg; `--server-learning-rate` scales the mean update."""
    return FederatedOptimizer("fedavg")
