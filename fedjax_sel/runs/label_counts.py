"""The label counts of a run's clients, from a recomputed partition that is verified by its digests."""

from pathlib import Path

import numpy as np

from fedjax_sel.errors import UserError
from fedjax_sel.experiment import checking, dealing
from fedjax_sel.experiment.dealing import Given
from fedjax_sel.runs import folder, provenance, told


def label_counts(path: Path) -> np.ndarray | None:
    """Return the number of training examples per client and label of a run.

    Args:
        path: the run's folder.

    Returns:
        Label counts, int [seeds, N, C]; None if the targets are not classes.

    Raises:
        UserError: the data cannot be read or differ from the run's data, or the configuration names code to import.
    """
    config = folder.stored_config(path)
    refuse_plugins(path)
    newest = told.newest(path)
    share = None if newest is None else newest.get("server_validation")
    if share is None:
        share = checking.server_validation(config, checking.check(config).strategy)
    dataset = dealing.load_data(config, share)
    if not dataset.has_classes:
        return None
    parts = tuple(dealing.deal(config, dataset, seed) for seed in config.run.seeds)
    recorded = told.made_from(path, newest)
    if recorded is not None:
        now = provenance.digests(Given(dataset, parts), config.run.seeds)
        if any(recorded[name] != now[name] for name in ("dataset", "partitions")):
            raise UserError(
                f"{path}: the current data differ from the run's data (SHA-256 mismatch); restore the original data"
            )
    labels, classes = np.asarray(dataset.train_labels), dataset.num_classes
    return np.stack([np.stack([np.bincount(labels[own], minlength=classes) for own in part.indices]) for part in parts])


def refuse_plugins(path: Path) -> None:
    """Reject a run whose data or model needs code that its configuration names; a report must not import it.

    Raises:
        UserError: the configuration names code.
    """
    named = folder.stored_config(path).plugins()
    if named:
        raise UserError(
            f"{path}: its configuration names code ({', '.join(named)}), which only a run imports; use "
            "fedjax_sel.per_client in your own script instead"
        )
