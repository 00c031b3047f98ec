"""Output of the train command: the plan of a dry run, and the table of a finished run."""

import json
import time
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from fedjax_sel import devices
from fedjax_sel.cli import catalogue, command_line
from fedjax_sel.config import Config
from fedjax_sel.core import jax_settings, parsing
from fedjax_sel.devices import setup
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.reporting import plots
from fedjax_sel.runs import folder, progress
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation import layout, memory_budget, run
from fedjax_sel.simulation.layout import padded_share
from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT
from fedjax_sel.simulation.state import Plan
from fedjax_sel.strategies import costs
from fedjax_sel.training import schedule


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

    @property
    def total_seconds(self) -> float:
        """Estimated time of the whole run, compilation included, in seconds."""
        rounds = self.problem.config.run.rounds
        return self.compile_seconds + self.turns * rounds * self.seconds / self.program.length


def dry_run(config: Config, verbose: bool = False) -> None:
    """Print a run's settings, traffic, memory and time; compile one chunk and time it.

    Args:
        config: the run's configuration.
        verbose: whether to print details and the whole configuration, too.
    """
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
    seconds = min(first_seconds, time.monotonic() - started)
    return Timed(problem, program, compile_seconds, seconds, setup.of_program(compiled))


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
    turns = "all at once" if timed.turns == 1 else f"{timed.seeds} at once, in {timed.turns} groups"
    speed = program.length * timed.seeds / timed.seconds
    total = config.run.rounds * all_seeds * a_round
    return {
        "experiment": f"{algo}: {plots.title(config, data.source)}",
        "rounds": f"{config.run.rounds:,} for each of {all_seeds} seed{'s' if all_seeds > 1 else ''}, {turns}",
        "clients": f"{config.partition.num_clients:,}, {k} per round; training examples per client {sizes.min():,} to "
        f"{sizes.max():,} (median {np.median(sizes):,.0f})",
        "model": f"{problem.model.name}, {problem.model.num_params:,} parameters, {model_megabytes:.3f} MB",
        "local work": f"{steps.min()} to {steps.max()} steps of {work.batch_size} examples",
        "bytes": f"{a_round:.2f} MB each way per round and seed, {total:,.0f} MB each way in total; {algo} adds: "
        f"{costs.costs(problem.strategy)}; {optimizer.name} adds: {catalogue.sends(optimizer)}",
        "mesh": f"{devices.in_words(plan.mesh)}, {_layout(plan)}",
        "memory": f"about {timed.peak_bytes / 1e6:,.0f} MB per device",
        "time": f"about {_duration(timed.total_seconds)}: {timed.compile_seconds:.1f} s of compilation, then "
        + progress.rate(speed),
        "output": str(config.run.out or folder.default_path(config)),
    }


def _details(timed: Timed) -> dict[str, str]:
    program, data = timed.program, timed.problem.dataset
    return {
        "data": f"{data.name}, {data.source}: {data.num_train_examples:,} training and {data.num_test_examples:,} test "
        f"examples {data.image_shape}, {data.num_classes} classes",
        "padded work": f"{100 * padded_share(program.plan, _steps(timed)):.1f}% of the devices' training time",
        "one chunk": f"{program.length} rounds in {timed.seconds:.3f} s",
    }


def _duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _layout(plan: Plan) -> str:
    """Return the mesh as a --mesh flag."""
    return "--mesh " + ",".join(f"{axis}={size}" for axis, size in plan.mesh.shape.items())


def _steps(timed: Timed) -> np.ndarray:
    """Return each client's number of local steps, int [S, N]; random epoch counts are drawn once."""
    work, sizes = timed.program.plan.trainer.work, timed.program.federation.train_sizes
    low, high = work.epochs or (0, 0)
    passes = jax.random.randint(jax_settings.key(0), sizes.shape, low, high + 1)
    return np.asarray(schedule.num_steps(work, sizes, passes))


def _console() -> Console:
    # Print names literally: no emoji for ":ok:", no style for brackets.
    return Console(highlight=False, emoji=False, markup=False, width=None if Console().is_terminal else 120)


def result(outcome: Result) -> None:
    """Print a run's result table: mean and standard deviation over seeds."""
    table = Table(
        "", "mean", "sd", title=f"{outcome.config.selection.algo}: {plots.title(outcome.config, outcome.data_source)}"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in outcome.summary():
        table.add_row(name, *_mean_and_deviation(name, values))
    _console().print(table)


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
    digits = 1 if "megabytes" in name or "rounds" in name else 4
    return f"{values.mean():.{digits}f}", f"{values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
