"""The papers' experiments: presets by name."""

from fedjax_sel.config import Config
from fedjax_sel.core.names import one_of
from fedjax_sel.papers import fedcor, fl_dp3s, gpfl

PRESETS: dict[str, Config] = {"quickstart": Config(), **fedcor.PRESETS, **fl_dp3s.PRESETS, **gpfl.PRESETS}
"""Every preset fixes data, partition, model and training; `quickstart` is what the bare command runs."""


def preset(name: str) -> Config:
    """Return a published experiment as a configuration.

    Args:
        name: one of PRESETS, e.g. "fedcor/fmnist-1spc".

    Returns:
        The configuration, to be changed with `Config.replace`.

    Raises:
        UserError: no such preset.
    """
    return PRESETS[one_of("--preset", name, PRESETS)]
