"""The command line, derived from the configuration's dataclasses: one flag a field, its help beside the field.

Precedence: a flag, then the preset, then the default.
"""

import argparse
import dataclasses
import io
import sys
import traceback
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from fedjax_sel import logs
from fedjax_sel.cli.parser import Parser
from fedjax_sel.config import PAIRS, Config, concerns, files, flat_types, only_with
from fedjax_sel.core import terminal, texts
from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError
from fedjax_sel.papers import preset

UNEXPECTED, USER_ERROR = 1, 2  # exit codes


def make_parser(command: str, description: str, epilog: str, only: Collection[str] | None = None) -> Parser:
    """Make a parser with one flag for every field of the configuration, and --preset and --debug.

    Args:
        command: e.g. "fedjax-sel train".
        description: what it does.
        epilog: examples.
        only: the fields that the command takes, by flat name; all without it.
    """
    parser = Parser(prog=command, usage=f"{command} [flags]", description=description, epilog=epilog)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    start = parser.add_argument_group("start from", "settings that the flags below change one by one")
    start.add_argument(
        "--preset",
        metavar="NAME",
        default="quickstart",
        help="a published experiment, e.g. fedcor/fmnist-1spc; fedjax-sel list presets shows all (default: quickstart)",
    )
    start.add_argument(
        "--config",
        metavar="FILE",
        type=path,
        help="settings in a .json or .toml file, such as a run's config.json (default: none)",
    )
    hints = flat_types()
    for concern, kind in concerns().items():
        fields = [field for field in dataclasses.fields(kind) if only is None or field.name in only]
        if fields:
            group = parser.add_argument_group(concern, (kind.__doc__ or "").strip().rstrip("."))
            for field in fields:
                _add_flag(group, field, hints[field.name])
    return parser


def add_log(group: Any) -> None:
    """Add --log to a group of flags."""
    group.add_argument(
        "--log",
        nargs="+",
        default=[],
        choices=list(logs.NAMES),
        metavar="NAME",
        help=f"also follow the run in other tools: {', '.join(logs.NAMES)} (docs/logging.md; default: none)",
    )


def _add_flag(group: Any, field: dataclasses.Field, hint: Any) -> None:
    options = [option for option in typing.get_args(hint) if option is not types.NoneType]
    kind = options[0] if isinstance(hint, types.UnionType) else hint
    default = _default(field)
    needed = only_with(field.name)
    condition = "" if needed is None else f"; only with {needed.words}"
    settings: dict[str, Any] = {
        "default": argparse.SUPPRESS,
        "help": (field.metadata["help"] + condition + default).replace("%", "%%"),
    }
    if kind is bool:
        settings["action"] = argparse.BooleanOptionalAction
    elif field.name in PAIRS:
        settings |= {"nargs": "*", "metavar": "KEY=VALUE"}
    elif typing.get_origin(kind) is tuple:
        settings |= {"nargs": "+", "metavar": "N"}
    elif typing.get_origin(kind) is Literal:
        settings["metavar"] = "{" + ",".join(typing.get_args(kind)) + "}"
    else:
        settings["metavar"] = {int: "N", float: "X", str: "TEXT"}[kind]
    group.add_argument("--" + field.name.replace("_", "-"), **settings)


def _default(field: dataclasses.Field) -> str:
    """Return what stands behind a flag's help: its default, unless the help itself says what holds without the flag."""
    if field.default in (None, ()):
        told = any(words in field.metadata["help"] for words in ("(default", "(else", "(this or"))
        return "" if told else " (default: none)"
    return f" (default: {_shown(field.default)})"


def _shown(value: Any) -> str:
    return " ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)


def parse(parser: Parser, arguments: Sequence[str]) -> tuple[Config, argparse.Namespace]:
    """Read a command line.

    Args:
        parser: from `make_parser`, perhaps with flags added.
        arguments: without the program's name.

    Returns:
        The resolved configuration, and all flags as given.

    Raises:
        UserError: an unknown flag (the nearest is offered) or a value of the wrong type.
    """
    parsed = parser.parse_args(arguments)
    names = {name: value for name, value in vars(parsed).items() if name in flat_types()}
    if "seeds" in names:
        text = " ".join(names["seeds"])
        names["seeds"] = text
    base = preset(parsed.preset)
    if parsed.config is not None:
        base = files.read(parsed.config, base)
    return base.replace(**names), parsed


def path(text: str) -> Path:
    """Return a path on a command line, for argparse; an empty one would be the working folder, which nobody meant."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; name a file or folder")
    if text.startswith("~"):
        raise argparse.ArgumentTypeError(f"{shown(text)} begins with ~, which a shell did not replace; write all of it")
    try:
        text.encode()  # what is no UTF-8 could be neither printed nor written into a file
        Path(text).exists()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!a} is no UTF-8; rename it") from error
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{shown(text)} cannot be used ({error.strerror}); give another") from error
    return Path(text)


def picture(text: str) -> Path:
    """Return the path of a picture on a command line, for argparse; without an ending it becomes a PNG."""
    chosen = path(text)
    if chosen.is_dir():
        raise argparse.ArgumentTypeError(f"{shown(text)} is a folder; name a picture in it, such as curves.png")
    return chosen if chosen.suffix else chosen.with_suffix(".png")


def refuse_idle(flags: argparse.Namespace, configs: Iterable[Config]) -> None:
    """Refuse flags of a command line that change nothing.

    Args:
        flags: all flags as given, from `parse`.
        configs: of the runs that the command line stands for; a flag may matter to one of them alone.

    Raises:
        UserError: a flag is of no effect in any of them; it says what it needs.
    """
    configs = list(configs)
    for name in flat_types():
        needed = only_with(name)
        if name in flags and needed is not None and not any(map(needed.holds, configs)):
            flag = "--" + name.replace("_", "-")
            value = _shown(getattr(flags, name))
            raise UserError(f"{flag} {value}: this changes nothing without {needed.words}; leave it out, or add that")


def guarded(main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """Run a command: a UserError becomes one sentence on stderr and exit code 2, any other error one and exit code 1.

    A reader that leaves (`| head -1`, `| tee` after Ctrl-C, a closed terminal) changes neither what the command does
    nor its exit code. Output that does not arrive for another reason, such as a full disk, is an error.

    Args:
        main: the command: arguments -> exit code.
        arguments: without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has not all characters
    with terminal.unbroken() as out:
        code = _guarded(main, arguments)
        out.flush()
        if code == 0 and out.error is not None and not out.left:
            reason = out.error.strerror or out.error
            print(
                f"error: standard output cannot be written ({reason}); make room, or send it elsewhere", file=sys.stderr
            )
            return USER_ERROR
        return code


def _guarded(main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    try:
        return main(arguments)
    except UserError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except SystemExit as error:
        commands = ("argparse.", "fedjax_sel.cli.", "fedjax_sel.__main__.", "__main__.")
        place = _places(error)[-1]
        if place.startswith(commands):
            raise  # the parser's own: --help, a wrong flag
        print(
            f"error: {place} tried to end the process ({texts.reason(error)}); raise an exception there instead",
            file=sys.stderr,
        )
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BaseException as error:  # somebody's own code may raise what is no Exception
        if "--debug" in arguments:
            traceback.print_exc()
        code, sentence = _unforeseen(error)
        print(f"error: {sentence}", file=sys.stderr)
        return code


def _places(error: BaseException) -> list[str]:
    """Return the functions that an error came through, the outermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}" for frame in frames]


def _unforeseen(error: BaseException) -> tuple[int, str]:
    """Return the exit code and a sentence for an error that nobody thought of, or that too small a machine causes."""
    text = texts.reason(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return USER_ERROR, (
            f"there is not enough memory ({text}); choose fewer --seeds-at-once, a smaller --cohort-batch, or smaller "
            "data or a smaller model"
        )
    places = _places(error)
    own = [place for place in places if place.startswith("fedjax_sel.") and not place.startswith(f"{__name__}.")]
    return UNEXPECTED, (
        f"{text}, in {(own or places)[-1]}; nobody thought of this: please report it with what --debug shows (what was "
        "written until now stays as it is)"
    )
