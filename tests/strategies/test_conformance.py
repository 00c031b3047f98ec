"""Every strategy in the table keeps the contract: the public kit, on all of them and on some of their variants."""

import pytest

from fedjax_sel import strategies, testing

# Of a strategy with phases, also a variant so short that a game of eight rounds reaches the last one.
VARIANTS = [
    ("random", {"variant": "md"}),
    ("random", {"variant": "weighted-wor"}),
    ("fl_dp3s", {"profile": "representative-gradient"}),
]


@pytest.mark.parametrize("name", strategies.names())
def test_conforms(name):
    testing.check_strategy(lambda: strategies.make(name))


@pytest.mark.parametrize(
    "name,parameters", VARIANTS, ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else value
)
def test_variants_conform(name, parameters):
    testing.check_strategy(lambda: strategies.make(name, **parameters), run=False)
