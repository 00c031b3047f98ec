"""`fedjax-sel train`: one experiment, all its seeds at once."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import fedjax_sel
from fedjax_sel.cli import command_line, listing
from fedjax_sel.cli.parser import Parser
from fedjax_sel.config import Config
from fedjax_sel.config.validation import validate
from fedjax_sel.errors import UserError

DESCRIPTION = "Trains a federated model whose cohorts are chosen by a selection strategy, all seeds at once."
EPILOG = """examples:
  fedjax-sel train                                    FL-DP3S on the embedded digits, seconds
  fedjax-sel train --algo random --seeds 5            five replicates of uniform selection
  fedjax-sel train --preset fedcor/fmnist-1spc --algo fl_dp3s
                                                      a published setting with another strategy
  fedjax-sel train --algo-args profile=fc1-relu       a strategy's own parameter
  fedjax-sel train --log tensorboard wandb            curves in other tools, too (docs/logging.md)
  fedjax-sel train --preset fl_dp3s/mnist-xi1 --dry-run
                                                      what a run would take, before it starts

A flag wins over the preset. The run goes to --out or runs/...; a finished one is reported, not repeated, and an
unfinished one goes on from its last checkpoint: Ctrl-C, a crash or a preempted machine cost seconds of work. With more
--rounds a finished run goes on.
Exit codes: 0 done, or stopped by SIGTERM; 1 an error of the program's own; 2 something to mend; 3 an update or the
server's step was not finite; 4 no checkpoint is whole; 129 the terminal was closed, 130 interrupted (what was done is
kept). A reader that leaves (| head) changes nothing.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: without the program's name.

    Returns:
        The exit code.
    """
    config, flags = command_line.parse(make_parser(), arguments)
    if flags.list:
        print(listing.text())
        return 0
    if flags.verbose and not flags.dry_run:
        raise UserError("--verbose: this changes nothing without --dry-run; leave it out, or add that")
    validate(config)
    command_line.refuse_idle(flags, [config])
    if flags.dry_run and flags.log:
        raise UserError("--log: this changes nothing with --dry-run, which runs nothing; leave it out")
    if flags.dry_run:
        from fedjax_sel.cli import dry_run  # needs JAX; --help does not

        dry_run.dry_run(config, flags.verbose)
        return 0
    return train(config, flags.log)


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = command_line.make_parser("fedjax-sel train", DESCRIPTION, EPILOG)
    own = parser.add_argument_group("this command")
    command_line.add_log(own)
    own.add_argument("--dry-run", action="store_true", help="show in ten lines what the run would be and take, and end")
    own.add_argument("--verbose", action="store_true", help="with --dry-run: details and the whole configuration, too")
    own.add_argument("--list", action="store_true", help="the same as fedjax-sel list")
    return parser


def train(config: Config, log: Sequence[str] = ()) -> int:
    """Run an experiment, write its folder, and print the closing table.

    Args:
        config: of the run.
        log: tools that follow it, of `logs.NAMES`.
    """
    from fedjax_sel import logs
    from fedjax_sel.cli import show
    from fedjax_sel.devices import hosts
    from fedjax_sel.reporting import plots
    from fedjax_sel.runs import experiment, folder, interruption, resume, run_files

    experiment.start_jax(config)
    out = Path(config.run.out) if config.run.out else folder.default_path(config)
    known = experiment.finished(out, config)
    if known is not None:
        if hosts.is_first():
            with contextlib.suppress(UserError):  # a folder that can only be read
                plots.curves_if_lost({config.selection.algo: known}, out / run_files.CURVES)
            show.result(known)
            print(f"This run was finished before and is in {out}; give another --out to run it again.")
            for edited in resume.edited_plugins(out, config):
                print(f"{edited}: these are the results of the code before.")
        return 0
    try:
        watching = logs.make(log, out) if hosts.is_first() else []
        result = experiment.run_experiment(config.replace(out=str(out)), True, watching)
    except fedjax_sel.NonFiniteUpdateError as error:
        print(f"stopped: {error}; the rounds until then are in {out}", file=sys.stderr)
        return 3
    except fedjax_sel.DamagedRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    if hosts.is_first():
        plots.curves_if_lost({config.selection.algo: result}, out / run_files.CURVES)
        show.result(result)
        if result.finished:
            print(f"Written to {out} (curves.png, metrics.csv, ...)")
        else:
            then = interruption.how_to_go_on(config.run, out)
            print(f"Interrupted after round {result.num_rounds} of {config.run.rounds}; {then}")
    return 0 if result.finished else interruption.exit_code(result.stopped_by)


def entry_point() -> int:
    """Run the installed command `fedjax-sel-train`."""
    return command_line.guarded(main)
