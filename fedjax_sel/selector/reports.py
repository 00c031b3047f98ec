"""The cohort's reports as the fields of an Outcome."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector.answers import FINITE_LOSSES, Name, answer_rows, as_array, nonnegative
from fedjax_sel.selector.terms import Terms
from fedjax_sel.simulation.availability import LARGEST
from fedjax_sel.strategies.contract import Evaluation, Outcome, Selection, ServerMetrics

LOSSES = ("losses_before", "losses_after")


def required_arguments(reads: Outcome) -> tuple[str, ...]:
    """Return the names of the arguments that `update` requires, from an Outcome of Booleans."""
    needed = reads._asdict() | {"metrics": any(jax.tree.leaves(reads.metrics))}
    names = ("updates", *LOSSES, "step", "seconds", "metrics", "subset_loss")
    return tuple(name for name in names if needed[name])


def outcome_fields(
    terms: Terms,
    reads: Outcome,
    round: int,
    selection: Selection,
    reported: Iterable[Name] | None,
    broken: Iterable[Name],
    values: dict[str, Any],
) -> dict[str, Any]:
    """Return the fields of the Outcome, [K, ...]: `reported`, `finite`, and the ones that are True in `reads`.

    `reads` is an Outcome of Booleans. `values` are the other arguments of `Selector.update` by name; None for a missing
    one.
    """
    cohort = terms.clients.named(selection.ids[selection.mask])
    places = terms.clients.places("update: reported", cohort if reported is None else reported)
    who = terms.clients.named(places)
    wrong = terms.clients.mask("update: broken", broken)
    chosen = {int(place): seat for seat, place in enumerate(selection.ids) if selection.mask[seat]}
    if strangers := [name for name, place in zip(who, places) if int(place) not in chosen]:
        raise UserError(f"update: client {shown(strangers[0])} was not selected in round {round + 1}; leave it out")
    if not set(np.flatnonzero(wrong)) <= set(places):
        raise UserError("update: broken names a client that is not in `reported`; leave it out")
    required = required_arguments(reads)
    for name in required:
        if values[name] is None:
            raise UserError(f"update: strategy {terms.strategy.name!r} reads {name}; pass it")
    seats = np.array([chosen[int(place)] for place in places], int)

    def in_places(rows: np.ndarray) -> np.ndarray:
        table = np.zeros((terms.num_places, *rows.shape[1:]), rows.dtype)
        table[seats] = rows
        return table

    def numbers(name: str, *advice: str) -> np.ndarray:
        return answer_rows(f"update: {name}", values[name], (len(who),), who, *advice)

    fields: dict[str, Any] = {"reported": in_places(np.ones((len(who),), bool)), "finite": in_places(~wrong[places])}
    for name in (name for name in LOSSES if getattr(reads, name)):
        fields[name] = in_places(np.clip(numbers(name, FINITE_LOSSES), -LARGEST, LARGEST))
    if reads.path_lengths:
        given = values["path_lengths"] is not None
        lengths = numbers("path_lengths") if given else np.ones((len(who),), np.float32)
        if not (lengths > 0).all():
            raise UserError(
                "update: path_lengths must be positive; pass the learning rate times the local steps of each client"
            )
        fields["path_lengths"] = in_places(lengths)
    if reads.seconds:
        fields["seconds"] = in_places(nonnegative("update: seconds", numbers("seconds"), who))
    if reads.updates:
        updates = _weights("update: updates", values["updates"], terms.counts.num_params, who, wrong[places])
        fields["updates"] = jax.tree.map(in_places, updates)
    if reads.step:
        fields["step"] = _weights("update: step", values["step"], terms.counts.num_params, None)
    forms = {} if terms.model.params is None else {"params": _form(terms.model.params, 0)}
    forms |= {name: _form(fields[name], axes) for name, axes in (("updates", 1), ("step", 0)) if name in fields}
    for (one, form), (other, own) in itertools.pairwise(forms.items()):
        if own != form:
            raise UserError(f"update: {other} does not have the same arrays as {one}; pass the same pytree")
    if reads.metrics is not None:
        given = values["metrics"] if "metrics" in required else ({}, {})
        fields["metrics"] = _metrics(given, reads.metrics)
    return fields


def _form(tree: Any, axes: int) -> Any:
    """Return the structure and the leaf shapes of a pytree, without `axes` leading axes."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [leaf.shape[axes:] for leaf in leaves]


def _weights(
    what: str, values: Any, num_params: int, names: Sequence[Name] | None, broken: np.ndarray | None = None
) -> Any:
    """Return a pytree of weights as float32, or raise UserError.

    Leaves are [M, ...] for M clients, or have no client axis if `names` is None. `broken`, bool [M], marks the clients
    with nonfinite numbers.
    """
    leaves, structure = jax.tree.flatten(values)
    arrays = [as_array(what, leaf) for leaf in leaves]
    if names is not None and any(array.shape[:1] != (len(names),) for array in arrays):
        raise UserError(
            f"{what}: an array has no first axis of length {len(names)}; pass one row per client that reported"
        )
    size = sum(int(np.prod(array.shape if names is None else array.shape[1:])) for array in arrays)
    if size != num_params:
        raise UserError(
            f"{what}: a model has {size} numbers here, but num_params={num_params}; pass all of its weights"
        )
    sound: Any = ... if broken is None else ~broken
    whose = () if names is None else tuple(itertools.compress(names, sound))
    for array in arrays:
        answer_rows(what, array[sound], array[sound].shape, whose, "add that client to `broken`, or leave it out")
    return jax.tree.unflatten(structure, [array.astype(np.float32) for array in arrays])


def _metrics(evaluations: Any, read: Any) -> ServerMetrics:
    """Return the evaluations before and after the round, with zeros for the fields that are False in `read`."""
    wanted = sorted({name for part in read for name, is_read in part._asdict().items() if is_read})
    advice = f"pass (before, after), each with {' and '.join(wanted)}"
    is_pair = isinstance(evaluations, tuple | list) and len(evaluations) == 2
    if not is_pair or not all(isinstance(part, Evaluation | Mapping) for part in evaluations):
        raise UserError(f"metrics: {shown(evaluations)} is not a pair of evaluations; {advice}")
    parts = []
    for when, part, needed in zip(("before", "after"), evaluations, read):
        fields = part._asdict() if isinstance(part, Evaluation) else part
        values = {}
        for name, is_read in needed._asdict().items():
            if is_read and name not in fields:
                raise UserError(f"metrics: {name} {when} the round is missing; {advice}")
            value = answer_rows(f"metrics: {name} {when} the round", fields[name], ()) if is_read else np.float32(0)
            value = np.clip(value, -LARGEST, LARGEST) if name == "loss" else value
            values[name] = np.asarray(value, np.int32 if name == "correct" else np.float32)
        parts.append(Evaluation(**values))
    return ServerMetrics(*parts)
