"""Who held which labels in a run: its data are dealt out again, and found to be the same by their digests."""

from pathlib import Path

import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.experiment import checking, dealing
from fedjax_sel.experiment.dealing import Given
from fedjax_sel.runs import folder, provenance, told


def label_counts(path: Path) -> np.ndarray | None:
    """Return the training examples of each label that each client of a run holds.

    Args:
        path: the run's folder.

    Returns:
        int [seeds, N, C]; None where targets are not classes.

    Raises:
        UserError: the data cannot be read, are not those of the run, or belong to code that the configuration names:
            what lies in a folder is not imported.
    """
    config = folder.stored_config(path)
    refuse_plugins(path)
    known = told.newest(path)
    share = None if known is None else known.get("server_validation")
    if share is None:
        share = checking.server_validation(config, checking.check(config).strategy)
    dataset = dealing.load_data(config, share)
    if not dataset.has_classes:
        return None
    parts = tuple(dealing.deal(config, dataset, seed) for seed in config.run.seeds)
    recorded = told.made_from(path, known)
    if recorded is not None:
        now = provenance.digests(Given(dataset, parts), config.run.seeds)
        if any(recorded[name] != now[name] for name in ("dataset", "partitions")):
            raise UserError(
                f"{path}: the data there are now are not those of the run (another SHA-256); bring those back"
            )
    labels, classes = np.asarray(dataset.train_labels), dataset.num_classes
    return np.stack([np.stack([np.bincount(labels[own], minlength=classes) for own in part.indices]) for part in parts])


def refuse_plugins(path: Path) -> None:
    """Refuse a run whose data or model only code can give that its configuration names.

    Raises:
        UserError: it is one.
    """
    named = folder.stored_config(path).plugins()
    if named:
        raise UserError(
            f"{path}: its configuration names code ({', '.join(named)}), which nothing but a run itself imports; "
            "fedjax_sel.per_client and your own script can"
        )
