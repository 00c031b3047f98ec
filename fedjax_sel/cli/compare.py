"""`fedjax-sel compare`: several strategies under the same conditions, in tables and their pictures."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

from fedjax_sel.cli import command_line, on_a_page
from fedjax_sel.cli.parser import Parser
from fedjax_sel.config import Config, flat_types
from fedjax_sel.config.validation import validate
from fedjax_sel.errors import UserError
from fedjax_sel.runs.jobs import Job, make_jobs

DESCRIPTION = """Runs several selection strategies under the same conditions: the same partitions, initial models and
random streams. They differ in their cohorts, and in the weights of the updates only where a strategy derives them. With
--optimizers every strategy runs under every federated optimizer as well."""
EPILOG = """examples:
  fedjax-sel compare --algos random fl_dp3s --out runs/digits
                                                      two strategies on the embedded digits
  fedjax-sel compare --algos random "random[variant=md]" "fl_dp3s[profile=gradient]" --seeds 5 --out runs/more
                                                      parameters in brackets: name[key=value,key=value]
  fedjax-sel compare --algos random fl_dp3s --presets fedcor/fmnist-1spc fedcor/fmnist-2spc --out runs/grid
                                                      a grid: every strategy in every setting
  fedjax-sel compare --algos random fedcor --optimizers fedavg "fedprox[mu=1]" scaffold --out runs/both
                                                      every strategy under every optimizer

An item of --algos is a name (fedjax-sel list strategies) or mypackage.module:factory, with its parameters in
brackets; quote it, for brackets mean something to most shells. Items of --optimizers are written likewise. A flag wins
over the presets.

Each run has its folder: DIR/ALGO, or DIR/PRESET/OPTIMIZER/ALGO where several are given. Everything is checked before
the first run starts. Finished runs are read, not repeated: the same command goes on after an interruption, and one with
more strategies adds them. If one needs examples of the server's own (gpfl does), all runs leave the server the same
share, so that the clients' parts stay equal: give --server-validation 0.05 from the start if you mean to add such a
strategy later.
DIR then holds comparison.md, comparison.csv and PNGs; what they count is explained below the tables. Below each table,
and in comparison_pairs.csv, stand the differences to random (or to the first strategy), paired by seed, with what can
be told from chance: give --seeds 10 or more for that.

Exit codes: 0 done, or stopped by SIGTERM; 1 an error of the program's own; 2 something to mend; 3 some run failed (the
others are in the table); 129 the terminal was closed, 130 interrupted.
"""
NOT_FLAGS = {"algo", "algo_args", "out"}  # --algos and this command's own --out stand for them


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    parser = make_parser()
    config, flags = command_line.parse(parser, arguments)
    if flags.presets is None:
        settings = {flags.preset: config}
    else:
        _give_one_of(arguments, "--preset", "--presets")
        # the last --preset wins, and every other flag over it
        settings = {name: command_line.parse(parser, [*arguments, "--preset", name])[0] for name in flags.presets}
        if len(settings) < len(flags.presets):
            raise UserError(f"--presets: {' '.join(flags.presets)} names a setting twice; give each once")
        _refuse_equal(settings)
    if flags.optimizers is not None:
        _give_one_of(arguments, "--optimizer", "--optimizers")
        _give_one_of(arguments, "--optimizer-args", "--optimizers")
    for config in settings.values():
        validate(config)
    jobs = make_jobs(settings, flags.algos, flags.out, flags.presets is not None, flags.optimizers)
    command_line.refuse_idle(flags, (job.config for job in jobs))
    return compare(jobs, flags.out, arguments, flags.log)


def make_parser() -> Parser:
    """Make the command's parser."""
    fields = set(flat_types()) - NOT_FLAGS
    parser = command_line.make_parser("fedjax-sel compare", DESCRIPTION, EPILOG, only=fields)
    what = parser.add_argument_group("what to compare")
    what.add_argument(
        "--algos", nargs="+", required=True, metavar="ALGO", help='strategies, e.g. random "fl_dp3s[profile=gradient]"'
    )
    what.add_argument("--presets", nargs="+", metavar="NAME", help="several settings instead of one --preset")
    what.add_argument(
        "--optimizers", nargs="+", metavar="NAME", help='several instead of --optimizer, e.g. fedavg "fedprox[mu=0.1]"'
    )
    what.add_argument("--out", required=True, type=command_line.path, metavar="DIR", help="folder of the comparison")
    command_line.add_log(what)
    return parser


def _refuse_equal(settings: dict[str, Config]) -> None:
    """Refuse presets that other flags have made one: a file of a whole run says everything that a preset does."""
    for (one, config), (other, its) in itertools.combinations(settings.items(), 2):
        if config == its:
            raise UserError(
                f"--presets: {one} and {other} are the same setting here, for the other flags say all in which they "
                "differ; give one of them, or leave out what outranks them (--config?)"
            )


def _give_one_of(arguments: Sequence[str], one: str, several: str) -> None:
    if any(argument.split("=")[0] == one for argument in arguments):
        raise UserError(f"{one} and {several}: give one of them")


def compare(jobs: Sequence[Job], out: Path, arguments: Sequence[str], log: Sequence[str] = ()) -> int:
    """Run jobs, write tables and pictures, and print the tables; return the exit code."""
    from fedjax_sel import logs
    from fedjax_sel.reporting import compared
    from fedjax_sel.runs.interruption import exit_code

    logs.make(log, out)  # a package that is missing is found before the first run
    command = on_a_page.command("fedjax-sel compare", arguments)
    found = compared.run(jobs, out, command, _say, watching=lambda job: logs.make(log, Path(str(job.config.run.out))))
    if found.stopped:
        then = f"{'without --resume never ' * (jobs[0].config.run.resume == 'never')}the same command goes on"
        print(f"Interrupted: {len(found.rows)} of {len(jobs)} runs are finished and in {out}; {then}")
        return exit_code(found.stopped_by)
    if found.rows:
        print(found.as_markdown())
        print(f"\nWritten to {out} (comparison.md, comparison.csv, PNGs)")
    for text in found.failed:
        print(f"failed: {text}", file=sys.stderr)
    return 3 if found.failed else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def entry_point() -> int:
    """Run the installed command `fedjax-sel compare`."""
    return command_line.guarded(main)
