"""Which strategies plan for the number of rounds."""

import warnings

import pytest

from fedjax_sel import strategies
from fedjax_sel.strategies.lookahead import depends_on_num_rounds


@pytest.mark.parametrize("name", strategies.TABLE)
def test_gpfl_alone_plans_ahead(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        depends = depends_on_num_rounds(strategies.make(name), 20, 4, 30, 50, everyone_available=True)
    assert depends == (name == "gpfl")


@pytest.mark.parametrize(
    "numbers,expected", [({"alpha": "const"}, False), ({"alpha": "tent"}, False), ({"alpha": "decay"}, True)]
)
def test_a_rule_without_the_number_of_rounds_does_not(numbers, expected):
    strategy = strategies.make("gpfl", **numbers)
    assert depends_on_num_rounds(strategy, 20, 4, 30, 50, everyone_available=True) == expected
