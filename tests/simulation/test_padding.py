"""The padded share against small cases that can be counted by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedjax_sel.simulation.layout import padded_share


def plan(groups, share, num_selected, at_once):
    shape = {"seeds": groups, "clients": share}
    return SimpleNamespace(mesh=SimpleNamespace(shape=shape), num_selected=num_selected, clients_at_once=at_once)


@pytest.mark.parametrize(
    "groups,share,seeds,selected,at_once,expected",
    [
        (1, 1, 1, 5, 0, 0),
        (1, 2, 1, 5, 0, 1 / 6),  # six places for five clients
        (1, 2, 5, 5, 0, 1 / 26),
        (5, 1, 5, 5, 1, 0),
        (2, 2, 4, 3, 1, 0),
    ],
)
def test_equal_clients_waste_only_places(groups, share, seeds, selected, at_once, expected):
    steps = np.full((seeds, 9), 20)
    assert padded_share(plan(groups, share, selected, at_once), steps) == pytest.approx(expected)


def test_unequal_clients():
    steps = np.array([[1, 3]])  # everybody is selected
    assert padded_share(plan(1, 1, 2, 1), steps) == 0  # one after another: nobody waits
    assert padded_share(plan(1, 1, 2, 0), steps) == pytest.approx(1 - 4 / 6)  # together: three steps for both
    assert padded_share(plan(1, 2, 2, 1), steps) == pytest.approx(1 - 4 / 6)  # side by side: one device waits
