"""Everything that can be selected, from the registries and docstrings, with costs, and the dry run's output."""

import dataclasses
import inspect
import json
import re
import sys
import time
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from fedjax_sel import devices, models, papers, strategies
from fedjax_sel.cli import command_line
from fedjax_sel.config import Config, PartitionConfig, only_with
from fedjax_sel.core import jax_settings, parsing
from fedjax_sel.core.plugins import Parameter, Registry
from fedjax_sel.data import partition
from fedjax_sel.experiment.checking import LAWS, MODES, TASKS
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.papers import PRESETS
from fedjax_sel.reporting import plots
from fedjax_sel.runs import folder, progress
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import layout, run
from fedjax_sel.simulation.state import BYTES_PER_FLOAT
from fedjax_sel.strategies import facts
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, SELECTED, SERVER, Request, Rule
from fedjax_sel.training import optimizers, schedule
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


FROM_PRESET = "from preset"
"""The default of a parameter whose strategy has a `preset` that sets it."""


class Given(NamedTuple):
    """A parameter's default and allowed values, as the command line shows them."""

    default: str  # e.g. "profile=fc1", "--alpha 0.2" or FROM_PRESET
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
    by_name = {name: strategy(name) for name in strategies.names()}
    return {
        "strategies": Section("Strategies", "--algo", by_name, _STRATEGIES),
        "optimizers": Section("Federated optimizers", "--optimizer", _optimizers(), _OPTIMIZERS),
        "models": Section("Models", "--model", _models(), "Any Flax module of your own: docs/your_own_experiment.md."),
        "datasets": Section("Data sets", "--dataset", _DATASETS, _MORE_DATA),
        "partitions": Section(
            "Partitions", "--partition", _partitions(), "fedjax-sel data shows each client's labels and sizes."
        ),
        "tasks": Section("Tasks", "--task", _made(TASKS)),
        "timing": Section("Simulated devices", "--timing", _made(LAWS), _TIMING),
        "availability": Section("Modes of availability", "--available", _made(MODES), _AVAILABILITY),
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
_TIMING = (
    "correlated is lognormal with slow clients that share their labels. --timing phones.csv reads a file. "
    "docs/timing.md gives the formulas and the sources of the defaults."
)
_AVAILABILITY = (
    "--available also takes a fraction of the clients, redrawn each round, or a file of 0 and 1, clients x rounds "
    "(docs/availability.md)."
)
_DATASETS = {
    "digits": Item("8x8 digits, 1,797 images, bundled with scikit-learn (the default); no download."),
    "synthetic": Item("Gaussian class blobs of any size: synthetic:train_size=..,image_size=..; no download."),
    "mnist": Item("28x28 digits, 60,000 training images; downloaded at first use, or read from --data-dir."),
    "fashion_mnist": Item("28x28 clothes, 60,000 training images; downloaded at first use, or read from --data-dir."),
    "cifar10": Item("32x32 color images, 50,000 for training; downloaded at first use, or read from --data-dir."),
    "cifar100": Item("The same with 100 classes; downloaded at first use, or read from --data-dir."),
}


def strategy(name: str) -> Item:
    """Return the catalogue entry of a registered strategy or of `mypackage.module:factory`."""
    factory = strategies.REGISTRY.factory(name)
    page = inspect.getdoc(sys.modules[getattr(factory, "__module__", __name__)]) or ""
    parameters = strategies.parameters(name)
    facts = {"paper": strategies.TABLE[name].paper} if name in strategies.TABLE else {}
    if all(parameter.default is not inspect.Parameter.empty for parameter in parameters.values()):
        made = strategies.make(name)
        facts |= {"buys": buys(made), "sends": costs(made)}
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
            {"images": f"at least {size} x {size} pixels"} if (size := entry.smallest_image) is not None else {},
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
        word = re.compile(rf"(?<![\w-]){name}(?![\w-])")
        needs = [(field, only_with(field.name)) for field in fields]
        own = [field for field, needed in needs if needed is not None and word.search(needed.words)]
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


def _made(registry: Registry) -> dict[str, Item]:
    found = {}
    for name in registry.names():
        factory = registry.factory(name)
        factory = getattr(factory, "func", factory)  # a partial has the docstring of its class
        page = inspect.getdoc(factory) or ""
        parameters = _values(registry.parameters(name))
        found[name] = Item(_first_sentence(page), {}, parameters, _meanings(factory), _prose(page))
    return found


def _presets() -> dict[str, Item]:
    plain = Config().flat()
    found = {}
    for name in PRESETS:
        changed = {key: value for key, value in PRESETS[name].flat().items() if value != plain[key]}
        lines = [f"  {_flag(key)} {shown(value)}" for key, value in changed.items() if value is not None]
        page = "\n".join(["Differences from quickstart:", *lines]) if lines else "All settings have their defaults."
        found[name] = Item(papers.sentence(name), page=page)
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
        name: Given(FROM_PRESET, allowed(parameter.kind).removesuffix(", none"))
        if parameter.default is None and "preset" in parameters
        else Given(
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


class Timed(NamedTuple):
    """The timing of one chunk of rounds of one group of seeds."""

    problem: Problem
    program: run.Program
    compile_seconds: float
    seconds: float  # run time of the chunk, without compilation
    peak_bytes: int  # peak memory per device

    @property
    def seeds(self) -> int:
        """Number of seeds in the group."""
        return len(self.program.federation.train_sizes)

    @property
    def turns(self) -> int:
        """Number of groups, which run one after another."""
        return -(-len(self.problem.config.run.seeds) // self.seeds)


def dry_run(config: Config, verbose: bool = False) -> None:
    """Print a run's settings, traffic, memory and time; compile one chunk and time it."""
    timed = measure(config)
    _print(_in_short(timed))
    if verbose:
        print()
        _print(_details(timed))
        print(f"\n{json.dumps(config.to_json(), indent=2)}")
    else:
        print("--verbose adds details and the whole configuration.")


def measure(config: Config) -> Timed:
    """Compile a chunk of a run and time it twice; keep the faster time."""
    devices.use_every_core()
    problem = pose(config)
    together = config.run.seeds_at_once or run.seeds_that_fit(problem)[0]
    program = run.prepare_groups(problem, layout.lay_out(problem, together))[0]
    program = program._replace(carry=devices.place(program.plan.mesh, program.carry, devices.PER_SEED))
    arguments = (program.carry, np.int32(0), program.federation, program.streams)
    started = time.monotonic()
    compiled = program.chunk.lower(*arguments).compile()
    compile_seconds = time.monotonic() - started
    started = time.monotonic()
    carry, _ = jax.block_until_ready(compiled(*arguments))
    first_seconds = time.monotonic() - started
    started = time.monotonic()
    jax.block_until_ready(compiled(carry, np.int32(0), *arguments[2:]))
    seconds = min(first_seconds, time.monotonic() - started)
    return Timed(problem, program, compile_seconds, seconds, devices.of_program(compiled))


def _print(lines: dict[str, str]) -> None:
    column = max(map(len, lines)) + 2
    for name, text in lines.items():
        print(command_line.hanging(name, text, column))


def _in_short(timed: Timed) -> dict[str, str]:
    """Return the ten summary lines: name -> text."""
    problem, program = timed.problem, timed.program
    config, plan, data = problem.config, program.plan, problem.dataset
    sizes, steps, work = np.asarray(program.federation.train_sizes), _steps(timed), plan.trainer.work
    model_megabytes = problem.model.size * BYTES_PER_FLOAT / 1e6
    k, all_seeds = plan.num_selected, len(config.run.seeds)
    a_round = k * model_megabytes
    algo, optimizer = config.selection.algo, plan.trainer.optimizer
    mesh = ",".join(f"{axis}={size}" for axis, size in plan.mesh.shape.items())
    turns = "all at once" if timed.turns == 1 else f"{timed.seeds} at once, in {timed.turns} groups"
    speed = program.length * timed.seeds / timed.seconds
    total = config.run.rounds * all_seeds * a_round
    total_seconds = timed.compile_seconds + timed.turns * config.run.rounds * timed.seconds / program.length
    return {
        "experiment": f"{algo}: {plots.title(config, data.source)}",
        "rounds": f"{config.run.rounds:,} for each of {all_seeds} seed{'s' if all_seeds > 1 else ''}, {turns}",
        "clients": f"{config.partition.num_clients:,}, {k} per round; training examples per client {sizes.min():,} to "
        f"{sizes.max():,} (median {np.median(sizes):,.0f})",
        "model": f"{problem.model.name}, {problem.model.num_params:,} parameters, {model_megabytes:.3f} MB",
        "local work": f"{steps.min()} to {steps.max()} steps of {work.batch_size} examples",
        "bytes": f"{a_round:.2f} MB each way per round and seed, {total:,.0f} MB each way in total; {algo} adds: "
        f"{costs(problem.strategy)}; {optimizer.name} adds: {sends(optimizer)}",
        "mesh": f"{devices.in_words(plan.mesh)}, --mesh {mesh}",
        "memory": f"about {timed.peak_bytes / 1e6:,.0f} MB per device",
        "time": f"about {_duration(total_seconds)}: {timed.compile_seconds:.1f} s of compilation, then "
        + progress.rate(speed),
        "output": str(config.run.out or folder.default_path(config)),
    }


def _details(timed: Timed) -> dict[str, str]:
    program, data = timed.program, timed.problem.dataset
    return {
        "data": f"{data.name}, {data.source}: {data.num_train_examples:,} training and {data.num_test_examples:,} test "
        f"examples {data.image_shape}, {data.num_classes} classes",
        "one chunk": f"{program.length} rounds in {timed.seconds:.3f} s",
    }


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _steps(timed: Timed) -> np.ndarray:
    """Return each client's number of local steps, int [S, N]; random epoch counts are drawn once."""
    work, sizes = timed.program.plan.trainer.work, timed.program.federation.train_sizes
    low, high = work.epochs or (0, 0)
    passes = jax.random.randint(jax_settings.key(0), sizes.shape, low, high + 1)
    return np.asarray(schedule.num_steps(work, sizes, passes))


def result(outcome: Result) -> None:
    """Print a run's result table: mean and standard deviation over seeds."""
    title = f"{outcome.config.selection.algo}: {plots.title(outcome.config, outcome.data_source)}"
    table = Table("", "mean", "sd", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in outcome.summary():
        table.add_row(name, *_mean_and_deviation(name, values))
    # Print names literally: no emoji for ":ok:", no style for brackets.
    console = Console(highlight=False, emoji=False, markup=False, width=None if Console().is_terminal else 120)
    console.print(table)


def markdown(results: Mapping[str, Result]) -> str:
    """Return a Markdown table of several runs: mean and standard deviation over seeds, N/A if any seed is NaN."""
    tables = {name: dict(result.summary()) for name, result in results.items()}
    rows = list(dict.fromkeys(row for table in tables.values() for row in table))
    lines = ["| | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for name, table in tables.items():
        cells = [" ± ".join(_mean_and_deviation(row, table[row])) if row in table else "" for row in rows]
        lines.append(f"| {parsing.cell(name)} | " + " | ".join(cell.removesuffix(" ± ") for cell in cells) + " |")
    return "\n".join(lines)


def _mean_and_deviation(name: str, values: np.ndarray) -> tuple[str, str]:
    """Format the mean and the sample standard deviation; the latter is empty for a single seed."""
    failed = int(np.isnan(values).sum())
    if failed:
        return f"N/A ({len(values) - failed} of {len(values)} seeds)", ""
    digits = 1 if any(unit in name for unit in ("megabytes", "rounds", "seconds")) else 4
    return f"{values.mean():.{digits}f}", f"{values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
