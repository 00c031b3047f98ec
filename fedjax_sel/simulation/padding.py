"""How much of the devices' time in training goes to nothing: places and steps that only fill up."""

import numpy as np

from fedjax_sel.devices import CLIENTS, SEEDS
from fedjax_sel.simulation.plan import Plan

COHORTS = 200  # random ones that are looked at


def padded_share(plan: Plan, steps: np.ndarray) -> float:
    """Return the share of training time, over all devices, in which one waits for others or computes for nobody.

    Three things cost: clients that do not divide evenly among devices, clients of a batch that end before its longest,
    and devices whose clients have less to do. Averaged over uniformly random cohorts; all steps count alike.

    Args:
        plan: the layout.
        steps: that each client takes in a round, int [S, N].
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
            # Clients who train in turn leave an empty place empty; a batch is filled up with others.
            dealt = np.where((places < len(of_group)) | (at_once > 1), of_group[places % len(of_group)], 0)
            spent += share * max(_turn(jobs, at_once) for jobs in dealt.reshape(share, each))
    return 1.0 - useful / spent


def _turn(jobs: np.ndarray, at_once: int) -> int:
    """Return the steps' time that a device takes: batches one after another, each as long as its longest job."""
    batches = [jobs[start : start + at_once] for start in range(0, len(jobs), at_once)]
    return int(sum(len(batch) * batch.max() for batch in batches))
