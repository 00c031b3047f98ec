"""What a Selector's questions and cohorts cost, by the catalogue's prices: plain counts on the host.

As in the simulator's ledger, a client that is asked and selected in a round receives the model once, and what is asked
before the first round is the first round's.
"""

from typing import NamedTuple

import numpy as np

from fedjax_sel.strategies import kinds
from fedjax_sel.strategies.kinds import KINDS, Counts
from fedjax_sel.strategies.requests import Request


class Spent(NamedTuple):
    """Counts of a round, or of several."""

    models_down: int = 0  # distinct clients asked or selected, and copies that probes send out
    models_up: int = 0  # of the cohort, and of probes' cohorts
    floats_up: int = 0  # in answers, and losses sent with updates


class Bill(NamedTuple):
    """What a Selector has cost so far."""

    rounds: tuple[Spent, ...]  # each, with the one that is under way
    total: Spent


class Account(NamedTuple):
    """Of the rounds so far; a value, never changed in place."""

    past: tuple[Spent, ...]
    received: np.ndarray  # who has the model of the round that is under way, bool [N]
    beside: Spent  # of that round, without the models of `received`

    def asked(
        self, requests: list[Request], counts: Counts, asked: np.ndarray, answered: int, cohort: int
    ) -> "Account":
        """Return the account after clients were asked.

        Args:
            requests: that one answer serves.
            counts: what its length depends on.
            asked: who was asked, bool [N].
            answered: how many answered.
            cohort: clients that train for each probe.
        """
        account = self
        for request in requests:
            probes = kinds.probes(request)
            down, up, floats = account.beside
            spent = Spent(
                down + probes * int(asked.sum()),
                up + probes * cohort,
                floats + answered * kinds.floats(request, counts),
            )
            received = account.received | asked if KINDS[request.kind].needs_model else account.received
            account = account._replace(received=received, beside=spent)
        return account

    def reported(self, clients: int, losses: int) -> "Account":
        """Return the account after some of a cohort sent their updates, with so many losses each."""
        down, up, floats = self.beside
        return self._replace(beside=Spent(down, up + clients, floats + losses * clients))

    def current(self) -> Spent:
        """Return what the round that is under way has cost so far."""
        return self.beside._replace(models_down=self.beside.models_down + int(self.received.sum()))

    def closed(self) -> "Account":
        """Return the account as the next round begins."""
        return Account((*self.past, self.current()), np.zeros_like(self.received), Spent())

    def bill(self) -> Bill:
        """Return the bill of all rounds so far."""
        current = self.current()
        rounds = self.past if current == Spent() else (*self.past, current)
        return Bill(rounds, Spent(*(sum(column) for column in zip(*rounds))) if rounds else Spent())


def nothing(num_clients: int) -> Account:
    """Return the account before anything was asked."""
    return Account((), np.zeros((num_clients,), bool), Spent())
