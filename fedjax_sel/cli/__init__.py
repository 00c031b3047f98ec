"""The command-line interface `fedjax-sel`: its subcommands."""

import importlib
import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.core.parsing import did_you_mean
from fedjax_sel.errors import UserError

DESCRIPTION = "Simulates client selection in federated learning: which clients should train in each round?"
EXAMPLES = """examples:
  fedjax-sel train
      FL-DP3S on the embedded digits, seconds
  fedjax-sel train --preset fedcor/fmnist-1spc --dry-run
      memory, traffic and time of a run, before it starts
  fedjax-sel compare --algos random fl_dp3s --seeds 10 --out runs/digits
      two strategies and a verdict
  fedjax-sel list fedcor
      one strategy in full
  fedjax-sel COMMAND --help
      every flag of a command, with its default

`python -m fedjax_sel COMMAND` is equivalent.
"""


class Command(NamedTuple):
    """A command's entry in the overview."""

    group: str
    about: str
    module: str  # module of this package with `main(arguments) -> exit code` and `make_parser()`


COMMANDS = {
    "train": Command("run", "train a model with one selection strategy, all seeds at once", "train"),
    "compare": Command("run", "run several strategies under equal conditions, with a verdict", "compare"),
    "tune": Command("run", "search good settings of a strategy, without the test data", "tune"),
    "list": Command("look", "list strategies, data sets, presets and more, or describe one name", "listing"),
    "data": Command("look", "show each client's examples and labels under a partition", "data"),
    "report": Command("look", "compare existing runs in a table, a plot or an HTML page", "report"),
    "test": Command("check", "check that a strategy of your own satisfies the strategy contract", "test"),
}


def main(arguments: Sequence[str]) -> int:
    """Run a command, or print the overview of commands."""
    flags = list(itertools.takewhile(lambda argument: argument.startswith("-"), arguments))
    rest = arguments[len(flags) :]
    if not rest or "-h" in flags or "--help" in flags:
        parser = make_parser()
        parser.parse_args(flags)
        parser.print_help()
        return 0
    name, *own = rest
    if name not in COMMANDS:
        raise UserError(f"unknown command {name!r}; {did_you_mean(name, COMMANDS)}")
    return module_of(name).main([*own, *flags])


def module_of(name: str) -> ModuleType:
    """Import a command's module, without its heavy dependencies such as JAX."""
    return importlib.import_module(f"fedjax_sel.cli.{COMMANDS[name].module}")


def make_parser() -> Parser:
    """Make the top-level parser, whose help lists the commands."""
    width = max(map(len, COMMANDS))
    lines = []
    for group, commands in itertools.groupby(COMMANDS.items(), lambda item: item[1].group):
        lines += [f"{group}:", *(f"  {name:<{width}}  {command.about}" for name, command in commands), ""]
    usage, epilog = "fedjax-sel COMMAND [flags]", "\n".join([*lines, EXAMPLES])
    return Parser(prog="fedjax-sel", description=DESCRIPTION, usage=usage, epilog=epilog)


def entry_point() -> int:
    """Run the installed command `fedjax-sel`."""
    return command_line.guarded(main)
