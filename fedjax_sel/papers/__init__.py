"""The papers' experiments: presets by name."""

from fedjax_sel.config import Config
from fedjax_sel.core.parsing import one_of
from fedjax_sel.papers import fedcor, fl_dp3s, gpfl

PRESETS: dict[str, Config] = {"quickstart": Config(), **fedcor.PRESETS, **fl_dp3s.PRESETS, **gpfl.PRESETS}
"""Presets by name. Each fixes data, partition, model and training; `quickstart` is the default configuration."""


def preset(name: str) -> Config:
    """Return a published experiment as a configuration.

    Args:
        name: one of PRESETS, e.g. "fedcor/fmnist-1spc".

    Returns:
        The configuration; change it with `Config.replace`.

    Raises:
        UserError: the name is unknown.
    """
    return PRESETS[one_of("--preset", name, PRESETS)]
