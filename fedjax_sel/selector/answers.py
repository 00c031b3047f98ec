"""Answers and reports of clients: their names, and the checks of their numbers."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.privacy import ClientNoise

Name = Hashable


class Perturbed(NamedTuple):
    """A client's answer with noise, and the noise that it carries."""

    value: Any  # real numbers
    noise: ClientNoise | None


def perturbed_values(kind: str, values: Any, names: Sequence[Name], noise: Mapping[Name, ClientNoise]) -> list[Any]:
    """Return the values of `Perturbed` answers; reject an answer without the noise of its query, `noise` by client."""
    values = list(values)
    for name, answer in zip(names, values):
        if not isinstance(answer, Perturbed) or answer.noise != noise[name]:
            raise UserError(
                f"tell {kind!r}: client {shown(name)} did not perturb its answer as its query states "
                f"({noise[name].law} noise of scale {noise[name].scale:g}); use a client that does, or leave it out"
            )
    return [answer.value for answer in values]


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


FINITE_LOSSES = "replace losses that are not finite by fedjax_sel.adapters.rounds.finite_losses"


def answer_rows(
    what: str,
    values: Any,
    shape: tuple[int, ...],
    names: Sequence[Name] = (),
    advice: str = "leave that client out, so that it counts as silent",
    *,
    finite: bool = True,
) -> np.ndarray:
    """Return real numbers as float32, or raise UserError; with `finite`, they must be finite in float32.

    If `shape` contains 0, any empty array is accepted. `names` are the clients along the first axis; () if there is no
    client axis.
    """
    array = as_array(what, values)
    if array.size == 0 and 0 in shape:
        return np.zeros(shape, np.float32)
    if array.shape != shape:
        raise UserError(f"{what}: its shape is {list(array.shape)} but must be {list(shape)}; pass one row per client")
    if array.dtype.kind not in "fiu":
        raise UserError(f"{what}: its dtype is {array.dtype}, not real numbers; convert it to float32")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    sound = np.isfinite(array).reshape(len(array) if shape else 1, -1).all(axis=1)
    if finite and not sound.all():
        whose = f" of client {shown(names[int(np.argmin(sound))])}" if names else ""
        advice = advice if names else "pass finite numbers"
        raise UserError(f"{what}: a number{whose} is NaN or infinite in float32; {advice}")
    return array


def nonnegative(what: str, rows: np.ndarray, names: Sequence[Name]) -> np.ndarray:
    """Return the clients' durations, float32 [M], or raise UserError if one is negative."""
    for place in map(int, np.flatnonzero(rows < 0)):
        raise UserError(f"{what}: {rows[place]:g} of client {shown(names[place])} is negative; pass seconds from 0")
    return rows


def as_array(what: str, rows: Any) -> np.ndarray:
    """Return rows as an array, also those of a generator or a view of a dict; raise UserError if they are ragged."""
    if isinstance(rows, Iterable) and not hasattr(rows, "__array__") and not isinstance(rows, Mapping | str | bytes):
        rows = list(rows)
    try:
        return np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what}: {shown(rows)} is not an array of numbers; pass rows of equal length") from error
