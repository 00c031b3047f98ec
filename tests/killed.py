"""A run that is killed while it saves."""

import pytest

import fedjax_sel
from fedjax_sel.runs import experiment


class Killed(BaseException):
    """Not an error that the package handles."""


def run_until_killed(config, rounds):
    """Run until the first save after more than `rounds` rounds, of which only the rows are written."""

    class Dying(experiment.Writer):
        def checkpoint(self, state, result, ends):
            if state.rounds > rounds:
                raise Killed
            super().checkpoint(state, result, ends)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(experiment, "Writer", Dying)
        fedjax_sel.run(config)
