"""Several machines as one: JAX's own distributed runtime, and the few things that one machine does for all.

Every machine runs the same program on the same configuration and reads the same data. The first one owns the folder
and the terminal; what it finds or refuses there, all of them find or refuse.
"""

import io
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedjax_sel import devices
from fedjax_sel.errors import DamagedRunError, UserError

ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"


def start() -> None:
    """Join the other machines, once.

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
    """Return whether this is the machine that owns the folder and the terminal."""
    return _alone() or jax.process_index() == 0


def _alone() -> bool:
    """Return whether there are no other machines.

    Does not start JAX's devices, after which `devices.use_every_core` is too late.
    """
    return not jax.distributed.is_initialized() or jax.process_count() == 1


def on_first(action: Callable[[], Any]) -> Any:
    """Do something on the first machine alone.

    Args:
        action: what to do; its result consists of dictionaries, lists, plain values and NumPy arrays.

    Returns:
        Its result, on every machine.

    Raises:
        UserError: it raised one there; it is raised on every machine. So is DamagedRunError.
    """
    if _alone():
        return action()
    answer: dict[str, Any] = {}
    if is_first():
        try:
            answer = {"value": action()}
        except UserError as error:
            answer = {"refused": str(error)}
        except DamagedRunError as error:
            answer = {"damaged": str(error)}
    answer = _decode(_broadcast(_encode(answer)))
    if "refused" in answer:
        raise UserError(answer["refused"])
    if "damaged" in answer:
        raise DamagedRunError(answer["damaged"])
    return answer["value"]


def _encode(value: Any) -> bytes:
    """Encode arrays as NumPy stores them, the rest as JSON."""
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
MOST_AT_ONCE = 2**28  # bytes that go to other machines in one piece


def _broadcast(message: bytes) -> bytes:
    """Return the first machine's bytes."""
    parts = np.array(divmod(len(message), MOST_AT_ONCE), np.int32)  # a length of more than 2 GiB is no int32
    whole, rest = (int(part) for part in multihost_utils.broadcast_one_to_all(parts))
    content = np.frombuffer(message, np.uint8) if is_first() else np.zeros(whole * MOST_AT_ONCE + rest, np.uint8)
    received = [
        np.asarray(multihost_utils.broadcast_one_to_all(content[first : first + MOST_AT_ONCE]), np.uint8)
        for first in range(0, max(1, len(content)), MOST_AT_ONCE)
    ]
    return np.concatenate(received).tobytes()


def anybody(wish: bool) -> bool:
    """Return whether any machine wishes something; all of them must ask at the same time."""
    if _alone():
        return wish
    return bool(np.any(multihost_utils.process_allgather(np.bool_(wish))))
