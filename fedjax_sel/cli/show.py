"""What the commands print: choices, a run before it starts, a run after it ends."""

import json
import time
from collections.abc import Mapping

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from fedjax_sel import data, devices, models, strategies
from fedjax_sel.config import Config
from fedjax_sel.core import texts
from fedjax_sel.data import partition
from fedjax_sel.devices import memory
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.papers import PRESETS
from fedjax_sel.reporting import plots
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import layout, memory_budget, run
from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT
from fedjax_sel.simulation.padding import padded_share
from fedjax_sel.simulation.plan import Plan
from fedjax_sel.strategies import costs
from fedjax_sel.training import optimizers, schedule
from fedjax_sel.training.optimizers import by_name
from fedjax_sel.training.optimizers.base import FederatedOptimizer


def _console() -> Console:
    # Names are shown as they are: ":ok:" in one is no picture, and brackets are no style.
    return Console(highlight=False, emoji=False, markup=False, width=None if Console().is_terminal else 120)


def choices() -> None:
    """Print what there is: strategies and optimizers with what they send, models, data sets, partitions, presets."""
    console = _console()
    table = Table(
        "strategy", "paper", "buys", "sends beyond K models down and up a round", "--algo-args", title="Strategies"
    )
    for name in strategies.names():
        strategy = strategies.make(name)
        parameters = [f"{key}={default}" for key, (_, default) in strategies.parameters(name).items()]
        table.add_row(
            name, strategies.TABLE[name].paper, costs.buys(strategy), costs.costs(strategy), "\n".join(parameters)
        )
    console.print(table)
    console.print(
        "N clients, K selected, d candidates, P parameters of a model, Q numbers of a profile.\n"
        "A client that is asked and then selected in one round downloads the model once.\n"
        "--algo mypackage.module:factory runs a strategy of your own (docs/add_a_strategy.md)."
    )
    table = Table(
        "optimizer", "paper", "what it does", "sends beyond", "--optimizer-args", title="Federated optimizers"
    )
    for name, entry in optimizers.TABLE.items():
        parameters = [f"{key}={default}" for key, (_, default) in optimizers.parameters(name).items()]
        table.add_row(name, entry.paper, entry.about, _sends(optimizers.make(name)), "\n".join(parameters))
    console.print(table)
    console.print(
        "--client-optimizer and --server-optimizer take sgd or any of Optax by name:\n"
        f"{', '.join(by_name.names())}.\n"
        "docs/optimizers.md says which strategies and optimizers go together."
    )
    table = Table("model", "what it is", title="Models")
    for name, entry in {**models.TABLE, **models.PLAIN}.items():
        table.add_row(name, entry.about)
    console.print(table)
    console.print("Data sets:  " + ", ".join(data.names()) + ", and any prepared TFDS image-classification set")
    console.print("Partitions: " + ", ".join(partition.SCHEMES) + "   (python -m fedjax_sel.data shows one)")
    console.print("Presets:    " + ", ".join(PRESETS))


def _sends(optimizer: FederatedOptimizer) -> str:
    """Return what a cohort's client receives and sends beside models, e.g. "K x P floats down, K x P floats up"."""
    counts = {
        "K x P floats down": optimizer.vectors_down,
        "K x P floats up": optimizer.vectors_up,
        "K floats up": optimizer.floats_up,
    }
    return ", ".join(what if count == 1 else f"{count} {what}" for what, count in counts.items() if count) or "nothing"


def result(outcome: Result) -> None:
    """Print the closing table: mean and standard deviation over seeds."""
    table = Table(
        "", "mean", "sd", title=f"{outcome.config.selection.algo}: {plots.title(outcome.config, outcome.data_source)}"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in outcome.summary():
        table.add_row(name, *_mean_and_deviation(name, values))
    _console().print(table)


def markdown(results: Mapping[str, Result]) -> str:
    """Return a Markdown table of several runs: mean and standard deviation over seeds; N/A where some seed fails.

    Args:
        results: name -> run.
    """
    tables = {name: dict(result.summary()) for name, result in results.items()}
    rows = list(dict.fromkeys(row for table in tables.values() for row in table))
    lines = ["| | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for name, table in tables.items():
        cells = [" ± ".join(_mean_and_deviation(row, table[row])) if row in table else "" for row in rows]
        lines.append(f"| {texts.cell(name)} | " + " | ".join(cell.removesuffix(" ± ") for cell in cells) + " |")
    return "\n".join(lines)


def _mean_and_deviation(name: str, values: np.ndarray) -> tuple[str, str]:
    """Return the mean and the sample deviation as texts; the deviation is empty for a single seed."""
    failed = int(np.isnan(values).sum())
    if failed:
        return f"N/A ({len(values) - failed} of {len(values)} seeds)", ""
    digits = 1 if "megabytes" in name or "rounds" in name else 4
    return f"{values.mean():.{digits}f}", f"{values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""


def dry_run(config: Config) -> None:
    """Print the resolved configuration, sizes, costs and memory; compile one chunk and time it."""
    console = _console()
    devices.use_every_core()
    problem = pose(config)
    console.print_json(json.dumps(config.to_json()))
    together = config.run.seeds_at_once or memory_budget.seeds_that_fit(problem)[0]
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
    chunk_seconds = min(first_seconds, time.monotonic() - started)
    console.print(_plan_table(problem, program, compile_seconds, chunk_seconds, memory.of_program(compiled)))


def _layout(plan: Plan) -> str:
    """Return the mesh in the words of --mesh."""
    return "--mesh " + ",".join(f"{axis}={size}" for axis, size in plan.mesh.shape.items())


def _passes(work: schedule.LocalWork) -> tuple[int, int]:
    """Return the fewest passes over its data that a client makes, and one more than the most."""
    low, high = work.epochs or (0, 0)
    return low, high + 1


def _plan_table(problem: Problem, program: run.Program, compile_seconds: float, seconds: float, peak: int) -> Table:
    config, plan, model = problem.config, program.plan, problem.model
    sizes = np.asarray(program.federation.train_sizes)
    model_bytes = model.size * BYTES_PER_FLOAT
    k, n = plan.num_selected, config.partition.num_clients
    all_seeds, seeds = len(config.run.seeds), len(sizes)  # of the run, and of the group that was compiled
    work = plan.trainer.work
    passes = jax.random.randint(jax.random.key(0), sizes.shape, *_passes(work))
    steps = np.asarray(schedule.num_steps(work, program.federation.train_sizes, passes))
    data = problem.dataset
    rounds_per_second = program.length / seconds  # of a group
    turns = all_seeds // seeds
    total = compile_seconds + turns * config.run.rounds / rounds_per_second
    table = Table("", "", title=f"{config.selection.algo}: {plots.title(config, data.source)}", show_header=False)
    rows = {
        "data": f"{data.name}, {data.source}: {len(data.train_images):,} training and {len(data.test_images):,} test "
        f"images {data.train_images.shape[1:]}, {data.num_classes} classes",
        "clients": f"{n}; training examples {sizes.min():,} to {sizes.max():,} (median {np.median(sizes):,.0f})",
        "model": f"{model.name}, {model.num_params:,} parameters, {model_bytes / 1e6:.3f} MB",
        "local work": f"{steps.min()} to {steps.max()} steps of {work.batch_size} examples",
        "a round sends": f"{k} models down, {k} up: {k * model_bytes / 1e6:.2f} MB each way, a seed",
        f"{config.selection.algo} adds": costs.costs(problem.strategy),
        f"{plan.trainer.optimizer.name} adds": _sends(plan.trainer.optimizer),
        "devices": f"{plan.mesh.size} x {plan.mesh.devices.flat[0].device_kind}, {_layout(plan)}",
        "padded work": f"{100 * padded_share(plan, steps):.1f}% of the devices' training time",
        "seeds": f"{all_seeds}, " + ("all at once" if turns == 1 else f"{seeds} at once, in {turns} turns"),
        "memory a device": f"about {peak / 1e6:,.0f} MB",
        "compilation": f"{compile_seconds:.1f} s",
        "a chunk": f"{program.length} rounds in {seconds:.3f} s: {rounds_per_second * seeds:.1f} seed-rounds/s",
        "the whole run": f"about {total / 60:.1f} minutes for {config.run.rounds} rounds of {all_seeds} seeds",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    return table
