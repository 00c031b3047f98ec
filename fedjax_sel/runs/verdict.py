"""Whether a run may go on after a chunk; and if not, the sentence that says in which round, why, and what to do."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.errors import NonFiniteUpdateError, UserError
from fedjax_sel.experiment import optimization
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation.state import Records
from fedjax_sel.training.optimizers.base import FederatedOptimizer

MOST = 10  # ids that a sentence lists


class Verdict(NamedTuple):
    """Why a run ends."""

    good: int  # rounds of the chunk before the one at fault
    error: UserError | NonFiniteUpdateError


def of_chunk(
    config: Config, first: int, records: Records, federated: FederatedOptimizer | None = None
) -> Verdict | None:
    """Return why a run must end within a chunk: the first round at fault counts, and in it what came first.

    Args:
        config: of the run.
        first: rounds before the chunk.
        records: of the chunk, leaves [rounds, S, ...] in host memory.
        federated: the run's optimizer; None: the one that the configuration names.

    Returns:
        The verdict; None if the run may go on.
    """
    updates = records.nonfinite.any(axis=2) & (config.run.on_nonfinite == "stop")
    step = partial(_step, federated=federated)
    faults = ((_names, records.faults.names), (_updates, updates), (step, records.faults.step))  # [rounds, S]
    at_fault = np.any([found for _, found in faults], axis=(0, 2))
    if not at_fault.any():
        return None
    round = int(np.argmax(at_fault))
    tell, found = next((tell, found[round]) for tell, found in faults if found[round].any())
    replicate = int(np.argmax(found))
    where = f"round {first + round + 1}, seed {config.run.seeds[replicate]}"
    return Verdict(round, tell(config, where, records, (round, replicate)))


def _names(config: Config, where: str, records: Records, place: tuple[int, int]) -> UserError:
    """Return the error that says whom a strategy names, who is nobody or stands there twice."""
    faults, algo, num_clients = records.faults, config.selection.algo, config.partition.num_clients
    answers = {"select": (faults.ids[place], records.cohort[place])}
    if faults.candidates is not None:
        answers["candidates"] = (faults.candidates[place], faults.candidates[place])
    found = []
    for hook, (ids, counting) in answers.items():
        outside = ids[(ids < 0) | (ids >= num_clients)]
        one, count = np.unique(counting[counting >= 0], return_counts=True)
        if len(outside):
            found.append(f"`{hook}` names {_clients(outside)}, and there are {num_clients}, from 0: clip its ids")
        elif (count > 1).any():
            found.append(
                f"`{hook}` names {_clients(one[count > 1])} more than once: draw without replacement"
                + (", or set the mask to first_occurrence(ids)" if hook == "select" else "")
            )
    return UserError(
        f"--algo {algo}: {where}: {'; '.join(found)}; `python -m fedjax_sel test {algo}` checks the whole strategy"
    )


def _updates(config: Config, where: str, records: Records, place: tuple[int, int]) -> NonFiniteUpdateError:
    """Return the error that says whose updates are not finite."""
    who = ", ".join(map(str, records.cohort[place][records.nonfinite[place]]))
    advice = ""
    if config.run.out is not None and config.run.resume != "never":
        goes_on = checkpoint.list_all(Path(config.run.out) / run_files.CHECKPOINTS)
        then = "goes on" if goes_on else "begins again"
        advice = f", with which the same command {then} in {config.run.out}"
    return NonFiniteUpdateError(
        f"{where}: the update of client {who} is not finite (algo {config.selection.algo}, learning rate "
        f"{config.training.learning_rate:g}); lower --learning-rate, or leave such updates out by --on-nonfinite skip"
        f"{advice}"
    )


def _step(
    config: Config, where: str, records: Records, place: tuple[int, int], federated: FederatedOptimizer | None
) -> NonFiniteUpdateError:
    """Return the error that says what made the server's step not finite, which no client did."""
    training, algo = config.training, config.selection.algo
    if records.faults.weights[place]:
        unbiased = training.aggregation == "unbiased"
        whose = f"--aggregation unbiased with the `inclusion` of {algo}" if unbiased else f"the strategy {algo}"
        return NonFiniteUpdateError(
            f"{where}: the server's step is not finite, for the weights of the updates are not, which come from "
            f"{whose}; mend them, or give another"
        )
    federated = federated or optimization.of(training).federated
    optimizer = training.server_optimizer or federated.name
    rate = training.server_learning_rate
    rate = federated.server_learning_rate if rate is None and training.server_optimizer is None else rate
    return NonFiniteUpdateError(
        f"{where}: the server's step is not finite, and all that the clients report is (algo {algo}, server optimizer "
        f"{optimizer}, server learning rate {1.0 if rate is None else rate:g}); lower --server-learning-rate, or "
        "--learning-rate if updates are huge"
    )


def _clients(ids: Any) -> str:
    shown = ", ".join(map(str, ids[:MOST])) + (f" and {len(ids) - MOST} more" if len(ids) > MOST else "")
    return f"client {shown}" if len(ids) == 1 else f"clients {shown}"


def refuse_what_was_skipped(earlier: Result, config: Config) -> None:
    """Refuse to take rounds that left updates out for a run that would have ended at the first of them.

    Until then both are the same, to the bit: `on_nonfinite` is read by the host alone.

    Args:
        earlier: rounds in the run's folder.
        config: of the run that is to read them, or to go on with them.

    Raises:
        UserError: they left some out, and the run is to stop at such updates.
    """
    skipped = earlier.ledger.updates_skipped.any(axis=0)
    if config.run.on_nonfinite == "stop" and skipped.any():
        raise UserError(
            f"--on-nonfinite stop: the run in {config.run.out} left an update out in round {np.argmax(skipped) + 1}, "
            "where this one would have ended; give --on-nonfinite skip, or another --out"
        )
