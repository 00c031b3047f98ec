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
