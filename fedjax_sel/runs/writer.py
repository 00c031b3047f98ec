"""Writing of a run's rows, cohorts and checkpoints while it runs."""

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from fedjax_sel.config import RunConfig
from fedjax_sel.core import files
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.errors import UserError
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, folder, run_files
from fedjax_sel.runs import checkpoint as weights_file
from fedjax_sel.runs.interruption import how_to_go_on
from fedjax_sel.runs.records import Result
from fedjax_sel.runs.run_files import Manifest
from fedjax_sel.simulation.run import State


class Timer:
    """Checkpoint schedule: by rounds or seconds, whichever comes first."""

    def __init__(self, run: RunConfig, rounds: int):
        self._run, self._rounds, self._since = run, rounds, time.monotonic()

    def due(self, rounds: int) -> bool:
        """Return whether to save the state after this number of rounds."""
        every = self._run.checkpoint_every
        enough = every is not None and rounds - self._rounds >= every
        return self._run.keep > 0 and (enough or time.monotonic() - self._since >= self._run.checkpoint_seconds)

    def saved(self, rounds: int) -> None:
        """Record that the state after this number of rounds will be saved."""
        self._rounds, self._since = rounds, time.monotonic()


class Writer:
    """Writes to a run folder that this process has locked.

    Before each write the lock is checked, because a second run may have replaced the folder by another one.
    """

    def __init__(
        self, out: Path, run: RunConfig, about: Manifest, rounds: int, lock: FolderLock, say: Callable[[str], None]
    ):
        """Create the writer of a run with `rounds` completed rounds, whose rows and no others are in the folder."""
        self._out, self._run, self._about, self._rounds = out, run, about, rounds
        self._lock, self._say = lock, say
        self._rows = hashlib.sha256()
        self._bytes = 0
        self._columns = None
        if rounds:
            content = files.read_bytes(out / run_files.METRICS, run_files.MOST_BYTES)
            self._count(content)
            self._columns = content.split(b"\n", 1)[0].decode().split(",")  # an earlier version may have fewer

    def _count(self, content: bytes) -> None:
        self._rows.update(content)
        self._bytes += len(content)

    def chunk(self, chunk: Result, so_far: Callable[[], Result]) -> None:
        """Append a chunk's rows; rewrite all rows if another process removed or changed the earlier ones.

        Args:
            chunk: the next rounds.
            so_far: function that returns all rounds, including these.

        Raises:
            UserError: the rows cannot be written, or the folder was replaced.
        """
        self._lock.check(self._out)
        text = run_files.csv_text(chunk, self._rounds, header=self._bytes == 0, names=self._columns).encode()
        self._rounds += chunk.num_rounds
        if not self._rows_are_intact():
            self._rewrite_rows(so_far())
            return
        try:
            with (self._out / run_files.METRICS).open("ab") as file:
                file.write(text)
        except OSError as error:
            raise self._cannot("metrics", error) from error
        self._count(text)

    def _rows_are_intact(self) -> bool:
        """Return whether the size of `metrics.csv` equals the number of bytes written."""
        file = self._out / run_files.METRICS
        try:
            return (file.stat().st_size if file.exists() else 0) == self._bytes
        except OSError as error:
            raise self._cannot("metrics", error) from error

    def _rewrite_rows(self, so_far: Result) -> None:
        content = run_files.csv_text(so_far, 0, header=True, names=self._columns).encode()
        file = self._out / run_files.METRICS
        try:
            files.write(file, content)
        except OSError as error:
            raise self._cannot("metrics", error) from error
        self._rows, self._bytes = hashlib.sha256(content), len(content)
        self._say(f"{file} was removed or changed by another process, and has been rewritten")

    def end(self, weights: Weights, result: Result) -> None:
        """Write the final models' weights, and then `result.json`, which completes the run.

        Args:
            weights: the weights, leading axis [seeds].
            result: the result of all rounds, whose rows and cohorts are already written.

        Raises:
            UserError: a file cannot be written, or the folder was replaced.
        """
        self._lock.check(self._out)
        try:
            content = weights_file.to_bytes(weights)
            files.write(self._out / run_files.PARAMS, content)
        except OSError as error:
            raise self._cannot("weights", error) from error
        self._about = {**self._about, weights_file.DIGEST_KEY: hashlib.sha256(content).hexdigest()}
        self._seal(result)

    def results(self, result: Result) -> None:
        """Write the cohorts of all rounds so far and `result.json`; the rows must already be written.

        Raises:
            UserError: a file cannot be written, or the folder was replaced.
        """
        self._rows_and_cohorts(result)
        self._seal(result)

    def _rows_and_cohorts(self, result: Result) -> None:
        self._lock.check(self._out)
        if not self._rows_are_intact():
            self._rewrite_rows(result)
        try:
            folder.write_cohorts(self._out, result.cohorts)
        except OSError as error:
            raise self._cannot("cohorts", error) from error

    def _seal(self, result: Result) -> None:
        self._lock.check(self._out)
        try:
            checkpoint.sync(self._out / run_files.METRICS)
            folder.write_result(self._out, {**self._about, **self._digests(result), "rounds": result.num_rounds})
        except OSError as error:
            raise self._cannot(run_files.RESULT, error) from error

    def _digests(self, result: Result) -> Manifest:
        """Return the manifest entries for the rows and cohorts in the folder."""
        return {
            "metrics": {"bytes": self._bytes, "sha256": self._rows.hexdigest()},
            "cohorts": checkpoint.digest_of_array(result.cohorts),
        }

    def checkpoint(self, state: State, result: Result, ends: bool) -> None:
        """Save the state and the cohorts; the rows must already be written.

        Args:
            state: the state, in host memory.
            result: the result of all rounds so far.
            ends: whether `end` follows. Then `result.json` is left to `end`: the run must not count as finished before
                its weights are written.

        Raises:
            UserError: the state cannot be saved, or the folder was replaced; earlier checkpoints stay intact.
        """
        self._rows_and_cohorts(result)
        if self._run.keep > 0:
            self._save(state, {**self._about, **self._digests(result)})
        if not ends:
            self._seal(result)  # last, because it describes the other files

    def _save(self, state: State, about: Manifest) -> None:
        self._lock.check(self._out)
        try:
            checkpoint.sync(self._out / run_files.METRICS)
            checkpoint.save(self._out / run_files.CHECKPOINTS, state.rounds, about, state.carry, self._run.keep)
        except (OSError, ValueError, RuntimeError) as error:  # orbax raises each of them for a full disk
            raise self._cannot("a checkpoint", error) from error

    def _cannot(self, what: str, error: Exception) -> UserError:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        of_system = re.search(r"([^:]+) \[os_error_code", first)  # at the end of TensorStore's long message
        reason = getattr(error, "strerror", None) or (of_system[1].strip() if of_system else first)
        return UserError(
            f"--out: cannot write {what} to {self._out} ({reason}); free disk space or fix the permissions: "
            + how_to_go_on(self._run, self._out, where="the last checkpoint")
        )
