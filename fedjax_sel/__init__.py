"""fedjax_sel: which clients should train this round?

import fedjax_sel
config = fedjax_sel.preset("quickstart").replace(algo="fl_dp3s", seeds=3)
result = fedjax_sel.run(config)
result.test_accuracy  # [seeds, rounds]
"""

from typing import TYPE_CHECKING, Any

from fedjax_sel.config import Config
from fedjax_sel.errors import UserError
from fedjax_sel.papers import preset

if TYPE_CHECKING:
    from fedjax_sel.runs.records import Result

__version__ = "0.1.0"
__all__ = ["Config", "Result", "UserError", "preset", "run"]


def run(config: Config, progress: bool = False) -> "Result":
    """Runs an experiment; the same as `python -m fedjax_sel.train`.

    Args:
        config: what to run, e.g. `preset("fedcor/fmnist-1spc").replace(algo="fl_dp3s")`. A run folder is written where
            `out` is given.
        progress: whether to show a bar on stderr.

    Returns:
        Arrays with leading axes [seeds, rounds].

    Raises:
        UserError: something in the configuration, the data or the folder that the user can mend.
    """
    from fedjax_sel.runs.experiment import run_experiment

    return run_experiment(config, progress)


def __getattr__(name: str) -> Any:
    # Result needs JAX; `--help` and a configuration do not.
    if name == "Result":
        from fedjax_sel.runs.records import Result

        return Result
    raise AttributeError(f"module 'fedjax_sel' has no attribute {name!r}")
