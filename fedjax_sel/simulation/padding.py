"""The padding overhead: the fraction of training time that devices spend idle or on padded steps."""

import numpy as np

from fedjax_sel.devices import CLIENTS, SEEDS
from fedjax_sel.simulation.plan import Plan

COHORTS = 200  # random cohorts in the average


def padded_share(plan: Plan, steps: np.ndarray) -> float:
    """Return the fraction of training time, over all devices, lost to waiting and padding.

    Three causes count: clients that do not divide evenly among devices, clients that end before the longest of their
    batch, and devices whose clients have fewer steps. The average is over uniformly random cohorts; all steps cost the
    same.

    Args:
        plan: static configuration with the device layout.
        steps: local steps of each client in a round, int [S, N].
    """
    groups, share = plan.mesh.shape[SEEDS], plan.mesh.shape[CLIENTS]
    num_seeds, num_clients = steps.shape
    rng = np.random.default_rng(0)
    useful = spent = 0
    for _ in range(COHORTS):
        cohorts = np.stack([rng.permutation(num_clients)[: plan.num_selected] for _ in range(num_seeds)])
        work = np.take_along_axis(steps, cohorts, axis=1).reshape(groups, -1)
        useful += work.sum()
        for of_group in work:
            each = -(-len(of_group) // share)
            at_once = plan.clients_at_once or each
            places = np.arange(each * share)
            # An empty place costs nothing if clients train one after another; a batch fills it with another client.
            dealt = np.where((places < len(of_group)) | (at_once > 1), of_group[places % len(of_group)], 0)
            spent += share * max(_turn(jobs, at_once) for jobs in dealt.reshape(share, each))
    return 1.0 - useful / spent


def _turn(jobs: np.ndarray, at_once: int) -> int:
    """Return a device's total time, in steps: batches run in sequence, each as long as its longest job."""
    batches = [jobs[start : start + at_once] for start in range(0, len(jobs), at_once)]
    return int(sum(len(batch) * batch.max() for batch in batches))
