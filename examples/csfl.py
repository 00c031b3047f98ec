"""Client selectors of CSFL-simulator (github.com/Aacashh/CSFL-simulator) as strategies, without edits.

    # my_selectors.py
    from csfl import csfl
    from csfl_simulator.selection.heuristic import fairness_adjusted, label_coverage

    fair = csfl("fair", fairness_adjusted.select_clients, reads=["last_loss"])
    labels = csfl("labels", label_coverage.select_clients, reads=["last_loss", "label_histogram"], mix_alpha=0.5)

PYTHONPATH=examples python -m fedjax_sel compare --algos random my_selectors:fair my_selectors:labels --out runs/csfl

A selector is `select_clients(round_idx, K, clients, history, rng, time_budget, device, **kwargs)`. It returns client
IDs, scores or None, and changes of history["state"] or None. `clients` are the available clients, which have:

    attribute             meaning                                                     cost
    id, data_size         ID from 0, number of training examples                      free
    participation_count   rounds whose update arrived                                 free
    last_selected_round   from 0; -1 before the first selection                       free
    grad_norm             norm of the mean gradient along the last local path         free
    last_loss             training loss over the last local pass                      1 float per selected client
    label_histogram       label -> number of examples                                 C floats per client, once
    estimated_duration    seconds of the last local training, with both transfers     one training of every client, once
    compute_speed         examples per second, relative to the median client          the same; needs --timing
    tier                  0: speed below 0.8, 1: below 1.2, 2: faster                 the same; needs --timing

`last_reward` is in history["state"]: the last round's change of a weighted score of accuracy, time and fairness. The
server measures the accuracy on its own data (--server-validation). A client without a measurement has the default of
CSFL-simulator: a loss, norm and duration of 0, a speed of 1, no histogram.

Differs from CSFL-simulator:
* `last_loss` and `grad_norm` are of a whole pass or path. There they are of the last mini-batch, and `grad_norm` is 0
  unless the run records it.
* Durations are measured by training; there each client's duration is known before each round.
* Each round has its own `rng`. A selector is called twice per round, for the cohort and for the new state, and must
  return the same cohort. Its memory is history["state"]: numbers, strings, lists, tuples, sets, dicts and NumPy arrays.
  Models of PyTorch and scikit-learn in it cannot survive a stop and are rejected.
"""

import base64
import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from fedjax_sel import UserError
from fedjax_sel.strategies import contract, from_numpy
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED, SERVER, Request, always, at_start


class Source(NamedTuple):
    """The origin of an attribute: bought facts, and fields of a round's outcome."""

    requests: tuple[Request, ...]
    fields: tuple[str, ...] = ()


_SECONDS = Source((Request("seconds", ALL, at_start()),), ("seconds",))
SOURCES = {
    "last_loss": Source((Request("training_loss", SELECTED, always(), (("statistic", "last-pass"),)),)),
    "grad_norm": Source((), ("updates", "path_lengths")),
    "label_histogram": Source((Request("label_histogram", ALL, at_start()),)),
    "estimated_duration": _SECONDS,
    "compute_speed": _SECONDS,
    "tier": _SECONDS,
    "last_reward": Source((Request("server_metrics", SERVER, always()),), ("metrics", "seconds")),
}
_OF_THE_SERVER = ("last_reward", "fd_client_signals", "fd_logit_rewards", "fd_logit_stats", "server_class_confidence")
"""Entries of history["state"] that CSFL-simulator's server sets; all but the first in federated distillation only."""
_REWARD = {"acc": 0.6, "time": 0.2, "fair": 0.1, "dp": 0.1}  # CSFL-simulator's default weights


class MissingAttributeError(UserError, AttributeError):
    """A selector reads an attribute that it has not declared, or that the simulator does not have."""


def _missing(owner: str, name: str, missed: list[str]) -> MissingAttributeError:
    """Return the error for an attribute, and record its message: selectors may catch exceptions."""
    if name in SOURCES:
        missed.append(f'{owner} has no {name!r}, because `reads` does not name it; add "{name}" to reads=[...]')
    else:
        missed.append(f'{owner} has no {name!r}: fedjax_sel does not simulate it; give constants={{"{name}": ...}}')
    return MissingAttributeError(missed[-1])


class Client(SimpleNamespace):
    """One client, as a selector reads it."""

    _missed: list[str]

    def __getattr__(self, name: str) -> Any:  # of attributes that do not exist
        raise AttributeError(name) if name.startswith("_") else _missing("Client", name, self._missed)

    def __setattr__(self, name: str, value: Any) -> None:
        raise UserError(f'the selector sets {name!r} of a Client, which ends with the round; use history["state"]')


class State(dict):
    """history["state"], which reports that the server's entries are missing."""

    def __init__(self, entries: Mapping[Any, Any], reads: Sequence[str], missed: list[str]):
        super().__init__(entries)
        self._reads, self._missed = reads, missed

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self and key in _OF_THE_SERVER and key not in self._reads:
            _missing('history["state"]', key, self._missed)
        return super().get(key, default)

    def __missing__(self, key: Any) -> Any:
        self.get(key)
        raise KeyError(key)


def csfl(
    name: str,
    select_clients: Callable[..., Any],
    *,
    reads: Sequence[str] = (),
    constants: Mapping[str, Any] | None = None,
    time_budget: float | None = None,
    reward_weights: Mapping[str, float] = _REWARD,
    reward_on: Literal["validation", "test"] = "validation",
    state_bytes: int = 65536,
    **kwargs: Any,
) -> contract.Strategy:
    """Make a strategy from a client selector of CSFL-simulator.

    Args:
        name: the name in tables and messages.
        select_clients: the selector.
        reads: the attributes that the selector reads and that are not free, and "last_reward".
        constants: attribute -> value for all clients, or a function of the client ID, for attributes that fedjax_sel
            does not simulate, such as "channel_quality".
        time_budget: the selector's argument of this name, seconds.
        reward_weights: weights of "acc", "time", "fair" and "dp" in `last_reward`.
        reward_on: the data of `last_reward`'s accuracy; CSFL-simulator uses the test data.
        state_bytes: space for history, compressed, per seed.
        **kwargs: the selector's further arguments.

    Raises:
        UserError: `reads` names an unknown attribute.
    """
    for attribute in reads:
        if attribute not in SOURCES:
            raise UserError(f"reads of {name}: unknown {attribute!r}; choose from {', '.join(SOURCES)}")
    given = dict(constants or {})
    sources = [SOURCES[attribute] for attribute in reads]
    requests = dict.fromkeys(request for source in sources for request in source.requests)
    placed = [r._replace(options=(("on", reward_on),)) if r.kind == "server_metrics" else r for r in requests]
    kinds = {request.kind for request in requests}
    size = -(-state_bytes // 4) * 4

    def init(rng: np.random.Generator, now: contract.Now) -> dict[str, Any]:
        n = now.env.num_clients
        entries = {key: value for key, value in given.items() if key in _OF_THE_SERVER}
        state: dict[str, Any] = {
            "seed": rng.integers(2**31),
            "participation_count": np.zeros(n, np.int32),
            "last_selected_round": np.full(n, -1, np.int32),
            **pack({"state": entries, "selected": []}, size),
        }
        state |= {attribute: np.zeros(n) for attribute in ("last_loss", "grad_norm") if attribute in reads}
        if "seconds" in kinds:
            state["seconds"] = _known(now.info.seconds)
        return state | ({"score": 0.0} if "last_reward" in reads else {})

    def call(state: dict[str, Any], now: contract.Now) -> tuple[list[int], dict[str, Any]]:
        """Call the selector; return the cohort and the new history."""
        n, history, missed = now.env.num_clients, unpack(state), []
        available = [*range(n)] if now.available is None else np.flatnonzero(now.available).tolist()
        if not available:
            return [], history
        columns = _columns(state, now, reads)
        for key, value in given.items():
            columns[key] = [value(k) if callable(value) else value for k in range(n)]
        clients = [Client(_missed=missed, **{key: rows[k] for key, rows in columns.items()}) for k in available]
        history["state"] = State(history["state"], reads, missed)
        rng = random.Random((int(state["seed"]) << 32) + int(now.round))
        k = min(now.env.num_selected, len(clients))
        ids, _, changes = select_clients(int(now.round), k, clients, history, rng, time_budget, None, **kwargs)
        if missed:
            raise MissingAttributeError(missed[0])
        history["state"].update(changes or {})
        return [int(k) for k in ids], {"state": dict(history["state"]), "selected": history["selected"]}

    def update(
        state: dict[str, Any], now: contract.Now, selection: contract.Selection, outcome: contract.Outcome
    ) -> Any:
        ids, history = call(state, now)
        before = selection.ids[: len(ids)].tolist()
        if ids != before:
            raise UserError(
                f"select_clients returned {before}, and {ids} when it was called again with the same arguments; "
                'draw with `rng` only, and keep all memory in history["state"]'
            )
        selected = np.asarray(selection.mask)
        arrived = selected & outcome.reported
        new: dict[str, Any] = {key: np.array(value) for key, value in state.items()}
        new["participation_count"][selection.ids[arrived]] += 1
        new["last_selected_round"][selection.ids[selected]] = now.round
        history["selected"].append(selection.ids[selected].tolist())
        if "last_loss" in reads:
            new["last_loss"] = _known(now.info.training_loss)
        if "grad_norm" in reads:
            places = np.flatnonzero(arrived & outcome.finite)
            rows = [leaf[places].reshape(len(places), -1) for leaf in jax.tree.leaves(outcome.updates)]
            norms = np.linalg.norm(np.concatenate(rows, axis=1).astype(float), axis=1)
            lengths = 1.0 if outcome.path_lengths is None else outcome.path_lengths[places]
            new["grad_norm"][selection.ids[places]] = norms / lengths
        if "seconds" in kinds:
            new["seconds"][selection.ids[arrived]] = outcome.seconds[arrived]
        if "last_reward" in reads:
            seconds = 0.0 if outcome.seconds is None else outcome.seconds[arrived].max(initial=0.0)
            unfair = np.var(new["participation_count"])
            parts = {
                "acc": outcome.metrics.after.accuracy,
                "time": 1 / (1 + seconds),
                "fair": 1 / (1 + unfair),
                "dp": 1,
            }
            new["score"] = np.float32(sum(reward_weights.get(part, 0.0) * value for part, value in parts.items()))
            history["state"]["last_reward"] = float(new["score"]) - float(state["score"])
        return new | pack(history, size)

    fields = dict.fromkeys(field for source in sources for field in source.fields)
    return from_numpy(
        name, lambda rng, state, now: call(state, now)[0], requests=placed, init=init, update=update, reads=[*fields]
    )


def _columns(state: Mapping[str, Any], now: contract.Now, reads: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return the values of each attribute for all clients."""
    columns: dict[str, Sequence[Any]] = {"id": range(now.env.num_clients), "data_size": now.env.sizes.tolist()}
    for attribute in ("participation_count", "last_selected_round", "last_loss", "grad_norm"):
        if attribute in state:
            columns[attribute] = state[attribute].tolist()
    if "label_histogram" in reads:
        rows = _known(now.info.label_histogram).tolist()
        columns["label_histogram"] = [{c: count for c, count in enumerate(row) if count > 0} or None for row in rows]
    if "seconds" in state:
        seconds = state["seconds"].astype(float)
        measured = seconds > 0
        speeds = np.divide(now.env.sizes, seconds, out=np.ones(len(seconds)), where=measured)
        speeds[measured] /= np.median(speeds[measured]) if measured.any() else 1.0
        tiers = np.digitize(speeds, [0.8, 1.2])
        found = {"estimated_duration": seconds, "compute_speed": speeds, "tier": tiers}
        columns |= {attribute: values.tolist() for attribute, values in found.items() if attribute in reads}
    return columns


def _known(fact: contract.Fact) -> np.ndarray:
    """Return the values of a fact, 0 for clients without a measurement."""
    known = np.asarray(fact.age) < NEVER
    return np.where(known.reshape(-1, *[1] * (np.ndim(fact.value) - 1)), fact.value, 0.0)


# History is kept as JSON, because a strategy's state holds arrays, and pickle would execute code from a run's folder.


def pack(history: Any, size: int) -> dict[str, Any]:
    """Encode the history into an array of constant size.

    Raises:
        UserError: it holds other values than plain data and NumPy arrays, or is too large.
    """
    text = zlib.compress(json.dumps(_encode(history, "history")).encode())
    if len(text) > size:
        raise UserError(
            f"history takes {len(text)} bytes in the strategy's state, above state_bytes={size}; give a larger "
            f"state_bytes, such as {4 * size}"
        )
    return {"history": np.frombuffer(text.ljust(size, b"\0"), "<i4"), "history_bytes": len(text)}


def unpack(state: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the history."""
    content = np.asarray(state["history"]).astype("<i4").tobytes()[: int(state["history_bytes"])]
    return _decode(json.loads(zlib.decompress(content)))


_COLLECTIONS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _encode(value: Any, where: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_encode(part, f"{where}[{place}]") for place, part in enumerate(value)]
    if kind is dict:
        return {"dict": [[_encode(key, where), _encode(part, f"{where}[{key!r}]")] for key, part in value.items()]}
    if kind.__name__ in _COLLECTIONS and kind is _COLLECTIONS[kind.__name__]:
        parts = [_encode(part, where) for part in value]
        return {kind.__name__: parts if kind is tuple else sorted(parts, key=json.dumps)}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        data = base64.b64encode(value.tobytes()).decode()
        return {"array": [data, value.dtype.str, None if isinstance(value, np.generic) else value.shape]}
    raise UserError(
        f"{where} is of type {kind.__name__} and cannot survive a stop; keep None, numbers, strings, lists, tuples, "
        "sets, dicts and NumPy arrays"
    )


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    if kind == "dict":
        return {_decode(key): _decode(part) for key, part in parts}
    if kind == "array":
        data, dtype, shape = parts
        array = np.frombuffer(base64.b64decode(data), dtype)
        return array[0] if shape is None else array.reshape(shape).copy()
    return _COLLECTIONS[kind](_decode(part) for part in parts)
