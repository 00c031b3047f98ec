"""Validation of the server's input, and its conversion to the arrays that strategies read."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.base import Evaluation, ServerMetrics

Name = Hashable


class Clients:
    """Bidirectional map between client names and positions."""

    def __init__(self, names: Sequence[Name]):
        self.names = tuple(names)
        try:
            self._places = {name: place for place, name in enumerate(self.names)}
        except TypeError as error:
            raise UserError(f"clients: a name is not hashable ({error}); use strings, numbers or tuples") from error
        if len(self._places) != len(self.names):
            twice = next(name for place, name in enumerate(self.names) if self._places[name] != place)
            raise UserError(f"clients: {shown(twice)} appears twice; give each client a unique name")

    def places(self, what: str, names: Iterable[Name]) -> np.ndarray:
        """Return the positions of distinct clients, int [M]."""
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise UserError(f"{what}: {shown(names)} is not a list of clients; pass a list of names")
        places: dict[int, None] = {}
        for name in names:
            try:
                place = self._places[name]
            except (KeyError, TypeError):
                raise UserError(
                    f"{what}: {shown(name)} is not a client of this Selector; use the names in `clients`"
                ) from None
            if place in places:
                raise UserError(f"{what}: {shown(name)} appears twice; pass each client once")
            places[place] = None
        return np.fromiter(places, int, len(places))

    def mask(self, what: str, names: Iterable[Name]) -> np.ndarray:
        """Return the mask of the named clients, bool [N]."""
        mask = np.zeros((len(self.names),), bool)
        mask[self.places(what, names)] = True
        return mask

    def named(self, places: Iterable[int]) -> tuple[Name, ...]:
        """Return the names of the clients at some positions."""
        return tuple(self.names[place] for place in places)


def sizes(what: str, values: Any, clients: Clients) -> np.ndarray:
    """Return the number of examples per client, int32 [N].

    Args:
        what: name of the argument, for messages.
        values: integers in the order of the clients, or a mapping from name to integer.
        clients: the N clients.

    Raises:
        UserError: a client has no number, or a number is not a positive integer.
    """
    count = len(clients.names)
    if isinstance(values, Mapping):
        clients.places(what, values)
        missing = [name for name in clients.names if name not in values]
        if missing:
            raise UserError(
                f"{what}: client {shown(missing[0])} is missing; give the number of examples of each client"
            )
        values = [values[name] for name in clients.names]
    array = _array(what, values)
    if array.shape != (count,) or array.dtype.kind not in "iu" or (array < 1).any() or (array >= 2**31).any():
        raise UserError(f"{what}: {shown(values)} are not {count} integers from 1; give one for each client")
    return array.astype(np.int32)


def numbers(what: str, values: Any, shape: tuple[int, ...], names: Sequence[Name] = ()) -> np.ndarray:
    """Return finite real numbers as float32.

    Args:
        what: name of the argument, for messages.
        values: an array, or a value that NumPy converts to one.
        shape: the required shape; if it contains 0, any empty array is accepted.
        names: names of the clients along the first axis; empty if there is no client axis.

    Raises:
        UserError: the shape or the dtype is wrong, or a number is not finite in float32.
    """
    array = _array(what, values)
    if array.size == 0 and 0 in shape:
        return np.zeros(shape, np.float32)
    if array.shape != shape:
        raise UserError(f"{what}: its shape is {list(array.shape)} but must be {list(shape)}; pass one row per client")
    if array.dtype.kind not in "fiu":
        raise UserError(f"{what}: its dtype is {array.dtype}, not real numbers; convert it to float32")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    finite = np.isfinite(array).reshape(len(array) if shape else 1, -1).all(axis=1)
    if not finite.all():
        whose = f" of client {shown(names[int(np.argmin(finite))])}" if names else ""
        raise UserError(
            f"{what}: a number{whose} is NaN or infinite in float32; "
            f"{'leave that client out, so that it counts as silent' if names else 'pass finite numbers'}"
        )
    return array


def tree(
    what: str, values: Any, num_params: int, names: Sequence[Name] | None, broken: np.ndarray | None = None
) -> Any:
    """Return a pytree of weights as float32.

    Args:
        what: name of the argument, for messages.
        values: a pytree with leaves [M, ...], or without the client axis.
        num_params: number of weights of one model, P.
        names: names of the M clients; None: no client axis.
        broken: mask of the clients with non-finite numbers, bool [M].

    Raises:
        UserError: the size, a shape or a dtype is wrong, or a number is not finite.
    """
    leaves, structure = jax.tree.flatten(values)
    arrays = [_array(what, leaf) for leaf in leaves]
    rows = None if names is None else len(names)
    if names is not None and any(array.ndim == 0 or array.shape[0] != rows for array in arrays):
        raise UserError(f"{what}: an array has no first axis of length {rows}; pass one row per client that reported")
    size = sum(int(np.prod(array.shape if names is None else array.shape[1:])) for array in arrays)
    if size != num_params:
        raise UserError(
            f"{what}: a model has {size} numbers here, but num_params={num_params}; pass all of its weights"
        )
    checked = []
    for array in arrays:
        if broken is not None and broken.any() and array.dtype.kind == "f":
            zeroed = np.where(broken.reshape(-1, *[1] * (array.ndim - 1)), 0.0, array)
            checked.append(np.where(broken.reshape(-1, *[1] * (array.ndim - 1)), array, _finite(what, zeroed, names)))
        else:
            checked.append(_finite(what, array, names))
    return jax.tree.unflatten(structure, [array.astype(np.float32) for array in checked])


def _finite(what: str, array: np.ndarray, names: Sequence[Name] | None) -> np.ndarray:
    try:
        return numbers(what, array, array.shape, () if names is None else names)
    except UserError as error:
        if names is None or "NaN" not in str(error):
            raise
        raise UserError(f"{str(error).split(';')[0]}; add that client to `broken`, or leave it out") from None


def metrics(evaluations: Any, read: Any) -> ServerMetrics:
    """Return the server's evaluations, with zeros for unread fields.

    Args:
        evaluations: pair of evaluations before and after the round, each an `Evaluation` or a mapping of its fields.
        read: `ServerMetrics` of Booleans, True for the fields that the strategy reads.

    Raises:
        UserError: a field that the strategy reads is missing or not finite.
    """
    wanted = sorted({name for part in read for name, is_read in part._asdict().items() if is_read})
    advice = f"pass (before, after), each with {' and '.join(wanted)}"
    if not isinstance(evaluations, tuple | list) or len(evaluations) != 2:
        raise UserError(f"metrics: {shown(evaluations)} is not a pair; {advice}")
    parts = []
    for when, part, needed in zip(("before", "after"), evaluations, read):
        fields = part._asdict() if isinstance(part, Evaluation) else part
        if not isinstance(fields, Mapping):
            raise UserError(f"metrics: {shown(part)} is neither an Evaluation nor a mapping; {advice}")
        values = {}
        for name, is_read in needed._asdict().items():
            if is_read and name not in fields:
                raise UserError(f"metrics: {name} {when} the round is missing; {advice}")
            value = numbers(f"metrics: {name} {when} the round", fields[name], ()) if is_read else np.float32(0)
            values[name] = np.asarray(value, np.int32 if name == "correct" else np.float32)
        parts.append(Evaluation(**values))
    return ServerMetrics(*parts)


def _array(what: str, rows: Any) -> np.ndarray:
    if isinstance(rows, Iterable) and not hasattr(rows, "__array__") and not isinstance(rows, Mapping | str | bytes):
        rows = list(rows)
    if np.ma.is_masked(rows) or (isinstance(rows, list | tuple) and any(map(np.ma.is_masked, rows))):
        raise UserError(f"{what}: a number is masked; leave out unknown values, or fill them in")
    try:
        return np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what}: {shown(rows)} is not an array of numbers; pass rows of equal length") from error
