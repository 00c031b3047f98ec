"""Loading of data sets by name, and the order in which sources are searched."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

from fedjax_sel.core.names import did_you_mean
from fedjax_sel.data import builtin, cache, download, leaf, official_files, tfds_folder, tfds_reader
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.errors import UserError

_NAMES = ("digits", "synthetic", "mnist", "fashion_mnist", "cifar10", "cifar100")
_TFDS_NAME = re.compile(r"\w+(/[\w.\-+]*\w)?")


def names() -> tuple[str, ...]:
    """Return the names of data sets that need no prepared folder.

    `load` also accepts the name of any image-classification set that TFDS has prepared, and ``leaf:FOLDER``.
    """
    return _NAMES


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name.

    ``digits`` and ``synthetic`` need no files. If ``data_dir`` is given, only that folder is searched. Otherwise the
    order is TFDS_DATA_DIR, ~/tensorflow_datasets, and the cache of decoded copies; four data sets are then downloaded
    from their official addresses. Decoded data are cached, and load from the cache without TFDS.

    Args:
        name: one of ``names()``, ``synthetic:option=value,...``, ``leaf:FOLDER`` (see `leaf.load`), or a TFDS name
            (``name`` or ``name/config``).
        data_dir: folder in TFDS layout, or folder of decoded copies. For four data sets it may be empty and receives
            the download. For ``leaf`` it is the folder that contains FOLDER.

    Returns:
        The data set; its images may be memory-mapped.

    Raises:
        UserError: the data set or the folder does not exist or is damaged, or a download fails.
    """
    base, _, options = name.partition(":")
    if data_dir is not None:
        _existing_folder(data_dir, "data folder")
    if base == "synthetic":
        return builtin.synthetic(options)
    if base == "leaf":
        return leaf.load(options, None if data_dir is None else _existing_folder(data_dir, "data folder"))
    if options:
        raise UserError(
            f"data set {base!r} has no options, but {options!r} was given: only 'synthetic' and 'leaf' have options"
        )
    if base == "digits":
        return builtin.digits()
    if not _TFDS_NAME.fullmatch(base):
        raise UserError(f"unknown data set {name!r}: {did_you_mean(base, _NAMES)}")
    if data_dir is not None:
        return _from_given_folder(base, _existing_folder(data_dir, "data folder"))
    return _from_usual_places(base)


def _from_given_folder(name: str, folder: Path) -> Dataset:
    if prepared := tfds_folder.find(folder, name):
        return _from_prepared(name, prepared)
    copy, damage = _from_copies(name, folder)
    if copy is not None:
        return copy
    if name in official_files.OFFICIAL:
        return _from_official_files(name, folder, damage)
    raise _missing(name, f"in {folder}", folder, damage)


def _from_usual_places(name: str) -> Dataset:
    variable = os.environ.get("TFDS_DATA_DIR")
    if variable:
        folder = _existing_folder(variable, "TFDS_DATA_DIR")
        if prepared := tfds_folder.find(folder, name):
            return _from_prepared(name, prepared)
        copy, _ = _from_copies(name, folder)
        if copy is not None:
            return copy
    home = _home() / "tensorflow_datasets"
    searched = Path(variable) if variable else home
    prepared = _usable(home, name)
    if prepared is None:
        return _from_cache_or_official_files(name, searched)
    try:
        return _from_prepared(name, prepared)
    except tfds_reader.UnavailableError as problem:  # the user did not name this folder, so try the other sources
        try:
            dataset = _from_cache_or_official_files(name, searched)
        except UserError:
            raise problem from None
        warnings.warn(f"{prepared} is skipped: {problem}", stacklevel=2)
        return dataset


def _from_cache_or_official_files(name: str, searched: Path) -> Dataset:
    copy, damage = _from_copies(name, cache.root())
    if copy is not None:
        return copy
    if name in official_files.OFFICIAL:
        return _from_official_files(name, cache.root(), damage)
    raise _missing(name, f"in {searched} or {cache.root()}", searched, damage)


def _home() -> Path:
    """Return the user's home folder, or the nonexistent path "~" without one."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")


def _usable(folder: Path, name: str) -> Path | None:
    """Return the prepared data set in a default folder, or None if it is missing or unreadable."""
    try:
        prepared = tfds_folder.find(folder, name)
        if prepared is not None:
            tfds_folder.check_readable(prepared)
        return prepared
    except (UserError, OSError):
        return None


def _from_prepared(name: str, prepared: Path) -> Dataset:
    try:
        fingerprint = tfds_folder.fingerprint(prepared)
    except OSError as problem:
        raise UserError(f"{prepared} cannot be read ({problem}): check its permissions") from problem
    return cache.fetch(cache.root(), name, fingerprint, lambda: tfds_reader.read(prepared, name))


def _from_official_files(name: str, parent: Path, damage: str) -> Dataset:
    try:
        return cache.fetch(parent, name, official_files.fingerprint(name), lambda: download.official(name, parent))
    except UserError as problem:
        if damage:
            raise UserError(f"the decoded copy of {name!r} is damaged ({damage}), and {problem}") from problem
        raise


def _from_copies(name: str, parent: Path) -> tuple[Dataset | None, str]:
    """Return the first intact copy, or None and the damage of the last one."""
    damage = ""
    for copy in cache.find(parent, name):
        try:
            return cache.read(copy, name), ""
        except cache.DamagedCopyError as problem:
            damage = str(problem)
    return None, damage


def _existing_folder(path: str | os.PathLike[str], what: str) -> Path:
    try:
        folder = Path(path).expanduser()
    except RuntimeError as problem:
        raise UserError(f"{what} {path}: there is no such home folder: give the absolute path") from problem
    if not os.path.isdir(folder):  # not Path.is_dir, which raises if a parent folder is not accessible
        problem = "is not a folder" if os.path.exists(folder) else "does not exist, or is not accessible"
        raise UserError(f"{what} {folder} {problem}: create it, or name the folder that holds the prepared data sets")
    return folder


def _missing(name: str, places: str, folder: Path, damage: str) -> UserError:
    if damage:
        return UserError(
            f"the decoded copy of {name!r} is damaged ({damage}), and its source is missing: "
            "delete it, and set --data-dir to a folder with the prepared data set"
        )
    hint = did_you_mean(name, [*_NAMES, *tfds_folder.listing(folder)])
    return UserError(
        f"no data set {name!r} {places}: {hint} (other TFDS sets must first be prepared in that folder, "
        "with file format array_record)"
    )
