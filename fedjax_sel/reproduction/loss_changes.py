"""Loss changes under random cohorts, measured at the checkpoints of a finished run and saved in its folder.

    loss_changes/round-00000014-1000.npz     changes, float32 [seeds, 1000, N], cohorts, int32 [seeds, 1000, K], and
                                             the measurement's seconds, a scalar

A run with `checkpoint_every` is measured in its first round and after each such interval. Other runs are measured in
the round after their last one. Finished rounds are not measured again; an interruption loses only the current one.
"""

import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.core import files, whole_files
from fedjax_sel.experiment.problem import pose
from fedjax_sel.reproduction import state
from fedjax_sel.reproduction.entry import Measure, Scale
from fedjax_sel.runs import checkpoint, out_folder, run_files
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import layout, run
from fedjax_sel.simulation.loss_changes import Meter
from fedjax_sel.simulation.plan import Carry

COHORTS = 1000  # as in the paper
FOLDER = "loss_changes"
_CHANGES, _COHORTS, _SECONDS = "changes", "cohorts", "seconds"


def cohorts(scale: Scale) -> int:
    """Return the number of random cohorts per round: the paper's number, or a fraction of it."""
    return max(2, round(scale.share * COHORTS))


def rounds_of(config: Config) -> tuple[int, ...]:
    """Return the measured rounds of a run, from 0."""
    every, rounds = config.run.checkpoint_every, config.run.rounds
    return (rounds,) if every is None else tuple(range(0, rounds, every))


def read(result: Result, scale: Scale) -> dict[int, np.ndarray]:
    """Return the measured loss changes of a run.

    Args:
        result: result of a run with a folder.
        scale: scale, which determines the number of cohorts.

    Returns:
        The clients' loss changes by round, nats, float32 [seeds, cohorts, N], without missing or damaged rounds.
    """
    return {round: arrays[_CHANGES] for round, arrays in _kept(result, scale).items()}


def drawn(result: Result, scale: Scale) -> dict[int, np.ndarray]:
    """Return the random cohorts behind the loss changes of `read`, by round, int32 [seeds, cohorts, K]."""
    return {round: arrays[_COHORTS] for round, arrays in _kept(result, scale).items()}


def is_there(result: Result, scale: Scale) -> bool:
    """Return whether all rounds of a run are measured."""
    return len(_kept(result, scale)) == len(rounds_of(result.config))


def took(result: Result, scale: Scale) -> float:
    """Return the seconds of the measurement, with compilation; NaN if an earlier version did not record them."""
    return sum(float(arrays.get(_SECONDS, np.nan)) for arrays in _kept(result, scale).values())


def measure(result: Result, scale: Scale) -> Iterator[str]:
    """Measure the missing rounds of a run.

    Args:
        result: result of a finished run whose folder has the checkpoints.
        scale: scale, which determines the number of cohorts.

    Yields:
        A progress line, possibly empty, after each step.

    Raises:
        DamagedRunError: a checkpoint is missing or damaged.
        UserError: a file cannot be written.
    """
    every, there, begun = rounds_of(result.config), _kept(result, scale), time.monotonic()
    missing = [round for round in every if round not in there]
    if not missing:
        return
    problem = pose(result.config)
    laid_out = layout.lay_out(problem, len(result.seeds))
    program = run.prepare_groups(problem, laid_out)[0]
    meter = Meter(program)
    shapes = run.shapes_of_state(problem, laid_out)
    for round in missing:
        pieces = []
        carry = program.carry if round == 0 else _after(result, round, shapes)
        for piece in meter.measure(carry, round, cohorts(scale)):
            pieces.append(piece)
            yield ""
        content = io.BytesIO()
        arrays: dict[str, Any] = {
            _CHANGES: np.concatenate([piece.changes for piece in pieces], axis=1),
            _COHORTS: np.concatenate([piece.cohorts for piece in pieces], axis=1),
            _SECONDS: np.float64((now := time.monotonic()) - begun),
        }
        begun = now
        np.savez(content, **arrays)
        place = _file(result, round, scale)
        with out_folder.writing(place.parent):
            whole_files.write(place, content.getvalue())
        yield f"loss changes of {cohorts(scale)} cohorts after round {round} ({every.index(round) + 1} of {len(every)})"


MEASURE = Measure(measure, is_there, took)


def _after(result: Result, rounds: int, shapes: Carry) -> Carry:
    """Return the state of a run after `rounds` rounds."""
    return checkpoint.fill(shapes, state.checkpointed(result, rounds))


def _file(result: Result, round: int, scale: Scale) -> Path:
    return state.folder_of(result) / FOLDER / f"round-{round:08d}-{cohorts(scale)}.npz"


def _kept(result: Result, scale: Scale) -> dict[int, dict[str, np.ndarray]]:
    """Return the saved arrays of a run by round, without missing or damaged rounds."""
    found = {round: _read(_file(result, round, scale)) for round in rounds_of(result.config)}
    return {round: arrays for round, arrays in found.items() if arrays is not None}


def _read(place: Path) -> dict[str, np.ndarray] | None:
    if not place.exists():
        return None
    try:
        with np.load(io.BytesIO(files.read_bytes(place, run_files.MOST_BYTES)), allow_pickle=False) as arrays:
            found = dict(arrays)
            return found if _CHANGES in found else None
    except (OSError, ValueError, zipfile.BadZipFile):
        return None  # a damaged round is measured again
