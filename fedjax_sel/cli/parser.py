"""The argument parser of all commands, with one-line errors and suggestions for other programs' flag names."""

import argparse
import contextlib
import difflib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from fedjax_sel.config import other_names
from fedjax_sel.errors import UserError
from fedjax_sel.version import __version__


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that raises `UserError` and has --version.

    Description and epilog are printed unwrapped, and flags cannot be abbreviated.
    """

    def __init__(self, **settings: Any):
        super().__init__(**{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **settings})
        self._given: Sequence[str] = ()
        self.add_argument(
            "--version", action=_Version, nargs=0, help="show the versions of fedjax_sel and its dependencies, and exit"
        )

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Parse a command line; reject unknown flags and unexpected words.

        Raises:
            UserError: If a flag is unknown (the message suggests one) or a positional argument is unexpected.
        """
        self._given = sys.argv[1:] if args is None else args
        parsed, unknown = self.parse_known_args(self._given, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise an argparse error as a UserError; argparse calls this."""
        for argument in self._given:  # a missing flag may have been given under another program's name
            if argument.startswith("--") and argument.split("=")[0] not in (*self._option_string_actions, "--"):
                self._refuse(argument)
        raise UserError(f"{message}; --help lists every flag")

    def _refuse(self, argument: str) -> NoReturn:
        flag = argument.split("=")[0]
        name = flag.lstrip("-")
        if not argument.startswith("-") or not name or name[0].isdigit():
            raise UserError(f"unexpected argument {argument!r}; --help lists every flag")
        flags = [option.lstrip("-") for option in self._option_string_actions]
        if found := other_names.ours(name, {option.replace("-", "_") for option in flags}):
            raise UserError(f"unknown flag {flag}; did you mean '--{found.replace('_', '-')}'?")
        if words := other_names.advice(name):
            raise UserError(f"unknown flag {flag}; {words}")
        near = difflib.get_close_matches(name, flags, n=1)
        raise UserError(
            f"unknown flag {flag}; " + (f"did you mean '--{near[0]}'?" if near else "--help lists every flag")
        )


class _Version(argparse.Action):
    """The --version action: prints the versions that a bug report needs, without importing the packages."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        import importlib.metadata  # these two imports would double a command's start-up time
        import platform

        versions = [f"Python {platform.python_version()}"]
        for package in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions.append(f"{package} {importlib.metadata.version(package)}")
        print(f"fedjax_sel {__version__} ({', '.join(versions)})")
        parser.exit()
