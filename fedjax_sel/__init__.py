"""fedjax_sel: which clients should train this round?

import fedjax_sel
config = fedjax_sel.preset("quickstart").replace(algo="fl_dp3s", seeds=3)
result = fedjax_sel.run(config)
result.test_accuracy  # [seeds, rounds]
"""

from typing import TYPE_CHECKING, Any

from fedjax_sel.config import Config
from fedjax_sel.errors import DamagedRunError, NonFiniteUpdateError, UserError
from fedjax_sel.papers import preset
from fedjax_sel.version import __version__

if TYPE_CHECKING:
    from fedjax_sel.runs.records import Result

__all__ = ["Config", "DamagedRunError", "NonFiniteUpdateError", "Result", "UserError", "__version__", "preset", "run"]


def run(config: Config, progress: bool = False) -> "Result":
    """Runs an experiment; the same as `python -m fedjax_sel.train`.

    Args:
        config: what to run, e.g. `preset("fedcor/fmnist-1spc").replace(algo="fl_dp3s")`. A run folder is written where
            `out` is given; a finished run there is read instead of repeated, and an unfinished one goes on.
        progress: whether to show a bar on stderr.

    Returns:
        Arrays with leading axes [seeds, rounds].

    Raises:
        UserError: something in the configuration, the data or the folder that the user can mend.
        NonFiniteUpdateError: an update with NaN or infinity, unless `on_nonfinite` is "skip"; or a step of the server.
        DamagedRunError: the folder holds checkpoints, and none of them is whole.
    """
    from pathlib import Path

    from fedjax_sel import plots
    from fedjax_sel.runs.experiment import run_experiment
    from fedjax_sel.simulation import machines

    result = run_experiment(config, progress)
    if config.run.out is None or not machines.is_first():
        return result
    plots.curves_if_lost({config.selection.algo: result}, Path(config.run.out) / "curves.png")
    return result


def __getattr__(name: str) -> Any:
    # Result needs JAX; `--help` and a configuration do not.
    if name == "Result":
        from fedjax_sel.runs.records import Result

        return Result
    raise AttributeError(f"module 'fedjax_sel' has no attribute {name!r}")
