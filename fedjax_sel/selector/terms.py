"""A Selector's configuration: the federation, its strategy and the shapes of its model."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel import strategies
from fedjax_sel.core import jax_settings, parsing, plugins
from fedjax_sel.core.parsing import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector.answers import Clients, Name, as_array
from fedjax_sel.simulation import ledger
from fedjax_sel.strategies import checks
from fedjax_sel.strategies import privacy as protection
from fedjax_sel.strategies.contract import OutputLayer, Strategy
from fedjax_sel.strategies.facts import KINDS, Counts, Request


class Size(NamedTuple):
    """Size of a federation."""

    num_clients: int
    num_selected: int
    num_rounds: int


class ModelShapes(NamedTuple):
    """Shapes of the server's model."""

    params: Any  # shapes of the trained weights; None: not given
    output_layer: OutputLayer | None


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
    array = as_array(what, values)
    if array.shape != (count,) or array.dtype.kind not in "iu" or (array < 1).any() or (array >= 2**31).any():
        raise UserError(f"{what}: {shown(values)} are not {count} integers from 1; give one for each client")
    return array.astype(np.int32)


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
    privacy: tuple[str | None, str]  # the arguments `privacy` and `privacy_unit`
    noise: protection.Noise | None  # None without `privacy`, or if no answer needs noise

    def examples(self, request: Request) -> Any:
        """Return the number of examples that an answer of each client depends on, int [N]."""
        held = self.all_sizes - self.sizes
        counts: Any = SimpleNamespace(sizes=self.all_sizes, train_sizes=self.sizes, holdout_sizes=held)
        return ledger.answer_examples(request, counts, "train")

    def client_noise(self, request: Request, places: np.ndarray) -> dict[Name, protection.ClientNoise]:
        """Return the noise of some clients' answers by name; empty if they need none."""
        if self.noise is None or request.kind in protection.NO_NOISE:
            return {}
        noise, limit = self.noise, protection.bound(self.noise.settings, request.kind)
        scale = noise.scale(request, self.examples(request), protection.answer_length(request, self.counts))
        scales = np.broadcast_to(np.asarray(scale, np.float64), self.sizes.shape)[places].tolist()
        noises = [protection.ClientNoise(noise.unit, limit, noise.law, each) for each in scales]
        return dict(zip(self.clients.named(places), noises))

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
            "privacy": list(self.privacy),
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
    privacy: str | None = None,
    privacy_unit: protection.Unit = "example",
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
    if (total_sizes < train_sizes).any():
        raise UserError("all_sizes: a client has fewer examples than in `sizes`; count its training examples, too")
    made = _build_strategy(strategy)
    checks.requests(made)
    if not has_clock and made.needs_clock:
        raise UserError(f"has_clock: strategy {made.name!r} requests durations; measure them and pass has_clock=True")
    checks.check(made, size, everyone_available=True, has_clock=has_clock)
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
    if privacy is not None:
        protection.check_real_clients(made, size)
        protection.check(made, parsing.one_of("privacy_unit", privacy_unit, ("example", "client")), size)
    noise = protection.planned(privacy, privacy_unit, made, size, counts)
    own = (int(seed), model, has_clock, (privacy, privacy_unit), noise)
    return Terms(made, size, counts, all_clients, train_sizes, total_sizes, *own)


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
