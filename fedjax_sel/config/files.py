"""A configuration in a file: JSON, as a run folder's config.json, or TOML; nested by part, or flat."""

import tomllib
from pathlib import Path
from typing import Any

from fedjax_sel.config import Config, concerns
from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError


def read(path: Path, base: Config) -> Config:
    """Read a file of settings, and return the configuration with them.

    Args:
        path: ends in .json or .toml.
        base: for what it does not say.

    Raises:
        UserError: it cannot be read, or says what no configuration has.
    """
    from fedjax_sel.core import files  # reads arrays, too; --help does not

    try:
        content: Any = tomllib.loads(files.read_text(path)) if path.suffix == ".toml" else files.read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--config: cannot read {path} ({error}); give a .json or .toml file") from error
    if not isinstance(content, dict):
        raise UserError(f"--config: {path} holds {shown(content)} and no settings; give names and values")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat.update(value if name in concerns() and isinstance(value, dict) else {name: value})
    try:
        return base.replace(**flat)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from error
