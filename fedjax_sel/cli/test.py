"""`fedjax-sel test NAME`: the conformance check of a selection strategy."""

import argparse
import functools
from collections.abc import Sequence

from fedjax_sel import config
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.errors import UserError

DESCRIPTION = "Checks that a selection strategy satisfies the strategy contract (docs/add_a_strategy.md)."
EPILOG = """examples:
  fedjax-sel test mypackage.module:factory
      your own strategy
  fedjax-sel test pow_d --algo-args num_candidates=8
      a built-in strategy, with a parameter
  fedjax-sel test mypackage.module:factory --no-run
      faster: skip the short training run

Exit codes: 0 it conforms; 1 a check failed, or unexpected error; 2 invalid input or environment.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    flags: argparse.Namespace = make_parser().parse_args(arguments)

    from fedjax_sel import devices, strategies, testing  # imports JAX, which --help does not need

    devices.check_that_jax_starts()
    values = dict(config.convert("algo_args", flags.algo_args))
    strategies.make(flags.algo, **values)  # bad input is a UserError, not a failed check
    make = functools.partial(strategies.make, flags.algo, **values)
    sizes = {"num_clients": flags.num_clients, "num_selected": flags.num_selected, "rounds": flags.rounds}
    try:
        report = testing.examine(make, **sizes, run=not flags.no_run)
    except ValueError as error:
        raise UserError(f"--{str(error).replace('_', '-', 1)}") from error
    print(report)
    return 1 if report.failed else 0


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(prog="fedjax-sel test", description=DESCRIPTION, epilog=EPILOG)
    what = parser.add_argument_group("what to check")
    what.add_argument("algo", metavar="ALGO", help="mypackage.module:factory, or a name of fedjax-sel list strategies")
    about = "the strategy's parameters (default: its own)"
    what.add_argument("--algo-args", nargs="*", metavar="KEY=VALUE", default=[], help=about)
    how = parser.add_argument_group("size")
    about = "number of clients in the checks (default: 12)"
    how.add_argument("--num-clients", type=int, default=12, metavar="N", help=about)
    about = "clients selected per round, below --num-clients (default: 3)"
    how.add_argument("--num-selected", type=int, default=3, metavar="K", help=about)
    about = "simulated rounds per check; must cover all phases of the strategy (default: 8)"
    how.add_argument("--rounds", type=int, default=8, metavar="N", help=about)
    how.add_argument("--no-run", action="store_true", help="skip the short training run")
    return parser
