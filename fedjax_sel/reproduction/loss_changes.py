"""Loss changes under random cohorts, measured at the checkpoints of a finished run and kept in its folder.

    loss_changes/round-00000014-1000.npz     changes, float32 [seeds, 1000, N], the cohorts, int32 [seeds, 1000, K],
                                             and the seconds that it took, a number

A run with `checkpoint_every` is measured in its first round and whenever so many more are over; another run in the
round that would follow its last. What is measured is not measured again, and a stop loses the round at hand.
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

COHORTS = 1000  # the paper's
FOLDER = "loss_changes"
_CHANGES, _COHORTS, _SECONDS = "changes", "cohorts", "seconds"


def cohorts(scale: Scale) -> int:
    """Return how many random cohorts are drawn in a round: the paper's number, or a share of it."""
    return max(2, round(scale.share * COHORTS))


def rounds_of(config: Config) -> tuple[int, ...]:
    """Return the rounds in which a run is measured, from 0."""
    every, rounds = config.run.checkpoint_every, config.run.rounds
    return (rounds,) if every is None else tuple(range(0, rounds, every))


def read(result: Result, scale: Scale) -> dict[int, np.ndarray]:
    """Return what is measured of a run.

    Args:
        result: of a run with a folder.
        scale: decides how many cohorts.

    Returns:
        The clients' loss changes by round, nats, float32 [seeds, cohorts, N]; rounds that are missing or damaged are
        left out.
    """
    return {round: arrays[_CHANGES] for round, arrays in _kept(result, scale).items()}


def drawn(result: Result, scale: Scale) -> dict[int, np.ndarray]:
    """Return the random cohorts behind the loss changes of `read`, by round, int32 [seeds, cohorts, K]."""
    return {round: arrays[_COHORTS] for round, arrays in _kept(result, scale).items()}


def is_there(result: Result, scale: Scale) -> bool:
    """Return whether all that is measured of a run is there."""
    return len(_kept(result, scale)) == len(rounds_of(result.config))


def took(result: Result, scale: Scale) -> float:
    """Return the seconds that measuring took, with its compilation; NaN where an earlier version measured."""
    return sum(float(arrays.get(_SECONDS, np.nan)) for arrays in _kept(result, scale).values())


def measure(result: Result, scale: Scale) -> Iterator[str]:
    """Measure what is missing of a run.

    Args:
        result: finished, of a run with a folder that has the checkpoints.
        scale: decides how many cohorts.

    Yields:
        After every piece of work a line for the person, which may be empty.

    Raises:
        DamagedRunError: a checkpoint is missing or damaged.
        UserError: the folder cannot be written to.
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
    """Return the state that a run had after so many rounds."""
    return checkpoint.fill(shapes, state.checkpointed(result, rounds))


def _file(result: Result, round: int, scale: Scale) -> Path:
    return state.folder_of(result) / FOLDER / f"round-{round:08d}-{cohorts(scale)}.npz"


def _kept(result: Result, scale: Scale) -> dict[int, dict[str, np.ndarray]]:
    """Return what is kept of a run, by round; without rounds that are missing or damaged."""
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
        return None  # it is measured again
