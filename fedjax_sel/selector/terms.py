"""Validated, immutable configuration of a Selector."""

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import strategies
from fedjax_sel.core import jax_settings, parsing, plugins
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.simulation import keys
from fedjax_sel.strategies import contract, facts, protocol
from fedjax_sel.strategies.base import (
    Env,
    Evaluation,
    Information,
    Outcome,
    OutputLayer,
    Selection,
    ServerMetrics,
    Strategy,
    Unrequested,
    keep_state,
)
from fedjax_sel.strategies.facts import KINDS, Counts
from fedjax_sel.strategies.protocol import Known

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


def numbers(what: str, values: Any, shape: tuple[int, ...], names: Sequence[Name] = ()) -> np.ndarray:
    """Return finite real numbers as float32, or raise UserError.

    Args:
        what: name of the argument, for messages.
        values: an array, or a value that NumPy converts to one.
        shape: the required shape; if it contains 0, any empty array is accepted.
        names: names of the clients along the first axis; empty if there is no client axis.
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
        raise UserError(
            f"{what}: a number{whose} is NaN or infinite in float32; "
            f"{'leave that client out, so that it counts as silent' if names else 'pass finite numbers'}"
        )
    return array


def tree(
    what: str, values: Any, num_params: int, names: Sequence[Name] | None, broken: np.ndarray | None = None
) -> Any:
    """Return a pytree of weights as float32, or raise UserError.

    Args:
        what: name of the argument, for messages.
        values: a pytree with leaves [M, ...], or without the client axis if `names` is None.
        num_params: number of weights of one model, P.
        names: names of the M clients.
        broken: mask of the clients with non-finite numbers, bool [M].
    """
    leaves, structure = jax.tree.flatten(values)
    arrays = [_answer_array(what, leaf) for leaf in leaves]
    rows = None if names is None else len(names)
    if names is not None and any(array.ndim == 0 or array.shape[0] != rows for array in arrays):
        raise UserError(f"{what}: an array has no first axis of length {rows}; pass one row per client that reported")
    size = sum(int(np.prod(array.shape if names is None else array.shape[1:])) for array in arrays)
    if size != num_params:
        raise UserError(
            f"{what}: a model has {size} numbers here, but num_params={num_params}; pass all of its weights"
        )
    checked = []
    for array in arrays:
        if broken is not None and broken.any() and array.dtype.kind == "f":
            rows_of = broken.reshape(-1, *[1] * (array.ndim - 1))
            checked.append(np.where(rows_of, array, _finite(what, np.where(rows_of, 0.0, array), names)))
        else:
            checked.append(_finite(what, array, names))
    return jax.tree.unflatten(structure, [array.astype(np.float32) for array in checked])


def _finite(what: str, array: np.ndarray, names: Sequence[Name] | None) -> np.ndarray:
    try:
        return numbers(what, array, array.shape, () if names is None else names)
    except UserError as error:
        if names is None or "NaN" not in str(error):
            raise
        raise UserError(f"{str(error).split(';')[0]}; add that client to `broken`, or leave it out") from None


def metrics(evaluations: Any, read: Any) -> ServerMetrics:
    """Return the evaluations before and after the round, with zeros for the fields that are False in `read`."""
    wanted = sorted({name for part in read for name, is_read in part._asdict().items() if is_read})
    advice = f"pass (before, after), each with {' and '.join(wanted)}"
    if not isinstance(evaluations, tuple | list) or len(evaluations) != 2:
        raise UserError(f"metrics: {shown(evaluations)} is not a pair; {advice}")
    parts = []
    for when, part, needed in zip(("before", "after"), evaluations, read):
        fields = part._asdict() if isinstance(part, Evaluation) else part
        if not isinstance(fields, Mapping):
            raise UserError(f"metrics: {shown(part)} is neither an Evaluation nor a mapping; {advice}")
        values = {}
        for name, is_read in needed._asdict().items():
            if is_read and name not in fields:
                raise UserError(f"metrics: {name} {when} the round is missing; {advice}")
            value = numbers(f"metrics: {name} {when} the round", fields[name], ()) if is_read else np.float32(0)
            values[name] = np.asarray(value, np.int32 if name == "correct" else np.float32)
        parts.append(Evaluation(**values))
    return ServerMetrics(*parts)


def _answer_array(what: str, rows: Any) -> np.ndarray:
    if isinstance(rows, Iterable) and not hasattr(rows, "__array__") and not isinstance(rows, Mapping | str | bytes):
        rows = list(rows)
    if np.ma.is_masked(rows) or (isinstance(rows, list | tuple) and any(map(np.ma.is_masked, rows))):
        raise UserError(f"{what}: a number is masked; leave out unknown values, or fill them in")
    try:
        return np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what}: {shown(rows)} is not an array of numbers; pass rows of equal length") from error


class Hooks:
    """Compiled hooks of one strategy."""

    def __init__(self, strategy: Strategy, size: Size, counts: Counts, model: ModelShapes, seed: int):
        self.strategy, self.size, self.counts, self.model = strategy, size, counts, model
        self._loss_of: Callable[[np.ndarray], float] | None = None  # mask of a subset -> its loss, for this round
        self._failed: Exception | None = None
        over = protocol.over_replicates(strategy)
        self._stream = keys.streams(keys.roots([seed], {})).selection
        self._observe = jax.jit(partial(protocol.observe, over))
        self._select = jax.jit(over.select)
        self._learn = jax.jit(partial(_learn, over, self._shapes(), self._losses))

    def init(self, sizes: np.ndarray, all_sizes: np.ndarray) -> tuple[Any, Information]:
        """Return the initial state and the empty tables, from the examples per client, int32 [N]."""
        n, k, t = self.size
        total = np.float32(sizes.sum(dtype=np.int64))  # real federations can exceed the int32 range

        def initial(stream, sizes, all_sizes):
            counts = (n, k, t, self.counts.num_classes, self.counts.num_params)
            env = Env(*counts, sizes, sizes / total, all_sizes, *self.model)
            return self.strategy.init(keys.of_round(stream, jnp.int32(keys.INITIALISATION)), env)

        with contract.explained("init"):
            state = jax.jit(jax.vmap(initial))(self._stream, sizes[None], all_sizes[None])
        return state, jax.tree.map(np.asarray, protocol.nothing_known(self.strategy, self.counts, 1, n))

    def prepare(self, state: Any, info: Information) -> Any:
        """Return the state at the start of the first round."""
        if self.strategy.prepare is keep_state:
            return state
        only = jax.tree.map(lambda leaf: leaf[0], (state, info))
        return jax.tree.map(lambda leaf: leaf[None], protocol.prepare(self.strategy, *only))

    def observe(self, state, info, round: int, available: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """Return the state after the answers of ALL clients, and the candidates, int32 [d] or None."""
        selection_key = self._key(round)
        key = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(selection_key)
        state, candidates = self._observe(state, info, key, np.int32(round), _batch(available))
        return state, None if candidates is None else np.asarray(candidates[0])

    def select(self, state, info, round: int, available: np.ndarray | None) -> Selection:
        """Return the cohort, [K]."""
        answer = self._select(self._key(round), state, info, np.int32(round), _batch(available))
        return jax.tree.map(lambda leaf: np.asarray(leaf[0]), answer)

    def learn(
        self, state, info, round: int, reports: Selection, fields: dict[str, Any], loss_of: Any
    ) -> tuple[Any, Information]:
        """Return the state and the tables after a round.

        Args:
            state: the strategy's state after the selection.
            info: tables with the cohort's answers.
            round: the round, from 0.
            reports: the cohort, with a mask of the clients that reported.
            fields: fields of the Outcome, `finite` and the ones that `update` reads.
            loss_of: function from a mask of members, bool [K], to the server's loss of their average.
        """
        self._loss_of, self._failed = loss_of, None
        state, info = self._learn(state, info, np.int32(round), *jax.tree.map(_batch, (reports, fields)))
        info = jax.tree.map(np.asarray, info)
        if self._failed is not None:
            raise self._failed
        return state, info

    def _shapes(self) -> Any:
        """Return the shapes of the trained weights; one vector of length P if the model is not given."""
        vector = {"all": jax.ShapeDtypeStruct((self.counts.num_params,), jnp.float32)}
        return vector if self.model.params is None else self.model.params

    def _losses(self, reports: Any, mask: jax.Array) -> jax.Array:
        """Query the server for the losses of subsets from inside the compiled `learn`."""

        def query(mask: np.ndarray) -> np.ndarray:
            losses = np.zeros((len(mask),), np.float32)
            try:
                assert self._loss_of is not None, "reports.arrange requires subset_loss if the strategy reads it"
                losses[:] = [self._loss_of(np.asarray(members)) for members in mask]
            except Exception as error:  # `learn` raises it, because JAX would wrap an error of a callback
                self._failed = error
            return losses

        result = jax.ShapeDtypeStruct(mask.shape[:1], jnp.float32)
        return jax.pure_callback(query, result, mask, vmap_method="sequential")

    def outcome_reads(self, state: Any, info: Information) -> Outcome:
        """Return an Outcome of Booleans, True for the fields that `update` reads; `metrics` is None if not bought."""
        k = self.size.num_selected

        def shape(*axes: int, dtype: Any = jnp.float32) -> Any:
            return jax.ShapeDtypeStruct(axes, dtype)

        evaluation: Any = Evaluation(shape(dtype=jnp.int32), shape(), shape())
        bought = any(request.kind == "server_metrics" for request in self.strategy.requests)
        unrequested = Unrequested(self.strategy.name, "server_metrics")
        params = self._shapes()
        outcome = Outcome(
            updates=jax.tree.map(lambda leaf: shape(k, *leaf.shape), params),
            losses_before=shape(k),
            losses_after=shape(k),
            step=jax.tree.map(lambda leaf: shape(*leaf.shape), params),
            finite=shape(k, dtype=jnp.bool_),
            metrics=ServerMetrics(evaluation, evaluation) if bought else unrequested,
            path_lengths=shape(k),
            subset_loss=protocol.stand_in(self.strategy, shape(k)),
        )
        own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (state, info))
        select = self.strategy.select
        answer = jax.eval_shape(select, jax.eval_shape(lambda: jax_settings.key(0)), *own, shape(dtype=jnp.int32), None)
        if self.strategy.update is keep_state:
            reads = jax.tree.map(lambda leaf: False, outcome)
        else:
            reads = protocol.read(self.strategy.update, *own, shape(dtype=jnp.int32), answer, outcome)[-1]
        some: Any = any
        return reads._replace(
            updates=some(jax.tree.leaves(reads.updates)),
            step=some(jax.tree.leaves(reads.step)),
            metrics=reads.metrics if bought else None,
            subset_loss=some(jax.tree.leaves(reads.subset_loss)),
        )

    def _key(self, round: int) -> jax.Array:
        return jax.vmap(lambda stream: keys.of_round(stream, jnp.int32(round)))(self._stream)


def _learn(strategy: Strategy, shapes: Any, losses: Any, state, info, round, reports: Selection, fields: Any):
    k = reports.ids.shape[1]
    # Unread fields are zeros, with the shapes of the available ones.
    if "updates" in fields:
        params = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape[2:])), fields["updates"])
    else:
        zeros = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape)), shapes)
        params = jax.tree.map(jnp.zeros_like, fields.get("step", zeros))
    outcome = Outcome(
        updates=jax.tree.map(lambda leaf: jnp.zeros((1, k, *leaf.shape[1:])), params),
        losses_before=jnp.zeros((1, k)),
        losses_after=jnp.zeros((1, k)),
        step=params,
        finite=fields["finite"],
        metrics=Unrequested(strategy.name, "server_metrics"),
        subset_loss=protocol.of(strategy, losses, jnp.zeros((1,))),
    )._replace(**fields)
    known = protocol.learn(strategy, Known(state, info), round, reports, outcome)
    return known.state, known.info


def _batch(leaf: np.ndarray | None) -> Any:
    return None if leaf is None else leaf[None]


_LENGTHS = {"P": "num_params", "C": "num_classes", "Q": "profile_size"}


class Terms(NamedTuple):
    """Configuration of a federation and its strategy."""

    strategy: Strategy
    parameters: dict[str, str]  # hyperparameters as text; their digest if the strategy was passed as a `Strategy`
    size: Size
    counts: Counts  # 1 for lengths that the strategy does not read
    clients: Clients
    sizes: np.ndarray  # training examples per client, int32 [N]
    all_sizes: np.ndarray  # training and held-out examples per client, int32 [N]
    seed: int
    model: ModelShapes

    def identity(self) -> dict[str, Any]:
        """Return the configuration that a saved file must match, as JSON."""

        def digest(*parts: bytes) -> str:
            return hashlib.sha256(b"\0".join(parts)).hexdigest()

        plain = (name.item() if isinstance(name, np.generic) else name for name in self.clients.names)
        names = (repr(name).encode() for name in plain)
        requests = [repr(request).encode() for request in self.strategy.requests]
        return {
            "strategy": self.strategy.name,
            "its parameters": digest(repr(sorted(self.parameters.items())).encode()),
            "its requests": digest(*requests),
            **self.size._asdict(),
            **self.counts._asdict(),
            "sizes": digest(self.sizes.tobytes(), self.all_sizes.tobytes()),
            "seed": self.seed,
            "clients": digest(*names),
            **({} if self.model == ModelShapes(None, None) else {"params": digest(repr(self.model).encode())}),
        }


def make(
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
) -> Terms:
    """Validate the arguments of `Selector`, with `num_params`, `num_classes` and `profile_size` in `lengths`."""
    jax_settings.check(of_runs=False)
    for name, value in size._asdict().items():
        _check_integer(name, value, 1)
    size = Size(*map(int, size))  # JSON has no NumPy integers
    num_clients, num_selected, _ = size
    if num_selected > num_clients:
        raise UserError(f"num_selected: {num_selected} exceeds the {num_clients} clients; choose at most {num_clients}")
    _check_integer("seed", seed, 0)
    names = range(num_clients) if clients is None else tuple(clients)
    if len(names) != num_clients:
        raise UserError(f"clients: {len(names)} names for num_clients={num_clients}; give one name per client")
    all_clients = Clients(names)
    train_sizes = example_counts("sizes", sizes, all_clients)
    total_sizes = train_sizes if all_sizes is None else example_counts("all_sizes", all_sizes, all_clients)
    made, parameters = _build_strategy(strategy)
    contract.requests(made)
    facts.check(made)
    contract.check(made, *size, everyone_available=True)
    model = _model(params, output_layer)
    if params is not None:
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model.params))
        if lengths["num_params"] not in (None, count):
            raise UserError(
                f"num_params: {lengths['num_params']} differs from the {count} numbers in params; leave it out"
            )
        lengths = {**lengths, "num_params": count}
    for request in made.requests:
        needed = _LENGTHS.get(KINDS[request.kind].symbol)
        if needed and lengths[needed] is None:
            raise UserError(f"{needed}: strategy {made.name!r} requests {request.kind!r}; pass {needed}")
    for name, value in lengths.items():
        if value is not None:
            _check_integer(name, value, 1)
    counts = Counts(**{name: 1 if value is None else int(value) for name, value in lengths.items()})
    return Terms(made, parameters, size, counts, all_clients, train_sizes, total_sizes, int(seed), model)


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


def _build_strategy(strategy: str | Strategy) -> tuple[Strategy, dict[str, str]]:
    if isinstance(strategy, Strategy):
        return strategy, {"value": plugins.digest(strategy)}
    if not isinstance(strategy, str):
        raise UserError(f"strategy: {shown(strategy)} is neither a name nor a Strategy; pass a name such as 'pow_d'")
    name, parameters = parsing.name_and_parameters("strategy", strategy, 'e.g. "pow_d[num_candidates=8]"')
    made = strategies.make(name, **parameters)
    defaults = {key: parameter.default for key, parameter in strategies.parameters(name).items()}
    return made, {key: _canonical_text(value) for key, value in {**defaults, **parameters}.items()}


def _canonical_text(value: Any) -> str:
    """Return a hyperparameter as text, the same for `0.10`, "0.1" and 0.1, and in every process."""
    if not isinstance(value, str | int | float | None):
        return type(value).__name__  # the repr of a plug-in's object can contain its memory address
    text = str(value).lower()
    try:
        return repr(float(text))
    except ValueError:
        return text


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        raise UserError(f"{name}: {shown(value)} is not an integer; pass one from {least} to 2147483647")
