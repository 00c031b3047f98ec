"""Faults that end a run: invalid client IDs, and updates or server steps that are not finite."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.errors import NonFiniteUpdateError, UserError
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.simulation.state import Records
from fedjax_sel.training.optimizers import FederatedOptimizer

MOST = 10  # client IDs listed in a message


class Fault(NamedTuple):
    """The error that ends a run."""

    good: int  # valid rounds of the chunk, before the first faulty one
    error: UserError | NonFiniteUpdateError


def find(config: Config, first: int, records: Records, federated: FederatedOptimizer) -> Fault | None:
    """Return the first fatal error in a chunk after `first` rounds; None if the run may continue.

    The records are in host memory, [rounds, S, ...].
    """
    updates = records.nonfinite.any(axis=2) & (config.run.on_nonfinite == "stop")
    step = partial(_step, federated=federated)
    kinds = ((_ids, records.faults.invalid_ids), (_updates, updates), (step, records.faults.step))  # [rounds, S]
    at_fault = np.any([found for _, found in kinds], axis=(0, 2))
    if not at_fault.any():
        return None
    round = int(np.argmax(at_fault))
    error, found = next((error, found[round]) for error, found in kinds if found[round].any())
    replicate = int(np.argmax(found))
    where = f"round {first + round + 1}, seed {config.run.seeds[replicate]}"
    return Fault(round, error(config, where, records, (round, replicate)))


def _ids(config: Config, where: str, records: Records, place: tuple[int, int]) -> UserError:
    """Return the error for client IDs that are out of range or repeated."""
    faults, algo, num_clients = records.faults, config.selection.algo, config.num_training_clients
    answers = {"select": (faults.ids[place], records.cohort[place])}
    if faults.candidates is not None:
        answers["candidates"] = (faults.candidates[place], faults.candidates[place])
    found = []
    for hook, (ids, counting) in answers.items():
        outside = ids[(ids < 0) | (ids >= num_clients)]
        one, count = np.unique(counting[counting >= 0], return_counts=True)
        if len(outside):
            found.append(
                f"`{hook}` returns {_clients(outside)}, but client IDs range from 0 to {num_clients - 1}: clip the IDs"
            )
        elif (count > 1).any():
            found.append(
                f"`{hook}` returns {_clients(one[count > 1])} more than once: draw without replacement"
                + (", or set the mask to first_occurrence(ids)" if hook == "select" else "")
            )
    return UserError(
        f"--algo {algo}: {where}: {'; '.join(found)}; `python -m fedjax_sel test {algo}` checks the whole strategy"
    )


def _updates(config: Config, where: str, records: Records, place: tuple[int, int]) -> NonFiniteUpdateError:
    """Return the error for non-finite client updates."""
    who = ", ".join(map(str, records.cohort[place][records.nonfinite[place]]))
    advice = ""
    if config.run.out is not None and config.run.resume != "never":
        saved = checkpoint.list_all(Path(config.run.out) / run_files.CHECKPOINTS)
        then = "resumes" if saved else "starts over"
        advice = f", with which the same command {then} in {config.run.out}"
    return NonFiniteUpdateError(
        f"{where}: the update of client {who} is not finite (algo {config.selection.algo}, learning rate "
        f"{config.training.learning_rate:g}); lower --learning-rate, or skip such updates with --on-nonfinite skip"
        f"{advice}"
    )


def _step(
    config: Config, where: str, records: Records, place: tuple[int, int], federated: FederatedOptimizer
) -> NonFiniteUpdateError:
    """Return the error for a non-finite server step after finite client updates."""
    training, algo = config.training, config.selection.algo
    if records.faults.weights[place]:
        unbiased = training.aggregation == "unbiased"
        whose = f"--aggregation unbiased with the `inclusion` of {algo}" if unbiased else f"the strategy {algo}"
        return NonFiniteUpdateError(
            f"{where}: the server's step is not finite, because the aggregation weights of {whose} are not finite; "
            "fix them, or choose another"
        )
    optimizer = training.server_optimizer or federated.name
    rate = training.server_learning_rate
    rate = federated.server_learning_rate if rate is None and training.server_optimizer is None else rate
    return NonFiniteUpdateError(
        f"{where}: the server's step is not finite, although all client updates are (algo {algo}, server optimizer "
        f"{optimizer}, server learning rate {1.0 if rate is None else rate:g}); lower --server-learning-rate, or "
        "--learning-rate if updates are large"
    )


def _clients(ids: Any) -> str:
    shown = ", ".join(map(str, ids[:MOST])) + (f" and {len(ids) - MOST} more" if len(ids) > MOST else "")
    return f"client {shown}" if len(ids) == 1 else f"clients {shown}"
