"""`fedjax-sel train`: one experiment, with all its seeds at once, or an estimate of its costs."""

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import fedjax_sel
from fedjax_sel.cli import command_line
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.config import Config, validate
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.runs.run_files import Result
    from fedjax_sel.simulation.run import Program

DESCRIPTION = "Trains a federated model with a client-selection strategy, all seeds at once."
EPILOG = """examples:
  fedjax-sel train
      FL-DP3S on the embedded digits, seconds
  fedjax-sel train --algo random --seeds 5
      five replicates of uniform selection
  fedjax-sel train --preset fedcor/fmnist-1spc --algo fl_dp3s
      a published setting with another strategy
  fedjax-sel train --algo-args profile=fc1-relu
      a parameter of the strategy
  fedjax-sel train --log tensorboard wandb
      log to external tools, too (docs/logging.md)
  fedjax-sel train --preset fl_dp3s/mnist-xi1 --dry-run
      memory, traffic and time of a run, before it starts

Explicit flags override the preset. The run is saved in --out (default: a folder in runs/). A finished run is reported,
not repeated. An unfinished run resumes from its last checkpoint, so Ctrl-C, a crash or a preempted machine costs only
seconds of work. To extend a finished run, repeat the command with more --rounds.
Exit codes: 0 done, or stopped by SIGTERM; 1 unexpected error; 2 invalid input or environment; 3 a client's update or
the server's step was not finite; 4 all checkpoints are damaged; 129 terminal closed; 130 interrupted (finished rounds
are kept). A closed output pipe (| head) does not stop the run.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config, flags = command_line.parse(make_parser(), arguments)
    validate(config)
    command_line.reject_ineffective(flags, [config])
    if flags.dry_run:
        dry_run(config)
        return 0
    return train(config, flags.log)


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = command_line.make_parser("fedjax-sel train", DESCRIPTION, EPILOG)
    own = parser.add_argument_group("this command")
    command_line.add_log(own)
    command_line.add_dry_run(own)
    return parser


def train(config: Config, log: Sequence[str] = ()) -> int:
    """Run an experiment, write its folder, print the result table, and return the exit code."""
    from fedjax_sel import logs
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import experiment, folder, resume, run_files, terminal

    experiment.start_jax(config)
    out = Path(config.run.out) if config.run.out else folder.default_path(config)
    given = experiment_of(config)
    finished = experiment.finished(out, given)
    if finished is not None:
        with contextlib.suppress(UserError):  # the folder may be read-only
            plots.curves_if_lost({config.selection.algo: finished}, out / run_files.CURVES)
        _print_result(finished)
        print(f"This run is already finished in {out}; give another --out to run it again.")
        if log:
            print("--log has no effect on a finished run.")
        for edited in resume.edited_plugins(out, config):
            print(f"{edited}: some or all rounds are from the earlier code.")
        return 0
    try:
        result = experiment.run_experiment(given.replace(out=str(out)), True, logs.make(log, out))
    except fedjax_sel.NonFiniteUpdateError as error:
        print(f"stopped: {error}; the rounds before it are in {out}", file=sys.stderr)
        return 3
    except fedjax_sel.DamagedRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    plots.curves_if_lost({config.selection.algo: result}, out / run_files.CURVES)
    _print_result(result)
    if result.finished:
        print(f"Written to {out} (curves.png, metrics.csv, ...)")
    else:
        then = terminal.resume_advice(config.run, out)
        print(f"Interrupted after round {result.num_rounds} of {config.run.rounds}; {then}")
    return 0 if result.finished else terminal.exit_code(result.stopped_by)


def dry_run(config: Config) -> float:
    """Print a run's settings, traffic, memory and time; compile and time one chunk of rounds; return the seconds."""
    import jax
    import numpy as np

    from fedjax_sel import devices
    from fedjax_sel.cli import catalogue
    from fedjax_sel.core import jax_settings
    from fedjax_sel.experiment.problem import pose
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import folder, terminal
    from fedjax_sel.simulation import layout, run, seed_groups
    from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT
    from fedjax_sel.training import schedule

    devices.use_every_core()
    problem = pose(config)
    together = config.run.seeds_at_once or seed_groups.seeds_that_fit(problem)[0]
    program = run.prepare_groups(problem, layout.lay_out(problem, together))[0]
    compile_seconds, chunk_seconds, peak_bytes = _timed(program)

    plan, sizes = program.plan, np.asarray(program.federation.train_sizes)
    work = plan.trainer.work
    low, high = work.epochs or (0, 0)
    passes = jax.random.randint(jax_settings.key(0), sizes.shape, low, high + 1)  # drawn once
    steps = np.asarray(schedule.num_steps(work, program.federation.train_sizes, passes))
    all_seeds, at_once, rounds = len(config.run.seeds), len(sizes), config.run.rounds
    groups = -(-all_seeds // at_once)
    megabytes = problem.model.size * BYTES_PER_FLOAT / 1e6
    counted = plan.cohort_size if plan.clock is None or plan.asynchrony is not None else plan.clock.num_reports
    down, up = plan.cohort_size * megabytes, counted * megabytes
    seconds = compile_seconds + groups * rounds * chunk_seconds / program.length
    algo, optimizer = config.selection.algo, plan.trainer.optimizer
    lines = {
        "experiment": f"{algo}: {plots.title(config, problem.dataset.source)}",
        "rounds": f"{rounds:,} for each of {all_seeds} seed{'s' if all_seeds > 1 else ''}, "
        + ("all at once" if groups == 1 else f"{at_once} at once, in {groups} groups"),
        "clients": f"{config.num_training_clients:,}, {plan.cohort_size} per round; training examples per client "
        f"{sizes.min():,} to {sizes.max():,} (median {np.median(sizes):,.0f})",
        "model": f"{problem.model.name}, {problem.model.num_params:,} parameters, {megabytes:.3f} MB",
        "local work": f"{steps.min()} to {steps.max()} steps of {work.batch_size} examples",
        "bytes": f"{down:.2f} MB down and {up:.2f} MB up per round and seed, {rounds * all_seeds * down:,.0f} MB down "
        f"and {rounds * all_seeds * up:,.0f} MB up in total; {algo} adds: {catalogue.costs(problem.strategy)}; "
        f"{optimizer.name} adds: {catalogue.sends(optimizer)}",
        "mesh": f"{devices.in_words(plan.mesh)}, "
        f"--mesh {','.join(f'{axis}={size}' for axis, size in plan.mesh.shape.items())}",
        "memory": f"about {peak_bytes / 1e6:,.0f} MB per device",
        "time": f"about {duration(seconds)}: {compile_seconds:.1f} s of compilation, then "
        + terminal.rate(program.length * at_once / chunk_seconds),
        "output": str(config.run.out or folder.default_path(config)),
    }
    for name, text in lines.items():
        print(command_line.hanging(name, text, 12))
    return seconds


def _timed(program: "Program") -> tuple[float, float, int]:
    """Return the seconds of compiling and of running a chunk of rounds, and its peak memory per device, bytes."""
    import jax
    import numpy as np

    from fedjax_sel import devices
    from fedjax_sel.core import memory

    carry = devices.place(program.plan.mesh, program.carry, devices.PER_SEED)
    started = time.monotonic()
    compiled = program.chunk.lower(carry, np.int32(0), program.federation, program.streams).compile()
    compile_seconds = time.monotonic() - started
    seconds = []
    for _ in range(2):  # the first call also warms up
        started = time.monotonic()
        carry, _ = jax.block_until_ready(compiled(carry, np.int32(0), program.federation, program.streams))
        seconds.append(time.monotonic() - started)
    return compile_seconds, min(seconds), memory.program_bytes(compiled)


def duration(seconds: float) -> str:
    """Format estimated seconds as seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def _print_result(outcome: "Result") -> None:
    """Print a run's result table: mean and standard deviation over seeds."""
    from rich.console import Console
    from rich.table import Table

    from fedjax_sel.reporting import plots

    title = f"{outcome.config.selection.algo}: {plots.title(outcome.config, outcome.data_source)}"
    table = Table("", "mean", "sd", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, values in outcome.summary():
        table.add_row(name, *command_line.mean_and_deviation(name, values))
    # Print names literally: no emoji for ":ok:", no style for brackets.
    console = Console(highlight=False, emoji=False, markup=False, width=None if Console().is_terminal else 120)
    console.print(table)
