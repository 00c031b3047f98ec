"""Configuration files in JSON, such as a run's config.json, or TOML; nested by concern, or flat."""

import tomllib
from pathlib import Path
from typing import Any

from fedjax_sel.config import Config, concerns
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError


def read(path: Path, base: Config) -> Config:
    """Return a configuration updated from a file.

    Args:
        path: the .json or .toml file.
        base: the configuration that provides all other values.

    Raises:
        UserError: If the file cannot be read, or contains an unknown name or a wrong value.
    """
    from fedjax_sel.core import files  # imports NumPy, which --help does not need

    try:
        content: Any = tomllib.loads(files.read_text(path)) if path.suffix == ".toml" else files.read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--config: cannot read {path} ({error}); give a .json or .toml file") from error
    if not isinstance(content, dict):
        raise UserError(f"--config: {path} contains {shown(content)} instead of settings; give names and values")
    flat: dict[str, Any] = {}
    for name, value in content.items():
        flat.update(value if name in concerns() and isinstance(value, dict) else {name: value})
    try:
        return base.replace(**flat)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from error
