"""Communication costs of a Selector's queries and cohorts, at the catalogue's prices.

As in the simulator's ledger, a client that is both queried and selected in a round receives the model once. Queries
before the first round count for the first round.
"""

from typing import NamedTuple

import numpy as np

from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.kinds import KINDS, Counts
from fedjax_sel.strategies.requests import Request


class Spent(NamedTuple):
    """Communication of one or several rounds."""

    models_down: int = 0  # one per client queried or selected, plus the probes' copies
    models_up: int = 0  # updates of the cohort and of the probes' cohorts
    floats_up: int = 0  # answers, and losses sent with updates


class Bill(NamedTuple):
    """Communication of a Selector so far."""

    rounds: tuple[Spent, ...]  # one entry per round, with the current one
    total: Spent


class Account(NamedTuple):
    """Immutable communication account of the rounds so far."""

    past: tuple[Spent, ...]
    received: np.ndarray  # clients that received the current round's model, bool [N]
    beside: Spent  # the current round's costs without the models of `received`

    def with_answers(
        self, requests: list[Request], counts: Counts, queried: np.ndarray, answered: int, cohort: int
    ) -> "Account":
        """Return the account after a query.

        Args:
            requests: requests that the same answer serves.
            counts: lengths that determine the answer's size.
            queried: mask of the queried clients, bool [N].
            answered: number of clients that answered.
            cohort: number of clients that train for each probe.
        """
        account = self
        for request in requests:
            probes = kinds.probes(request)
            down, up, floats = account.beside
            spent = Spent(
                down + probes * int(queried.sum()),
                up + probes * cohort,
                floats + answered * kinds.floats(request, counts),
            )
            received = account.received | queried if KINDS[request.kind].needs_model else account.received
            account = account._replace(received=received, beside=spent)
        return account

    def with_reports(self, clients: int, losses: int) -> "Account":
        """Return the account after `clients` clients each sent an update with `losses` losses."""
        down, up, floats = self.beside
        return self._replace(beside=Spent(down, up + clients, floats + losses * clients))

    def current(self) -> Spent:
        """Return the costs of the current round so far."""
        return self.beside._replace(models_down=self.beside.models_down + int(self.received.sum()))

    def closed(self) -> "Account":
        """Return the account at the start of the next round."""
        return Account((*self.past, self.current()), np.zeros_like(self.received), Spent())

    def bill(self) -> Bill:
        """Return the bill of all rounds so far."""
        current = self.current()
        rounds = self.past if current == Spent() else (*self.past, current)
        return Bill(rounds, Spent(*(sum(column) for column in zip(*rounds))) if rounds else Spent())


def empty(num_clients: int) -> Account:
    """Return the account before the first query."""
    return Account((), np.zeros((num_clients,), bool), Spent())
