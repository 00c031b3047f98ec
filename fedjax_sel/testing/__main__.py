"""`python -m fedjax_sel.testing NAME`: whether a strategy keeps the contract."""

import argparse
import functools
import sys
from collections.abc import Sequence

from fedjax_sel import config
from fedjax_sel.cli import command_line
from fedjax_sel.errors import UserError

DESCRIPTION = "Checks whether a selection strategy keeps the contract: mypackage.module:factory, or one by name."


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        0 if it conforms, 1 if a check failed.
    """
    parser = command_line.Parser(prog="python -m fedjax_sel.testing", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("algo", help="mypackage.module:factory, or a name that --list of fedjax_sel.train shows")
    parser.add_argument("--algo-args", nargs="*", metavar="KEY=VALUE", default=[], help="the strategy's parameters")
    parser.add_argument("--rounds", type=int, default=8, help="of a game; enough to reach all phases (default: 8)")
    parser.add_argument("--no-run", action="store_true", help="leave out the small real run")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    flags: argparse.Namespace = parser.parse_args(arguments)

    from fedjax_sel import devices, strategies, testing  # what follows needs JAX; --help does not

    devices.check_that_jax_starts()
    if flags.rounds < 1:
        raise UserError(f"--rounds: {flags.rounds} is below 1; give a whole number from 1")
    values = dict(config.convert("algo_args", flags.algo_args))
    strategies.make(flags.algo, **values)  # bad input is one sentence, not a finding
    make = functools.partial(strategies.make, flags.algo, **values)
    report = testing.examine(make, rounds=flags.rounds, run=not flags.no_run)
    print(report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(command_line.guarded(main))
