"""Runs on several machines: all run the same program with the same configuration and data.

Only the first machine accesses the run folder and the terminal; it broadcasts the results and errors of these actions.
"""

import io
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedjax_sel.core import parsing
from fedjax_sel.errors import DamagedRunError, UserError

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


def start() -> None:
    """Join the other machines, once.

    JAX recognizes TPU pods, SLURM, Open MPI and Kubernetes. Elsewhere three environment variables set the address of
    the first machine, the number of machines, and the index of this one (docs/devices.md).
    """
    if jax.distributed.is_initialized():
        return
    try:
        count, number = (int(os.environ[name]) if name in os.environ else None for name in (COUNT, NUMBER))
        jax.distributed.initialize(os.environ.get(ADDRESS), count, number)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"--distributed: JAX cannot join the other machines ({parsing.reason(error)}); start under SLURM, Open "
            f"MPI, Kubernetes or on a TPU pod, or set {ADDRESS}=host:port, {COUNT} and {NUMBER} on each machine"
        ) from error


def is_first() -> bool:
    """Return whether this is the machine with access to the run folder and the terminal."""
    return _alone() or jax.process_index() == 0


def _alone() -> bool:
    """Return whether there are no other machines, without starting JAX's devices."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def on_first(action: Callable[[], Any]) -> Any:
    """Run an action only on the first machine, and return its result or raise its UserError or DamagedRunError on all.

    The result consists of dictionaries, lists, plain values and NumPy arrays.
    """
    if _alone():
        return action()
    answer: dict[str, Any] = {}
    if is_first():
        try:
            answer = {"value": action()}
        except (UserError, DamagedRunError) as error:
            answer = {"message": str(error), "damaged": isinstance(error, DamagedRunError)}
    answer = _decode(_broadcast(_encode(answer)))
    if "message" in answer:
        raise (DamagedRunError if answer["damaged"] else UserError)(answer["message"])
    return answer["value"]


def _encode(value: Any) -> bytes:
    """Encode arrays in NumPy's format and all other values as JSON."""
    arrays: dict[str, np.ndarray] = {}

    def set_apart(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | np.generic):
            raise TypeError(f"{type(leaf).__name__} cannot be sent to other machines")
        arrays[f"array{len(arrays)}"] = np.asarray(leaf)
        return {_ARRAY: f"array{len(arrays) - 1}"}

    text = json.dumps(value, default=set_apart)
    file = io.BytesIO()
    np.savez(file, **{_TEXT: np.frombuffer(text.encode(), np.uint8), **arrays})  # pyright: ignore[reportArgumentType]
    return file.getvalue()


def _decode(content: bytes) -> Any:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        text = stored[_TEXT].tobytes().decode()
        return json.loads(text, object_hook=lambda table: stored[table[_ARRAY]] if _ARRAY in table else table)


_ARRAY, _TEXT = "__array__", "text"
MOST_AT_ONCE = 2**28  # bytes per broadcast


def _broadcast(message: bytes) -> bytes:
    """Return the first machine's bytes."""
    parts = np.array(divmod(len(message), MOST_AT_ONCE), np.int32)  # lengths over 2 GiB exceed int32
    whole, rest = (int(part) for part in multihost_utils.broadcast_one_to_all(parts))
    content = np.frombuffer(message, np.uint8) if is_first() else np.zeros(whole * MOST_AT_ONCE + rest, np.uint8)
    received = [
        np.asarray(multihost_utils.broadcast_one_to_all(content[first : first + MOST_AT_ONCE]), np.uint8)
        for first in range(0, max(1, len(content)), MOST_AT_ONCE)
    ]
    return np.concatenate(received).tobytes()


def any_machine(wish: bool) -> bool:
    """Return whether `wish` is True on any machine; all machines must call this together."""
    if _alone():
        return wish
    return bool(np.any(multihost_utils.process_allgather(np.bool_(wish))))
