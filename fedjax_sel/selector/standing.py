"""Immutable state of a Selector, replaced as a whole so that a rejected call changes nothing."""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedjax_sel.selector.account import Account, Spent
from fedjax_sel.selector.terms import Terms
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Information, Selection
from fedjax_sel.strategies.requests import NEVER

Phase = Literal["start", "all", "candidates", "cohort"]
"""Before the first round; queries to all clients; queries to the candidates; after the selection."""


class Standing(NamedTuple):
    """State of a Selector between two calls."""

    phase: Phase
    round: int  # from 0
    state: Any  # the strategy's state, leaves [1, ...]
    info: Information  # leaves [1, N, ...]
    account: Account
    there: np.ndarray | None  # clients that are available in this round, bool [N]; None: all
    silent: np.ndarray  # clients that left a query of this round unanswered, bool [N]
    told: tuple[str, ...] = ()  # kinds recorded in this phase
    candidates: np.ndarray | None = None  # available candidates, int32 [<= d]
    selection: Selection | None = None  # [K]

    def available(self) -> np.ndarray | None:
        """Return the mask of the clients that count as available, bool [N]; None: all."""
        if not self.silent.any():
            return self.there
        return ~self.silent if self.there is None else self.there & ~self.silent

    def arrays(self) -> Any:
        """Return the part of the state that is saved as arrays."""
        return self.state, self.info, self.account.received, self.silent

    def words(self) -> dict[str, Any]:
        """Return the part of the state that is saved as JSON."""
        selection = self.selection
        return {
            "phase": self.phase,
            "round": self.round,
            "told": list(self.told),
            "there": _listed(self.there),
            "candidates": _listed(self.candidates),
            "selection": None if selection is None else {k: _listed(leaf) for k, leaf in selection._asdict().items()},
            "past": [list(spent) for spent in self.account.past],
            "beside": list(self.account.beside),
        }


def restored(words: dict[str, Any], arrays: Any, terms: Terms) -> Standing:
    """Return the state from its saved parts.

    Args:
        words: the value of `Standing.words`.
        arrays: the value of `Standing.arrays`, with the same shapes and dtypes.
        terms: the Selector's configuration.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: the parts are no valid state for these terms.
    """
    n, k, num_rounds = terms.size
    state, info, received, silent = arrays
    phase, round, chosen = words["phase"], words["round"], words["selection"]
    requested = {request.kind for request in terms.strategy.requests}
    past = tuple(_spent(spent) for spent in words["past"])
    ids = np.arange(n)
    candidates = _array(words["candidates"], np.int32, None)
    selection = None
    if chosen is not None:
        dtypes = {"ids": np.int32, "weights": np.float32, "mask": bool}
        selection = Selection(**{name: _array(chosen[name], dtypes[name], k) for name in Selection._fields})  # pyright: ignore
        _need(selection.ids is not None and selection.mask is not None)
        cohort = selection.ids[selection.mask]
        _need(np.isin(cohort, ids).all() and len(set(cohort.tolist())) == len(cohort))
    _need(phase in get_args(Phase) and (phase == "cohort") == (selection is not None))
    _need(type(round) is int and 0 <= round <= num_rounds and len(past) == round)
    _need(phase != "start" or (round == 0 and bool(protocol.requests_at_start(terms.strategy))))
    _need(round < num_rounds or phase == "all")
    _need(candidates is None or (np.isin(candidates, ids).all() and len(set(candidates.tolist())) == len(candidates)))
    for kind in info.kinds():
        fact = getattr(info, kind)
        _need(np.isfinite(fact.value).all() and (fact.age >= 0).all() and (fact.age <= NEVER).all())
    return Standing(
        phase=phase,
        round=round,
        state=state,
        info=info,
        account=Account(past, received, _spent(words["beside"])),
        there=_array(words["there"], bool, n),
        silent=silent,
        told=tuple(kind for kind in words["told"] if _need(kind in requested)),
        candidates=candidates,
        selection=selection,
    )


def _need(holds: Any) -> bool:
    if not holds:
        raise ValueError("no valid state of a Selector")
    return True


def _spent(counts: Any) -> Spent:
    spent = Spent(*counts)
    _need(all(type(count) is int and count >= 0 for count in spent))
    return spent


def _listed(array: Any) -> list | None:
    return None if array is None else np.asarray(array).tolist()


def _array(values: list | None, dtype: Any, length: int | None) -> np.ndarray | None:
    """Return a list as an array, after a check that its elements have the type of the dtype."""
    if values is None:
        return None
    kinds = {bool: bool, np.int32: int, np.float32: (int, float)}[dtype]
    _need(isinstance(values, list) and all(isinstance(value, kinds) for value in values))
    _need(dtype is bool or not any(isinstance(value, bool) for value in values))
    _need(length is None or len(values) == length)
    array = np.asarray(values)
    _need(dtype is bool or np.isfinite(array).all())
    return array.astype(dtype)
