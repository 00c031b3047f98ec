"""`python -m fedjax_sel.compare`: several strategies under the same conditions, in tables and their pictures."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedjax_sel.cli import command_line
from fedjax_sel.config import Config, flat_types
from fedjax_sel.config.validation import validate
from fedjax_sel.core import parsing
from fedjax_sel.errors import UserError

if TYPE_CHECKING:
    from fedjax_sel.runs.lock import FolderLock
    from fedjax_sel.runs.sweep import Job

DESCRIPTION = """Runs several selection strategies under the same conditions: the same partitions, initial models and
random streams. They differ in their cohorts, and in the weights of the updates only where a strategy derives them. With
--optimizers every strategy runs under every federated optimizer as well."""
EPILOG = """examples:
  python -m fedjax_sel.compare --algos random fl_dp3s --out runs/digits
                                                               two strategies on the embedded digits
  python -m fedjax_sel.compare --algos random "random[variant=md]" "fl_dp3s[profile=gradient]" --seeds 5 --out runs/more
                                                               parameters in brackets: name[key=value,key=value]
  python -m fedjax_sel.compare --algos random fl_dp3s --presets fedcor/fmnist-1spc fedcor/fmnist-2spc --out runs/grid
                                                               a grid: every strategy in every setting
  python -m fedjax_sel.compare --algos random fedcor --optimizers fedavg "fedprox[mu=1]" scaffold --out runs/both
                                                               every strategy under every optimizer

An item of --algos is a name (python -m fedjax_sel.train --list) or mypackage.module:factory, with its parameters in
brackets; quote it, for brackets mean something to most shells. Items of --optimizers are written likewise. A flag wins
over the presets.

Each run has its folder: DIR/ALGO, or DIR/PRESET/OPTIMIZER/ALGO where several are given. Everything is checked before
the first run starts. Finished runs are read, not repeated: the same command goes on after an interruption, and one with
more strategies adds them. If one needs examples of the server's own (gpfl does), all runs leave the server the same
share, so that the clients' parts stay equal: give --server-validation 0.05 from the start if you mean to add such a
strategy later.
DIR then holds comparison.md, comparison.csv and PNGs; what they count is explained below the tables. Behind each table,
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
    fields = set(flat_types()) - NOT_FLAGS
    parser = command_line.make_parser("python -m fedjax_sel.compare", DESCRIPTION, EPILOG, only=fields)
    parser.add_argument(
        "--algos", nargs="+", required=True, metavar="ALGO", help='strategies, e.g. random "fl_dp3s[profile=gradient]"'
    )
    parser.add_argument("--presets", nargs="+", metavar="NAME", help="several settings instead of one --preset")
    parser.add_argument(
        "--optimizers", nargs="+", metavar="NAME", help='several instead of --optimizer, e.g. fedavg "fedprox[mu=0.1]"'
    )
    parser.add_argument("--out", required=True, type=command_line.path, metavar="DIR", help="folder of the comparison")
    config, flags = command_line.parse(parser, arguments)
    if flags.presets is None:
        settings = {flags.preset: config}
    else:
        _give_one_of(arguments, "--preset", "--presets")
        # the last --preset wins, and every other flag over it
        settings = {name: command_line.parse(parser, [*arguments, "--preset", name])[0] for name in flags.presets}
        if len(settings) < len(flags.presets):
            raise UserError(f"--presets: {' '.join(flags.presets)} names a setting twice; give each once")
    if flags.optimizers is not None:
        _give_one_of(arguments, "--optimizer", "--optimizers")
        _give_one_of(arguments, "--optimizer-args", "--optimizers")
    for config in settings.values():
        validate(config)
    jobs = make_jobs(settings, flags.algos, flags.out, flags.presets is not None, flags.optimizers)
    command_line.refuse_idle(flags, (job.config for job in jobs))
    return compare(jobs, flags.out, arguments)


def _give_one_of(arguments: Sequence[str], one: str, several: str) -> None:
    if any(argument.split("=")[0] == one for argument in arguments):
        raise UserError(f"{one} and {several}: give one of them")


def parse_algo(text: str, flag: str = "--algos") -> tuple[str, dict[str, str]]:
    """Read an item of --algos or --optimizers: `name` or `name[key=value,key=value]`.

    Args:
        text: the item.
        flag: whose it is, for messages.

    Returns:
        The name and the parameters in alphabetical order.

    Raises:
        UserError: it is not of that form.
    """
    example = {"--algos": 'e.g. "fl_dp3s[profile=gradient]"', "--optimizers": 'e.g. "fedprox[mu=0.1]"'}[flag]
    return parsing.name_and_parameters(flag, text, example)


def label(name: str, values: dict[str, str]) -> str:
    """Write a name with its parameters as `parse_algo` reads it."""
    return f"{name}[{','.join(f'{key}={value}' for key, value in values.items())}]" if values else name


def make_jobs(
    settings: dict[str, Config],
    algos: Sequence[str],
    out: Path,
    subfolders: bool,
    optimizers: Sequence[str] | None = None,
) -> "list[Job]":
    """Make a job of every strategy in every setting, under every optimizer.

    Args:
        settings: name -> configuration, without strategy and folder.
        algos: items as `parse_algo` reads them.
        out: folder of the comparison.
        subfolders: whether each setting has a folder of its own.
        optimizers: items likewise; each has a folder of its own. None: the settings' own.

    Raises:
        UserError: an item that cannot be read, or two that are the same.
    """
    strategies = _items("--algos", algos)
    chosen = {} if optimizers is None else _items("--optimizers", optimizers)

    from fedjax_sel.runs.sweep import Job

    jobs = []
    for setting, config in settings.items():
        for optimizer, (optimizer_folder, change) in chosen.items() or {"": ("", None)}.items():
            if change is not None:
                config = config.replace(optimizer=change[0], optimizer_args=change[1])
            place = (out / setting.replace("/", "-") if subfolders else out) / optimizer_folder
            for algo, (folder, (name, values)) in strategies.items():
                run = config.replace(algo=name, algo_args=values, out=str(place / folder))
                jobs.append(Job(setting, algo, run, optimizer))
    return jobs


def _items(flag: str, texts: Sequence[str]) -> dict[str, tuple[str, tuple[str, dict[str, str]]]]:
    """Return what a flag lists: label -> (name of its folder, (name, parameters))."""
    items, folders = {}, {}
    for name, values in (parse_algo(text, flag) for text in texts):
        shown = label(name, values)
        folder = re.sub(r"[^\w.=-]+", "-", shown).strip("-")
        if folder in folders:
            raise UserError(f"{flag}: {shown!r} and {folders[folder]!r} are the same; give it once")
        folders[folder] = shown
        items[shown] = (folder, (name, values))
    return items


def compare(jobs: "list[Job]", out: Path, arguments: Sequence[str]) -> int:
    """Check jobs, run them, and write tables and pictures; return the exit code."""
    from fedjax_sel.runs.lock import FolderLock

    with FolderLock() as lock:
        return _compare(jobs, out, arguments, lock)


def _compare(jobs: "list[Job]", out: Path, arguments: Sequence[str], lock: "FolderLock") -> int:
    from fedjax_sel.reporting import comparison, comparison_pairs, comparison_plots, plots
    from fedjax_sel.runs import sweep
    from fedjax_sel.runs.interruption import exit_code

    checked = sweep.check(jobs)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: cannot write to {out} ({error.strerror or error}); give another folder") from error
    lock.take(out)  # another comparison would write its own table over this one's
    rows, results, titles, failed, interrupted, stopped_by = [], [], {}, [], False, 0
    differences = {}
    command = "python -m fedjax_sel.compare " + shlex.join(arguments)
    try:
        for one in sweep.run_all(checked, say=_say):
            job, result = one.job, one.result
            if result is None:
                _say(f"failed: {one.error}")
                failed.append(f"{job.algo}, {job.conditions}: {one.error}")
            elif not result.finished:
                interrupted, stopped_by = True, result.stopped_by
            else:
                rows.append(comparison.row(job.setting, job.algo, result, one.selection_seconds, job.optimizer))
                results.append(result)
                titles[job.conditions] = plots.title(result.config, result.data_source)
            if result is not None:
                plots.curves_if_lost({job.algo: result}, Path(str(job.config.run.out)) / "curves.png")
            # after every run: what is there so far can be read while the others go on
            pairs = comparison_pairs.pairs(rows, results)
            differences = comparison_pairs.by_conditions(pairs)
            _write(out / "comparison.csv", comparison.as_csv(rows))
            _write(out / "comparison_pairs.csv", comparison_pairs.as_csv(pairs))
            _write(out / "comparison.md", comparison.document(rows, titles, failed, len(jobs), command, differences))
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        print(f"Interrupted: {len(rows)} of {len(jobs)} runs are finished and in {out}; the same command goes on")
        return exit_code(stopped_by)
    if rows:
        print(comparison.tables(rows, titles, differences))
        comparison_plots.draw(rows, results, out)
        print(f"\nWritten to {out} (comparison.md, comparison.csv, PNGs)")
    for text in failed:
        print(f"failed: {text}", file=sys.stderr)
    return 3 if failed else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"--out: cannot write {path} ({error.strerror or error}); make room or move it") from error


def entry_point() -> int:
    """Run the installed command `fedjax-sel-compare`."""
    return command_line.guarded(main)
