"""`python -m fedjax_sel.train`: one experiment, all its seeds at once."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

import fedjax_sel
from fedjax_sel.cli import command_line
from fedjax_sel.config import Config
from fedjax_sel.config.validation import validate
from fedjax_sel.errors import UserError

DESCRIPTION = "Trains a federated model whose cohorts are chosen by a selection strategy, all seeds at once."
EPILOG = """examples:
  python -m fedjax_sel.train                                   FL-DP3S on the embedded digits, seconds
  python -m fedjax_sel.train --algo random --seeds 5           five replicates of uniform selection
  python -m fedjax_sel.train --preset fedcor/fmnist-1spc --algo fl_dp3s
                                                               a published setting with another strategy
  python -m fedjax_sel.train --algo-args profile=fc1-relu      a strategy's own parameter
  python -m fedjax_sel.train --list                            strategies, data sets, partitions, models, presets
  python -m fedjax_sel.train --preset fl_dp3s/mnist-xi1 --dry-run
                                                               what a run would cost, before it starts

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
    parser = command_line.make_parser("python -m fedjax_sel.train", DESCRIPTION, EPILOG)
    parser.add_argument("--list", action="store_true", help="show what there is to choose from, and end")
    parser.add_argument(
        "--log", choices=["tensorboard"], help="also write every measure for TensorBoard, in a folder beside the run's"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what the run would be and cost, and end")
    config, flags = command_line.parse(parser, arguments)

    from fedjax_sel.cli import show  # what follows needs JAX; --help does not

    if flags.list:
        show.choices()
        return 0
    validate(config)
    command_line.refuse_idle(flags, [config])
    if flags.dry_run:
        show.dry_run(config)
        return 0
    return train(config, flags.log)


def train(config: Config, log: str | None = None) -> int:
    """Run an experiment, write its folder, and print the closing table.

    Args:
        config: of the run.
        log: "tensorboard", or None.
    """
    from fedjax_sel import callbacks
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
        watching = [callbacks.TensorBoard(str(out.with_name(f"{out.name}-log")))] if log else []
        result = fedjax_sel.run(config, out=str(out), callbacks=watching, progress=True)
    except fedjax_sel.NonFiniteUpdateError as error:
        print(f"stopped: {error}; the rounds until then are in {out}", file=sys.stderr)
        return 3
    except fedjax_sel.DamagedRunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    if hosts.is_first():
        show.result(result)
        if result.finished:
            print(f"Written to {out} (curves.png, metrics.csv, ...)")
        else:
            print(
                f"Interrupted after round {result.num_rounds} of {config.run.rounds}; the same command goes on from "
                f"there ({out})"
            )
    return 0 if result.finished else interruption.exit_code(result.stopped_by)


def entry_point() -> int:
    """Run the installed command `fedjax-sel-train`."""
    return command_line.guarded(main)
