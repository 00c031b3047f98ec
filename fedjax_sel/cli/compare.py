"""The command `fedjax-sel compare`: several strategies under the same conditions."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line, train
from fedjax_sel.cli.command_line import Parser, quoted_command
from fedjax_sel.config import Config, flat_types, validate
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.reporting.compared import ComparisonResult
    from fedjax_sel.reporting.sweeps import Grid
    from fedjax_sel.runs.sweep import Job


DESCRIPTION = """Runs several selection strategies under the same conditions: the same partitions, initial models and
random streams. Runs differ only in their cohorts and, for strategies that define them, in the weights of the updates.
With --optimizers, every strategy runs under every federated optimizer."""
EPILOG = """examples:
  fedjax-sel compare --algos random fl_dp3s --out runs/digits
      two strategies on the embedded digits
  fedjax-sel compare --algos random "fl_dp3s[profile=gradient]" --out runs/more
      parameters in brackets: name[key=value,key=value]
  fedjax-sel compare --algos random fedcor --out runs/both \\
      --optimizers fedavg "fedprox[mu=1]" scaffold
      every strategy under every optimizer
  fedjax-sel compare --algos random fedcor --out runs/rates \\
      --sweep learning-rate 0.005 0.01 0.02
      each strategy's best learning rate
  fedjax-sel compare --algos random fedcor --out runs/both --dry-run
      memory, traffic and time of the runs, before they start

Each --algos item is a strategy name (fedjax-sel list strategies) or mypackage.module:factory, with parameters in
brackets. Quote items with brackets, because most shells expand them. --optimizers takes the same syntax. Explicit flags
override the preset.

Each run has its own folder: DIR/ALGO, or DIR/SETTING/OPTIMIZER/ALGO if several are given. All settings are checked
before the first run starts. Finished runs are reused: repeat the command after an interruption, or with more strategies
to add them. If any strategy needs server-side examples (gpfl does), every run holds out the same share for the server,
so that the clients' data stay equal. To add such a strategy later, pass --server-validation 0.05 from the start.
The command ends with the verdict: each strategy's difference to random (else to a variant of it, else to the first
strategy), paired by seed and tested for significance. Use at least --seeds 10 for that. DIR then holds comparison.md,
with all columns and notes, comparison.csv, comparison_pairs.csv and PNGs. With --timing, simulated seconds stand beside
rounds and megabytes.

Exit codes: 0 done, or stopped by SIGTERM; 1 unexpected error; 2 invalid input or environment; 3 some runs failed (the
others are in the table); 129 terminal closed; 130 interrupted.
"""
NOT_FLAGS = {"algo", "algo_args", "out"}  # replaced by --algos and by this command's own --out


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config, flags = command_line.parse(make_parser(), arguments)
    jobs, grid = plan(config, flags)
    return _dry_run(jobs) if flags.dry_run else _compare(jobs, flags, arguments, grid)


def plan(config: Config, flags: argparse.Namespace) -> "tuple[list[Job], Grid]":
    """Return the jobs that the flags name, and the settings of --sweep.

    Args:
        config: the settings that all jobs share.
        flags: the parsed command line.

    Raises:
        UserError: flags that contradict each other or have no effect, or settings that cannot run.
    """
    grid = _grid(flags.sweep or [])
    settings = {} if grid else {flags.setting: config}
    for name, point in grid.items():
        settings[name] = config.replace(**{field.replace("-", "_"): value for field, value in point.items()})
    if grid and flags.optimizers is not None:
        raise UserError("--sweep and --optimizers: give one of them; --sweep optimizer NAME NAME compares optimizers")
    swept = {field.replace("-", "_") for point in grid.values() for field in point}
    if twice := swept & vars(flags).keys():
        flag = "--" + min(twice).replace("_", "-")
        raise UserError(f"{flag} and --sweep {flag[2:]}: give one of them")
    for one, other in (("local_steps", "local_epochs"), ("local_epochs", "local_steps")):
        if one in swept and other in vars(flags):
            raise UserError(f"--{other.replace('_', '-')} and --sweep {one.replace('_', '-')}: give one of them")
    if flags.optimizers is not None and {"optimizer", "optimizer_args"} & vars(flags).keys():
        raise UserError("--optimizer and --optimizers: give one of them")
    for config in settings.values():
        validate(config)
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import sweeps
    from fedjax_sel.runs.sweep import make_jobs

    experiments = {name: experiment_of(config) for name, config in settings.items()}
    jobs = make_jobs(experiments, flags.algos, flags.out, bool(grid), flags.optimizers)
    command_line.reject_ineffective(flags, (job.config for job in jobs))
    sweeps.reject_ineffective(grid, (job.config for job in jobs))
    return jobs, grid


def _grid(given: Sequence[Sequence[str]]) -> "Grid":
    """Return the settings of --sweep: every combination of the fields' values, by name."""
    from fedjax_sel.reporting import sweeps

    values: dict[str, Sequence[str]] = {}
    for field, *tried in given:
        name = field.lstrip("-").replace("_", "-")
        if name in values:
            raise UserError(f"--sweep {field}: given twice; give all of its values at once")
        if len(tried) < 2 or len({*tried}) < len(tried):
            raise UserError(f"--sweep {field}: {' '.join(tried) or 'no value'}; give two or more different values")
        values[name] = tried
    return sweeps.make_grid(values) if values else {}


def make_parser() -> Parser:
    """Make the command's parser."""
    fields = set(flat_types()) - NOT_FLAGS
    parser = command_line.make_parser("fedjax-sel compare", DESCRIPTION, EPILOG, only=fields)
    what = parser.add_argument_group("what to compare")
    about = 'strategies to compare, e.g. random "fl_dp3s[profile=gradient]"'
    what.add_argument("--algos", nargs="+", required=True, metavar="ALGO", help=about)
    about = "a setting and its values, e.g. learning-rate 0.01 0.02; several make a grid (default: none)"
    what.add_argument("--sweep", nargs="+", action="append", metavar=("SETTING", "VALUE"), help=about)
    about = 'several federated optimizers, instead of one --optimizer, e.g. fedavg "fedprox[mu=0.1]"'
    what.add_argument("--optimizers", nargs="+", metavar="NAME", help=about)
    what.add_argument("--out", required=True, type=command_line.path, metavar="DIR", help="output folder")
    about = "format of the pictures: png, pdf or svg, at 300 dpi (default: png for screens)"
    what.add_argument("--format", choices=("png", "pdf", "svg"), metavar="{png,pdf,svg}", help=about)
    command_line.add_style(what)
    command_line.add_log(what)
    command_line.add_dry_run(what)
    return parser


def _dry_run(jobs: "Sequence[Job]") -> int:
    """Print settings, traffic, memory and time of each run, and the time of all; write nothing."""
    from fedjax_sel.runs import sweep

    seconds = 0.0
    for number, (job, _, finished) in enumerate(sweep.check(jobs), start=1):
        print(f"run {number} of {len(jobs)}: {job.algo}, {job.conditions}{' (finished before)' if finished else ''}")
        seconds += 0.0 if finished else train.dry_run(job.config)
        print()
    print(f"all runs: about {train.duration(seconds)}")
    return 0


def _compare(jobs: "Sequence[Job]", flags: argparse.Namespace, arguments: Sequence[str], grid: "Grid") -> int:
    """Run jobs, write tables and pictures, and print the verdicts; return the exit code."""
    from fedjax_sel.reporting import compared, plots, sweeps
    from fedjax_sel.runs.terminal import exit_code

    command = quoted_command("fedjax-sel compare", arguments)
    look = plots.look_of(flags.format, flags.style)
    found = compared.run(jobs, flags.out, command, command_line.say, True, (), flags.log, look, grid)
    if found.stopped:
        how = "the same command without --resume never" if jobs[0].config.run.resume == "never" else "the same command"
        print(f"Interrupted: {len(found.rows)} of {len(jobs)} runs are finished and in {flags.out}; {how} resumes")
        return exit_code(found.stopped_by)
    if found.rows:
        _print(found)
        for line in sweeps.summary(found.rows, grid):
            print(line)
    for text in found.failed:
        print(f"failed: {text}", file=sys.stderr)
    return 3 if found.failed else 0


def _print(found: "ComparisonResult") -> None:
    """Print the verdict under all conditions, each with a table of at most 80 columns, and where the rest is."""
    from rich.console import Console
    from rich.table import Table

    from fedjax_sel import metrics
    from fedjax_sel.reporting import comparison

    width = None if Console().is_terminal else command_line.width()
    console = Console(highlight=False, emoji=False, markup=False, width=width)  # names are printed literally
    more = 0
    for conditions, title in found.titles.items():
        here = [(row, result) for row, result in zip(found.rows, found.results) if row.conditions == conditions]
        rows, results = zip(*here)
        pairs = [pair for pair in found.pairs if pair.conditions == conditions]
        verdict = comparison.verdict(rows, pairs, {})
        more = max(more, verdict.seeds)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("strategy", overflow="fold")
        for name in (verdict.measure, "difference", "leads", "verdict", "MB", "ratio"):
            table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
        for line in verdict.lines:
            table.add_row(line.algo, line.value, line.difference, line.leads, line.verdict, line.megabytes, line.ratio)
        console.print(f"{conditions}: {title}", soft_wrap=False)
        console.print(f"\n{verdict.headline}\n", style="bold")
        console.print(table)
        last = metrics.range_of(min(metrics.LAST_ROUNDS, one.num_rounds) for one in results)
        about = f"{verdict.measure}: mean of the last {last} rounds."
        console.print(f"\n{' '.join([about, *comparison.at_equal_budgets(rows, results)])}\n")
    folder = shlex.quote(str(found.out))
    print(f"Tables and plots: {found.out} (comparison.md, comparison.csv, pictures)")
    target = found.results[0].config.run.target_accuracy
    own = "" if target is None else f" --target-accuracy {target:g}"  # finished runs keep the target that they had
    print(f"Report: fedjax-sel report {folder}{own} --html {shlex.quote(str(found.out / 'report.html'))}")
    if more:
        print(f"Next: the same command with --seeds {more} and another --out")
