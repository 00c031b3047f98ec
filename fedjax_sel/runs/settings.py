"""Grouping of runs into settings; runs of one setting differ only in client selection."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_sel.config import NOT_OF_THE_TRAJECTORY
from fedjax_sel.errors import UserError
from fedjax_sel.runs import folder, reading
from fedjax_sel.runs.records import Result

# Fields that runs of one setting may differ in. `eval_every` is not among them: the rounds to a target depend on it.
NOT_OF_THE_SETTING = (NOT_OF_THE_TRAJECTORY - {"rounds", "target_accuracy"}) | {
    "algo", "algo_args", "chunk", "cohort_batch", "train_metrics_every",
}  # fmt: skip
DATA_AND_PARTITION = "data or partition"


class Setting(NamedTuple):
    """Runs under equal conditions."""

    results: dict[Path, Result]  # results by folder
    differs: str  # difference from the first setting; empty for the first one


def by_setting(folders: Sequence[Path], read: Callable[[Path], Result] | None = None) -> list[Setting]:
    """Read runs and group them by setting, in the given order.

    Args:
        folders: run folders, finished or not.
        read: function that reads a folder's result; None for `reading.load`.

    Returns:
        The settings, at least one.

    Raises:
        UserError: a folder has no readable run, or a run has no rounds.
    """
    found: list[tuple[dict[str, Any], dict[Path, Result]]] = []
    for path in folders:
        if read is None and folder.has_saved_nothing(path):
            raise UserError(f"{path}: the run has saved no round yet; wait for one, or leave it out")
        result = (read or reading.load)(path)
        if not result.num_rounds:
            raise UserError(f"{path}: the run ended in its first round; leave it out")
        conditions = _conditions(result, folder.made_from(path))
        for earlier, results in found:
            if earlier == conditions:
                results[path] = result
                break
        else:
            found.append((conditions, {path: result}))
    first = found[0][0]
    return [Setting(results, _difference(first, conditions)) for conditions, results in found]


def named(setting: Setting) -> dict[str, Result]:
    """Return the runs of a setting by strategy and parameters, or by folder if two of those names are equal."""
    names = [_name(result) for result in setting.results.values()]
    unique = len(set(names)) == len(names)
    return {name if unique else str(path): result for name, (path, result) in zip(names, setting.results.items())}


def _name(result: Result) -> str:
    chosen = result.config.selection
    values = ",".join(f"{key}={value}" for key, value in chosen.algo_args)
    return f"{chosen.algo}[{values}]" if values else chosen.algo


def runs_in(path: Path) -> list[Path]:
    """Return the run folders at a path: the path itself, or the run folders in it in order of their names.

    Args:
        path: a run's folder, or a folder of runs, e.g. from `compare --out`.
    """
    if not path.is_dir() or folder.holds_run(path):
        return [path]
    deeper = [found for depth in ("*", "*/*", "*/*/*") for found in sorted(path.glob(depth)) if found.is_dir()]
    current = (found for found in deeper if not folder.is_aside(found.relative_to(path)))
    return [found for found in current if folder.holds_run(found)] or [path]


def _conditions(result: Result, digests: Any) -> dict[str, Any]:
    values = {name: value for name, value in result.config.effective().flat().items() if name not in NOT_OF_THE_SETTING}
    # The configuration does not determine the data: the server's share may depend on the strategy, and one data set
    # name may have several sources.
    return values | {"pixels": result.data_source, DATA_AND_PARTITION: json.dumps(digests, sort_keys=True)}


def _difference(first: dict[str, Any], here: dict[str, Any]) -> str:
    changed = [name for name, value in here.items() if value != first[name]]
    if changed == [DATA_AND_PARTITION]:
        return f"{DATA_AND_PARTITION} (the SHA-256 differs)"
    return "; ".join(f"{name} {here[name]!r}, not {first[name]!r}" for name in changed if name != DATA_AND_PARTITION)
