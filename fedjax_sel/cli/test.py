"""`fedjax-sel test NAME`: whether a strategy keeps the contract."""

import argparse
import functools
from collections.abc import Sequence

from fedjax_sel import config
from fedjax_sel.cli import command_line
from fedjax_sel.cli.parser import Parser
from fedjax_sel.errors import UserError

DESCRIPTION = "Checks whether a selection strategy keeps the contract: mypackage.module:factory, or one by name."
EPILOG = """examples:
  fedjax-sel test mypackage.module:factory                     a strategy of your own
  fedjax-sel test pow_d --algo-args num_candidates=8           one of those here, with a parameter
  fedjax-sel test mypackage.module:factory --no-run            seconds: without the small real run

Exit codes: 0 it conforms; 1 a check failed; 2 something to mend.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        0 if it conforms, 1 if a check failed.
    """
    flags: argparse.Namespace = make_parser().parse_args(arguments)

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


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(prog="fedjax-sel test", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    what = parser.add_argument_group("what to check")
    what.add_argument("algo", metavar="ALGO", help="mypackage.module:factory, or a name of fedjax-sel list strategies")
    what.add_argument(
        "--algo-args", nargs="*", metavar="KEY=VALUE", default=[], help="the strategy's parameters (default: its own)"
    )
    how = parser.add_argument_group("how long")
    how.add_argument(
        "--rounds", type=int, default=8, metavar="N", help="of a game; enough to reach all phases (default: 8)"
    )
    how.add_argument("--no-run", action="store_true", help="leave out the small real run")
    return parser


def entry_point() -> int:
    """Run the command, for `python -m`."""
    return command_line.guarded(main)
