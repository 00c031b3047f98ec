"""The parser of all commands: what is wrong is one sentence, and a flag by another program's name is told ours."""

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
    """A parser whose errors are UserErrors, one sentence each, and that knows --version.

    It takes what `argparse.ArgumentParser` takes. Texts are shown as they are written, and flags are not abbreviated.
    """

    def __init__(self, **settings: Any):
        super().__init__(**{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **settings})
        self._given: Sequence[str] = ()
        self.add_argument("--version", action=_Version, nargs=0, help="show the version, and those beneath it, and end")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Read a command line, and refuse what does not belong there.

        Raises:
            UserError: an unknown flag, with the right one or the nearest, or a word that is not expected.
        """
        self._given = sys.argv[1:] if args is None else args
        parsed, unknown = self.parse_known_args(self._given, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise a UserError for what argparse refuses; argparse calls this."""
        for argument in self._given:  # a flag that is missing may be there under another program's name
            if argument.startswith("--") and argument.split("=")[0] not in (*self._option_string_actions, "--"):
                self._refuse(argument)
        raise UserError(f"{message}; --help lists every flag")

    def _refuse(self, argument: str) -> NoReturn:
        flag = argument.split("=")[0]
        name = flag.lstrip("-")
        if not argument.startswith("-") or not name or name[0].isdigit():
            raise UserError(f"{argument!r}: not expected here; --help lists every flag")
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
    """Prints what somebody who answers a question about a run needs to know; nothing is imported for it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        import importlib.metadata  # these two take as long as the rest of a command's start
        import platform

        beneath = [f"Python {platform.python_version()}"]
        for package in ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                beneath.append(f"{package} {importlib.metadata.version(package)}")
        print(f"fedjax_sel {__version__} ({', '.join(beneath)})")
        parser.exit()
