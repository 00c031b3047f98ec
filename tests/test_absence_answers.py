"""The benchmark of FedCor where all clients answer queries."""

import pytest

from tests import scripts


@pytest.mark.slow
def test_who_is_away_answers_all_the_same():
    """More losses are bought than of those who can be reached."""
    module = scripts.load("benchmarks/absence_answers.py")
    some = module.run(seeds=1, rounds=2, available=0.5).ledger
    with module.all_answer():
        every = module.run(seeds=1, rounds=2, available=0.5, observe_all=True).ledger
    everybody = module.run(seeds=1, rounds=2, available=1).ledger
    assert (some.bytes_down < every.bytes_down).all()
    assert (every.bytes_down == everybody.bytes_down).all()
