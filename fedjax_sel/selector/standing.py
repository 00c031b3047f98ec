"""A Selector's configuration and state: hooks of its strategy, answers, queries, and accounts of traffic."""

import hashlib
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import strategies
from fedjax_sel.core import jax_settings, parsing, plugins
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.availability import LARGEST
from fedjax_sel.strategies import checks, facts, protocol
from fedjax_sel.strategies.contract import (
    Env,
    Evaluation,
    Fact,
    Information,
    Now,
    Outcome,
    OutputLayer,
    Selection,
    ServerMetrics,
    Strategy,
)
from fedjax_sel.strategies.facts import ALL, CANDIDATES, KINDS, NEVER, SELECTED, SERVER, Counts, Request
from fedjax_sel.strategies.from_numpy import raise_own_error
from fedjax_sel.strategies.protocol import SelectionState

# Compiled hooks have a leading axis of one replicate, as in the simulator. Both therefore compile the same program,
# with the same rounding.


class Size(NamedTuple):
    """Size of a federation."""

    num_clients: int
    num_selected: int
    num_rounds: int


class ModelShapes(NamedTuple):
    """Shapes of the server's model."""

    params: Any  # shapes of the trained weights; None: not given
    output_layer: OutputLayer | None


Name = Hashable


class Clients:
    """Bidirectional map between client names and positions."""

    def __init__(self, names: Sequence[Name]):
        self.names = tuple(names)
        try:
            self._places = {name: place for place, name in enumerate(self.names)}
        except TypeError as error:
            raise UserError(f"clients: a name is not hashable ({error}); use strings, numbers or tuples") from error
        if len(self._places) != len(self.names):
            twice = next(name for place, name in enumerate(self.names) if self._places[name] != place)
            raise UserError(f"clients: {shown(twice)} appears twice; give each client a unique name")

    def places(self, what: str, names: Iterable[Name]) -> np.ndarray:
        """Return the positions of distinct clients, int [M]."""
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise UserError(f"{what}: {shown(names)} is not a list of clients; pass a list of names")
        places: dict[int, None] = {}
        for name in names:
            try:
                place = self._places[name]
            except (KeyError, TypeError):
                raise UserError(
                    f"{what}: {shown(name)} is not a client of this Selector; use the names in `clients`"
                ) from None
            if place in places:
                raise UserError(f"{what}: {shown(name)} appears twice; pass each client once")
            places[place] = None
        return np.fromiter(places, int, len(places))

    def mask(self, what: str, names: Iterable[Name]) -> np.ndarray:
        """Return the mask of the named clients, bool [N]."""
        mask = np.zeros((len(self.names),), bool)
        mask[self.places(what, names)] = True
        return mask

    def named(self, places: Iterable[int]) -> tuple[Name, ...]:
        """Return the names of the clients at some positions."""
        return tuple(self.names[place] for place in places)


def example_counts(what: str, values: Any, clients: Clients) -> np.ndarray:
    """Return the number of examples per client, int32 [N], from integers in the clients' order or a mapping by name."""
    count = len(clients.names)
    if isinstance(values, Mapping):
        clients.places(what, values)
        missing = [name for name in clients.names if name not in values]
        if missing:
            raise UserError(
                f"{what}: client {shown(missing[0])} is missing; give the number of examples of each client"
            )
        values = [values[name] for name in clients.names]
    array = _answer_array(what, values)
    if array.shape != (count,) or array.dtype.kind not in "iu" or (array < 1).any() or (array >= 2**31).any():
        raise UserError(f"{what}: {shown(values)} are not {count} integers from 1; give one for each client")
    return array.astype(np.int32)


FINITE_LOSSES = "replace losses that are not finite by fedjax_sel.adapters.rounds.finite_losses"


def answer_rows(
    what: str,
    values: Any,
    shape: tuple[int, ...],
    names: Sequence[Name] = (),
    advice: str = "leave that client out, so that it counts as silent",
) -> np.ndarray:
    """Return finite real numbers as float32, or raise UserError.

    If `shape` contains 0, any empty array is accepted. `names` are the clients along the first axis; () if there is no
    client axis.
    """
    array = _answer_array(what, values)
    if array.size == 0 and 0 in shape:
        return np.zeros(shape, np.float32)
    if array.shape != shape:
        raise UserError(f"{what}: its shape is {list(array.shape)} but must be {list(shape)}; pass one row per client")
    if array.dtype.kind not in "fiu":
        raise UserError(f"{what}: its dtype is {array.dtype}, not real numbers; convert it to float32")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    finite = np.isfinite(array).reshape(len(array) if shape else 1, -1).all(axis=1)
    if not finite.all():
        whose = f" of client {shown(names[int(np.argmin(finite))])}" if names else ""
        advice = advice if names else "pass finite numbers"
        raise UserError(f"{what}: a number{whose} is NaN or infinite in float32; {advice}")
    return array


def nonnegative(what: str, rows: np.ndarray, names: Sequence[Name]) -> np.ndarray:
    """Return the clients' durations, float32 [M], or raise UserError if one is negative."""
    for place in map(int, np.flatnonzero(rows < 0)):
        raise UserError(f"{what}: {rows[place]:g} of client {shown(names[place])} is negative; pass seconds from 0")
    return rows


def answer_tree(
    what: str, values: Any, num_params: int, names: Sequence[Name] | None, broken: np.ndarray | None = None
) -> Any:
    """Return a pytree of weights as float32, or raise UserError.

    Leaves are [M, ...] for M clients, or have no client axis if `names` is None. `broken`, bool [M], marks the clients
    with nonfinite numbers.
    """
    leaves, structure = jax.tree.flatten(values)
    arrays = [_answer_array(what, leaf) for leaf in leaves]
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


def answer_metrics(evaluations: Any, read: Any) -> ServerMetrics:
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


def _answer_array(what: str, rows: Any) -> np.ndarray:
    if isinstance(rows, Iterable) and not hasattr(rows, "__array__") and not isinstance(rows, Mapping | str | bytes):
        rows = list(rows)
    try:
        return np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what}: {shown(rows)} is not an array of numbers; pass rows of equal length") from error


class Hooks:
    """Compiled hooks of one strategy."""

    def __init__(self, terms: "Terms"):
        self.terms = terms
        vector = {"all": jax.ShapeDtypeStruct((terms.counts.num_params,), jnp.float32)}
        self._params = vector if terms.model.params is None else terms.model.params
        self._loss_of: Callable[[np.ndarray], float] | None = None  # mask of a subset -> its loss, for this round
        self._failed: Exception | None = None
        self._over = protocol.over_replicates(terms.strategy)
        self._stream = keys.streams(keys.roots([terms.seed], {})).selection
        self._env = self._environment()
        self._observe = jax.jit(partial(protocol.observe, self._over))
        self._select = jax.jit(self._over.select)
        self._learn = jax.jit(self._close)

    def _environment(self) -> Env:
        """Return what the strategy knows without a query, leaves [1, N]."""
        terms = self.terms
        total = np.float32(terms.sizes.sum(dtype=np.int64))  # real federations can exceed the int32 range
        shares = terms.sizes.astype(np.float32) / total
        (n, k, t), of_model = terms.size, terms.counts
        sizes, shares, all_sizes = (jnp.asarray(table[None]) for table in (terms.sizes, shares, terms.all_sizes))
        counts = (n, k, t, of_model.num_classes, of_model.num_params)
        return Env(*counts, sizes, shares, all_sizes, *terms.model, has_clock=terms.has_clock)

    def before_start(self) -> tuple[Any, Information]:
        """Return the empty tables, and a state of zeros instead of the initial state."""
        info = jax.tree.map(
            np.asarray, protocol.empty_information(self.terms.strategy, self.terms.counts, 1, len(self.terms.sizes))
        )
        key, now = jax.eval_shape(lambda: (self._start_key(), self._now(info, 0, None)))
        with checks.explained("init"):
            shapes = protocol.state_shapes(self._over, key, now)
        return jax.tree.map(_zeros, shapes), info

    def initial(self, info: Information) -> Any:
        """Return the state at the start of the first round."""
        with checks.explained("init"):
            state = protocol.initial_state(self._over, self._start_key(), self._now(info, 0, None))
        raise_own_error()
        return state

    def observe(self, state, info, round: int, available: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """Return the state after the answers of ALL clients, and the candidates, int32 [d] or None."""
        key = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(self._key(round))
        state, candidates = self._observe(state, self._now(info, round, available), key)
        jax.block_until_ready(state)
        raise_own_error()
        return state, None if candidates is None else np.asarray(candidates[0])

    def select(self, state, info, round: int, available: np.ndarray | None) -> Selection:
        """Return the cohort, [K]."""
        answer = self._select(self._key(round), state, self._now(info, round, available))
        answer = jax.tree.map(lambda leaf: np.asarray(leaf[0]), answer)
        raise_own_error()
        return answer

    def learn(
        self,
        state,
        info,
        round: int,
        available: np.ndarray | None,
        selection: Selection,
        fields: dict[str, Any],
        loss_of: Any,
    ) -> tuple[Any, Information]:
        """Return the state and the tables after a round.

        `fields` are fields of the Outcome: `reported`, `finite` and the ones that `update` reads. `loss_of` maps a mask
        of members, bool [K], to the server's loss of their average.
        """
        self._loss_of, self._failed = loss_of, None
        given = jax.tree.map(_batch, (selection, fields))
        state, info = self._learn(state, self._now(info, round, available), *given)
        info = jax.tree.map(np.asarray, info)
        jax.block_until_ready(state)
        raise_own_error()
        if self._failed is not None:
            raise self._failed
        return state, info

    def _close(self, state, now: Now, selection: Selection, fields: dict[str, Any]) -> tuple[Any, Information]:
        given, axes = (fields["updates"], 2) if "updates" in fields else (fields.get("step", self._params), 1)
        if given is not self._params:
            given = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], jnp.float32), given)
        # Unread fields are zeros, with the shapes of the available ones.
        shapes = protocol.outcome_shapes(self._over, selection.ids.shape[1], given, self.terms.has_clock)
        outcome = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape), leaf.dtype), shapes)
        subset_loss = protocol.make_subset_loss(self._over, self._losses, jnp.zeros((1,)))
        outcome = outcome._replace(**{"path_lengths": None, "subset_loss": subset_loss, **fields})
        known = protocol.learn(self._over, SelectionState(state, now), selection, outcome)
        return known.state, known.now.info

    def _losses(self, reports: Any, mask: jax.Array) -> jax.Array:
        """Query the server for the losses of subsets from inside the compiled `learn`."""

        def query(mask: np.ndarray) -> np.ndarray:
            losses = np.zeros((len(mask),), np.float32)
            try:
                assert self._loss_of is not None
                losses[:] = [self._loss_of(np.asarray(members)) for members in mask]
            except Exception as error:  # `learn` raises it, because JAX would wrap an error of a callback
                self._failed = error
            return losses

        result = jax.ShapeDtypeStruct(mask.shape[:1], jnp.float32)
        return jax.pure_callback(query, result, mask, vmap_method="sequential")

    def outcome_reads(self, state: Any, info: Information) -> Outcome:
        """Return an Outcome of Booleans, True for the fields that `update` reads; `metrics` is None if not bought."""
        strategy = self.terms.strategy
        outcome = protocol.outcome_shapes(strategy, self.terms.num_places, self._params, self.terms.has_clock)
        own, env, known = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (state, self._env, info)
        )
        key, round = jax.eval_shape(lambda: (jax_settings.key(0), jnp.int32(0)))
        now = Now(env, known, round, None)
        answer = jax.eval_shape(strategy.select, key, own, now)
        reads = protocol.fields_read(strategy.update, own, now, answer, outcome)[-1]
        some: Any = any
        return reads._replace(
            updates=some(jax.tree.leaves(reads.updates)),
            step=some(jax.tree.leaves(reads.step)),
            metrics=reads.metrics if isinstance(reads.metrics, ServerMetrics) else None,
            subset_loss=some(jax.tree.leaves(reads.subset_loss)),
        )

    def _now(self, info: Information, round: int, available: np.ndarray | None) -> Now:
        return Now(self._env, info, np.int32(round), _batch(available))  # pyright: ignore

    def _start_key(self) -> jax.Array:
        return self._key(keys.START)

    def _key(self, round: int) -> jax.Array:
        return jax.vmap(lambda stream: keys.round_key(stream, jnp.int32(round)))(self._stream)


def _zeros(shape: Any) -> Any:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax_settings.key(0), shape.shape)
    return np.zeros(shape.shape, shape.dtype)


def _batch(leaf: np.ndarray | None) -> Any:
    return None if leaf is None else leaf[None]


class Terms(NamedTuple):
    """Configuration of a federation and its strategy."""

    strategy: Strategy
    size: Size
    counts: Counts  # 1 for lengths that the strategy does not read
    clients: Clients
    sizes: np.ndarray  # training examples per client, int32 [N]
    all_sizes: np.ndarray  # training and held-out examples per client, int32 [N]
    seed: int
    model: ModelShapes
    has_clock: bool

    @property
    def num_places(self) -> int:
        """Number of places of a Selection."""
        return self.strategy.num_places(self.size.num_clients, self.size.num_selected)

    def identity(self) -> dict[str, Any]:
        """Return the configuration that a saved file must match, as JSON."""
        long = {
            "its requests": self.strategy.requests,
            "sizes": (self.sizes.tolist(), self.all_sizes.tolist()),
            "clients": [name.item() if isinstance(name, np.generic) else name for name in self.clients.names],
            "params": self.model,
        }
        return {
            "strategy": self.strategy.name,
            "its parameters": plugins.parameter_digest(self.strategy),
            **self.size._asdict(),
            **self.counts._asdict(),
            "seed": self.seed,
            **{name: hashlib.sha256(repr(part).encode()).hexdigest() for name, part in long.items()},
            "has_clock": self.has_clock,
        }


def make_terms(
    strategy: str | Strategy,
    size: Size,
    *,
    sizes: Any,
    all_sizes: Any,
    lengths: Mapping[str, int | None],
    seed: int,
    clients: Sequence[Name] | None,
    params: Any = None,
    output_layer: tuple[Any, Any] | None = None,
    has_clock: bool = False,
) -> Terms:
    """Validate the arguments of `Selector`, with `num_params`, `num_classes` and `profile_size` in `lengths`."""
    jax_settings.check(of_runs=False)
    for name, value in size._asdict().items():
        _check_integer(name, value, 1)
    size = Size(*map(int, size))  # JSON has no NumPy integers
    num_clients, num_selected = size[:2]
    if num_selected > num_clients:
        raise UserError(f"num_selected: {num_selected} exceeds the {num_clients} clients; choose at most {num_clients}")
    _check_integer("seed", seed, 0)
    names = range(num_clients) if clients is None else tuple(clients)
    if len(names) != num_clients:
        raise UserError(f"clients: {len(names)} names for num_clients={num_clients}; give one name per client")
    all_clients = Clients(names)
    train_sizes = example_counts("sizes", sizes, all_clients)
    total_sizes = train_sizes if all_sizes is None else example_counts("all_sizes", all_sizes, all_clients)
    made = _build_strategy(strategy)
    checks.requests(made)
    if not has_clock and made.needs_clock:
        raise UserError(f"has_clock: strategy {made.name!r} requests durations; measure them and pass has_clock=True")
    checks.check(made, *size, everyone_available=True, has_clock=has_clock)
    model = _model(params, output_layer)
    if params is not None:
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model.params))
        if lengths["num_params"] not in (None, count):
            raise UserError(
                f"num_params: {lengths['num_params']} differs from the {count} numbers in params; leave it out"
            )
        lengths = {**lengths, "num_params": count}
    for request in made.requests:
        needed = {"P": "num_params", "C": "num_classes", "Q": "profile_size"}.get(KINDS[request.kind].symbol)
        if needed and lengths[needed] is None:
            raise UserError(f"{needed}: strategy {made.name!r} requests {request.kind!r}; pass {needed}")
    for name, value in lengths.items():
        if value is not None:
            _check_integer(name, value, 1)
    counts = Counts(**{name: 1 if value is None else int(value) for name, value in lengths.items()})
    return Terms(made, size, counts, all_clients, train_sizes, total_sizes, int(seed), model, has_clock)


def _model(params: Any, output_layer: Any) -> ModelShapes:
    """Return the shapes of a model and the paths of its output layer."""
    try:
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(tuple(leaf.shape), np.float32), params)
    except (AttributeError, TypeError) as error:
        raise UserError(
            f"params: {shown(params)} is not a pytree of arrays or shapes; pass the model's weights"
        ) from error
    if output_layer is None:
        return ModelShapes(shapes, None)
    try:
        weight, bias = (
            None if path is None else (path,) if isinstance(path, str) else tuple(path) for path in output_layer
        )
        layer = OutputLayer(weight, bias)  # pyright: ignore[reportArgumentType]
        layer.weight_of(shapes)
        if bias is not None:
            layer.bias_of(shapes)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(
            f"output_layer: {shown(output_layer)} is not a pair of paths in params; pass the paths of the weight and "
            'the bias, such as (("Dense_1", "kernel"), ("Dense_1", "bias"))'
        ) from error
    return ModelShapes(shapes, layer)


def _build_strategy(strategy: str | Strategy) -> Strategy:
    if isinstance(strategy, Strategy):
        return strategy
    if not isinstance(strategy, str):
        raise UserError(f"strategy: {shown(strategy)} is neither a name nor a Strategy; pass a name such as 'pow_d'")
    name, parameters = parsing.name_and_parameters("strategy", strategy, 'e.g. "pow_d[num_candidates=8]"')
    return strategies.make(name, **parameters)


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        raise UserError(f"{name}: {shown(value)} is not an integer; pass one from {least} to 2147483647")


# As in the simulator's ledger, a client that is both queried and selected in a round receives the model once. Queries
# before the first round count for the first round.


class Spent(NamedTuple):
    """Communication of one or several rounds."""

    models_down: int = 0  # one per client queried or selected, plus the probes' copies
    models_up: int = 0  # updates of the cohort and of the probes' cohorts
    floats_up: int = 0  # answers, and losses sent with updates


class SelectorBill(NamedTuple):
    """Communication of a Selector so far."""

    rounds: tuple[Spent, ...]  # one entry per round, with the current one
    total: Spent


class Account(NamedTuple):
    """Immutable communication account of the rounds so far."""

    past: tuple[Spent, ...]
    received: np.ndarray  # clients that received the current round's model, bool [N]
    beside: Spent = Spent()  # the current round's costs without the models of `received`

    def with_answers(
        self, requests: list[Request], counts: Counts, queried: np.ndarray, answered: int, cohort: int
    ) -> "Account":
        """Return the account after `answered` of `queried`, bool [N], answered; `cohort` clients train per probe."""
        account = self
        for request in requests:
            probes = facts.num_probes(request)
            down, up, floats = account.beside
            spent = Spent(
                down + probes * int(queried.sum()),
                up + probes * cohort,
                floats + answered * facts.floats(request, counts),
            )
            received = account.received | queried if KINDS[request.kind].needs_model else account.received
            account = account._replace(received=received, beside=spent)
        return account

    def current(self) -> Spent:
        """Return the costs of the current round so far."""
        return self.beside._replace(models_down=self.beside.models_down + int(self.received.sum()))

    def closed(self, clients: int, losses: int) -> "Account":
        """Return the account of the next round, after `clients` clients each sent an update with `losses` losses."""
        down, up, floats = self.current()
        spent = Spent(down, up + clients, floats + losses * clients)
        return Account((*self.past, spent), np.zeros_like(self.received))

    def bill(self) -> SelectorBill:
        """Return the bill of all rounds so far."""
        current = self.current()
        rounds = self.past if current == Spent() else (*self.past, current)
        return SelectorBill(rounds, Spent(*(sum(column) for column in zip(*rounds))) if rounds else Spent())


Phase = Literal["start", "all", "candidates", "cohort"]
"""Before the first round; queries to all clients; queries to the candidates; after the selection."""


class Standing(NamedTuple):
    """State of a Selector between two calls."""

    phase: Phase
    round: int  # from 0
    state: Any  # the strategy's state, leaves [1, ...]
    info: Information  # leaves [1, N, ...]
    account: Account
    reachable: np.ndarray | None  # clients that the caller named as available in this round, bool [N]; None: all
    silent: np.ndarray  # clients that left a query of this round unanswered, bool [N]
    answered: tuple[str, ...] = ()  # kinds recorded in this phase
    candidates: np.ndarray | None = None  # available candidates, int32 [<= d]
    selection: Selection | None = None  # [K]

    def available(self) -> np.ndarray | None:
        """Return the mask of the clients that count as available, bool [N]; None: all."""
        if not self.silent.any():
            return self.reachable
        return ~self.silent if self.reachable is None else self.reachable & ~self.silent

    def arrays(self) -> Any:
        """Return the part of the state that is saved as arrays."""
        return self.state, self.info, self.account.received, self.silent

    def words(self) -> dict[str, Any]:
        """Return the part of the state that is saved as JSON."""
        selection = self.selection
        return {
            "phase": self.phase,
            "round": self.round,
            "answered": self.answered,
            "reachable": _listed(self.reachable),
            "candidates": _listed(self.candidates),
            "selection": None if selection is None else {k: _listed(leaf) for k, leaf in selection._asdict().items()},
            "past": self.account.past,
            "beside": self.account.beside,
        }


def restored(words: dict[str, Any], arrays: Any) -> Standing:
    """Return the state from the values of `words` and `arrays`."""
    state, info, received, silent = arrays
    selection = words["selection"]
    if selection is not None:
        dtypes = {"ids": np.int32, "weights": np.float32, "mask": bool}
        selection = Selection(**{name: _array(selection[name], dtype) for name, dtype in dtypes.items()})  # pyright: ignore
    return Standing(
        phase=words["phase"],
        round=words["round"],
        state=state,
        info=info,
        account=Account(tuple(Spent(*spent) for spent in words["past"]), received, Spent(*words["beside"])),
        reachable=_array(words["reachable"], bool),
        silent=silent,
        answered=tuple(words["answered"]),
        candidates=_array(words["candidates"], np.int32),
        selection=selection,
    )


def _listed(array: Any) -> list | None:
    return None if array is None else np.asarray(array).tolist()


def _array(values: list | None, dtype: Any) -> np.ndarray | None:
    return None if values is None else np.array(values, dtype)


class Ask(NamedTuple):
    """A fact that is due.

    Attributes:
        kind: kind of the fact; the docstring of `Request` defines its measurement.
        who: queried group, "all", "candidates" or "selected".
        clients: names of the clients to query.
        options: options of the measurement, such as {"on": "holdout"}; `Request` gives the defaults.
        shape: shape of one client's answer, real numbers.
        needs_model: whether a client needs the round's model to answer.
        largest_known: largest loss that any client has reported so far, nats; -inf if none, or if the fact is no loss.
            The simulator replaces a NaN loss by the largest finite loss among the current answers and this value.
    """

    kind: str
    who: str
    clients: tuple[Name, ...]
    options: Mapping[str, Any]
    shape: tuple[int, ...]
    needs_model: bool
    largest_known: float = -np.inf


def due(terms: Terms, now: Standing) -> tuple[Ask, ...]:
    """Return the facts that are due and not yet recorded."""
    if now.round == terms.size.num_rounds:
        return ()
    if now.phase == "candidates":
        queried = () if now.candidates is None else now.candidates
    elif now.phase == "cohort":
        assert now.selection is not None
        queried = now.selection.ids[now.selection.mask]
    else:
        reachable = None if now.phase == "start" else now.reachable
        queried = range(terms.size.num_clients) if reachable is None else np.flatnonzero(reachable)
    pending = {request.kind: request for request in _requests(terms, now) if request.kind not in now.answered}
    clients = terms.clients.named(queried) if pending else ()
    asks = []
    for kind, request in pending.items():
        largest = -np.inf
        if KINDS[kind].is_loss:
            fact: Fact = getattr(now.info, kind)
            largest = float(fact.value[fact.age < NEVER].max(initial=-np.inf))
        options, shape = dict(request.options), facts.shape(request, terms.counts)
        asks.append(Ask(kind, request.who, clients, options, shape, KINDS[kind].needs_model, largest))
    return tuple(asks)


def record(terms: Terms, now: Standing, kind: str, ids: Iterable[Name], values: Any) -> Standing:
    """Return the state after the answers of M clients to one query, rows [M, *shape]; reject invalid answers."""
    requested = tuple(dict.fromkeys(request.kind for request in terms.strategy.requests if request.who != SERVER))
    if kind not in requested:
        raise UserError(
            f"tell: strategy {terms.strategy.name!r} does not request {shown(kind)} (it requests "
            f"{' and '.join(requested) or 'nothing'}); report the facts that `asks` returns"
        )
    asks = {ask.kind: ask for ask in due(terms, now)}
    if kind not in asks:
        why = "was already reported" if kind in now.answered else "is not due"
        raise UserError(f"tell: {kind!r} {why} in round {now.round + 1}; report the facts that `asks` returns")
    places = terms.clients.places(f"tell {kind!r}", ids)
    queried = terms.clients.mask("asks", asks[kind].clients)
    if not queried[places].all():
        stranger = terms.clients.names[places[~queried[places]][0]]
        raise UserError(f"tell {kind!r}: client {shown(stranger)} was not queried; leave it out")
    names = terms.clients.named(places)
    replaced = KINDS[kind].is_loss and asks[kind].options.get("nonfinite") != "missing"
    advice = (FINITE_LOSSES,) if replaced else ()
    rows = answer_rows(f"tell {kind!r}", values, (len(places), *asks[kind].shape), names, *advice)
    if KINDS[kind].needs_clock:
        rows = nonnegative(f"tell {kind!r}", rows, names)
    if KINDS[kind].is_loss:
        rows = np.clip(rows, -LARGEST, LARGEST)  # same clipping as in the simulator

    old: Fact = getattr(now.info, kind)
    value, age = np.array(old.value), np.array(old.age)
    value[0, places], age[0, places] = rows, 0
    silent = now.silent
    if now.phase in ("all", "candidates"):
        silent = silent | queried
        silent[places] = now.silent[places]
    requests = [request for request in _requests(terms, now) if request.kind == kind]
    available = now.available()
    reachable = terms.size.num_clients if available is None else int(available.sum())
    cohort = min(terms.size.num_selected, reachable)
    return now._replace(
        info=now.info.replace(kind, Fact(value, age)),  # pyright: ignore[reportArgumentType]
        silent=silent,
        answered=(*now.answered, kind),
        account=now.account.with_answers(requests, terms.counts, queried, len(places), cohort),
    )


def _requests(terms: Terms, now: Standing) -> list[Request]:
    """Return the requests of this phase that are due, including answered ones."""
    if now.phase == "start":
        return [request for _, request in protocol.requests_at_start(terms.strategy) if request.who != SERVER]
    group = {"all": ALL, "candidates": CANDIDATES, "cohort": SELECTED}[now.phase]
    requests = protocol.requests_to(terms.strategy, group)
    return [request for _, request in requests if bool(request.when.due(jnp.int32(now.round)))]
