"""Everything that can be selected, from the registries and docstrings, with costs."""

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from fedjax_sel import models, papers, strategies
from fedjax_sel.cli.command_line import as_typed
from fedjax_sel.config import Config, PartitionConfig, only_with
from fedjax_sel.core.plugins import Parameter, Registry, Within
from fedjax_sel.data import schemes
from fedjax_sel.experiment.checking import LAWS, MODES, TASKS
from fedjax_sel.papers import PRESETS
from fedjax_sel.strategies import facts, privacy
from fedjax_sel.strategies.contract import Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, SELECTED, SERVER, Request, Rule
from fedjax_sel.training import optimizers
from fedjax_sel.training.optimizers import FederatedOptimizer

_WHO = {ALL: ("all", "N"), CANDIDATES: ("candidates", "d"), SELECTED: ("the cohort", "K")}


def buys(strategy: Strategy) -> str:
    """Return the facts that a strategy buys, e.g. "loss of all, loss of the cohort"; "nothing" without requests."""
    return ", ".join(dict.fromkeys(_bought(request) for request in strategy.requests)) or "nothing"


_MANY = 10**6  # clients; only full participation has a place for each


def costs(strategy: Strategy) -> str:
    """Return the traffic beyond K models down and up per round, e.g. "start: N down, N floats up", or "nothing".

    `down` and `up` count models. A client that is queried and selected in the same round downloads the model once.
    """
    parts: dict[str, list[str]] = {}
    for request in strategy.requests:
        if request.when.before_first_round:
            parts.setdefault("start", []).append(_price(request))
        for rule in request.when.rules:
            parts.setdefault(_when(rule), []).append(_price(request))
    if strategy.num_places(_MANY, 1) == _MANY:
        parts.setdefault("each round", []).append("N - K down and N - K up")
    return "; ".join(f"{when}: {' and '.join(prices)}" for when, prices in parts.items()) or "nothing"


def _bought(request: Request) -> str:
    words = facts.KINDS[request.kind].words
    if request.who == SERVER:
        return f"{words} on {request.option('on', 'validation')} data"
    words = f"{words} of {_WHO[request.who][0]}"
    if probes := facts.num_probes(request):
        return f"{words} under {probes} random cohort{'s' if probes > 1 else ''}"
    return f"{words} on {request.option('batch_size')} examples" if request.option("batch_size") else words


def _price(request: Request) -> str:
    kind = facts.KINDS[request.kind]
    if request.who == SERVER:
        return "no traffic (the server evaluates)"
    if probes := facts.num_probes(request):
        times = "" if probes == 1 else f"{probes} "
        return f"{1 + probes}N down, {times}K up, {1 + probes}N floats up"
    count = _WHO[request.who][1]
    floats = f"{count} {f'x {kind.symbol} ' if kind.symbol else ''}floats up"
    return f"{count} down, {floats}" if kind.needs_model and request.who != SELECTED else floats


def _when(rule: Rule) -> str:
    if rule.last is not None:
        return f"rounds {rule.first + 1} to {rule.last + 1}"
    if rule.period == 1:
        return "each round" if rule.first == 0 else f"each round from {rule.first + 1}"
    return f"every {rule.period} rounds from {rule.first + 1}"


class Given(NamedTuple):
    """A parameter's default, allowed values and description, as the command line shows them."""

    default: str | None  # e.g. "profile=fc1" or "--alpha 0.2"; None if the strategy's `preset` sets it
    allowed: str  # e.g. "fc1, fc1-relu"
    meaning: str = ""


class Item(NamedTuple):
    """A catalogue entry: a strategy, an optimizer, a model, ..."""

    about: str  # one sentence
    facts: Mapping[str, str] = types.MappingProxyType({})
    parameters: Mapping[str, Given] = types.MappingProxyType({})
    page: str = ""  # the full docstring


class Section(NamedTuple):
    """The catalogue entries of one kind."""

    title: str
    flag: str  # the command-line flag that takes the entries' names
    items: Mapping[str, Item]
    note: str = ""


def sections() -> dict[str, Section]:
    """Return all sections, keyed by the section names that `fedjax-sel list` accepts."""
    by_name = {name: strategy(name) for name in strategies.names()}
    return {
        "strategies": Section("Strategies", "--algo", by_name, _STRATEGIES),
        "optimizers": Section("Federated optimizers", "--optimizer", _optimizers(), _OPTIMIZERS),
        "models": Section("Models", "--model", _models(), "Any Flax module of your own: docs/your_own_experiment.md."),
        "datasets": Section("Data sets", "--dataset", _DATASETS, _MORE_DATA),
        "partitions": Section("Partitions", "--partition", _partitions(), _PARTITIONS),
        "tasks": Section("Tasks", "--task", _made(TASKS)),
        "timing": Section("Simulated devices", "--timing", _made(LAWS), _TIMING),
        "availability": Section("Modes of availability", "--available", _made(MODES), _AVAILABILITY),
        "presets": Section("Presets", "--preset", _presets(), "Explicit flags override the preset."),
    }


_STRATEGIES = (
    "Symbols: N clients, K selected clients, d candidates, P model parameters, Q profile entries. Each round sends K "
    "models down and K up under every strategy; 'sends' lists the additional traffic. 'shows' lists what the server "
    "sees of single clients (docs/privacy.md). A client that is queried and "
    "then selected in the same round downloads the model once. --algo mypackage.module:factory runs your own strategy "
    "(docs/add_a_strategy.md)."
)
_OPTIMIZERS = (
    "--client-optimizer and --server-optimizer take sgd or the name of any Optax optimizer. docs/optimizers.md lists "
    "which strategies and optimizers can be combined."
)
_MORE_DATA = (
    "Also leaf:FOLDER, npz:FILE, any image-classification data set prepared for TFDS (--data-dir), and "
    "mypackage.module:factory (docs/your_own_data.md)."
)
_PARTITIONS = (
    "--client-sizes lognormal:SIGMA or dirichlet:ALPHA makes sizes unequal; with iid this is quantity skew. "
    "--feature-skew and --label-noise change each client's images and labels under any partition. fedjax-sel data "
    "shows each client's labels and sizes (docs/how_clients_differ.md)."
)
_TIMING = (
    "correlated is lognormal with slow clients that share their labels. --timing phones.csv reads a file. "
    "docs/timing.md gives the formulas and the sources of the defaults."
)
_AVAILABILITY = (
    "--available also takes each client's probability in a round, or a file of 0 and 1, clients x rounds "
    "(docs/availability.md)."
)
_DATASETS = {
    "digits": Item("8x8 digits, 1,797 images, bundled with scikit-learn (the default); no download."),
    "shakespeare": Item("Shakespeare's plays by role: 520 natural clients, the next character; no download."),
    "synthetic": Item("Gaussian class blobs of any size: synthetic:train_size=..,image_size=..; no download."),
    "mnist": Item("28x28 digits, 60,000 training images; downloaded at first use, or read from --data-dir."),
    "fashion_mnist": Item("28x28 clothes, 60,000 training images; downloaded at first use, or read from --data-dir."),
    "cifar10": Item("32x32 color images, 50,000 for training; downloaded at first use, or read from --data-dir."),
    "cifar100": Item("The same with 100 classes; downloaded at first use, or read from --data-dir."),
}


def strategy(name: str) -> Item:
    """Return the catalogue entry of a registered strategy or of `mypackage.module:factory`."""
    factory = strategies.REGISTRY.factory(name)
    factory = getattr(factory, "func", factory)  # a partial has the docstring of its class
    page = inspect.getdoc(sys.modules[getattr(factory, "__module__", __name__)]) or ""
    parameters = strategies.parameters(name)
    facts = {"paper": strategies.TABLE[name].paper} if name in strategies.TABLE else {}
    if all(parameter.default is not inspect.Parameter.empty for parameter in parameters.values()):
        made = strategies.make(name)
        seen = privacy.disclosed(made)
        secure = "works" if privacy.level(seen) < privacy.MODELS else "does not work"
        facts |= {
            "buys": buys(made),
            "sends": costs(made),
            "shows": f"{privacy.in_words(seen)}; {secure} with secure aggregation",
        }
    return Item(
        _first_sentence(page) or _first_sentence(inspect.getdoc(factory) or ""),
        facts, _values(parameters, factory), page,
    )  # fmt: skip


def _optimizers() -> dict[str, Item]:
    return {
        name: Item(
            f"{entry.about[0].upper()}{entry.about[1:]}.",
            {"paper": entry.paper, "sends": sends(optimizers.make(name))},
            _values(optimizers.parameters(name), entry.factory),
            inspect.getdoc(sys.modules[entry.factory.__module__]) or "",
        )
        for name, entry in optimizers.TABLE.items()
    }


def sends(optimizer: FederatedOptimizer) -> str:
    """Return the cohort's traffic in addition to models, e.g. "K x P floats down, K x P floats up"."""
    counts = {
        "K x P floats down": optimizer.vectors_down,
        "K x P floats up": optimizer.vectors_up,
        "K floats up": optimizer.floats_up,
    }
    return ", ".join(what if count == 1 else f"{count} {what}" for what, count in counts.items() if count) or "nothing"


def _models() -> dict[str, Item]:
    entries = {**models.TABLE, **models.PLAIN}
    return {
        name: Item(
            f"{entry.about[0].upper()}{entry.about[1:]}.",
            {"images": f"at least {size} x {size} pixels"} if (size := entry.smallest_image) is not None else {},
            page=_prose(inspect.getdoc(entry.module) or ""),
        )
        for name, entry in entries.items()
    }


def _partitions() -> dict[str, Item]:
    fields = dataclasses.fields(PartitionConfig)
    hints = typing.get_type_hints(PartitionConfig)
    found = {}
    for name, scheme in schemes.TABLE.items():
        chosen, parameters = Config().replace(partition=name), {}
        for field in fields:
            if only_with(field.name) is not None and chosen.has_effect(field.name):
                default = f"{_flag(field.name)} {as_typed(field.default)}"
                parameters[field.name] = Given(default, allowed(hints[field.name]), field.metadata["help"])
        found[name] = _documented(scheme, parameters)
    return found


def _documented(factory: Callable[..., Any], parameters: Mapping[str, Given]) -> Item:
    page = inspect.getdoc(factory) or ""
    return Item(_first_sentence(page), {}, parameters, _prose(page))


def _made(registry: Registry) -> dict[str, Item]:
    found = {}
    for name in registry.names():
        factory = registry.factory(name)
        factory = getattr(factory, "func", factory)  # a partial has the docstring of its class
        found[name] = _documented(factory, _values(registry.parameters(name), factory))
    return found


def _presets() -> dict[str, Item]:
    plain = Config().flat()
    found = {}
    for name in PRESETS:
        changed = {key: value for key, value in PRESETS[name].flat().items() if value != plain[key]}
        lines = [f"  {_flag(key)} {as_typed(value)}" for key, value in changed.items() if value is not None]
        page = "\n".join(["Differences from quickstart:", *lines]) if lines else "All settings have their defaults."
        found[name] = Item(papers.sentence(name), page=page)
    return found


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _values(parameters: Mapping[str, Parameter], factory: Callable[..., Any]) -> dict[str, Given]:
    meanings = _meanings(factory)
    found = {}
    for name, parameter in parameters.items():
        values = allowed(parameter.kind)
        default = f"{name}={'...' if parameter.default is inspect.Parameter.empty else as_typed(parameter.default)}"
        if parameter.default is None and "preset" in parameters:
            default, values = None, values.removesuffix(", none")
        found[name] = Given(default, values, meanings.get(name, ""))
    return found


def allowed(kind: Any) -> str:
    """Describe a type's values: "fc1, fc1-relu", or "a whole number, none"."""
    if typing.get_origin(kind) is Literal:
        return ", ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is Annotated:
        base, *notes = typing.get_args(kind)
        return " ".join([allowed(base), *(str(note) for note in notes if isinstance(note, Within))])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return ", ".join(allowed(one) for one in typing.get_args(kind))
    words = {bool: "true, false", int: "a whole number", float: "a number", str: "a text", types.NoneType: "none"}
    return words.get(kind, "anything")


def _meanings(factory: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions in a docstring's `Args:` section: argument -> text."""
    text = inspect.getdoc(factory) or ""
    section = re.search(r"^Args:\n((?:(?: .*)?\n?)*)", text, re.MULTILINE)
    found: dict[str, str] = {}
    name = ""
    for line in (section[1] if section else "").splitlines():
        if start := re.match(r" {4}(\w+): (.*)", line):
            name, found[start[1]] = start[1], start[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def _prose(text: str) -> str:
    """Return a docstring without its Args, Attributes, Returns and Raises sections."""
    return re.sub(r"^(Args|Attributes|Returns|Raises):\n(?: .*\n?|\n(?= ))*", "", text, flags=re.MULTILINE)


def _first_sentence(text: str) -> str:
    return text.strip().partition("\n")[0]
