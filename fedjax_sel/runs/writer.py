"""What a run writes as it goes: rows, cohorts, and a checkpoint now and then."""

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from fedjax_sel.config import RunConfig
from fedjax_sel.core import files, whole_files
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, folder, rows, run_files
from fedjax_sel.runs import weights as weights_file
from fedjax_sel.runs.interruption import how_to_go_on
from fedjax_sel.runs.manifest import Manifest
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation.run import State


class Timer:
    """When to save: after so many rounds or seconds, whichever comes first."""

    def __init__(self, run: RunConfig, rounds: int):
        self._run, self._rounds, self._since = run, rounds, time.monotonic()

    def due(self, rounds: int) -> bool:
        """Return whether to save the state after so many rounds."""
        every = self._run.checkpoint_every
        enough = every is not None and rounds - self._rounds >= every
        return self._run.keep > 0 and (enough or time.monotonic() - self._since >= self._run.checkpoint_seconds)

    def saved(self, rounds: int) -> None:
        """Note that the state after so many rounds will be saved."""
        self._rounds, self._since = rounds, time.monotonic()


class Writer:
    """Writes to a run folder that this process holds, as long as it does.

    Before each write the lock tells whether the folder is still the one that was taken: a second run may have begun in
    one of the same name.
    """

    def __init__(
        self, out: Path, run: RunConfig, about: Manifest, rounds: int, lock: FolderLock, say: Callable[[str], None]
    ):
        """Make the writer of a run that has so many rounds behind it, whose rows are in the folder and no others."""
        self._out, self._run, self._about, self._rounds = out, run, about, rounds
        self._lock, self._say = lock, say
        self._rows = hashlib.sha256()
        self._bytes = 0
        self._columns = None
        if rounds:
            content = files.read_bytes(out / run_files.METRICS, run_files.MOST_BYTES)
            self._count(content)
            self._columns = content.split(b"\n", 1)[0].decode().split(",")  # an earlier version may have begun it

    def _count(self, content: bytes) -> None:
        self._rows.update(content)
        self._bytes += len(content)

    def chunk(self, chunk: Result, so_far: Callable[[], Result]) -> None:
        """Append a chunk's rows; write all rows again where somebody removed or changed those before them.

        Args:
            chunk: the next rounds.
            so_far: gives all rounds, these included.

        Raises:
            UserError: they cannot be written, or the folder is another one.
        """
        self._lock.check(self._out)
        text = rows.csv_text(chunk, self._rounds, header=self._bytes == 0, names=self._columns).encode()
        self._rounds += chunk.num_rounds
        if not self._rows_are_there():
            self._write_rows_again(so_far())
            return
        try:
            with (self._out / run_files.METRICS).open("ab") as file:
                file.write(text)
        except OSError as error:
            raise self._cannot("metrics", error) from error
        self._count(text)

    def _rows_are_there(self) -> bool:
        """Return whether as many bytes are in `metrics.csv` as were written."""
        file = self._out / run_files.METRICS
        try:
            return (file.stat().st_size if file.exists() else 0) == self._bytes
        except OSError as error:
            raise self._cannot("metrics", error) from error

    def _write_rows_again(self, so_far: Result) -> None:
        content = rows.csv_text(so_far, 0, header=True, names=self._columns).encode()
        file = self._out / run_files.METRICS
        try:
            whole_files.write(file, content)
        except OSError as error:
            raise self._cannot("metrics", error) from error
        self._rows, self._bytes = hashlib.sha256(content), len(content)
        self._say(f"{file} was removed or changed by another process, and was written again")

    def end(self, weights: Weights, result: Result) -> None:
        """Write the final models' weights, and then `result.json`, which seals the run.

        Args:
            weights: leading axis seeds.
            result: of all rounds, whose rows and cohorts are written.

        Raises:
            UserError: they cannot be written, or the folder is another one.
        """
        self._lock.check(self._out)
        try:
            content = weights_file.to_bytes(weights)
            whole_files.write(self._out / run_files.PARAMS, content)
        except OSError as error:
            raise self._cannot("weights", error) from error
        self._about = {**self._about, weights_file.TOLD: hashlib.sha256(content).hexdigest()}
        self._seal(result)

    def results(self, result: Result) -> None:
        """Write the cohorts of all rounds so far, and what the files now hold; their rows must be written before.

        Raises:
            UserError: they cannot be written, or the folder is another one.
        """
        self._rows_and_cohorts(result)
        self._seal(result)

    def _rows_and_cohorts(self, result: Result) -> None:
        self._lock.check(self._out)
        if not self._rows_are_there():
            self._write_rows_again(result)
        try:
            folder.write_cohorts(self._out, result.cohorts)
        except OSError as error:
            raise self._cannot("cohorts", error) from error

    def _seal(self, result: Result) -> None:
        self._lock.check(self._out)
        try:
            checkpoint.sync(self._out / run_files.METRICS)
            folder.write_result(self._out, {**self._about, **self._held(result), "rounds": result.num_rounds})
        except OSError as error:
            raise self._cannot(run_files.RESULT, error) from error

    def _held(self, result: Result) -> Manifest:
        """Return what rows and cohorts are in the folder."""
        return {
            "metrics": {"bytes": self._bytes, "sha256": self._rows.hexdigest()},
            "cohorts": checkpoint.digest_of_array(result.cohorts),
        }

    def checkpoint(self, state: State, result: Result, ends: bool) -> None:
        """Save where the run stands, its results with it; its rows must be written before.

        Args:
            state: in host memory.
            result: of all rounds so far.
            ends: whether `end` follows, which seals the run; it would be taken for finished before its weights are
                there.

        Raises:
            UserError: it cannot be saved, or the folder is another one; the checkpoints before it are as they were.
        """
        self._rows_and_cohorts(result)
        if self._run.keep > 0:
            self._save(state, {**self._about, **self._held(result)})
        if not ends:
            self._seal(result)  # last: the files that it describes exist

    def _save(self, state: State, about: Manifest) -> None:
        self._lock.check(self._out)
        try:
            checkpoint.sync(self._out / run_files.METRICS)
            checkpoint.save(self._out / run_files.CHECKPOINTS, state.rounds, about, state.carry, self._run.keep)
        except (OSError, ValueError, RuntimeError) as error:  # what orbax makes of a full disk
            raise self._cannot("a checkpoint", error) from error

    def _cannot(self, what: str, error: Exception) -> UserError:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        of_system = re.search(r"([^:]+) \[os_error_code", first)  # at the end of a storage library's long story
        reason = getattr(error, "strerror", None) or (of_system[1].strip() if of_system else first)
        return UserError(
            f"--out: cannot write {what} to {self._out} ({reason}); make room or mend the folder: "
            + how_to_go_on(self._run, self._out, where="the last checkpoint")
        )
