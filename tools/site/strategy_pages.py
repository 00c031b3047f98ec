"""Markdown about each strategy, generated from the code: facts, traffic, parameters, and deviations from the paper."""

import importlib
import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any

import published_sources
import strategy_results

from fedjax_sel import strategies
from fedjax_sel.cli import catalogue
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import facts as kinds
from fedjax_sel.strategies import privacy
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, SELECTED, SERVER, Request

WHO = {
    ALL: "all available clients",  # all clients before the first round
    CANDIDATES: "the candidates",
    SELECTED: "the cohort",
    SERVER: "the server itself",
}
_SHORT = {ALL: "all", CANDIDATES: "candidates", SELECTED: "cohort", SERVER: "server"}


def overview(root: Path) -> str:
    """Return the table of all strategies with their facts and traffic."""
    lines = ["| strategy | paper | buys | sends beyond K models down and K up per round |", "|---|---|---|---|"]
    for name, entry in strategies.TABLE.items():
        strategy = strategies.make(name)
        lines.append(
            f"| [`{name}`]({name}.md) | {entry.paper} | {catalogue.buys(strategy)} | {catalogue.costs(strategy)} |"
        )
    return "\n".join(lines)


def disclosures(root: Path) -> str:
    """Return the table of what the server sees of single clients under each strategy."""
    lines = ["| strategy | the server sees | works with secure aggregation |", "|---|---|---|"]
    for name in strategies.TABLE:
        seen = privacy.disclosed(strategies.make(name))
        lines.append(f"| [`{name}`](strategies/{name}.md) | {privacy.in_words(seen)} | {_works(seen)} |")
    return "\n".join(lines)


def _works(seen: dict[str, int]) -> str:
    return _yes(privacy.level(seen) < privacy.MODELS)


def facts(root: Path) -> str:
    """Return the catalogue of facts, without options."""
    lines = ["| fact | queried clients | floats up per client | needs the model | trains |", "|" + "---|" * 5]
    for name, kind in kinds.KINDS.items():
        length = "none" if not kind.has_table else (kind.symbol or "1")
        if kind.extra_floats:
            length = f"{kind.extra_floats} + one per probe"
        who = ", ".join(_SHORT[one] for one in kind.who)
        lines.append(f"| `{name}` | {who} | {length} | {_yes(kind.needs_model)} | {_yes(kind.trains)} |")
    return "\n".join(lines)


def glance(root: Path, name: str) -> str:
    """Return a strategy's fact box and picture: queried clients, cost, measured leads, and what it selects."""
    strategy = strategies.make(name)
    asks = "; ".join(f"{_whom(request)} for `{request.kind}`" for request in strategy.requests)
    seen = privacy.disclosed(strategy)
    rows = {"asks": asks or "no client"}
    rows |= {"sends beyond training ([symbols](index.md#symbols))": catalogue.costs(strategy)}
    rows |= {"the server sees": privacy.in_words(seen), "works with secure aggregation": _works(seen)}
    rows |= strategy_results.in_short(root, name)
    picture = "![Labels in each round's cohort, and how often each client was selected]"
    box = ["| at a glance | |", "|---|---|", *(_row([head, text]) for head, text in rows.items())]
    return "\n".join([*box, "", f"{picture}(../images/strategies/{name}.png)"])


def _whom(request: Request) -> str:
    return "all clients" if request.who == ALL and request.when.before_first_round else WHO[request.who]


def _when(request: Request) -> str:
    start = ["before the first round"] if request.when.before_first_round else []
    return ", ".join([*start, *(catalogue._when(rule) for rule in request.when.rules)])


def buys(root: Path, name: str) -> str:
    """Return the facts that a strategy buys, and the parameters that change them."""
    usual = strategies.make(name)
    if usual.requests:
        lines = ["| fact | queried clients | when | sent up per client |", "|---|---|---|---|"]
        text = "\n".join([*lines, *(_request(request) for request in usual.requests)])
    else:
        more = catalogue.costs(usual)
        text = "Nothing." + ("" if more == "nothing" else f" Beyond K models down and K up per round, it sends {more}.")
    changed = _where_parameters_matter(name, usual)
    if changed:
        text += (
            "\n\nThese parameters change what it buys:\n\n| parameter | sends beyond training |\n|---|---|\n" + changed
        )
    return text


def _request(request: Request) -> str:
    kind = kinds.KINDS[request.kind]
    sends = "nothing" if not kind.has_table else f"{kind.symbol or 1} number{'s' if kind.symbol else ''}"
    if probes := kinds.num_probes(request):
        sends = f"{1 + probes} numbers"
    options = ", ".join(f"{key}={value}" for key, value in request.options)
    fact = f"`{request.kind}`" + (f" ({options})" if options else "")
    return f"| {fact} | {_whom(request)} | {_when(request)} | {sends} |"


def _where_parameters_matter(name: str, usual: Strategy) -> str:
    lines = []
    for parameter, (kind, default) in strategies.parameters(name).items():
        for value in _choices(kind):
            if value == default:
                continue
            try:
                made = strategies.make(name, **{parameter: value})
            except UserError:  # it goes with another parameter only
                continue
            buys, costs = catalogue.buys(made), catalogue.costs(made)
            if buys != catalogue.buys(usual):
                costs += f" ({buys})"
            if costs != catalogue.costs(usual):
                lines.append(f"| `{parameter}={value}` | {costs} |")
    return "\n".join(lines)


def parameters(root: Path, name: str) -> str:
    """Return a strategy's parameters: default and meaning, with the allowed values."""
    if not strategies.parameters(name):
        return "None."
    rows = _parameter_rows(name)
    about = "[Sources of the defaults](../api/defaults.md)."
    if name in _VARIANTS:
        of = _VARIANTS[name]
        same = _parameter_rows(of)
        rows = {parameter: row for parameter, row in rows.items() if row != same[parameter]}
        about = f"All other parameters and defaults are [`{of}`'s]({of}.md#parameters). {about}"
    lines = ["| parameter | default | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *rows.values()]) + f"\n\n{about}"


_VARIANTS = {"fedgp": "fedcor"}  # strategy -> the strategy that has the same parameters


def _parameter_rows(name: str) -> dict[str, str]:
    meanings, defaults = _arguments(strategies.TABLE[name].factory), _defaults(name)
    rows = {}
    for parameter, (kind, _) in strategies.parameters(name).items():
        meaning, choices = meanings[parameter], _choices(kind)
        if choices != (False, True) and not all(str(choice) in meaning for choice in choices):
            meaning += f" One of {', '.join(map(_code, choices))}."
        rows[parameter] = _row([f"`{parameter}`", _code(defaults[parameter]), meaning])
    return rows


def _defaults(name: str) -> dict[str, Any]:
    """Return the default of each parameter, and of each number that only a preset sets."""
    numbers = next(iter(published_sources.preset_numbers(name).values()), {})
    own = {parameter: default for parameter, (_, default) in strategies.parameters(name).items()}
    return {**own, **{field: value for field, value in numbers.items() if own.get(field) is None}}


def defaults(root: Path) -> str:
    """Return the table of all strategies' defaults with their sources."""
    lines = ["| strategy | parameter | default | source |", "|---|---|---|---|"]
    for name in strategies.names():
        lines += [
            _row([f"`{name}`", f"`{parameter}`", _code(value), published_sources.source(root, name, parameter)])
            for parameter, value in _defaults(name).items()
        ]
    return "\n".join(lines)


def presets(root: Path, name: str) -> str:
    """Return the numbers in which the presets differ from the default one, and those that only a preset sets."""
    columns = published_sources.preset_numbers(name)
    usual = next(iter(columns))
    of = _VARIANTS.get(name)
    same = published_sources.preset_numbers(of) if of else {}
    lines = ["| preset | numbers |", "|---|---|"]
    for other, numbers in columns.items():
        if other == usual or numbers == same.get(other):
            continue
        task_of = other.partition(", ")[0]
        base = usual if task_of == other else task_of
        changed = [f"`{field}={value}`" for field, value in numbers.items() if value != columns[base][field]]
        if changed:
            lines.append(_row([f"`{other}`", f"as `{base}`, with {', '.join(changed)}"]))
    if of:
        return "\n".join(lines) + f"\n\nThe other presets are [`{of}`'s]({of}.md#the-presets-numbers)."
    own = [f"`{field}={columns[usual][field]}`" for field in columns[usual] if field not in strategies.parameters(name)]
    return "\n".join(lines) + (f"\n\nOnly presets set these numbers; `{usual}` has {', '.join(own)}." if own else "")


def differs(root: Path, name: str) -> str:
    """Return a strategy's deviations from its paper: the end of its module's docstring."""
    factory = strategies.TABLE[name].factory
    module = importlib.import_module(factory.__module__)
    doc = inspect.cleandoc(module.__doc__ or "")
    start = re.search(r"^(What became different|Differs from the paper)", doc, re.MULTILINE)
    if start is None:
        raise ValueError(f"{name}: its module does not say how it differs from the paper")
    text = _as_markdown(doc[start.start() :].removeprefix("Differs from the paper:\n"))
    path = Path(module.__file__ or "").relative_to(root).as_posix()
    return f"{text}\n\n*From [`{path}`](../../{path}).*"


def _as_markdown(text: str) -> str:
    """Return a docstring's text as Markdown: names as code, what Markdown would read as marks escaped."""
    lines = []
    for paragraph in re.split(r"\n(?=\* |\n)", text):
        joined = re.sub(r"\s*\n\s*", " ", paragraph.strip())
        joined = _NAME.sub(r"`\1`", joined)
        bullet, body = ("* ", joined[2:]) if joined.startswith("* ") else ("", joined)
        parts = re.split(r"(`[^`]*`)", body)
        lines.append(bullet + "".join(part if part.startswith("`") else _as_formula(part) for part in parts))
    text = "\n".join(lines)
    return re.sub(r"(?m)^(?!\* )(.+)\n(?=\* )", r"\1\n\n", text)


_NAME = re.compile(r"(?<![`\w])([a-z]{2,}(?:_[a-z]+)+(?:=\w+|=\"[^\"]*\")?|[a-z_]+=\"[^\"]*\")(?![`\w])")


def _as_formula(text: str) -> str:
    """Return text with S^T and U_min as they are written by hand, and what Markdown would read as marks escaped."""
    text = re.sub(r"([*<])", r"\\\1", text)
    text = re.sub(r"(?<=[\w)])\^(?:\(([^()]*)\)|\{([^{}]*)\}|(-?\w+))", _raised, text)
    return re.sub(r"(?<![\w`])([A-Za-z])_(?:\{([^{}]*)\}|(\w+))", lambda m: f"{m[1]}<sub>{m[2] or m[3]}</sub>", text)


def _raised(match: re.Match) -> str:
    return f"<sup>{match[1] or match[2] or match[3]}</sup>"


def _arguments(factory: Any) -> dict[str, str]:
    """Return what the docstring of a factory says of each argument."""
    doc = inspect.cleandoc(inspect.unwrap(factory).__doc__ or "")
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", doc, re.DOTALL | re.MULTILINE)
    assert section is not None, factory
    found = re.findall(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", section[1], re.DOTALL | re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _choices(kind: Any) -> tuple:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return tuple(value for one in typing.get_args(kind) for value in _choices(one))
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    return (False, True) if kind is bool else ()


def _code(value: Any) -> str:
    return f"`{value}`"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"
