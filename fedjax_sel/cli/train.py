"""`fedjax-sel train`: one experiment, with all its seeds at once."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import fedjax_sel
from fedjax_sel.cli import command_line, listing
from fedjax_sel.cli.command_line import Parser
from fedjax_sel.config import Config, validate
from fedjax_sel.errors import UserError

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
    if flags.list:
        print(listing.text())
        return 0
    if flags.verbose and not flags.dry_run:
        raise UserError("--verbose: has no effect without --dry-run; add that, or remove --verbose")
    validate(config)
    command_line.reject_ineffective(flags, [config])
    if flags.dry_run and flags.log:
        raise UserError("--log: has no effect with --dry-run, which does not train; remove it")
    if flags.dry_run:
        from fedjax_sel.cli import catalogue  # imports JAX, which --help does not need

        catalogue.dry_run(config, flags.verbose)
        return 0
    return train(config, flags.log)


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = command_line.make_parser("fedjax-sel train", DESCRIPTION, EPILOG)
    own = parser.add_argument_group("this command")
    command_line.add_log(own)
    own.add_argument("--dry-run", action="store_true", help="print the run's settings, traffic, memory and time; exit")
    own.add_argument("--verbose", action="store_true", help="with --dry-run: print details and the whole configuration")
    own.add_argument("--list", action="store_true", help="same as fedjax-sel list")
    return parser


def train(config: Config, log: Sequence[str] = ()) -> int:
    """Run an experiment, write its folder, print the result table, and return the exit code."""
    from fedjax_sel import devices, logs
    from fedjax_sel.cli import catalogue
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import experiment, folder, interruption, resume, run_files

    experiment.start_jax(config)
    out = Path(config.run.out) if config.run.out else folder.default_path(config)
    given = experiment_of(config)
    finished = experiment.finished(out, given)
    if finished is not None:
        if devices.is_first():
            with contextlib.suppress(UserError):  # the folder may be read-only
                plots.curves_if_lost({config.selection.algo: finished}, out / run_files.CURVES)
            catalogue.result(finished)
            print(f"This run is already finished in {out}; give another --out to run it again.")
            for edited in resume.edited_plugins(out, config):
                print(f"{edited}: these results are from the earlier code.")
        return 0
    try:
        watching = logs.make(log, out) if devices.is_first() else []
        result = experiment.run_experiment(given.replace(out=str(out)), True, watching)
    except fedjax_sel.NonFiniteUpdateError as error:
        print(f"stopped: {error}; the rounds before it are in {out}", file=sys.stderr)
        return 3
    except fedjax_sel.DamagedRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    if devices.is_first():
        plots.curves_if_lost({config.selection.algo: result}, out / run_files.CURVES)
        catalogue.result(result)
        if result.finished:
            print(f"Written to {out} (curves.png, metrics.csv, ...)")
        else:
            then = interruption.resume_advice(config.run, out)
            print(f"Interrupted after round {result.num_rounds} of {config.run.rounds}; {then}")
    return 0 if result.finished else interruption.exit_code(result.stopped_by)


def entry_point() -> int:
    """Run the installed command `fedjax-sel-train`."""
    return command_line.guarded(main)
