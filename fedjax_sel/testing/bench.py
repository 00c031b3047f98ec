"""The synthetic worlds in which the conformance kit runs a strategy, and the report of its checks."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel.core import jax_settings
from fedjax_sel.simulation.availability import LARGEST
from fedjax_sel.strategies import checks, contract, protocol
from fedjax_sel.strategies.checks import COUNTS, MODEL, OUTPUT_LAYER
from fedjax_sel.strategies.contract import (
    Env,
    Evaluation,
    Information,
    Now,
    Outcome,
    ServerMetrics,
    Strategy,
    keep_state,
    no_state,
)
from fedjax_sel.strategies.facts import KINDS, NEVER, Request, always, shape
from fedjax_sel.strategies.from_numpy import own_errors
from fedjax_sel.strategies.protocol import Keys, SelectionState


class Violation(Exception):  # noqa: N818 - raised by a check, never by the kit
    """A strategy breaks the contract."""


class NotApplicable(Exception):  # noqa: N818
    """A check does not apply to a strategy."""


class ConformanceError(AssertionError):
    """A strategy fails the kit; the message lists the failed checks."""


class Finding(NamedTuple):
    """The result of one check."""

    status: str  # passed, failed or skipped
    why: str  # reason or remark; usually empty if passed


class Report(NamedTuple):
    """The results of all checks, in order."""

    strategy: str
    findings: dict[str, Finding]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the failed checks."""
        return tuple(name for name, finding in self.findings.items() if finding.status == "failed")

    def __str__(self) -> str:
        width = max(len(name) for name in self.findings)
        lines = [f"  {one.status:7}  {name:{width}}  {one.why}".rstrip() for name, one in self.findings.items()]
        verdict = f"{len(self.failed)} of {len(lines)} checks failed" if self.failed else "conforms"
        return "\n".join([f"{self.strategy}: {verdict}", *lines])

    def require(self) -> None:
        """Raise a ConformanceError with one line per failed check, if there is one."""
        if self.failed:
            lines = [f"  {name}: {self.findings[name].why}" for name in self.failed]
            raise ConformanceError("\n".join([f"strategy {self.strategy!r} does not conform:", *lines]))


RANK = 9  # rank of the clients' updates


class World(NamedTuple):
    """A synthetic federation: clients' answers without training, a table over (round, client).

    It is drawn on the host, in NumPy arrays, so that relabeling the clients is a gather. Shapes: T rounds, N clients, Q
    profile floats, P parameters, C classes, S probes; leaves of `facts` and `updates` are [T, N, ...].
    """

    sizes: Any  # training examples, int32 [N]
    facts: dict[str, Any]  # kind -> float32 [T, N, ...]
    missing: Any  # whether a measured loss is not finite, bool [T, N]
    updates: Any  # updates, a pytree like the model
    losses_after: Any  # losses after local training, float32 [T, N]
    finite: Any  # whether the update is finite, bool [T, N]
    lost: Any  # whether a report is lost, bool [T, N]
    available: Any  # availability, bool [T, N]; None: all available
    metrics: ServerMetrics  # the server's evaluations, leaves [T]
    blank: Any = np.float32(0)  # entry of a table before the first answer

    @classmethod
    def ordinary(cls, strategy: Strategy, num_clients: int, num_rounds: int, seed: int) -> "World":
        """Return a world of clients with unequal sizes and label mixtures, which determine the requested answers."""
        rng = np.random.default_rng(seed)
        n, t = num_clients, num_rounds
        sizes = rng.permutation(np.linspace(10, 40, n).astype(np.int32))
        mixture = rng.dirichlet(np.full(COUNTS.num_classes, 0.3), n)  # [N, C]

        def of_mixture(entry: tuple[int, ...], noise: float) -> np.ndarray:
            length = math.prod(entry)
            features = mixture @ rng.normal(size=(COUNTS.num_classes, length))
            values = (features + noise * rng.normal(size=(t, n, length))).astype(np.float32)
            return values.reshape(t, n, *entry)

        losses = (np.exp(of_mixture((), 0.2)) * 0.9 ** np.arange(t)[:, None] + 0.1).astype(np.float32)
        own = np.random.default_rng([seed, COUNTS.num_params])
        flat = of_mixture((RANK,), 0.3) @ own.normal(0, RANK**-0.5, (RANK, COUNTS.num_params)).astype(np.float32)
        leaves, structure = jax.tree.flatten(MODEL)
        parts = np.split(flat, np.cumsum([math.prod(leaf.shape) for leaf in leaves])[:-1], axis=2)
        # Views of the vectors [T, N, P] as the model's pytree.
        updates = jax.tree.unflatten(structure, [p.reshape(t, n, *leaf.shape) for p, leaf in zip(parts, leaves)])
        # The output layer's bias moves towards a client's labels, like the gradient of cross-entropy.
        OUTPUT_LAYER.bias_of(updates)[...] *= 0.1
        OUTPUT_LAYER.bias_of(updates)[...] += (mixture - 1 / COUNTS.num_classes).astype(np.float32)
        histogram = np.round(mixture * sizes[:, None])
        facts = {
            "loss": losses,
            "training_loss": losses * np.float32(0.9),
            "update": flat,
            "update_norm": np.linalg.norm(flat, axis=2),
            "label_histogram": np.broadcast_to(histogram, (t, n, COUNTS.num_classes)).astype(np.float32),
        }
        bought = {request.kind: request for request in strategy.requests}
        for kind in KINDS:  # all other kinds, bought or not, so that every strategy has the same world
            if KINDS[kind].has_table and kind not in facts:
                request = bought.get(kind, Request(kind, KINDS[kind].who[0], always()))
                facts[kind] = of_mixture(shape(request, COUNTS), 0.1 if kind == "profile" else 0.3)
        facts["seconds"] = np.exp(facts["seconds"])
        accuracy = np.linspace(0.1, 0.9, t + 1)

        def evaluation(part: slice) -> Evaluation:
            share = accuracy[part].astype(np.float32)
            values: Any = ((100 * share).astype(np.int32), share, 1 - share)
            return Evaluation(*values)

        return cls(
            sizes=sizes,
            facts={kind: value for kind, value in facts.items() if kind in bought},
            missing=np.zeros((t, n), bool),
            updates=updates,
            losses_after=losses * np.float32(0.8),
            finite=np.ones((t, n), bool),
            lost=np.zeros((t, n), bool),
            available=None,
            metrics=ServerMetrics(evaluation(slice(0, t)), evaluation(slice(1, t + 1))),
        )

    def relabelled(self, order: np.ndarray) -> "World":
        """Return the same federation with relabeled clients: the new client j is the old client order[j]."""
        return self._of_clients(lambda table: table[:, order])

    def alike(self) -> "World":
        """Return a world in which every client is a copy of the first one."""
        return self._of_clients(lambda table: np.repeat(table[:, :1], table.shape[1], axis=1))

    def twins(self) -> "World":
        """Return a world in which the second half of the clients are copies of the first."""
        n = self.sizes.shape[0]
        first = [*range(n // 2), *range(n - n // 2)]
        return self._of_clients(lambda table: table[:, first])

    def extreme(self) -> "World":
        """Return a world with losses at the simulator's bounds, and large vectors."""
        t, n = self.missing.shape
        pattern = (np.arange(t)[:, None] + np.arange(n)) % 4
        losses = np.array([LARGEST, 0.0, LARGEST, 1.0], np.float32)[pattern]

        def of_kind(kind: str, value: np.ndarray) -> np.ndarray:
            if KINDS[kind].is_loss and value.ndim == 2:
                return losses
            if KINDS[kind].is_loss:
                return np.broadcast_to(np.where(pattern == 2, -1, 1)[..., None] * losses[..., None], value.shape).copy()
            return value if kind in ("label_histogram", "seconds") else value * np.float32(1e4)

        return self._replace(
            facts={kind: of_kind(kind, value) for kind, value in self.facts.items()},
            updates=jax.tree.map(lambda value: value * np.float32(1e4), self.updates),
            losses_after=losses[::-1].copy(),
        )

    def diverging(self) -> "World":
        """Return a world in which a third of the updates are not finite, and in one round all of them."""
        t, n = self.missing.shape
        broken = (np.arange(t)[:, None] + np.arange(n)) % 3 == 0
        broken[t // 2] = True
        # Half of these clients also answer with a nonfinite loss.
        missing = broken & ((np.arange(t)[:, None] + np.arange(n)) % 2 == 0)
        bad = np.where(np.arange(n) % 2 == 0, np.nan, np.inf).astype(np.float32)

        def spoil(table: np.ndarray) -> np.ndarray:
            shape = (t, n) + (1,) * (table.ndim - 2)
            return np.where(broken.reshape(shape), bad.reshape((1, n, *shape[2:])), table)

        after = np.where(broken, np.float32(LARGEST), self.losses_after)
        updates = jax.tree.map(spoil, self.updates)
        return self._replace(updates=updates, losses_after=after, finite=~broken, missing=missing)

    def losing(self) -> "World":
        """Return a world in which a third of the reports are lost, and in one round all of them."""
        t, n = self.missing.shape
        lost = (np.arange(t)[:, None] + np.arange(n)) % 3 == 0
        lost[t // 2] = True
        return self._replace(lost=lost)

    def sparse(self, num_selected: int) -> "World":
        """Return a world with few available clients: in turn N, N / 2, K, K - 1, N - 1, 1, 0 and K + 1.

        Before the first round, only the available clients of the last round answer.
        """
        t, n = self.missing.shape
        rng = np.random.default_rng(n)
        counts = [n, n // 2, num_selected, num_selected - 1, n - 1, 1, 0, num_selected + 1]
        rows = [rng.permutation(n) < counts[round % len(counts)] for round in range(t)]
        return self._replace(available=np.array(rows))

    def _of_clients(self, change: Any) -> "World":
        """Return a world with `change` applied to all tables [T, N, ...]."""
        tables = self._replace(sizes=self.sizes[None], metrics=None, blank=None)
        changed = jax.tree.map(change, tables)
        return changed._replace(sizes=changed.sizes[0], metrics=self.metrics, blank=self.blank)


class Options(NamedTuple):
    """The sizes of the battery."""

    num_clients: int = 12  # N
    num_selected: int = 3  # K
    rounds: int = 8  # T
    games: int = 256  # games of a world with frequency checks
    seed: int = 0
    run: bool = True  # whether to check a real run


class Carry(NamedTuple):
    """The scan carry between rounds."""

    state: Any
    info: Information


class Record(NamedTuple):
    """The record of one round; scan and vmap add leading axes [games, T], in NumPy arrays if games were played."""

    ids: Any  # [K]
    weights: Any  # [K], or None
    mask: Any  # [K]
    candidates: Any  # [d], or None
    nan: Any  # whether the state holds NaN after `update`
    inclusion: Any  # expected selection counts, [N]; None if unknown


def start_of(strategy: Strategy, options: Options, key: jax.Array, world: World) -> tuple[jax.Array, Now]:
    """Return the arguments of `init`, after the facts due at the start have been measured."""
    info = protocol.empty_information(strategy, COUNTS, world.sizes.shape[0])
    for kind in info.kinds():
        fact = getattr(info, kind)
        info = info.replace(kind, fact._replace(value=fact.value + world.blank))
    answers = jnp.ones(world.sizes.shape, bool) if world.available is None else jnp.asarray(world.available)[-1]
    for _, request in protocol.requests_at_start(strategy):
        info = _answered(info, request, world, jnp.int32(0), answers)
    return key, Now(env_of(options, world), info, jnp.int32(0), None)


def env_of(options: Options, world: World) -> Env:
    """Return what a strategy knows of a world without a query."""
    sizes = jnp.asarray(world.sizes)
    counts = (len(sizes), options.num_selected, options.rounds, COUNTS.num_classes, COUNTS.num_params)
    shares, has_clock = sizes / sizes.sum(), "seconds" in world.facts
    return Env(*counts, sizes, shares, params=MODEL, output_layer=OUTPUT_LAYER, has_clock=has_clock)


def initial_carry(strategy: Strategy, key: jax.Array, now: Now) -> Carry:
    """Return the carry before the first round, from the arguments of `init` with leaves [games, ...]."""
    state = protocol.initial_state(protocol.over_replicates(strategy), key, now._replace(round=jnp.int32(0)))
    return Carry(jax.tree.map(jnp.asarray, state), now.info)


def one_round(
    strategy: Strategy, options: Options, carry: Carry, round: jax.Array, key: jax.Array, world: World
) -> tuple[Carry, Record]:
    """Play one round of a game whose key is `key`; `round` is an int32 scalar, from 0."""
    num_clients = world.sizes.shape[0]
    key_candidates, key_select = jax.random.split(jax.random.fold_in(key, round))
    available = None if world.available is None else jnp.asarray(world.available)[round]
    reachable = jnp.ones((num_clients,), bool) if available is None else available

    def serve(info: Information, bill: None, who: str, ids=None, mask=None, arrives=None) -> tuple[Information, None]:
        queried = reachable
        if ids is not None:
            named = jnp.zeros((num_clients,), bool).at[ids].max(True if mask is None else mask, mode="drop")
            queried = named & reachable if mask is None else named
        for _, request in protocol.requests_to(strategy, who):
            info = _answered(info, request, world, round, queried & request.when.due(round))
        return info, bill

    known = SelectionState(carry.state, Now(env_of(options, world), carry.info, round, available))
    keys = Keys(key_candidates, key_select)
    known, (selection, candidates) = protocol.select(strategy, serve, known, keys)
    law = strategy.inclusion and strategy.inclusion(known.state, known.now)
    known = protocol.query_cohort(serve, known, selection)
    outcome = outcome_of(strategy, world, round, selection)
    state, now, _ = protocol.learn(strategy, known, selection, outcome)

    floats = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    nan = functools.reduce(jnp.logical_or, (jnp.isnan(leaf).any() for leaf in floats), jnp.zeros((), bool))
    return Carry(state, now.info), Record(*selection, candidates, nan, law)


def outcome_of(strategy: Strategy, world: World, round: jax.Array, selection: Any) -> Outcome:
    """Return the outcome of a round; the step is the mean of the finite updates."""
    ids = selection.ids
    reported = selection.mask & ~jnp.asarray(world.lost)[round, ids]

    def arrived(table: Any) -> jax.Array:  # as in the simulator, without a report it is zero
        rows = jnp.asarray(table)[round, ids]
        return jnp.where(reported.reshape((-1,) + (1,) * (rows.ndim - 1)), rows, 0)

    updates, kept = jax.tree.map(arrived, world.updates), reported & jnp.asarray(world.finite)[round, ids]

    def mean(leaf: jax.Array) -> jax.Array:
        rows = jnp.where(kept.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0.0)
        return rows.sum(axis=0) / jnp.maximum(kept.sum(), 1)

    metrics: Any = contract.Unrequested(strategy.name, "server_metrics")
    if any(request.kind == "server_metrics" for request in strategy.requests):
        metrics = jax.tree.map(lambda leaf: jnp.asarray(leaf)[round], world.metrics)
    after = arrived(world.losses_after)
    before, lengths = jnp.minimum(after * 1.25, LARGEST), jnp.asarray(world.sizes, jnp.float32)[ids] / 100.0
    subsets = protocol.subset_loss_placeholder(strategy, jnp.where(kept, after, 0.0))
    durations = world.facts.get("seconds")
    seconds = None if durations is None else arrived(durations)
    step = jax.tree.map(mean, updates)
    staleness = jnp.zeros(ids.shape, jnp.int32)
    return Outcome(updates, before, after, step, reported, kept, metrics, lengths, subsets, seconds, staleness)


def play_rounds(
    strategy: Strategy, options: Options, num_rounds: int, carry: Carry, key: jax.Array, world: World
) -> tuple[Carry, Record]:
    """Play a game as one scan over rounds; records have a leading axis [T]."""

    def step(carry: Carry, round: jax.Array) -> tuple[Carry, Record]:
        return one_round(strategy, options, carry, round, key, world)

    return lax.scan(step, carry, jnp.arange(num_rounds, dtype=jnp.int32))


def _answered(info: Information, request: Request, world: World, round: jax.Array, answers: jax.Array) -> Information:
    """Return the tables with the world's answers of the clients in `answers`, bool [N]."""
    age: Any = 0
    if request.option("nonfinite") == "missing":
        age = jnp.where(jnp.asarray(world.missing)[round], NEVER, 0)  # NEVER marks an imputed value
    return protocol.enter_answers(info, request.kind, jnp.asarray(world.facts[request.kind])[round], answers, age)


FEW = 16  # games of a world without frequency checks


class Bench:
    """The traces and games of a strategy."""

    def __init__(self, strategy: Strategy, options: Options):
        self.strategy, self.options = strategy, options
        # Relabeling of the clients: the new client j is the old client order[j].
        self.order = np.random.default_rng(options.seed + 1).permutation(options.num_clients)

    @functools.cached_property
    def world(self) -> World:
        """The ordinary world."""
        options = self.options
        return World.ordinary(self.strategy, options.num_clients, options.rounds, options.seed)

    @property
    def num_places(self) -> int:
        """The number of places of a cohort."""
        return checks.num_places(self.strategy, self.options.num_clients, self.options.num_selected)

    @functools.cached_property
    def hooks(self) -> dict[str, checks.Hook]:
        """Every hook of the strategy with the shapes of its arguments."""
        sizes = (self.options.num_clients, self.options.num_selected, self.options.rounds)
        return checks.traced(self.strategy, sizes, everyone_available=True, has_clock=self.strategy.needs_clock)

    @property
    def selection(self) -> Any:
        """The shapes of the result of `select`."""
        return self.hooks["update"][1][2]

    def own_hooks(self) -> dict[str, checks.Hook]:
        """Return the hooks that the strategy defines."""
        return {name: hook for name, hook in self.hooks.items() if hook[0] not in (keep_state, no_state)}

    @functools.cached_property
    def games(self) -> dict[str, Record]:
        """Games of all worlds in which every client is available, played as one batch."""
        many, world = self.options.games, self.world
        table = {
            "ordinary": (world, many),
            "relabelled": (world.relabelled(self.order), many),
            "alike": (world.alike(), many),
            "twins": (world.twins(), FEW),
            "extreme": (world.extreme(), FEW),
            "diverging": (world.diverging(), FEW),
            "losing": (world.losing(), FEW),
        }
        return self._play(table, self.options, self.options.rounds)

    @functools.cached_property
    def sparse_games(self) -> dict[str, Record]:
        """Games of a world with few available clients, and the same games with other blank entries."""
        world = self.world.sparse(self.options.num_selected)
        table = {"sparse": (world, FEW), "blank": (world._replace(blank=np.float32(3)), FEW)}
        return self._play(table, self.options, self.options.rounds, same_keys=True)

    def small_games(self, num_selected: int) -> Record:
        """Return a few short games with another K."""
        options = self.options._replace(num_selected=num_selected)
        return self._play({"ordinary": (self.world, 4)}, options, min(3, options.rounds))["ordinary"]

    def _play(
        self, table: dict[str, tuple[World, int]], options: Options, rounds: int, same_keys: bool = False
    ) -> dict[str, Record]:
        """Play all games as one program, with a vmap over (world, key) and a scan over rounds."""
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *(world for world, _ in table.values()))
        counts = [count for _, count in table.values()]
        index = np.repeat(np.arange(len(table)), counts)
        keys = jax.random.split(jax_settings.key(self.options.seed), len(index))
        keys = jnp.tile(keys[:FEW], len(table)) if same_keys else keys

        def start(key: jax.Array, world: jax.Array, all_worlds: World) -> tuple[jax.Array, Now]:
            return start_of(self.strategy, options, key, jax.tree.map(lambda leaf: leaf[world], all_worlds))

        def play(carry: Carry, key: jax.Array, world: jax.Array, all_worlds: World) -> Record:
            chosen = jax.tree.map(lambda leaf: leaf[world], all_worlds)
            return play_rounds(self.strategy, options, rounds, carry, jax.random.fold_in(key, 1), chosen)[1]

        with own_errors():  # games with a failed call are not kept
            carry = initial_carry(self.strategy, *jax.jit(jax.vmap(start, (0, 0, None)))(keys, index, stacked))
            records = jax.jit(jax.vmap(play, (0, 0, 0, None)))(carry, keys, index, stacked)
            records = jax.tree.map(np.asarray, records)
        parts = (index == position for position in range(len(table)))
        return {name: jax.tree.map(lambda leaf, part=part: leaf[part], records) for name, part in zip(table, parts)}

    def play_alone(self, check_keys: bool = False) -> np.ndarray:
        """Play the first ordinary game round by round, without vmap and scan, and return its cohorts, [T, K].

        With `check_keys`, JAX raises a KeyReuseError if a key is consumed twice.
        """
        world, key = jax.tree.map(jnp.asarray, self.world), self._keys[0]
        with jax.debug_key_reuse(check_keys):
            start, step = self._compiled
            batch = jax.tree.map(lambda leaf: leaf[None], start(key, world))
            carry = jax.tree.map(lambda leaf: leaf[0], initial_carry(self.strategy, *batch))
            cohorts = []
            for round in range(self.options.rounds):
                carry, record = step(carry, jnp.int32(round), jax.random.fold_in(key, 1), world)
                cohorts.append(np.asarray(record.ids))
        return np.stack(cohorts)

    @functools.cached_property
    def _compiled(self) -> tuple[Callable[..., tuple[jax.Array, Now]], Callable[..., tuple[Carry, Record]]]:
        """The start of a game and one round."""
        start = functools.partial(start_of, self.strategy, self.options)
        return jax.jit(start), jax.jit(functools.partial(one_round, self.strategy, self.options))

    @functools.cached_property
    def _keys(self) -> jax.Array:
        """The keys of `games`."""
        return jax.random.split(jax_settings.key(self.options.seed), 3 * self.options.games + 3 * FEW)
