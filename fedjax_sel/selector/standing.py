"""Where a Selector stands: a value that is replaced as a whole, so that what is refused changes nothing."""

from typing import Any, Literal, NamedTuple

import numpy as np

from fedjax_sel.selector.account import Account, Spent
from fedjax_sel.strategies.base import Information, Selection

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


def restored(words: dict[str, Any], arrays: Any) -> Standing:
    """Return the standing of which `words` and `arrays` are, or raise KeyError, TypeError or ValueError."""
    state, info, received, silent = arrays
    past = tuple(Spent(*map(int, spent)) for spent in words["past"])
    chosen = words["selection"]
    dtypes = {"ids": np.int32, "weights": np.float32, "mask": bool}
    return Standing(
        phase=words["phase"],
        round=int(words["round"]),
        state=state,
        info=info,
        account=Account(past, received, Spent(*map(int, words["beside"]))),
        there=_array(words["there"], bool),
        silent=silent,
        told=tuple(words["told"]),
        candidates=_array(words["candidates"], np.int32),
        selection=None if chosen is None else Selection(**{k: _array(chosen[k], dtypes[k]) for k in Selection._fields}),  # pyright: ignore
    )


def _listed(array: Any) -> list | None:
    return None if array is None else np.asarray(array).tolist()


def _array(values: list | None, dtype: Any) -> np.ndarray | None:
    return None if values is None else np.asarray(values, dtype)
