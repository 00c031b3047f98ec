"""Validated, immutable configuration of a Selector."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel import strategies
from fedjax_sel.core import hyperparameters, jax_settings, parsing
from fedjax_sel.core.names import shown
from fedjax_sel.errors import UserError
from fedjax_sel.selector import answers
from fedjax_sel.selector.answers import Clients, Name
from fedjax_sel.selector.hooks import ModelShapes, Size
from fedjax_sel.strategies import contract, kinds
from fedjax_sel.strategies.base import OutputLayer, Strategy
from fedjax_sel.strategies.kinds import KINDS, Counts

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
    """Validate the arguments of `Selector` and return them as `Terms`.

    Args:
        strategy: a name, a name with parameters, or a `Strategy`.
        size: N, K and T.
        sizes: training examples per client, in the order of `clients` or by name.
        all_sizes: training and held-out examples per client; None: no client holds examples out.
        lengths: `num_params`, `num_classes` and `profile_size`; None for a missing one.
        seed: seed of all random draws.
        clients: N names; None: 0 to N - 1.
        params: the trained weights or their shapes; None: not given.
        output_layer: paths in `params` of the output layer's weight and bias; None: not given.

    Raises:
        UserError: an argument is invalid, or the strategy breaks its contract.
    """
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
    train_sizes = answers.sizes("sizes", sizes, all_clients)
    total_sizes = train_sizes if all_sizes is None else answers.sizes("all_sizes", all_sizes, all_clients)
    made, parameters = _build_strategy(strategy)
    contract.requests(made)
    kinds.check(made)
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
        return strategy, {"value": hyperparameters.digest(strategy)}
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
