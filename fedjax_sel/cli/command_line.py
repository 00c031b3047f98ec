"""Command lines: parsers, help texts, flags to configurations, and one-line errors with exit codes."""

import argparse
import contextlib
import dataclasses
import difflib
import errno
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from fedjax_sel import config, logs
from fedjax_sel.config import CONCERNS, PAIRS, Config, flat_types, only_with
from fedjax_sel.core import parsing
from fedjax_sel.core.files import Unbroken
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.papers import PRESETS, preset
from fedjax_sel.version import __version__

if TYPE_CHECKING:
    import numpy as np

WITHOUT_TERMINAL, NARROWEST, LONGEST_CHOICES = 80, 30, 60  # columns


def width() -> int:
    """Return the usable width, in columns."""
    return max(NARROWEST, shutil.get_terminal_size((WITHOUT_TERMINAL, 24)).columns)


def hanging(label: str, text: str, column: int, indent: int = 0) -> str:
    """Format a label with a wrapped text beside it from a column on; a longer label gets its own line."""
    column = min(column, width() // 3)
    lead, margin = " " * indent, " " * (indent + column)
    start = f"{lead}{label:<{column}}"
    if len(label) >= column:
        return f"{lead}{label}\n{fill(text, margin)}" if text else f"{lead}{label}"
    return start.rstrip() if not text else start + fill(text, margin)[len(margin) :]


def fill(text: str, margin: str = "", further: str | None = None) -> str:
    """Wrap a paragraph between words; lines start with `margin`, all but the first with `further` if given."""
    margins: dict[str, Any] = {"initial_indent": margin, "subsequent_indent": margin if further is None else further}
    return textwrap.fill(text, width(), **margins, break_long_words=False, break_on_hyphens=False)


def page(text: str) -> str:
    """Wrap a docstring's paragraphs, and keep the lines of its lists, tables and formulas."""
    blocks = text.strip().split("\n\n")
    return "\n\n".join(block if re.search("^[ *]", block, re.MULTILINE) else fill(block) for block in blocks)


class _Formatter(argparse.HelpFormatter):
    """Wraps the paragraphs of descriptions and epilogs, and keeps the lines of their examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        del width, indent
        return page(text)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that raises `UserError` and has --version and --debug.

    Flags cannot be abbreviated.
    """

    def __init__(self, **settings: Any):
        super().__init__(**{"allow_abbrev": False, "formatter_class": _Formatter, **settings})
        self._given: Sequence[str] = ()
        self.add_argument("--version", action="version", version=f"fedjax_sel {__version__}")
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        """Parse a command line; reject unknown flags and unexpected words."""
        self._given = sys.argv[1:] if args is None else args
        parsed, unknown = self.parse_known_args(self._given, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise an argparse error as a UserError; argparse calls this."""
        for argument in self._given:  # a required flag may have been misspelled
            if argument.startswith("--") and argument.split("=")[0] not in (*self._option_string_actions, "--"):
                self._refuse(argument)
        raise UserError(f"{message}; --help lists every flag")

    def _refuse(self, argument: str) -> NoReturn:
        flag = argument.split("=")[0]
        name = flag.lstrip("-")
        if not argument.startswith("-") or not name or name[0].isdigit():
            raise UserError(f"unexpected argument {argument!r}; --help lists every flag")
        flags = [option.lstrip("-") for option in self._option_string_actions]
        near = difflib.get_close_matches(name, flags, n=1)
        advice = f"did you mean '--{near[0]}'?" if near else "--help lists every flag"
        if name == "algo-args" and "algos" in flags:  # of compare, where each name has its own
            advice = "give parameters in --algos 'NAME[parameter=value]'"
        raise UserError(f"unknown flag {flag}; {advice}")


def mean_and_deviation(name: str, values: "np.ndarray") -> tuple[str, str]:
    """Format a measure's mean and sample standard deviation over seeds; the latter is empty for a single seed."""
    failed = int((values != values).sum())  # NaN
    if failed:
        return f"N/A ({len(values) - failed} of {len(values)} seeds)", ""
    is_amount = any(unit in name for unit in ("megabytes", "rounds", "seconds"))
    digits = parsing.digits_of_amount(values.mean()) if is_amount else 4
    return f"{values.mean():.{digits}f}", f"{values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""


UNEXPECTED, USER_ERROR = 1, 2  # exit codes


def make_parser(command: str, description: str, epilog: str, only: Collection[str] | None = None) -> Parser:
    """Make a parser with one flag per configuration field, or per name in `only`, plus --preset and --config."""
    parser = Parser(prog=command, usage=f"{command} [flags]", description=description, epilog=epilog)
    start = parser.add_argument_group("base settings", "the flags below override these one by one")
    about = (
        "published experiment, e.g. fedcor/fmnist-1spc; see fedjax-sel list presets (default: quickstart, or the "
        "preset that --dataset names)"
    )
    start.add_argument("--preset", metavar="NAME", help=about)
    about = ".json or .toml file of settings, such as a run's config.json (default: none)"
    start.add_argument("--config", metavar="FILE", type=path, help=about)
    hints = flat_types()
    for concern, kind in CONCERNS.items():
        fields = [field for field in dataclasses.fields(kind) if only is None or field.name in only]
        if fields:
            group = parser.add_argument_group(concern, (kind.__doc__ or "").strip().rstrip("."))
            for field in fields:
                _add_flag(group, field, hints[field.name])
    return parser


def add_log(group: Any) -> None:
    """Add --log to a group of flags."""
    about = f"also log the run to external tools: {', '.join(logs.NAMES)} (docs/logging.md; default: none)"
    group.add_argument("--log", nargs="+", default=[], choices=list(logs.NAMES), metavar="NAME", help=about)


def add_dry_run(group: Any) -> None:
    """Add --dry-run to a group of flags."""
    about = "print settings, traffic, memory and time of each run; exit without training"
    group.add_argument("--dry-run", action="store_true", help=about)


def add_style(group: Any) -> None:
    """Add --style, the style of pictures, to a group of flags."""
    about = "screen; or paper: 300 dpi and no titles (default: screen)"
    group.add_argument("--style", choices=("screen", "paper"), default="screen", metavar="{screen,paper}", help=about)


def _add_flag(group: Any, field: dataclasses.Field, hint: Any) -> None:
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    kind = options[0] if len(options) < len(typing.get_args(hint)) else hint
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    about = field.metadata["help"]
    settings: dict[str, Any] = {"default": argparse.SUPPRESS}
    if kind is bool:
        settings["action"] = argparse.BooleanOptionalAction
    elif field.name in PAIRS:
        settings |= {"nargs": "*", "metavar": "KEY=VALUE"}
    elif typing.get_origin(kind) is tuple:
        settings |= {"nargs": "+", "metavar": "N"}
    elif choices and len(", ".join(choices)) > LONGEST_CHOICES:
        settings["metavar"] = "NAME"
        about += f"; names: {', '.join(choices)}"
    else:
        settings["metavar"] = f"{{{','.join(choices)}}}" if choices else {int: "N", float: "X", str: "TEXT"}[kind]
    if (needed := only_with(field.name)) is not None:
        about += f"; only with {needed.words}"
    if field.default not in (None, ()):
        about += f" (default: {as_typed(field.default)})"
    elif "(default" not in about:
        about += " (default: none)"
    group.add_argument("--" + field.name.replace("_", "-"), help=about.replace("%", "%%"), **settings)


def as_typed(value: Any) -> str:
    """Format a value as on a command line."""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def parse(parser: Parser, arguments: Sequence[str]) -> tuple[Config, argparse.Namespace]:
    """Parse a command line, without the program name, into the resolved configuration and the parsed flags."""
    parsed = parser.parse_args(arguments)
    names = {name: value for name, value in vars(parsed).items() if name in flat_types()}
    if "seeds" in names:
        names["seeds"] = " ".join(names["seeds"])
    if parsed.preset is None:  # such as --dataset shakespeare, which no other task and model fit
        parsed.preset = names["dataset"] if names.get("dataset") in PRESETS else "quickstart"
    base, parsed.setting = preset(parsed.preset), parsed.preset
    if parsed.config is not None:
        base, parsed.setting = config.read_config_file(parsed.config, base), Path(parsed.config).stem
    parsed.base = base
    return base.replace(**names), parsed


def path(text: str) -> Path:
    """Convert a command-line argument to a path (an argparse type)."""
    if not text:  # would silently mean the working folder
        raise argparse.ArgumentTypeError("the path is empty; name a file or folder")
    return Path(text).expanduser()  # shells do not expand --out=~/run


def picture(text: str) -> Path:
    """Convert a command-line argument to an image path (an argparse type); the default suffix is .png."""
    chosen = path(text)
    if chosen.is_dir():
        raise argparse.ArgumentTypeError(f"{shown(text)} is a folder; name an image file in it, such as curves.png")
    return chosen if chosen.suffix else chosen.with_suffix(".png")


def say(line: str) -> None:
    """Show a message on stderr."""
    print(line, file=sys.stderr, flush=True)


def reject_ineffective(flags: argparse.Namespace, configs: Iterable[Config]) -> None:
    """Reject flags that have no effect in any of the configurations, unless they reset a preset's value."""
    configs, usual, base = list(configs), Config().flat(), flags.base.flat()
    for name in flat_types():
        needed = only_with(name)
        resets = base[name] != usual[name] and all(config.flat()[name] == usual[name] for config in configs)
        if name in flags and not resets and needed is not None and not any(map(needed.holds, configs)):
            flag, value = "--" + name.replace("_", "-"), as_typed(getattr(flags, name))
            raise UserError(f"{flag} {value}: has no effect without {needed.words}; add that, or remove {flag}")


def guarded(main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run a command and print any error or warning as one line on stderr.

    A UserError gives exit code 2, any other error exit code 1. A closed output pipe (`| head -1`, `| tee` after
    Ctrl-C, a closed terminal) changes neither the command's work nor its exit code. Output that fails for another
    reason, such as a full disk, is an error.
    """
    is_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the terminal's encoding may lack characters
    original = sys.stdout, sys.stderr
    formatwarning = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    sys.stdout, sys.stderr = map(Unbroken, original)  # pyright: ignore[reportAttributeAccessIssue]
    if is_process:
        sys.unraisablehook = _end_on_ctrl_c
    try:
        code = main(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        if is_process:
            _end()
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        code, sentence = _explained(error)
        print(f"error: {sentence}", file=sys.stderr)
        return code
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        sys.stdout, sys.stderr = original
        warnings.formatwarning = formatwarning


def _end() -> None:
    """End the process at once: Python's own shutdown waits for the chunk that a device computes, or crashes."""
    print("interrupted", file=sys.stderr)
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(130)


def _end_on_ctrl_c(unraisable: "sys.UnraisableHookArgs") -> None:
    """End the process after a Ctrl-C in a callback of the garbage collector, whose exceptions Python ignores."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(unraisable)


def _explained(error: Exception) -> tuple[int, str]:
    """Return the exit code and message of an error."""
    text = parsing.reason(error)
    if isinstance(error, UserError):
        return USER_ERROR, str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return USER_ERROR, f"out of memory ({text}); reduce --seeds-at-once, --cohort-batch, the data set or the model"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return USER_ERROR, f"{error.strerror}; free disk space (files written so far are kept)"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    places = [f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}" for frame in frames]
    return UNEXPECTED, (
        f"{text}, in {[place for place in places if place.startswith('fedjax_sel.')][-1]}; unexpected error: please "
        "report it with the output of --debug (files written so far are kept)"
    )


PLACES = {"--data-dir": "DATA", "--runs": "RUNS", "--out": "OUT"}


def quoted_command(program: str, arguments: Sequence[str]) -> str:
    """Return a program and its arguments as one command line, with placeholders for local folders."""
    shown: list[str] = []
    left = iter(arguments)
    for argument in left:
        flag, given, value = argument.partition("=")
        if flag not in PLACES:
            shown.append(argument)
            continue
        value = value if given else next(left, "")
        of_project = flag == "--out" and not Path(value).is_absolute()  # shows the results' place in the repository
        shown += [flag, value if of_project else PLACES[flag]]
    return f"{program} {shlex.join(map(parsing.without_folders, shown))}"  # --config has a path, too
