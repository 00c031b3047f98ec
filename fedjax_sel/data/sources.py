"""From the name of a data set to its arrays: which source is used, in which order."""

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

    Returns:
        The names; beside them, any image-classification set that is prepared for TFDS can be loaded by its name, and
        ``leaf:FOLDER`` reads LEAF's JSON.
    """
    return _NAMES


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name.

    ``digits`` and ``synthetic`` need no files. All others are looked for in this order: in ``data_dir``, if given, and
    nowhere else; in TFDS_DATA_DIR; in ~/tensorflow_datasets; among the decoded copies of the cache; and the official
    files of four sets are downloaded. What was decoded once is kept as a copy that loads without TFDS.

    Args:
        name: one of ``names()``, ``synthetic:option=value,...``, ``leaf:FOLDER`` (see `leaf.load`), or a TFDS name
            (``name`` or ``name/config``).
        data_dir: folder in TFDS layout, or of decoded copies; for four sets also an empty folder to download into; for
            ``leaf`` the folder that FOLDER lies in.

    Returns:
        The data set; its images may be memory-mapped.

    Raises:
        UserError: no such data set, no such folder, a damaged one, or offline.
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
            f"data set {base!r} takes no options, but {options!r} was given: only 'synthetic' and 'leaf' have some"
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
    except tfds_reader.UnavailableError as problem:  # nobody named this folder; is there another way?
        try:
            dataset = _from_cache_or_official_files(name, searched)
        except UserError:
            raise problem from None
        warnings.warn(f"{prepared} is passed over: {problem}", stacklevel=2)
        return dataset


def _from_cache_or_official_files(name: str, searched: Path) -> Dataset:
    copy, damage = _from_copies(name, cache.root())
    if copy is not None:
        return copy
    if name in official_files.OFFICIAL:
        return _from_official_files(name, cache.root(), damage)
    raise _missing(name, f"in {searched} or {cache.root()}", searched, damage)


def _home() -> Path:
    """Return the user's home folder; where there is none, its sign, under which there is nothing."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")


def _usable(folder: Path, name: str) -> Path | None:
    """Return a prepared set in a folder that nobody named: one that cannot be read is passed over without complaint."""
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
    """Return the first sound copy, or what is wrong with the others."""
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
        raise UserError(f"{what} {path}: there is no such home folder: write the whole path") from problem
    if not os.path.isdir(folder):  # not Path.is_dir: it raises where a folder above may not be entered
        problem = "is not a folder" if os.path.exists(folder) else "does not exist, or may not be entered"
        raise UserError(f"{what} {folder} {problem}: create it, or name the folder that holds the prepared data sets")
    return folder


def _missing(name: str, places: str, folder: Path, damage: str) -> UserError:
    if damage:
        return UserError(
            f"the decoded copy of {name!r} is damaged ({damage}) and its source is not here to make it again: "
            "delete it, and give --data-dir a folder with the prepared data set"
        )
    hint = did_you_mean(name, [*_NAMES, *tfds_folder.listing(folder)])
    return UserError(
        f"no data set {name!r} {places}: {hint} (other TFDS sets must first be prepared in that folder, "
        "with file format array_record)"
    )
