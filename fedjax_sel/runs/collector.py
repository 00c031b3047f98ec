"""The assembly of a run's `Result` from chunks of rounds."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from fedjax_sel import tasks
from fedjax_sel.config import Config
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation.ledger import Ledger, settle
from fedjax_sel.simulation.state import Records
from fedjax_sel.tasks import Task


class Collector:
    """Gathers the chunks of a run into a Result."""

    def __init__(
        self,
        config: Config,
        data_source: str,
        num_params: int,
        floats_per_answer: Sequence[int],
        earlier: Result | None = None,
        num_carried: int = 0,
        task: Task | None = None,
    ):
        """Create a collector for one process, whose first chunk includes the compilation.

        Args:
            config: the run's configuration.
            data_source: the origin of the data.
            num_params: number of trained parameters.
            floats_per_answer: floats that a client sends per kind of query.
            earlier: the rounds before a resumed run; None for a new run.
            num_carried: number of parameters that are carried but not trained.
            task: the task; None for classification.
        """
        self._config = config
        self._data_source = data_source
        self._num_params = num_params
        self._floats_per_answer = tuple(floats_per_answer)
        self._num_carried = num_carried
        self._task = tasks.classification() if task is None else task
        self._parts = [] if earlier is None else [earlier]
        self._before = 0.0 if earlier is None else float(earlier.elapsed_seconds[-1])
        self._compiled = False

    def add(self, records: Records, elapsed_seconds: float) -> Result:
        """Add a chunk and return it as a Result.

        Args:
            records: the chunk's records in host memory, leading axes [rounds, seeds].
            elapsed_seconds: seconds since this process started its first round.
        """
        last = self._parts[-1].elapsed_seconds[-1] if self._parts else 0.0
        rounds = records.cohort.shape[0]
        # The host measures whole chunks only, so a chunk's time is spread evenly over its rounds.
        taken = self._before + elapsed_seconds - last
        seconds = last + taken * np.arange(1, rounds + 1) / rounds
        steady = np.full(rounds, taken / max(rounds, 1) if self._compiled else np.nan)
        self._compiled = True
        by_seed = jax.tree.map(lambda leaf: np.moveaxis(leaf, 0, 1), records)
        self._parts.append(
            Result(
                config=self._config,
                data_source=self._data_source,
                seeds=self._config.run.seeds,
                cohorts=by_seed.cohort,
                ledger=settle(by_seed.events, self._num_params, self._floats_per_answer, self._num_carried),
                elapsed_seconds=seconds,
                round_seconds=steady,
                measured={name: by_seed.measured[name] for name in tasks.names(self._task).all},
                higher_is_better=self._task.measure.higher_is_better,
            )
        )
        return self._parts[-1]

    def result(self) -> Result:
        """Return all rounds so far as a Result."""
        parts = self._parts

        def joined(values_of: Callable[[Result], np.ndarray]) -> np.ndarray:
            return np.concatenate([values_of(part) for part in parts], axis=1)

        ledgers = [part.ledger for part in parts]
        whole = dataclasses.replace(
            parts[-1],
            cohorts=joined(lambda part: part.cohorts),
            ledger=Ledger(*(np.concatenate(columns, axis=1) for columns in zip(*ledgers))),
            elapsed_seconds=np.concatenate([part.elapsed_seconds for part in parts]),
            round_seconds=np.concatenate([part.round_seconds for part in parts]),
            measured={name: joined(lambda part, name=name: part.measured[name]) for name in parts[-1].measured},
        )
        self._parts = [whole]
        return whole
