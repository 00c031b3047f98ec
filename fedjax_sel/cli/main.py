"""`fedjax-sel COMMAND ...`: which commands there are, and where each begins."""

import importlib
import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from fedjax_sel.cli import command_line, completion
from fedjax_sel.cli.parser import Parser
from fedjax_sel.core.names import did_you_mean
from fedjax_sel.errors import UserError

DESCRIPTION = "Which clients should train this round? Federated learning, simulated to answer that."
EXAMPLES = """examples:
  fedjax-sel train                                          FL-DP3S on the embedded digits, seconds
  fedjax-sel train --preset fedcor/fmnist-1spc --dry-run    what a run would take, before it starts
  fedjax-sel compare --algos random fl_dp3s --seeds 10 --out runs/digits
  fedjax-sel list fedcor                                    all about one name
  fedjax-sel COMMAND --help                                 every flag of a command, with its default

`python -m fedjax_sel COMMAND` and `python -m fedjax_sel.MODULE` are the same; MODULE is the command's name, and testing
for test. TAB completes commands, flags and names once the package argcomplete is there:
  pip install "fedjax-sel[completion]" && eval "$(register-python-argcomplete fedjax-sel)"
"""


class Command(NamedTuple):
    """A command as it is listed."""

    group: str
    about: str
    module: str  # in this room, with `main(arguments) -> exit code` and `make_parser()`


COMMANDS = {
    "train": Command("run", "train a model whose cohorts a strategy chooses, all seeds at once", "train"),
    "compare": Command("run", "run several strategies under the same conditions, in tables and pictures", "compare"),
    "list": Command("look", "show what there is to choose from, or all about one name", "listing"),
    "data": Command("look", "show who holds what under a partition, before training on it", "data"),
    "report": Command("look", "put runs side by side that are there already", "report"),
    "test": Command("check", "check whether a strategy of your own keeps the contract", "test"),
}


STUDIES = ("reproduce", "leaderboard")  # commands of earlier versions


def main(arguments: Sequence[str]) -> int:
    """Run a command, or show which there are.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    flags = list(itertools.takewhile(lambda argument: argument.startswith("-"), arguments))
    rest = arguments[len(flags) :]
    if not rest or "-h" in flags or "--help" in flags:
        parser = make_parser()
        parser.parse_args(flags)
        parser.print_help()
        return 0
    name, *own = rest
    if name in STUDIES:
        raise UserError(
            f"{name}: this command moved to the source repository; clone it, and run python -m studies {name} there"
        )
    if name not in COMMANDS:
        raise UserError(f"{name!r} is no command; {did_you_mean(name, COMMANDS)}")
    return module_of(name).main([*own, *flags])


def module_of(name: str) -> ModuleType:
    """Return the module of a command; its imports are light, those of its work come later."""
    return importlib.import_module(f"fedjax_sel.cli.{COMMANDS[name].module}")


def parser_of(name: str) -> Parser:
    """Return the parser of a command."""
    return module_of(name).make_parser()


def make_parser() -> Parser:
    """Make the parser of what stands in front of a command."""
    width = max(map(len, COMMANDS))
    lines = []
    for group, commands in itertools.groupby(COMMANDS.items(), lambda item: item[1].group):
        lines += [f"{group}:", *(f"  {name:<{width}}  {command.about}" for name, command in commands), ""]
    parser = Parser(
        prog="fedjax-sel",
        description=DESCRIPTION,
        usage="fedjax-sel COMMAND [flags]",
        epilog="\n".join([*lines, EXAMPLES]),
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def entry_point() -> int:
    """Run the installed command `fedjax-sel`."""
    completion.complete(make_parser, COMMANDS, parser_of)
    return command_line.guarded(main)
