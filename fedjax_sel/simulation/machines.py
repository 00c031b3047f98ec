"""Several machines as one: JAX's own distributed runtime, and the few things that one machine does for all.

Every machine runs the same program on the same configuration and reads the same data. The first one owns the folder
and the terminal; what it finds or refuses there, all of them find or refuse.
"""

import os
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedjax_sel.errors import UserError
from fedjax_sel.simulation import devices

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"

_T = TypeVar("_T")


def start() -> None:
    """Joins the other machines, once.

    TPU pods, SLURM, Open MPI and Kubernetes are recognised by JAX; elsewhere three variables of the environment say
    where the first machine listens, how many there are, and which one this is (docs/devices.md).

    Raises:
        UserError: nothing says so, or the others cannot be reached.
    """
    if jax.distributed.is_initialized():
        return
    devices.use_every_core()
    try:
        jax.distributed.initialize(os.environ.get(ADDRESS), _number(COUNT), _number(NUMBER))
    except (ValueError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"--distributed: JAX cannot join the other machines ({first}); start under SLURM, Open MPI, Kubernetes or "
            f"on a TPU pod, or set {ADDRESS}=host:port, {COUNT} and {NUMBER} on each machine"
        ) from error


def _number(name: str) -> int | None:
    text = os.environ.get(name)
    if text is not None and not text.isdecimal():
        raise UserError(f"--distributed: {name}={text!r} is not a whole number")
    return None if text is None else int(text)


def is_first() -> bool:
    """Whether this is the machine that owns the folder and the terminal."""
    return _alone() or jax.process_index() == 0


def _alone() -> bool:
    """Whether there are no others. Does not start JAX's devices, after which `devices.use_every_core` is too late."""
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def on_first(action: Callable[[], _T]) -> _T:
    """Does something on the first machine alone.

    Args:
        action: what to do; its result must be picklable.

    Returns:
        Its result, on every machine.

    Raises:
        UserError: it raised one there; it is raised on every machine.
    """
    if _alone():
        return action()
    answer: tuple[Any, UserError | None] = (None, None)
    if is_first():
        try:
            answer = (action(), None)
        except UserError as error:
            answer = (None, error)
    value, refused = pickle.loads(_broadcast(pickle.dumps(answer)))
    if refused is not None:
        raise refused
    return value


def _broadcast(message: bytes) -> bytes:
    """The first machine's bytes."""
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(message))))
    content = np.frombuffer(message, np.uint8) if is_first() else np.zeros(size, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(content), np.uint8).tobytes()


def anybody(wish: bool) -> bool:
    """Whether any machine wishes it: all of them must ask at the same time."""
    if _alone():
        return wish
    return bool(np.any(multihost_utils.process_allgather(np.bool_(wish))))
