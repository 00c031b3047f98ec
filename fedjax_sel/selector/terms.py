"""What a Selector is made with: checked once, and never changed."""

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
    """Of a federation and its strategy."""

    strategy: Strategy
    parameters: dict[str, str]  # of the strategy, in words; of one that was given as a value, their digest
    size: Size
    counts: Counts  # 1 where nothing reads what is so long
    clients: Clients
    sizes: np.ndarray  # training examples, int32 [N]
    all_sizes: np.ndarray  # with those held out, int32 [N]
    seed: int
    model: ModelShapes

    def identity(self) -> dict[str, Any]:
        """Return what a saved standing belongs to, as JSON."""

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


def agreed(
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
    """Return the terms, if they can be kept.

    Args:
        strategy: a name, a name with parameters, or a `Strategy`.
        size: N, K and T.
        sizes: training examples of each client, in the order of `clients` or by name.
        all_sizes: with those that clients hold out; None: they hold none out.
        lengths: `num_params`, `num_classes` and `profile_size`; None where it is not given.
        seed: of all draws.
        clients: N names; None: 0 to N - 1.
        params: the trained weights or their shapes; None: not known.
        output_layer: paths of its weight and bias in them; None: not known.

    Raises:
        UserError: an argument is wrong, or the strategy breaks its contract.
    """
    jax_settings.check(of_runs=False)
    for name, value in size._asdict().items():
        _whole(name, value, 1)
    size = Size(*map(int, size))  # NumPy's are none of JSON's
    num_clients, num_selected, _ = size
    if num_selected > num_clients:
        raise UserError(f"num_selected: {num_selected} is more than the {num_clients} clients; give at most that")
    _whole("seed", seed, 0)
    names = range(num_clients) if clients is None else tuple(clients)
    if len(names) != num_clients:
        raise UserError(f"clients: these are {len(names)} names, and num_clients={num_clients}; give one for each")
    known = Clients(names)
    own = answers.sizes("sizes", sizes, known)
    all_own = own if all_sizes is None else answers.sizes("all_sizes", all_sizes, known)
    made, parameters = _made(strategy)
    contract.requests(made)
    kinds.check(made)
    contract.check(made, *size, everyone_available=True)
    model = _model(params, output_layer)
    if params is not None:
        count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model.params))
        if lengths["num_params"] not in (None, count):
            raise UserError(f"num_params: {lengths['num_params']} is not the {count} numbers of params; leave it out")
        lengths = {**lengths, "num_params": count}
    for request in made.requests:
        needed = _LENGTHS.get(KINDS[request.kind].symbol)
        if needed and lengths[needed] is None:
            raise UserError(f"{needed}: strategy {made.name!r} buys {request.kind!r}; give this number")
    for name, value in lengths.items():
        if value is not None:
            _whole(name, value, 1)
    counts = Counts(**{name: 1 if value is None else int(value) for name, value in lengths.items()})
    return Terms(made, parameters, size, counts, known, own, all_own, int(seed), model)


def _model(params: Any, output_layer: Any) -> ModelShapes:
    """Return the shapes of a model, and where its output layer stands."""
    try:
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(tuple(leaf.shape), np.float32), params)
    except (AttributeError, TypeError) as error:
        raise UserError(
            f"params: {shown(params)} is no pytree of arrays or shapes; give the model's weights"
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
            f"output_layer: {shown(output_layer)} are no paths of a weight and a bias in params; give, for example, "
            '(("Dense_1", "kernel"), ("Dense_1", "bias"))'
        ) from error
    return ModelShapes(shapes, layer)


def _made(strategy: str | Strategy) -> tuple[Strategy, dict[str, str]]:
    if isinstance(strategy, Strategy):
        return strategy, {"value": hyperparameters.digest(strategy)}
    if not isinstance(strategy, str):
        raise UserError(f"strategy: {shown(strategy)} is neither a name nor a Strategy; give a name such as 'pow_d'")
    name, parameters = parsing.name_and_parameters("strategy", strategy, 'e.g. "pow_d[num_candidates=8]"')
    made = strategies.make(name, **parameters)
    usual = {key: parameter.default for key, parameter in strategies.parameters(name).items()}
    return made, {key: _in_words(value) for key, value in {**usual, **parameters}.items()}


def _in_words(value: Any) -> str:
    """Return a parameter's value, the same for `0.10`, "0.1" and 0.1, and in every process."""
    if not isinstance(value, str | int | float | None):
        return type(value).__name__  # of a plug-in: its text may be where it lies in memory
    text = str(value).lower()
    try:
        return repr(float(text))
    except ValueError:
        return text


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value < 2**31:
        raise UserError(f"{name}: {shown(value)} is not a whole number from {least} to 2147483647; give one")
