"""Texts: names with suggestions, parameters, numbers, lists, and table cells."""

import difflib
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from fedjax_sel.errors import UserError

_LONGEST = 300  # maximum length of an error message, characters


def cell(name: str) -> str:
    """Escape a name for a cell of a Markdown table."""
    return " ".join(name.split()).replace("|", r"\|")


def markdown_table(heads: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]], corner: str = "") -> str:
    """Return a Markdown table from names and cells; `corner` heads the names. Only the names are escaped."""
    heads = list(heads)
    lines = [f"|{corner and f' {corner}'} | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    return "\n".join([*lines, *(f"| {cell(name)} | {' | '.join(cells)} |" for name, cells in rows)])


def label(name: str) -> str:
    """Escape a name for Matplotlib: no math mode at dollars, no leading underscore, which legends hide."""
    text = " ".join(name.split()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def without_folders(text: str) -> str:
    """Shorten every absolute path in a text to its last component, so that pages show no local folders."""
    return re.sub(r"(?<![\w.])/(?:[^\s'\"/]*/)+", "", text)


def reason(error: BaseException) -> str:
    """Summarize a foreign error in one line: its type and the first line of its message, truncated."""
    line = first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, truncated; "" if the message is empty."""
    line = str(error).strip().partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


LONGEST = 80  # maximum length of a value in a message, characters


def shown(value: Any) -> str:
    """Format a value for a message: its repr, truncated."""
    text = repr(value)
    text = " ".join(text.split()) if "\n" in text else text  # an array's repr has several lines
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}... ({len(text)} characters)"


def did_you_mean(unknown: str, known: Iterable[str]) -> str:
    """Return "did you mean 'a' or 'b'?" with similar names, or "choose from a, b, c" if none is similar."""
    known = sorted(set(known))
    same = [name for name in known if _letters(name) == _letters(unknown)]
    if near := same or difflib.get_close_matches(unknown, known, n=2, cutoff=0.6):
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"choose from {', '.join(known)}" if known else "no names are defined"


def _letters(name: str) -> str:
    """Return a name in lower case without separators: FL-DP3S and fl_dp3s are the same."""
    return re.sub("[-_ ]", "", name.lower())


def digits_of_amount(mean: float) -> int:
    """Return the decimals of an amount such as megabytes: one, or two significant digits below 1, for small models."""
    return 1 - math.floor(math.log10(mean)) if 0 < mean < 1 else 1


def one_of(what: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return a value if it is allowed, or raise UserError with similar values; `what` names the flag or field."""
    allowed = tuple(allowed)
    if isinstance(value, Hashable) and value in allowed:
        return value
    raise UserError(f"{what}: unknown {shown(value)}; {did_you_mean(str(value), (str(name) for name in allowed))}")


MOST_SEEDS = 10_000


def as_list(value: Any) -> list[Any]:
    """Convert a string, a single value or an iterable to a list."""
    if isinstance(value, str):
        return value.replace(",", " ").split()
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        return [value]
    return [_number(value)] if getattr(value, "ndim", 1) == 0 else list(value)


KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}  # for messages


def scalar(flag: str, value: Any, kind: type) -> Any:
    """Parse one int, float, bool or str, or raise UserError."""
    try:
        if kind is bool:
            return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).lower()]
        if value is None or (kind is not str and isinstance(value, bool)):
            raise ValueError
        if kind is str:
            return str(value)
        converted: Any = kind(value)
        converted += 0  # -0.0 becomes 0.0
        if kind is int and not isinstance(value, str) and converted != value:
            raise ValueError
        return converted
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UserError(f"{flag}: {shown(value)} is not {KINDS[kind]}") from error


def deadline(text: str) -> tuple[float, bool] | None:
    """Parse --deadline: seconds, or a quantile after `q`, as (number, whether it is a quantile); None if invalid."""
    quantile = text.startswith("q")
    try:
        number = float(text.removeprefix("q"))
    except ValueError:
        return None
    return (number, quantile) if (0 <= number <= 1 if quantile else 0 < number < float("inf")) else None


def kind_and_number(text: str, kinds: Iterable[str]) -> tuple[str, float] | None:
    """Parse `kind:number` with a finite number above 0, such as lognormal:0.5; None if invalid."""
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        return None
    return (kind, value) if kind in kinds and 0 < value < float("inf") else None


def epochs(value: Any) -> int | str | None:
    """Parse --local-epochs: a count, or a range low:high."""
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return None
    texts = value.split(":", 1) if isinstance(value, str) else [value]
    low, high = (scalar("--local-epochs", text, int) for text in (texts[0], texts[-1]))
    if not (1 <= low <= 10_000 and 1 <= high <= 10_000):
        words = "is not a whole number from 1 to 10000, or a range of them such as 1:5"
        raise UserError(f"--local-epochs: {shown(value)} {words}")
    if low > high:
        raise UserError(f"--local-epochs: {shown(value)} has its bounds reversed; give {high}:{low}")
    return low if low == high else f"{low}:{high}"


def seeds(value: Any) -> tuple[int, ...]:
    """Parse --seeds: a count, or a list of seeds. A single number is a count; "7," is the single seed 7."""
    items = as_list(value)
    if not isinstance(value, Iterable) or (isinstance(value, str) and len(items) == 1 and "," not in value):
        count = scalar("--seeds", items[0], int)
        if count < 1:
            raise UserError(f"--seeds: {count} is below 1; give a count such as 5, or several seeds such as 3 4 7")
        items = range(min(count, MOST_SEEDS + 1))
    found = tuple(scalar("--seeds", item, int) for item in items)
    if not found:
        raise UserError(f"--seeds: {shown(value)} is empty; give a count such as 5")
    if len(found) > MOST_SEEDS:
        raise UserError(f"--seeds: {shown(value)} exceeds the maximum of {MOST_SEEDS} seeds; give fewer")
    if not all(0 <= seed < 2**31 for seed in found):
        raise UserError(f"--seeds: {shown(found)} has a seed outside 0 to 2147483647")
    if len(set(found)) < len(found):
        raise UserError(f"--seeds: {shown(found)} contains a duplicate; give each seed once")
    return found


def pairs(flag: str, value: Any) -> tuple[tuple[str, Any], ...]:
    """Return sorted (key, value) pairs from a mapping, from pairs, or from strings key=value."""
    if isinstance(value, Mapping):
        value = tuple(value.items())
    found: dict[str, Any] = {}
    for item in value.split() if isinstance(value, str) else as_list(value):
        key, equals, text = item.partition("=") if isinstance(item, str) else _pair(item)
        if not equals or not key or not isinstance(key, str):
            raise UserError(f"{flag}: {shown(item)} is not of the form key=value")
        if key in found:
            raise UserError(f"{flag}: {shown(key)} is given twice; give it once")
        found[key] = _number(text)
    return tuple(sorted(found.items()))


def _number(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number, which JSON can store; return any other value unchanged."""
    is_numpy = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_numpy else value


def _pair(item: Any) -> tuple[Any, bool, Any]:
    return (item[0], True, item[1]) if isinstance(item, tuple | list) and len(item) == 2 else (None, False, None)


def mesh_shape(text: str) -> tuple[int, int]:
    """Parse `seeds=2,clients=4` into device counts (seeds, clients); a missing axis has one device."""
    found = dict(re.findall(r"(seeds|clients)=([1-9][0-9]*)", text))
    if not found or ",".join(map("=".join, found.items())) != text.replace(" ", ""):
        raise UserError(f"--mesh: {shown(text)} is not of the form seeds=2,clients=4, with whole numbers from 1")
    return int(found.get("seeds", 1)), int(found.get("clients", 1))


class Privacy(NamedTuple):
    """The settings of --privacy: a client's budget over the whole run, and the bounds of what it sends."""

    epsilon: float
    delta: float = 1e-5
    answers: int | None = None  # most perturbed answers of a client; None: as many as the schedule allows
    loss: float = 5.0  # of an example, nats
    profile: float = 10.0  # L2 norm; see `strategies.privacy` for what each bound limits
    gradient: float = 1.0  # L2 norm
    update: float = 1.0  # L2 norm
    label_histogram: float = 100.0  # examples, if the unit is the client


class PrivateTraining(NamedTuple):
    """The settings of --private-training: a client's budget over the whole run, and the bound of its update."""

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0  # L2 norm of an update
    rounds: int | None = None  # most rounds in which a client trains; None: all


def privacy(text: str) -> Privacy:
    """Parse `epsilon=1,delta=1e-5`, with further fields of `Privacy`; raise UserError if it is invalid."""
    return Privacy(**_budget("--privacy", text, Privacy._fields))


def private_training(text: str) -> PrivateTraining:
    """Parse `epsilon=8,delta=1e-5,clip=1,rounds=20`; raise UserError if it is invalid."""
    found = PrivateTraining(**_budget("--private-training", text, PrivateTraining._fields))
    if not found.delta:
        raise UserError("--private-training: delta=0 is impossible with Gaussian noise; give delta=1e-5")
    return found


def _budget(flag: str, text: str, fields: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs(flag, as_list(text)):
        one_of(flag, name, fields)
        found[name] = scalar(f"{flag} {name}", value, int if name in ("answers", "rounds") else float)
        if name == "delta" and not 0 <= found[name] < 1:
            raise UserError(f"{flag}: delta={found[name]:g} is outside 0 (included) to 1 (excluded)")
        if name != "delta" and not 0 < found[name] < float("inf"):
            raise UserError(f"{flag}: {name}={found[name]:g} is not a positive number")
    if "epsilon" not in found:
        raise UserError(f"{flag}: epsilon is missing; give epsilon=1,delta=1e-5")
    return found


def name_and_parameters(flag: str, text: str, example: str) -> tuple[str, dict[str, str]]:
    """Parse `name` or `name[key=value,key=value]`; return the name, and the parameters in alphabetical order.

    `flag` and `example` are for the message of a UserError.
    """
    match = re.fullmatch(r"([^\[\]=,\s]+)(?:\[(.*)\])?", text.strip())
    if match is None:
        raise UserError(f"{flag}: {text!r} is not of the form name or name[key=value,key=value], {example}")
    items = re.sub(r"\s*([,=])\s*", r"\1", (match[2] or "").strip()).split(",")
    return match[1], dict(pairs(flag, filter(None, items)))
