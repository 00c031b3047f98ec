"""Validation of a cohort's reports at the end of a round, and their order by cohort position."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector import answers
from fedjax_sel.selector.answers import Name
from fedjax_sel.selector.terms import Terms
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies.base import Outcome, Selection

LOSSES = ("losses_before", "losses_after")


class Report(NamedTuple):
    """Validated reports of a round."""

    heard: Selection  # the cohort, with a mask of the clients that reported
    fields: dict[str, Any]  # fields of the Outcome, [K, ...]: `finite` and the ones that `update` reads
    clients: int  # number of clients that reported
    losses: int  # number of losses per report


def required_arguments(reads: Outcome) -> tuple[str, ...]:
    """Return the names of the arguments that `update` requires, from an Outcome of Booleans."""
    fields = [name for name in ("updates", *LOSSES, "step") if getattr(reads, name)]
    return (*fields, *(["metrics"] if _reads_metrics(reads) else []), *(["subset_loss"] if reads.subset_loss else []))


def arrange(
    terms: Terms,
    reads: Outcome,
    round: int,
    selection: Selection,
    reported: Iterable[Name] | None,
    broken: Iterable[Name],
    values: dict[str, Any],
) -> Report:
    """Return the reports in the order of the cohort's positions.

    Args:
        terms: the Selector's configuration.
        reads: Outcome of Booleans, True for the fields that the strategy reads.
        round: the round, from 0, for messages.
        selection: the cohort.
        reported: names of the clients that sent an update; None: the whole cohort.
        broken: names of the clients whose update is not finite.
        values: the arguments of `Selector.update` by name; None for a missing one.

    Raises:
        UserError: a required value is missing, a client was not selected, or a value is invalid.
    """
    cohort = terms.clients.named(selection.ids[selection.mask])
    who = _listed(cohort if reported is None else reported)
    places = terms.clients.places("update: reported", who)
    wrong = terms.clients.mask("update: broken", broken)
    chosen = {int(place): seat for seat, place in enumerate(selection.ids) if selection.mask[seat]}
    for place in (*places, *np.flatnonzero(wrong)):
        if int(place) not in chosen:
            name = terms.clients.names[place]
            raise UserError(f"update: client {shown(name)} was not selected in round {round + 1}; leave it out")
    if not set(np.flatnonzero(wrong)) <= set(places):
        raise UserError("update: broken names a client that is not in `reported`; leave it out")
    for name in required_arguments(reads):
        if values[name] is None:
            raise UserError(f"update: strategy {terms.strategy.name!r} reads {name}; pass it")
    seats = np.array([chosen[int(place)] for place in places], int)
    k = terms.size.num_selected

    def in_places(rows: np.ndarray) -> np.ndarray:
        table = np.zeros((k, *rows.shape[1:]), rows.dtype)
        table[seats] = rows
        return table

    fields: dict[str, Any] = {"finite": in_places(~wrong[places])}
    losses = [name for name in LOSSES if getattr(reads, name)]
    for name in losses:
        rows = answers.numbers(f"update: {name}", values[name], (len(who),), who)
        fields[name] = in_places(np.clip(rows, -LARGEST, LARGEST))
    if reads.path_lengths and values["path_lengths"] is not None:
        rows = answers.numbers("update: path_lengths", values["path_lengths"], (len(who),), who)
        if not (rows > 0).all():
            raise UserError(
                "update: path_lengths must be positive; pass the learning rate times the local steps of each client"
            )
        fields["path_lengths"] = in_places(rows)
    if reads.updates:
        rows = answers.tree("update: updates", values["updates"], terms.counts.num_params, who, wrong[places])
        fields["updates"] = jax.tree.map(in_places, rows)
    if reads.step:
        fields["step"] = answers.tree("update: step", values["step"], terms.counts.num_params, None)
    params = terms.model.params
    for name, axes in (("updates", 1), ("step", 0)):
        if name in fields and params is not None and _form(fields[name], axes) != _form(params, 0):
            raise UserError(f"update: {name} does not have the same arrays as params; pass the same pytree")
    if reads.updates and reads.step and _form(fields["updates"], 1) != _form(fields["step"], 0):
        raise UserError(
            "update: step does not have the same arrays as updates; pass the same pytree without the first axis"
        )
    if reads.metrics is not None:
        given = values["metrics"] if _reads_metrics(reads) else ({}, {})
        fields["metrics"] = answers.metrics(given, reads.metrics)
    heard = np.zeros((k,), bool)
    heard[seats] = True
    return Report(selection._replace(mask=heard), fields, len(who), len(losses))


def _form(tree: Any, axes: int) -> Any:
    """Return the structure and the leaf shapes of a pytree, without `axes` leading axes."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [leaf.shape[axes:] for leaf in leaves]


def _listed(names: Any) -> Any:
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, str | bytes) else names


def _reads_metrics(reads: Outcome) -> bool:
    return reads.metrics is not None and any(one for part in reads.metrics for one in part)
