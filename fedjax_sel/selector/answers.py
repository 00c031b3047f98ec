"""What a server tells, as arrays of the shapes that strategies read; what does not fit is refused in one sentence."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.base import Evaluation, ServerMetrics

Name = Hashable


class Clients:
    """The clients by name, and by place."""

    def __init__(self, names: Sequence[Name]):
        self.names = tuple(names)
        try:
            self._places = {name: place for place, name in enumerate(self.names)}
        except TypeError as error:
            raise UserError(f"clients: a name cannot be looked up ({error}); use texts, numbers or tuples") from error
        if len(self._places) != len(self.names):
            twice = next(name for place, name in enumerate(self.names) if self._places[name] != place)
            raise UserError(f"clients: {shown(twice)} stands there twice; give every client a name of its own")

    def places(self, what: str, names: Iterable[Name]) -> np.ndarray:
        """Return the places of some clients, int [M], each named once."""
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise UserError(f"{what}: {shown(names)} is not a list of clients; give their names in a list")
        found: dict[int, None] = {}
        for name in names:
            try:
                place = self._places[name]
            except (KeyError, TypeError):
                raise UserError(
                    f"{what}: {shown(name)} is not a client of this Selector; give names as in `clients`"
                ) from None
            if place in found:
                raise UserError(f"{what}: {shown(name)} stands there twice; give every client once")
            found[place] = None
        return np.fromiter(found, int, len(found))

    def mask(self, what: str, names: Iterable[Name]) -> np.ndarray:
        """Return who is named, bool [N]."""
        mask = np.zeros((len(self.names),), bool)
        mask[self.places(what, names)] = True
        return mask

    def named(self, places: Iterable[int]) -> tuple[Name, ...]:
        """Return the names of clients at some places."""
        return tuple(self.names[place] for place in places)


def sizes(what: str, values: Any, clients: Clients) -> np.ndarray:
    """Return how many examples each client has, int32 [N].

    Args:
        what: the argument, for the message.
        values: numbers in the order of the clients, or name -> number.
        clients: the clients.

    Raises:
        UserError: some are missing, or are no whole numbers from 1.
    """
    count = len(clients.names)
    if isinstance(values, Mapping):
        clients.places(what, values)
        missing = [name for name in clients.names if name not in values]
        if missing:
            raise UserError(f"{what}: {shown(missing[0])} has none; give a number of examples for every client")
        values = [values[name] for name in clients.names]
    array = _array(what, values)
    if array.shape != (count,) or array.dtype.kind not in "iu" or (array < 1).any() or (array >= 2**31).any():
        raise UserError(f"{what}: {shown(values)} are not {count} whole numbers from 1, one for every client")
    return array.astype(np.int32)


def numbers(what: str, values: Any, shape: tuple[int, ...], names: Sequence[Name] = ()) -> np.ndarray:
    """Return finite real numbers as float32.

    Args:
        what: the argument, for the message.
        values: an array, or what NumPy makes one of; empty where its first axis is.
        shape: that it must have.
        names: of the clients along its first axis; none where it has no such axis.

    Raises:
        UserError: another shape or dtype, or a number that is not finite in float32.
    """
    array = _array(what, values)
    if array.size == 0 and 0 in shape:
        return np.zeros(shape, np.float32)
    if array.shape != shape:
        raise UserError(
            f"{what}: its shape is {list(array.shape)} and must be {list(shape)}; give a row for each client"
        )
    if array.dtype.kind not in "fiu":
        raise UserError(f"{what}: its dtype is {array.dtype} and must be real numbers; convert it to float32")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    finite = np.isfinite(array).reshape(len(array) if shape else 1, -1).all(axis=1)
    if not finite.all():
        whose = f" of client {shown(names[int(np.argmin(finite))])}" if names else ""
        raise UserError(
            f"{what}: a number{whose} is NaN or infinite in float32; "
            f"{'leave that client out: it then counts as one that did not answer' if names else 'give finite ones'}"
        )
    return array


def tree(
    what: str, values: Any, num_params: int, names: Sequence[Name] | None, broken: np.ndarray | None = None
) -> Any:
    """Return a pytree of weights as float32.

    Args:
        what: the argument, for the message.
        values: leaves [M, ...], or without that axis.
        num_params: P: of all leaves of one model.
        names: of the M clients; None: no such axis.
        broken: whose numbers need not be finite, bool [M].

    Raises:
        UserError: another size, shape or dtype, or a number that is not finite.
    """
    leaves, structure = jax.tree.flatten(values)
    arrays = [_array(what, leaf) for leaf in leaves]
    rows = None if names is None else len(names)
    if names is not None and any(array.ndim == 0 or array.shape[0] != rows for array in arrays):
        raise UserError(
            f"{what}: an array has no first axis of length {rows}; give a row for each client that reported"
        )
    size = sum(int(np.prod(array.shape if names is None else array.shape[1:])) for array in arrays)
    if size != num_params:
        raise UserError(
            f"{what}: a model has {size} numbers there and num_params={num_params}; give all of its weights"
        )
    kept = []
    for array in arrays:
        if broken is not None and broken.any() and array.dtype.kind == "f":
            mended = np.where(broken.reshape(-1, *[1] * (array.ndim - 1)), 0.0, array)
            kept.append(np.where(broken.reshape(-1, *[1] * (array.ndim - 1)), array, _finite(what, mended, names)))
        else:
            kept.append(_finite(what, array, names))
    return jax.tree.unflatten(structure, [array.astype(np.float32) for array in kept])


def _finite(what: str, array: np.ndarray, names: Sequence[Name] | None) -> np.ndarray:
    try:
        return numbers(what, array, array.shape, () if names is None else names)
    except UserError as error:
        if names is None or "NaN" not in str(error):
            raise
        raise UserError(f"{str(error).split(';')[0]}; name that client in `broken`, or leave it out") from None


def metrics(evaluations: Any, read: Any) -> ServerMetrics:
    """Return the server's own evaluations, zeros where nothing reads them.

    Args:
        evaluations: before and after the round, each `Evaluation` or a mapping of its fields.
        read: `ServerMetrics` of Booleans.

    Raises:
        UserError: something is missing, or is no finite number.
    """
    wanted = sorted({name for part in read for name, one in part._asdict().items() if one})
    way_out = f"give (before, after), each with {' and '.join(wanted)}"
    if not isinstance(evaluations, tuple | list) or len(evaluations) != 2:
        raise UserError(f"metrics: {shown(evaluations)} is not a pair; {way_out}")
    parts = []
    for when, part, needed in zip(("before", "after"), evaluations, read):
        fields = part._asdict() if isinstance(part, Evaluation) else part
        if not isinstance(fields, Mapping):
            raise UserError(f"metrics: {shown(part)} has no names; {way_out}")
        values = {}
        for name, one in needed._asdict().items():
            if one and name not in fields:
                raise UserError(f"metrics: {name} {when} the round is missing; {way_out}")
            value = numbers(f"metrics: {name} {when} the round", fields[name], ()) if one else np.float32(0)
            values[name] = np.asarray(value, np.int32 if name == "correct" else np.float32)
        parts.append(Evaluation(**values))
    return ServerMetrics(*parts)


def _array(what: str, rows: Any) -> np.ndarray:
    if isinstance(rows, Iterable) and not hasattr(rows, "__array__") and not isinstance(rows, Mapping | str | bytes):
        rows = list(rows)
    if np.ma.is_masked(rows) or (isinstance(rows, list | tuple) and any(map(np.ma.is_masked, rows))):
        raise UserError(f"{what}: a number is masked; leave out what is not known, or fill it in")
    try:
        return np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what}: {shown(rows)} is no array of numbers; give rows of one length") from error
