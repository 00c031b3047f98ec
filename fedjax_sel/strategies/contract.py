"""The contract of a selection strategy: a NamedTuple of pure functions and the list of its requests."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core import parsing
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies import facts
from fedjax_sel.strategies.facts import Request

# Shapes: N clients, K selected, C classes, P parameters of the model. If a strategy declares `max_selected`, its value
# replaces K in the shapes of a Selection and an Outcome.
Path = tuple[Any, ...]  # keys from the top of a pytree to a leaf, such as ("Dense_1", "bias")


class OutputLayer(NamedTuple):
    """The paths of the logit layer's weights in a model's parameters."""

    weight: Path  # path of the matrix, C x inputs or inputs x C
    bias: Path | None  # path of the vector [C]; None: the layer has no bias

    def weight_of(self, tree: Any) -> Any:
        """Return the weight's leaf of a tree like `params`; for `outcome.updates` it has a leading axis [K]."""
        return _at(tree, self.weight)

    def bias_of(self, tree: Any) -> Any:
        """Return the bias's leaf of a tree like `params`; for `outcome.updates` it is [K, C].

        Raises:
            UserError: the layer has no bias.
        """
        if self.bias is None:
            raise UserError("bias: the model's output layer has no bias; choose a model whose output layer has one")
        return _at(tree, self.bias)


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = getattr(tree, key) if isinstance(key, str) and hasattr(tree, "_fields") else tree[key]
    return tree


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Env:
    """The facts that every strategy receives without a query. Counts, shapes and paths are static."""

    num_clients: int
    num_selected: int
    num_rounds: int
    num_classes: int
    num_params: int
    sizes: jax.Array  # training examples per client, int32 [N]
    importance: jax.Array  # p_k = n_k / sum n, float32 [N]
    all_sizes: Any = None  # examples per client, including held-out ones, int32 [N]; None: no examples are held out
    params: Any = None  # shapes of the trained weights, a pytree like `outcome.updates`; None: not provided
    output_layer: OutputLayer | None = None  # None: the model has no such layer, or it is not provided
    has_clock: bool = False  # whether `outcome.seconds` and the fact `seconds` exist
    # Standard deviation of the noise in each number of a perturbed fact or field of the outcome, by its name, float32
    # [N]; empty without --privacy.
    noise: Mapping[str, jax.Array] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.all_sizes is None:
            object.__setattr__(self, "all_sizes", self.sizes)

    def __getattr__(self, name: str) -> Any:
        fields = [field.name for field in dataclasses.fields(self)]
        raise AttributeError(f"now.env has no {name!r}; {parsing.did_you_mean(name, fields)}")

    def tree_flatten(self):
        """Return the arrays as leaves and everything else as static data."""
        shapes, structure = jax.tree.flatten(self.params)
        counts = (self.num_clients, self.num_selected, self.num_rounds, self.num_classes, self.num_params)
        static = (counts, tuple(shapes), structure, self.output_layer, self.has_clock)
        return (self.sizes, self.importance, self.all_sizes, self.noise), static

    @classmethod
    def tree_unflatten(cls, static, arrays):
        """Rebuild an Env from the output of `tree_flatten`."""
        counts, shapes, structure, output_layer, has_clock = static
        params = jax.tree.unflatten(structure, shapes)
        *arrays, noise = arrays
        return cls(*counts, *arrays, params=params, output_layer=output_layer, has_clock=has_clock, noise=noise)


def check_count(name: str, count: int | None, env: Env, least: int = 1) -> None:
    """Reject a number of clients above N, or below `least`, the cohort size."""
    n = env.num_clients
    if count is not None and count > n:
        raise UserError(f"{name}={count} exceeds the {n} clients; give at most {n}")
    if count is not None and count < least:
        raise UserError(f"{name}={count} is below the cohort size {least}; give at least {least}")


State = Any  # a pytree; its structure and shapes never change during a run


class Fact(NamedTuple):
    """A table of one kind of fact, with one row per client."""

    value: jax.Array  # float32 [N, ...]
    age: jax.Array  # rounds since the measurement, int32 [N]; NEVER before the first one


class UndeclaredFactError(UserError, AttributeError):
    """A strategy reads a fact that it did not request."""


def undeclared(strategy: str, kind: str, declared: tuple[str, ...]) -> UndeclaredFactError:
    """Return the error for reading a fact that was not requested."""
    if kind not in facts.KINDS:
        return UndeclaredFactError(
            f"strategy {strategy!r} reads the unknown fact {kind!r}; {parsing.did_you_mean(kind, facts.KINDS)}"
        )
    return UndeclaredFactError(
        f"strategy {strategy!r} reads the fact {kind!r} without buying it: "
        f"add Request({kind!r}, ...) to its requests (it has {', '.join(declared) or 'none'})"
    )


@jax.tree_util.register_pytree_node_class
class Information:
    """The tables of bought facts, one per requested kind: `info.profile.value`, `info.profile.age`."""

    def __init__(self, strategy: str, facts: dict[str, Fact]):
        self._strategy = strategy
        self._facts = facts

    def __getattr__(self, kind: str) -> Fact:
        if kind.startswith("_"):
            raise AttributeError(kind)
        if kind not in self._facts:
            raise undeclared(self._strategy, kind, self.kinds())
        return self._facts[kind]

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of fact that the strategy requested."""
        return tuple(self._facts)

    def replace(self, kind: str, fact: Fact) -> "Information":
        """Return a copy with one table replaced."""
        return Information(self._strategy, {**self._facts, kind: fact})

    def tree_flatten(self):
        """Return the facts as leaves and the names as static data."""
        return tuple(self._facts.values()), (self._strategy, tuple(self._facts))

    @classmethod
    def tree_unflatten(cls, static, facts):
        """Rebuild an Information from the output of `tree_flatten`."""
        strategy, kinds = static
        return cls(strategy, dict(zip(kinds, facts)))


class Now(NamedTuple):
    """The server's knowledge when it calls a hook."""

    env: Env
    info: Information  # bought facts
    round: jax.Array  # t from 0, int32 scalar; never batched
    # Availability in this round, bool [N]; None if all clients are available. With None, a strategy can reuse
    # computations that are constant over the run.
    available: jax.Array | None


class Selection(NamedTuple):
    """The cohort of a round."""

    ids: jax.Array  # int32 [K]
    # float32 [K]; None: the simulator's aggregation rule applies. Their sum is 1, or 1 in expectation with `inclusion`.
    weights: jax.Array | None
    mask: jax.Array  # bool [K]; False: the entry is empty and no client trains

    @classmethod
    def of(cls, ids: jax.Array, available: jax.Array | None) -> "Selection":
        """Select clients, int32 [K], without weights; entries with unavailable clients are empty."""
        return cls(ids, None, jnp.ones(ids.shape, bool) if available is None else available[ids])


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Unrequested:
    """A placeholder for a fact that was not requested; reading it raises `UndeclaredFactError`."""

    strategy: str
    kind: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise undeclared(self.strategy, self.kind, ())

    def __call__(self, *_: Any) -> Any:
        """Report the undeclared read."""
        raise undeclared(self.strategy, self.kind, ())


class Evaluation(NamedTuple):
    """The evaluation of a global model on the server's data; scalars."""

    correct: jax.Array  # correct examples, int32; other tasks: the measure's sum, negated if lower is better
    accuracy: jax.Array  # fraction of correct examples, or the mean of the task's first measure, float32
    loss: jax.Array  # mean loss, float32; cross-entropy is in nats


class ServerMetrics(NamedTuple):
    """The server's own evaluation of a round, bought with Request("server_metrics", SERVER, always())."""

    before: Evaluation  # evaluation of w^t
    after: Evaluation  # evaluation of w^(t+1)


class Outcome(NamedTuple):
    """The result of a round, as the server receives it. Fields that `update` does not read are never computed.

    Updates and the step are free, because training produces them. Each loss is one float per client, which is billed
    if `update` reads it. A client whose report is lost has zeros.
    """

    updates: Any  # the cohort's updates w_k - w: the model's pytree with leading axis [K, ...]
    losses_before: jax.Array  # loss of the received model on the client's own data, float32 [K]
    losses_after: jax.Array  # loss after local training, float32 [K]
    step: Any  # the aggregated step of the global model, a pytree like the model
    reported: jax.Array  # whether the client's report arrived, bool [K]; False also for empty places
    finite: jax.Array  # whether the client's update arrived and is finite, bool [K]
    metrics: ServerMetrics | Any = None  # reading it without a "server_metrics" request is an error
    # Learning rate times local steps (with momentum: FedNova's |a_k|_1), set by the server. An update divided by it is
    # minus the mean gradient along the client's local path. float32 [K]; 1 if a real server does not provide it.
    path_lengths: Any = 1.0
    subset_loss: Any = None  # mask [M, K] -> losses [M] of averages; calling it without a request is an error
    seconds: Any = None  # from the model's dispatch to the client's report, float32 [K]; None without a clock
    # Server steps between the model's dispatch and its report, int32 [K]; zero in synchronous rounds; None: unknown.
    staleness: Any = None


def independent_selection(
    key: jax.Array, probabilities: jax.Array, importance: jax.Array, num_places: int, available: jax.Array | None
) -> Selection:
    """Draw every client independently; a cohort of random size whose weights make the average unbiased.

    The weight of a client is p_k over its probability, with p_k relative to the available clients. The weights sum to
    one on average. `sampling.independent` bounds the effect of the limited number of places.

    Args:
        key: random key, consumed.
        probabilities: inclusion probabilities, float32 [N]; 0 for unavailable clients.
        importance: p_k, float32 [N].
        num_places: the value of `max_selected`.
        available: availability, bool [N]; None: all.
    """
    ids, mask = sampling.independent(key, probabilities, num_places)
    reachable = importance if available is None else jnp.where(available, importance, 0.0)
    shares = reachable[ids] / reachable.sum()
    return Selection(ids, jnp.where(mask, shares / probabilities[ids], 0.0), mask)


def keep_state(state: State, *_: Any) -> State:
    """Return the state unchanged: the default `observe` and `update`."""
    return state


def no_state(key: jax.Array, now: Now) -> State:
    """Return an empty state: the default `init`, for a strategy that learns nothing."""
    del key, now
    return ()


class Strategy(NamedTuple):
    """A selection strategy. Functions are pure and traceable.

    Attributes:
        name: the name used in messages.
        select: (key, state, now) -> Selection.
        requests: the facts that the strategy buys beyond the free fields of `Outcome`.
        init: (key, now) -> state. Called once, after the facts due `at_start` have been measured and before the first
            round. It runs on the CPU with 64-bit types enabled, for decompositions in float64; the state is then cast
            to 32-bit types. A strategy that learns nothing needs none.
        update: (state, now, selection, outcome) -> state. Called after the round's aggregation. `now.info` contains
            this round's answers of the SELECTED clients. `selection` is the cohort; `outcome.reported` marks the
            clients whose report arrived.
        observe: (state, now) -> state. Called in every round after ALL clients have answered and before the selection.
            It updates the state from facts measured at the opening of the round.
        candidates: (key, state, now) -> int32 [d], the distinct clients that requests to CANDIDATES query. In `select`,
            their answers have age 0; unavailable candidates do not answer. None without such requests.
        inclusion: (state, now) -> expected number of times that `select` names each client, float32 [N], positive for
            every client that can be selected. Returns None if it is unknown for this `now.available`. Only the
            aggregation rule `unbiased` uses it. None if the law has no closed form.
        max_selected: (N, K) -> largest cohort, an integer from K to N, for a strategy whose cohort size is random. A
            Selection then has that many places, and the mask marks the selected clients. Memory and time follow the
            places; the ledger bills the selected clients. For independent draws of K clients on average, use
            `sampling.independent_places`, which is min(N, K + 4 sqrt(K)), rounded up. None: K clients.
        with_replacement: whether `ids` may repeat a client; a declaration for tests and readers.
    """

    name: str
    select: Callable[[jax.Array, State, Now], Selection]
    requests: tuple[Request, ...] = ()
    init: Callable[[jax.Array, Now], State] = no_state
    update: Callable[[State, Now, Selection, Outcome], State] = keep_state
    observe: Callable[[State, Now], State] = keep_state
    candidates: Callable[[jax.Array, State, Now], jax.Array] | None = None
    inclusion: Callable[[State, Now], jax.Array | None] | None = None
    max_selected: Callable[[int, int], int] | None = None
    with_replacement: bool = False

    def num_places(self, num_clients: int, num_selected: int) -> int:
        """Return the number of places of a Selection: K, or the value of `max_selected`."""
        return num_selected if self.max_selected is None else self.max_selected(num_clients, num_selected)

    @property
    def needs_clock(self) -> bool:
        """Whether a request can be served only by a run with simulated time."""
        return any(facts.KINDS[request.kind].needs_clock for request in self.requests)

    @property
    def needs_validation(self) -> bool:
        """Whether the server must hold data of its own to serve a request."""
        return any(request.is_on_validation_data for request in self.requests)
