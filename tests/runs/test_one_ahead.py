"""The host reads a chunk while the device computes the next one, and a chunk's time is its own."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedjax_sel import Config
from fedjax_sel.runs import experiment
from fedjax_sel.simulation.run import Chunk, State

ROUNDS, LENGTH = 6, 2


class _Cohort(np.ndarray):
    """Cohorts of a chunk, which are computed at once."""

    def is_ready(self):
        return True


class _Records(SimpleNamespace):
    cohort: Any


def _chunk(first: int, log: list[str]) -> Chunk:
    def copy(view) -> SimpleNamespace:
        log.append(f"copy {first + LENGTH}")
        return SimpleNamespace()

    records: Any = _Records(cohort=np.zeros((LENGTH, 1, 1)).view(_Cohort))
    return Chunk(first, records, copy)  # pyright: ignore[reportArgumentType]


def _read(
    monkeypatch,
    asked_after: int | None = None,
    requested_after: int | None = None,
    log: Any = None,
    **settings: Any,
) -> list[str]:
    """Return what happens, in order, to chunks of two rounds."""
    log, config = [] if log is None else log, Config().replace(**{"rounds": ROUNDS, **settings}).run

    def begun():
        for first in range(0, config.rounds, LENGTH):
            log.append(f"begin {first + LENGTH}")
            yield _chunk(first, log)

    monkeypatch.setattr(experiment.jax, "device_get", lambda tree: tree)
    monkeypatch.setattr(State, "_replace", lambda self, **changes: self)
    interruption: Any = SimpleNamespace(asked=0, ended=False)
    for done in experiment._one_ahead(begun(), config, None, interruption):
        read = done.first + LENGTH
        log.append(f"read {read}" + (" with its state" if done.state is not None else ""))
        interruption.asked += read == asked_after
        interruption.ended |= read == requested_after
    return log


def test_slow_chunks_are_awaited_before_the_next_one_begins(monkeypatch):
    """Else an interruption waits for two chunks: the one that runs, and the next one, which has begun."""
    log: list[str] = []
    monkeypatch.setattr(experiment, "SLOW", 0.01)
    monkeypatch.setattr(experiment, "_wait", slowly(log))
    assert _read(monkeypatch, log=log)[:9] == [
        "begin 2", "wait 2", "begin 4", "wait 2", "read 2", "wait 4", "begin 6", "wait 4", "read 4",
    ]  # fmt: skip


def slowly(log):
    """A wait for chunks that take 20 ms each."""
    computed = set()

    def wait(chunk):
        if chunk.first not in computed:
            time.sleep(0.02)
            computed.add(chunk.first)
        log.append(f"wait {chunk.first + LENGTH}")

    return wait


def test_each_chunk_that_takes_longer_than_the_interval_of_checkpoints_is_saved(monkeypatch):
    log: list[str] = []
    monkeypatch.setattr(experiment, "SLOW", 0.01)
    monkeypatch.setattr(experiment, "_wait", slowly(log))
    _read(monkeypatch, log=log, checkpoint_seconds=0.01, out="run")
    assert [line for line in log if "state" in line] == [f"read {done} with its state" for done in (2, 4, 6)]


def test_a_chunk_is_awaited_before_its_state_is_copied(monkeypatch):
    """A copy inside JAX would wait for it, and no signal would end the process."""
    log: list[str] = []
    monkeypatch.setattr(experiment, "_wait", lambda chunk: log.append(f"wait {chunk.first + LENGTH}"))
    assert _read(monkeypatch, log=log)[-3:] == ["copy 6", "wait 6", "read 6 with its state"]
    assert log[log.index("copy 6") - 1] == "wait 6"


def test_a_chunk_is_read_before_the_state_after_the_next_one_is_copied(monkeypatch):
    assert _read(monkeypatch) == [
        "begin 2", "begin 4", "read 2", "begin 6", "read 4", "copy 6", "read 6 with its state",
    ]  # fmt: skip


@pytest.mark.parametrize("why", ["asked_after", "requested_after"])
def test_who_wants_it_to_end_gets_the_state_after_what_is_being_computed(monkeypatch, why):
    assert _read(monkeypatch, **{why: 2}) == ["begin 2", "begin 4", "read 2", "copy 4", "read 4 with its state"]
