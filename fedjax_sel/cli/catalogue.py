"""The catalogue behind `fedjax-sel list`, built from the package's own registries and docstrings."""

import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from fedjax_sel import models, strategies, tasks
from fedjax_sel.config import Config, OnlyWith, PartitionConfig, only_with
from fedjax_sel.core.hyperparameters import Parameter
from fedjax_sel.data import partition
from fedjax_sel.papers import PRESETS, about
from fedjax_sel.strategies import costs
from fedjax_sel.training import optimizers
from fedjax_sel.training.optimizers.base import FederatedOptimizer


class Given(NamedTuple):
    """A parameter's default and allowed values, as the command line shows them."""

    default: str  # e.g. "profile=fc1" or "--alpha 0.2"
    allowed: str  # e.g. "fc1, fc1-relu"


class Item(NamedTuple):
    """A catalogue entry: a strategy, an optimizer, a model, ..."""

    about: str  # one sentence
    facts: Mapping[str, str] = types.MappingProxyType({})
    parameters: Mapping[str, Given] = types.MappingProxyType({})
    meanings: Mapping[str, str] = types.MappingProxyType({})  # parameter -> description
    page: str = ""  # the full docstring


class Section(NamedTuple):
    """The catalogue entries of one kind."""

    title: str
    flag: str  # the command-line flag that takes the entries' names
    items: Mapping[str, Item]
    note: str = ""


def sections() -> dict[str, Section]:
    """Return all sections, keyed by the section names that `fedjax-sel list` accepts."""
    return {
        "strategies": Section("Strategies", "--algo", _strategies(), _STRATEGIES),
        "optimizers": Section("Federated optimizers", "--optimizer", _optimizers(), _OPTIMIZERS),
        "models": Section("Models", "--model", _models(), "Any Flax module of your own: docs/your_own_experiment.md."),
        "datasets": Section("Data sets", "--dataset", _DATASETS, _MORE_DATA),
        "partitions": Section(
            "Partitions", "--partition", _partitions(), "fedjax-sel data shows each client's labels and sizes."
        ),
        "tasks": Section("Tasks", "--task", _tasks()),
        "presets": Section("Presets", "--preset", _presets(), "Explicit flags override the preset."),
    }


_STRATEGIES = (
    "Symbols: N clients, K selected clients, d candidates, P model parameters, Q profile entries. Each round sends K "
    "models down and K up under every strategy; 'sends' lists the additional traffic. A client that is queried and "
    "then selected in the same round downloads the model once. --algo mypackage.module:factory runs your own strategy "
    "(docs/add_a_strategy.md)."
)
_OPTIMIZERS = (
    "--client-optimizer and --server-optimizer take sgd or the name of any Optax optimizer. docs/optimizers.md lists "
    "which strategies and optimizers can be combined."
)
_MORE_DATA = (
    "Also leaf:FOLDER, any image-classification data set prepared for TFDS (--data-dir), and "
    "mypackage.module:factory (docs/your_own_data.md)."
)
_DATASETS = {
    "digits": Item("8x8 digits, 1,797 images, bundled with scikit-learn (the default); no download."),
    "synthetic": Item("Gaussian class blobs of any size: synthetic:train_size=..,image_size=..; no download."),
    "mnist": Item("28x28 digits, 60,000 training images; downloaded at first use, or read from --data-dir."),
    "fashion_mnist": Item("28x28 clothes, 60,000 training images; downloaded at first use, or read from --data-dir."),
    "cifar10": Item("32x32 color images, 50,000 for training; downloaded at first use, or read from --data-dir."),
    "cifar100": Item("The same with 100 classes; downloaded at first use, or read from --data-dir."),
}


def _strategies() -> dict[str, Item]:
    return {name: strategy(name) for name in strategies.names()}


def strategy(name: str) -> Item:
    """Return a strategy's catalogue entry.

    Args:
        name: a registered strategy's name, or `mypackage.module:factory`.

    Raises:
        UserError: If the strategy does not exist.
    """
    factory = strategies.REGISTRY.factory(name)
    page = inspect.getdoc(sys.modules[getattr(factory, "__module__", __name__)]) or ""
    parameters = strategies.parameters(name)
    facts = {"paper": strategies.TABLE[name].paper} if name in strategies.TABLE else {}
    if all(parameter.default is not inspect.Parameter.empty for parameter in parameters.values()):
        made = strategies.make(name)
        facts |= {"buys": costs.buys(made), "sends": costs.costs(made)}
    return Item(
        _first_sentence(page) or _first_sentence(inspect.getdoc(factory) or ""),
        facts, _values(parameters), _meanings(factory), page,
    )  # fmt: skip


def _optimizers() -> dict[str, Item]:
    return {
        name: Item(
            f"{entry.about[0].upper()}{entry.about[1:]}.",
            {"paper": entry.paper, "sends": sends(optimizers.make(name))},
            _values(optimizers.parameters(name)),
            _meanings(entry.factory),
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
            {}
            if entry.smallest_image is None
            else {"images": f"at least {entry.smallest_image} x {entry.smallest_image} pixels"},
            page=_prose(inspect.getdoc(entry.module) or ""),
        )
        for name, entry in entries.items()
    }


def _partitions() -> dict[str, Item]:
    fields = dataclasses.fields(PartitionConfig)
    hints = typing.get_type_hints(PartitionConfig)
    found = {}
    for name in partition.SCHEMES:
        scheme = partition._SCHEMES[name]
        own = [field for field in fields if _concerns(only_with(field.name), name)]
        found[name] = Item(
            _first_sentence(inspect.getdoc(scheme) or ""),
            {},
            {
                field.name: Given(f"{_flag(field.name)} {shown(field.default)}", allowed(hints[field.name]))
                for field in own
            },
            {field.name: field.metadata["help"] for field in own},
            _prose(inspect.getdoc(scheme) or ""),
        )
    return found


def _concerns(needed: OnlyWith | None, scheme: str) -> bool:
    return needed is not None and re.search(rf"(?<![\w-]){scheme}(?![\w-])", needed.words) is not None


def _tasks() -> dict[str, Item]:
    pages = {name: inspect.getdoc(make) or "" for name, make in tasks.TABLE.items()}
    return {name: Item(_first_sentence(page), page=_prose(page)) for name, page in pages.items()}


def _presets() -> dict[str, Item]:
    plain = Config().flat()
    found = {}
    for name, sentence in about.all_sentences().items():
        changed = {key: value for key, value in PRESETS[name].flat().items() if value != plain[key]}
        lines = [f"  {_flag(key)} {shown(value)}" for key, value in changed.items() if value is not None]
        page = "\n".join(["Differences from quickstart:", *lines]) if lines else "All settings have their defaults."
        found[name] = Item(sentence, page=page)
    return found


def shown(value: Any) -> str:
    """Format a value as on a command line."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _values(parameters: Mapping[str, Parameter]) -> dict[str, Given]:
    return {
        name: Given(
            f"{name}={'...' if parameter.default is inspect.Parameter.empty else shown(parameter.default)}",
            allowed(parameter.kind),
        )
        for name, parameter in parameters.items()
    }


def allowed(kind: Any) -> str:
    """Describe a type's values: "fc1, fc1-relu", or "a whole number, none"."""
    if typing.get_origin(kind) is Literal:
        return ", ".join(map(str, typing.get_args(kind)))
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
