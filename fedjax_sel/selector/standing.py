"""Where a Selector stands: a value that is replaced as a whole, so that what is refused changes nothing."""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedjax_sel.selector.account import Account, Spent
from fedjax_sel.selector.terms import Terms
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Information, Selection
from fedjax_sel.strategies.requests import NEVER

Phase = Literal["start", "all", "candidates", "cohort"]
"""Before the first round; as a round opens; before its cohort is selected; after that."""


class Standing(NamedTuple):
    """Between two calls."""

    phase: Phase
    round: int  # from 0
    state: Any  # the strategy's, leaves [1, ...]
    info: Information  # leaves [1, N, ...]
    account: Account
    there: np.ndarray | None  # who can be reached in this round, bool [N]; None: everyone
    silent: np.ndarray  # who was asked in this round and did not answer, bool [N]
    told: tuple[str, ...] = ()  # kinds that were told in this phase
    candidates: np.ndarray | None = None  # those of them who can be reached, int32 [<= d]
    selection: Selection | None = None  # [K]

    def available(self) -> np.ndarray | None:
        """Return who counts as available, bool [N]; None: everyone."""
        if not self.silent.any():
            return self.there
        return ~self.silent if self.there is None else self.there & ~self.silent

    def arrays(self) -> Any:
        """Return what is saved as arrays."""
        return self.state, self.info, self.account.received, self.silent

    def words(self) -> dict[str, Any]:
        """Return what is saved as JSON."""
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
    """Return the standing of which `words` and `arrays` are.

    Args:
        words: as `Standing.words` gives them.
        arrays: as `Standing.arrays` gives them, in their shapes and dtypes.
        terms: of the Selector.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: no Selector of these terms stands there.
    """
    n, k, num_rounds = terms.size
    state, info, received, silent = arrays
    phase, round, chosen = words["phase"], words["round"], words["selection"]
    bought = {request.kind for request in terms.strategy.requests}
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
        told=tuple(kind for kind in words["told"] if _need(kind in bought)),
        candidates=candidates,
        selection=selection,
    )


def _need(holds: Any) -> bool:
    if not holds:
        raise ValueError("no Selector stands there")
    return True


def _spent(counts: Any) -> Spent:
    spent = Spent(*counts)
    _need(all(type(count) is int and count >= 0 for count in spent))
    return spent


def _listed(array: Any) -> list | None:
    return None if array is None else np.asarray(array).tolist()


def _array(values: list | None, dtype: Any, length: int | None) -> np.ndarray | None:
    """Return a list as an array: of whole numbers, numbers or Booleans, as its dtype is."""
    if values is None:
        return None
    kinds = {bool: bool, np.int32: int, np.float32: (int, float)}[dtype]
    _need(isinstance(values, list) and all(isinstance(value, kinds) for value in values))
    _need(dtype is bool or not any(isinstance(value, bool) for value in values))
    _need(length is None or len(values) == length)
    array = np.asarray(values)
    _need(dtype is bool or np.isfinite(array).all())
    return array.astype(dtype)
