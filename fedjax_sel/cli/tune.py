"""`fedjax-sel tune`: a search for good settings of a strategy, without the test set."""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line, train
from fedjax_sel.cli.command_line import Parser, as_typed
from fedjax_sel.config import PAIRS, Config, flat_types
from fedjax_sel.core.parsing import cell
from fedjax_sel.errors import UserError
from fedjax_sel.papers import preset

if TYPE_CHECKING:
    from fedjax_sel.runs.tuning import Dimension, Trial

DESCRIPTION = """Searches for good settings of a strategy with Optuna (pip install "fedjax-sel[tune]"). A share of the
training set replaces the test set, and the seeds are not those of the final runs."""
EPILOG = """examples:
  fedjax-sel tune --algo random --space learning-rate=log:0.001:0.3 \\
      --out runs/tune-random
      the clients' learning rate, on a logarithmic scale
  fedjax-sel tune --algo fed_cbs --trials 50 --out runs/tune-fed_cbs \\
      --space learning-rate=log:0.001:0.3 exploration=log:0.1:1000
      also a parameter of the strategy

NAME is a flag of the model or of training without its dashes, num-selected, over-select, deadline, or a parameter of
--algo or --optimizer (algo.NAME or optimizer.NAME if a flag has that name). The first trial has the settings without
--space. Each trial is a run folder in --out. The same command resumes, and a larger --trials continues. The end names
the command that runs the best settings on the test set with other seeds.
Exit codes: 0 done, or stopped by SIGTERM; 1 unexpected error; 2 invalid input or environment; 3 all trials failed; 129
terminal closed; 130 interrupted.
"""
FINAL_SEEDS = range(10)
OWN = {"out", "seeds", "seeds_at_once", "mesh", "tuning_share", "resume"}  # not in the final command


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    config, flags = command_line.parse(make_parser(), arguments)
    config = config.replace(resume="auto")
    if flags.trials < 1:
        raise UserError(f"--trials: {flags.trials} is below 1; give the number of trials")
    if not config.data.tuning_share:
        raise UserError("--tuning-share: 0 would tune on the test set; give a share above 0, such as 0.1")
    if both := {*config.run.seeds} & {*FINAL_SEEDS}:
        raise UserError(
            f"--seeds: {min(both)} is a seed of the final runs (0 to 9); tune on others, such as 100 101, or 100, alone"
        )
    from fedjax_sel.runs import experiment, tuning

    experiment.start_jax(config)
    space = tuning.parse_space(flags.space, config)
    given = {**vars(flags), **{one.field: one.ends for one in space}}
    command_line.reject_ineffective(argparse.Namespace(**given), tuning.at_ends(space, config))
    if flags.dry_run:
        print(f"all {flags.trials} trials: about {train.duration(flags.trials * train.dry_run(config))}")
        return 0
    return _tune(config, space, flags, command_line.quoted_command("fedjax-sel tune", arguments))


def make_parser() -> Parser:
    """Make the command's parser."""
    parser = command_line.make_parser("fedjax-sel tune", DESCRIPTION, EPILOG, only=set(flat_types()) - OWN)
    own = parser.add_argument_group("the search")
    about = "settings to tune; VALUES are LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, or A,B,C"
    own.add_argument("--space", nargs="+", required=True, metavar="NAME=VALUES", help=about)
    own.add_argument("--trials", type=int, default=30, metavar="N", help="number of trials (default: 30)")
    about = "tuning seeds (default: 100 101 102; the final runs have 0 to 9)"
    own.add_argument("--seeds", nargs="+", default=["100", "101", "102"], metavar="N", help=about)
    about = "fraction of the training set that replaces the test set (default: 0.1)"
    own.add_argument("--tuning-share", default="0.1", metavar="X", help=about)
    own.add_argument("--out", required=True, type=command_line.path, metavar="DIR", help="output folder")
    command_line.add_dry_run(own)
    return parser


def _tune(config: Config, space: "Sequence[Dimension]", flags: argparse.Namespace, command: str) -> int:
    """Run the trials, write the table after each one, and print it at the end; return the exit code."""
    from fedjax_sel.core import files
    from fedjax_sel.experiment import experiment_of
    from fedjax_sel.experiment.checking import check
    from fedjax_sel.runs import run_files, terminal, tuning

    measure = check(experiment_of(config)).task.measure
    sign = -1 if measure.higher_is_better else 1
    trials, page = [], ""
    try:
        for trial in tuning.search(config, space, flags.trials, measure.higher_is_better):
            trials = sorted([*trials, trial], key=lambda one: (one.error != "", sign * one.value))  # best first
            best_so_far = f"best so far: trial {trials[0].number}, {_outcome(trials[0])}"
            command_line.say(
                f"trial {trial.number} of {flags.trials}, {_listed(trial)}: {_outcome(trial)}; {best_so_far}"
            )
            page = f"# Tuning\n\n    {command}\n\n{_results(trials, space, measure.name, flags.preset)}\n"
            with run_files.writing(flags.out):
                files.write(flags.out / "tuning.md", page.encode())
    except KeyboardInterrupt as error:
        print(f"Interrupted: {len(trials)} of {flags.trials} trials are in {flags.out}; the same command resumes")
        return terminal.exit_code(*error.args or (0,))
    print(f"{page}\nWritten to {flags.out / 'tuning.md'}")
    return 3 if trials[0].error else 0


def _listed(trial: "Trial") -> str:
    return ", ".join(f"{name}={as_typed(value)}" for name, value in trial.values.items())


def _outcome(trial: "Trial") -> str:
    return f"failed: {trial.error}" if trial.error else f"{trial.value:.4f}"


def _results(trials: "Sequence[Trial]", space: "Sequence[Dimension]", measure: str, preset_name: str) -> str:
    """Return a Markdown table of the trials, the best settings, warnings, and the final command."""
    best = trials[0]
    rows = [["trial", *best.values, measure], ["---"] * (len(space) + 2)]
    rows += [[str(one.number), *map(as_typed, one.values.values()), _outcome(one)] for one in trials]
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if best.error:
        return "\n".join([*lines, "", "All trials failed."])
    lines += ["", f"Best: trial {best.number}, {_listed(best)}. Trial 1 has the default settings."]
    lines += filter(None, (one.edge(best.values[one.name]) for one in space))
    lines += ["Chance favors the best of several trials. To report its settings, use the test set and other seeds:"]
    return "\n".join([*lines, "", f"    {_final_command(best.config, preset_name)}"])


def _final_command(best: Config, preset_name: str) -> str:
    """Return the command that runs the best settings on the test set, with other seeds."""
    words, usual = ["fedjax-sel", "train", "--preset", preset_name], preset(preset_name).flat()
    defaults = Config().flat()
    for name, value in best.flat().items():
        flag = name.replace("_", "-")
        if name in OWN or value == usual[name] or not (best.has_effect(name) or value == defaults[name]):
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, list | tuple) else [value]
            texts = [f"{key}={one}" for key, one in values] if name in PAIRS else [*map(as_typed, values)] or ["none"]
            words += [f"--{flag}", *texts]
    return shlex.join([*words, "--seeds", str(len(FINAL_SEEDS))])
