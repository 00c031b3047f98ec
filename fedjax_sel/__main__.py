"""`python -m fedjax_sel`: which commands there are."""

import argparse
import sys
from collections.abc import Sequence

from fedjax_sel.cli import command_line
from fedjax_sel.core.names import did_you_mean
from fedjax_sel.errors import UserError

DESCRIPTION = "Which clients should train this round? Federated learning, simulated to answer that."
COMMANDS = {
    "fedjax_sel.train": "train a model whose cohorts a strategy chooses; its --list shows what there is",
    "fedjax_sel.compare": "run several strategies under the same conditions, in tables and pictures",
    "fedjax_sel.report": "put runs side by side that are there already",
    "fedjax_sel.reproduce": "run the papers' tables and figures again, and judge each claim by a rule",
    "fedjax_sel.leaderboard": "run every strategy under the same settings, and say what can be told from chance",
    "fedjax_sel.data": "show who holds what under a partition, before training on it",
    "fedjax_sel.testing": "check whether a strategy of your own keeps the contract",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    width = max(map(len, COMMANDS))
    parser = command_line.Parser(
        prog="python -m fedjax_sel",
        description=DESCRIPTION,
        usage="python -m fedjax_sel.COMMAND ...; python -m fedjax_sel.COMMAND --help lists its flags",
        epilog="\n".join(["commands:", *(f"  python -m {name:<{width}}  {line}" for name, line in COMMANDS.items())])
        + "\n\nThe first two are installed as fedjax-sel-train and fedjax-sel-compare as well.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)  # as with every command
    _, rest = parser.parse_known_args(arguments)
    if rest:
        names = [name.removeprefix("fedjax_sel.") for name in COMMANDS]
        near = f"run python -m fedjax_sel.{rest[0]}" if rest[0] in names else did_you_mean(rest[0], names)
        raise UserError(f"{rest[0]!r}: not expected here; {near}")
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(command_line.guarded(main))
