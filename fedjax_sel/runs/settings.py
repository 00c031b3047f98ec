"""Which runs may stand side by side: those of one setting, which differ in how they select and in nothing else."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel.config import NOT_OF_THE_TRAJECTORY
from fedjax_sel.errors import UserError
from fedjax_sel.runs import folder, reading
from fedjax_sel.runs.records import Result

# What a strategy is compared by, and how a run is computed; not how often it is looked at, which decides when a target
# is found to be reached.
NOT_OF_THE_SETTING = (NOT_OF_THE_TRAJECTORY - {"rounds", "target_accuracy"}) | {
    "algo", "algo_args", "chunk", "cohort_batch", "train_metrics_every",
}  # fmt: skip
DEALT = "who holds what"


class Setting(NamedTuple):
    """Runs under equal conditions."""

    results: dict[Path, Result]  # by folder
    differs: str  # in what from the first setting; empty for that one


def by_setting(folders: Sequence[Path], read: Callable[[Path], Result] | None = None) -> list[Setting]:
    """Read runs and put those of one setting together, in the order in which they come.

    Args:
        folders: of runs, finished or not.
        read: gives the rounds in a folder; None: `reading.load`.

    Returns:
        The settings, at least one.

    Raises:
        UserError: a folder holds no readable run, or no round of it.
    """
    found: list[tuple[dict[str, Any], dict[Path, Result]]] = []
    for path in folders:
        if read is None and folder.has_saved_nothing(path):
            raise UserError(f"{path}: the run has saved no round yet; wait for one, or leave it out")
        result = (read or reading.load)(path)
        if not result.num_rounds:
            raise UserError(f"{path}: the run ended in its first round; leave it out")
        conditions = _conditions(result, folder.made_from(path))
        for known, results in found:
            if known == conditions:
                results[path] = result
                break
        else:
            found.append((conditions, {path: result}))
    first = found[0][0]
    return [Setting(results, _difference(first, conditions)) for conditions, results in found]


def named(setting: Setting) -> dict[str, Result]:
    """Return the runs of a setting by the name of their strategy and its parameters.

    Where two have the same, all have those of their folders.
    """
    names = [_name(result) for result in setting.results.values()]
    unique = len(set(names)) == len(names)
    return {name if unique else str(path): result for name, (path, result) in zip(names, setting.results.items())}


def _name(result: Result) -> str:
    chosen = result.config.selection
    values = ",".join(f"{key}={value}" for key, value in chosen.algo_args)
    return f"{chosen.algo}[{values}]" if values else chosen.algo


def runs_in(path: Path) -> list[Path]:
    """Return the run folders that a path means: itself, or those of a comparison in it, in order of their names.

    Args:
        path: a run's folder, or one that holds some, as `compare --out` makes it.
    """
    if not path.is_dir() or folder.holds_run(path):
        return [path]
    deeper = [found for depth in ("*", "*/*", "*/*/*") for found in sorted(path.glob(depth)) if found.is_dir()]
    own = (found for found in deeper if not folder.is_aside(found.relative_to(path)))  # that is no further strategy
    return [found for found in own if folder.holds_run(found)] or [path]


def _conditions(result: Result, digests: Any) -> dict[str, Any]:
    values = {name: value for name, value in result.config.effective().flat().items() if name not in NOT_OF_THE_SETTING}
    # the server's share may follow from the strategy, and data of one name from two places
    return values | {"pixels": result.data_source, DEALT: json.dumps(digests, sort_keys=True)}


def _difference(first: dict[str, Any], here: dict[str, Any]) -> str:
    changed = [name for name, value in here.items() if value != first[name]]
    if changed == [DEALT]:
        return f"{DEALT} (the data or their partition, by their SHA-256)"
    return "; ".join(f"{name} {here[name]!r}, not {first[name]!r}" for name in changed if name != DEALT)
