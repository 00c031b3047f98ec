"""Results that nobody has computed."""

import numpy as np

import fedjax_sel
from fedjax_sel import tasks
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation.ledger import Ledger

NUM_CLIENTS = 4


def result(accuracy, cohorts=None, **columns):
    """A finished run of these accuracies, [seeds, rounds]."""
    accuracy = np.asarray(accuracy, np.float64)
    seeds, rounds = accuracy.shape
    config = fedjax_sel.preset("quickstart").replace(
        seeds=seeds, rounds=rounds, num_clients=NUM_CLIENTS, num_selected=1
    )
    ledger = Ledger(*(np.ones((seeds, rounds), np.int64) for _ in Ledger._fields))
    measured = dict.fromkeys(tasks.names(tasks.classification()), np.ones((seeds, rounds)))
    measured |= {"test_accuracy": accuracy, **columns}
    cohorts = np.zeros((seeds, rounds, 1), np.int32) if cohorts is None else np.asarray(cohorts, np.int32)
    seconds = np.arange(1.0, rounds + 1)
    return Result(config, "made up", tuple(range(seeds)), measured, cohorts, ledger, seconds)


def arriving(rounds, horizon=20):
    """A run whose seeds reach 0.5 in these rounds; None: never."""
    accuracy = np.zeros((len(rounds), horizon))
    for values, first in zip(accuracy, rounds):
        if first is not None:
            values[first - 1 :] = 0.5
    return result(accuracy)
