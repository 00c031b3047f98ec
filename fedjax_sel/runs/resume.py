"""Resuming: compatibility of a folder with an experiment, and the rounds that follow its checkpoint."""

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedjax_sel import strategies
from fedjax_sel.config import Config
from fedjax_sel.core import jax_settings, plugins
from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import DamagedRunError, UserError
from fedjax_sel.experiment.checking import server_validation
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.runs import checkpoint, folder, reading, run_files
from fedjax_sel.runs.run_files import DamagedError, Manifest, Result
from fedjax_sel.simulation.layout import Layout
from fedjax_sel.strategies import checks
from fedjax_sel.strategies.contract import Strategy


def depends_on_num_rounds(strategy: Strategy, sizes: tuple[int, int], one: int, other: int, *flags: bool) -> bool:
    """Return whether a hook of a strategy differs between runs of two lengths, `one` and `other`.

    The sizes, N and K, and the flags are as for `checks.traced`.
    """

    def programs(num_rounds: int) -> dict[str, Any]:
        hooks = checks.traced(strategy, (*sizes, num_rounds), *flags)
        return {name: checks.program(name, hook) for name, hook in hooks.items()}

    return programs(one) != programs(other)


class Start(NamedTuple):
    """A run's starting point."""

    messages: list[str]  # for the user
    rounds: int = 0  # completed rounds
    carry: Any = None  # state after these rounds; None before the first one
    earlier: Result | None = None  # result of these rounds


def about(problem: Problem, laid_out: Layout) -> Manifest:
    """Return the manifest entries that identify this run."""
    environment = folder.environment()
    return {
        "fingerprint": problem.config.fingerprint(),
        "config": problem.config.to_json(),
        "data": folder.digests(problem, problem.config.run.seeds),
        "source": problem.dataset.source,
        "server_validation": server_validation(problem.config, problem.strategy),
        "higher_is_better": problem.task.measure.higher_is_better,
        "made_with": {
            "versions": environment["packages"] | {"fedjax_sel": environment["fedjax_sel"]},
            "device": jax.devices()[0].device_kind,
            "layout": {"mesh": list(laid_out.plan.mesh.devices.shape), "seeds_at_once": laid_out.seeds_at_once},
            **jax_settings.recorded(),
        },
        "plugins": _sources(problem.config),
    }


def _sources(config: Config) -> dict[str, plugins.Sources]:
    """Return what identifies the code of each plug-in, and the parameters of a strategy, such as data that it read."""
    found, chosen = {name: plugins.sources(name) for name in config.plugins()}, config.selection
    if found.get(chosen.algo):
        with contextlib.suppress(UserError):
            strategy = strategies.make(chosen.algo, **dict(chosen.algo_args))
            found[chosen.algo] |= {"its parameters": plugins.parameter_digest(strategy)}
    return found


def edited_plugins(out: Path, config: Config) -> list[str]:
    """Return one sentence for each plug-in that was edited since the newest manifest in a folder."""
    before = (checkpoint.newest(out) or {"plugins": {}})["plugins"]
    for name in before:
        with contextlib.suppress(UserError):  # a result can be read without its plug-ins
            plugins.Registry("--algo", object).factory(name)
    return plugins.edited(before, _sources(config))


def open_run(out: Path, problem: Problem, ours: Manifest, state: Any, lock: FolderLock) -> Start:
    """Lock the folder, and resume the run in it or prepare it for a new one.

    `ours` are the manifest entries from `about`; a resumed run keeps its first hashes of plug-ins there. `state` holds
    the shapes and dtypes of the state.

    Raises:
        UserError: the folder cannot be used, or its run cannot be continued.
        DamagedRunError: the folder has checkpoints, and none of them is intact.
    """
    config = problem.config
    folder.make(out)
    lock.take(out)
    folder.remove_unfinished(out)
    messages: list[str] = []
    if folder.holds_run(out) and config.run.resume != "never":
        stored = folder.stored_config(out)
        found = checkpoint.list_all(out / run_files.CHECKPOINTS)
        lengths = stored.run.rounds, config.run.rounds
        sizes = config.num_training_clients, config.cohort_size
        flags = config.everyone_available, problem.law is not None
        if found and lengths[0] != lengths[1] and depends_on_num_rounds(problem.strategy, sizes, *lengths, *flags):
            raise UserError(
                f"--rounds: selections of {config.selection.algo} depend on the total number of rounds, so the "
                f"{stored.run.rounds} rounds in {out} cannot be continued to {config.run.rounds}; give another --out"
            )
        for position, place in enumerate(found):
            try:
                manifest, start = _start_from(place, out, problem, ours, state)
            except DamagedError as error:
                messages.append(f"checkpoint {place} cannot be used: {error}")
                continue
            for damaged in found[:position]:
                checkpoint.set_aside(damaged)
            lock.check(out)
            folder.continue_run(out, manifest, problem)
            if config.run.keep > 0:  # a process that died while saving may have left more
                checkpoint.remove_oldest(out / run_files.CHECKPOINTS, config.run.keep)
            return start._replace(messages=[*messages, *start.messages])
        if found:
            raise DamagedRunError(
                f"{out}: {'; '.join(messages)}; to set the folder aside and start over, give --resume never"
            )
    elif not folder.is_empty(out) and not folder.holds_run(out):
        raise UserError(f"{out} has no readable run; give another folder")
    if config.run.resume == "must":
        raise UserError(f"--resume must: {out} has no checkpoint; omit the flag to start from the beginning")
    lock.check(out)
    never = config.run.resume == "never"
    names = (run_files.METRICS, run_files.COHORTS, run_files.CHECKPOINTS, run_files.RESULT, run_files.PARAMS)
    has_rounds = any((out / name).exists() for name in names)
    if has_rounds if never else folder.is_worth_keeping(out):  # else the new run overwrites it
        lock.release(out)  # the lock file would move with the folder
        moved = folder.set_aside(out)
        lock.take(out)
        why = "" if never else ": it has no checkpoint to resume from"
        messages.append(f"the earlier run in {out} was set aside as {moved}{why}")
    folder.start_run(out, problem)
    return Start(messages)


def _start_from(place: Path, out: Path, problem: Problem, ours: Manifest, state: Any) -> tuple[Manifest, Start]:
    manifest, arrays = checkpoint.read(place)
    if manifest["fingerprint"] != ours["fingerprint"]:
        raise DamagedError("it has a different configuration")
    folder.reject_other_digests(out, manifest["data"], ours["data"])
    carry = checkpoint.fill(state, arrays)  # rejects another model of the name that the configuration has
    rounds = manifest["rounds"]
    messages = [f"resuming after round {rounds} in {out}"]
    messages += [
        f"{sentence}: the remaining rounds use the edited code; give another --out to start over"
        for sentence in plugins.edited(manifest["plugins"], ours["plugins"])
    ]
    ours["plugins"] = {**ours["plugins"], **manifest["plugins"]}  # later starts report the edit, too
    before, now = manifest["made_with"], ours["made_with"]
    if before != now:
        pairs = {name: (before.get(name, "unset"), now.get(name, "unset")) for name in {**before, **now}}
        changed = [f"{name} was {old}, is {new}" for name, (old, new) in pairs.items() if old != new]
        messages.append(f"the remaining rounds may differ in rounding from an uninterrupted run: {'; '.join(changed)}")
    try:
        earlier = reading.rounds_so_far(out, problem.config, manifest)
    except checkpoint.UNREADABLE as error:
        raise DamagedError(f"its {rounds} rounds are incomplete in {out} ({error})") from error
    reading.reject_skipped_updates(earlier, problem.config)
    return manifest, Start(messages, rounds, carry, earlier)
