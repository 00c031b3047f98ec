"""How a run begins in its folder: anew, or where the newest whole checkpoint left it."""

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.core import files, jax_settings, plugin_sources, plugins
from fedjax_sel.core.folder_lock import FolderLock
from fedjax_sel.errors import DamagedRunError, UserError
from fedjax_sel.experiment.checking import server_validation
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.runs import checkpoint, folder, provenance, reading, records, run_files, verdict, weights
from fedjax_sel.runs.manifest import DamagedError, Manifest
from fedjax_sel.runs.records import Result
from fedjax_sel.simulation.layout import Layout
from fedjax_sel.strategies import lookahead


class Start(NamedTuple):
    """Where a run starts."""

    messages: list[str]  # for the person
    rounds: int = 0  # that are done
    arrays: dict[str, np.ndarray] | None = None  # of the state after them, for `checkpoint.fill`
    earlier: Result | None = None  # of those rounds


def about(problem: Problem, laid_out: Layout) -> Manifest:
    """Return what a checkpoint of this run belongs to."""
    environment = folder.environment()
    return {
        "fingerprint": problem.config.fingerprint(),
        "config": problem.config.to_json(),
        "data": provenance.digests(problem.given, problem.config.run.seeds),
        "source": problem.dataset.source,
        "server_validation": server_validation(problem.config, problem.strategy),
        "higher_is_better": problem.task.measure.higher_is_better,
        "made_with": {
            "versions": environment["packages"] | {"fedjax_sel": environment["fedjax_sel"]},
            "device": jax.devices()[0].device_kind,
            "layout": {"mesh": list(laid_out.plan.mesh.devices.shape), "seeds_at_once": laid_out.seeds_at_once},
            **jax_settings.recorded(),
        },
        "chunk": problem.config.run.chunk,
        "plugins": _plugins(problem.config),
    }


def _plugins(config: Config) -> dict[str, plugin_sources.Sources]:
    return {name: plugin_sources.sources(name) for name in config.plugins()}


def edited_plugins(out: Path, config: Config) -> list[str]:
    """Name the plug-ins that were edited since the newest checkpoint in a folder, a sentence each.

    Args:
        out: the folder of a run, whose checkpoints need not be whole.
        config: of the run.
    """
    for place in checkpoint.list_all(out / folder.CHECKPOINTS)[:1]:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            before = files.read_json(place / checkpoint.MANIFEST).get("plugins", {})
            for name in before:
                with contextlib.suppress(UserError):  # a result can be read without what made it
                    plugins.load(name, plugins.Wanted("--algo", object))
            return plugin_sources.edited(before, _plugins(config))
    return []


def open_run(out: Path, problem: Problem, ours: Manifest, state: Any, lock: FolderLock) -> Start:
    """Take the folder, and find where the run in it stands or make it ready for a new one.

    Args:
        out: the folder.
        problem: what is to be run.
        ours: from `about`.
        state: shapes and dtypes of the state.
        lock: of this process.

    Returns:
        Where to start.

    Raises:
        UserError: the folder cannot be used, or holds what cannot be continued.
        DamagedRunError: it holds checkpoints, and none of them is whole.
    """
    config = problem.config
    folder.make(out)
    lock.take(out)
    folder.remove_unfinished(out)
    messages: list[str] = []
    if folder.holds_run(out) and config.run.resume != "never":
        stored = folder.stored_config(out)
        found = checkpoint.list_all(out / run_files.CHECKPOINTS)
        if found and _plans_ahead(problem, stored.run.rounds):
            raise UserError(
                f"--rounds: {config.selection.algo} plans for all its rounds from the start, so its "
                f"{stored.run.rounds} rounds in {out} cannot be continued to {config.run.rounds}; give another --out"
            )
        for position, place in enumerate(found):
            try:
                manifest, start = _from(place, out, problem, ours, state)
            except DamagedError as error:
                messages.append(f"the checkpoint {place} cannot be used: {error}")
                continue
            for damaged in found[:position]:
                checkpoint.set_aside(damaged)
            lock.check(out)
            folder.go_on(out, manifest, problem)
            if config.run.keep > 0:  # a process that died while it saved may have left more
                checkpoint.remove_oldest(out / run_files.CHECKPOINTS, config.run.keep)
            return start._replace(messages=[*messages, *start.messages])
        if found:
            raise DamagedRunError(
                f"{out}: {'; '.join(messages)}; --resume never sets the folder aside and starts again"
            )
    elif not folder.is_empty(out) and not folder.holds_run(out):
        raise UserError(f"{out} holds no readable run; give another folder")
    if config.run.resume == "must":
        raise UserError(f"--resume must: {out} holds no checkpoint; leave it out to start from the beginning")
    lock.check(out)
    asked = config.run.resume == "never"
    if folder.holds_rounds(out) if asked else folder.is_worth_keeping(out):  # else it begins again in its place
        moved = folder.set_aside(out)
        lock.take(out)
        why = "" if asked else ": it has no checkpoint to go on from"
        messages.append(f"what was in {out} was set aside as {moved}{why}")
    folder.begin(out, problem)
    return Start(messages)


def _plans_ahead(problem: Problem, rounds: int) -> bool:
    """Return whether the strategy would have done something else in a run of other rounds."""
    config = problem.config
    if rounds == config.run.rounds:
        return False
    sizes = config.partition.num_clients, config.selection.num_selected
    everyone = config.selection.available_share == 1
    return lookahead.depends_on_num_rounds(problem.strategy, *sizes, rounds, config.run.rounds, everyone)


def _from(place: Path, out: Path, problem: Problem, ours: Manifest, state: Any) -> tuple[Manifest, Start]:
    manifest, arrays = checkpoint.read(place)
    for name, meaning in (("fingerprint", "configuration"), ("chunk", "chunk length")):
        if manifest[name] != ours[name]:
            raise DamagedError(f"it is of another {meaning}")
    provenance.refuse_others(out, manifest["data"], ours["data"])
    _refuse_another_model(problem.config, state, arrays)
    checkpoint.fill(state, arrays)
    rounds = manifest["rounds"]
    messages = [f"going on after round {rounds} of {out}"]
    if folder.config_was_lost(out):
        messages.append(f"{run_files.CONFIG} there was lost or changed, and is restored from the checkpoint")
    messages += [
        f"{sentence}: the rounds from here on are those of the edited one; give another --out to begin anew"
        for sentence in plugin_sources.edited(manifest.get("plugins", {}), ours["plugins"])
    ]
    made, now = manifest["made_with"], ours["made_with"]
    if made != now:
        then_and_now = {name: (made.get(name, "unset"), now.get(name, "unset")) for name in {**made, **now}}
        changed = [f"{name} {then} then, {here} now" for name, (then, here) in then_and_now.items() if then != here]
        messages.append(
            f"the rounds from here on may differ in rounding from those of an uninterrupted run: {'; '.join(changed)}"
        )
    try:
        earlier = reading.rounds_so_far(out, problem.config, manifest)
    except (OSError, ValueError, KeyError) as error:
        raise DamagedError(f"the {rounds} rounds before it are not whole in {out} ({error})") from error
    verdict.refuse_what_was_skipped(earlier, problem.config)
    return manifest, Start(messages, rounds, arrays, earlier)


def _refuse_another_model(config: Config, state: Any, arrays: dict[str, np.ndarray]) -> None:
    """Refuse whole weights that do not fit: the configuration knows a model by its name alone."""
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    found = weights.difference(*map(weights.in_a_state, (leaves, arrays)))
    if found is not None:
        raise weights.another_model(config, found)


def to_plain(start: Start) -> dict[str, Any]:
    """Return a start as values that can be sent to other machines."""
    earlier = None if start.earlier is None else records.to_plain(start.earlier)
    return {**start._asdict(), "earlier": earlier}


def from_plain(plain: dict[str, Any]) -> Start:
    """Return the start that `to_plain` made plain."""
    earlier = plain["earlier"]
    return Start(**{**plain, "earlier": None if earlier is None else records.from_plain(earlier)})
