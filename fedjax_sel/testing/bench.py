"""The test bench of a strategy: its traces and games, computed once and shared by the checks."""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings
from fedjax_sel.strategies import contract
from fedjax_sel.strategies.base import Selection, Strategy
from fedjax_sel.testing import driver, synthetic_clients
from fedjax_sel.testing.driver import Carry, Game, Record
from fedjax_sel.testing.synthetic_clients import World

UNCHECKED = "not checked: "
SEPARATE = 3  # games that are also played one by one
FEW = 16  # games of a world without frequency checks


class Options(NamedTuple):
    """The sizes of the battery."""

    num_clients: int = 12  # N
    num_selected: int = 3  # K
    rounds: int = 8  # T
    games: int = 256  # games of a world with frequency checks
    seed: int = 0
    run: bool = True  # whether to check the ledger of a real run


class Games(NamedTuple):
    """Games of one world; leaves [games, T, ...]."""

    ids: np.ndarray
    weights: np.ndarray | None
    mask: np.ndarray
    candidates: np.ndarray | None
    nan: np.ndarray


class Bench:
    """The traces and games of a strategy.

    Attributes:
        strategy: strategy under test.
        options: sizes of the battery.
        game: static configuration of a game.
        order: relabeling of the clients; the new client j is the old client order[j].
    """

    def __init__(self, strategy: Strategy, options: Options):
        self.strategy = strategy
        self.options = options
        self.game = Game(options.num_selected, options.rounds)
        self.order = np.random.default_rng(options.seed + 1).permutation(options.num_clients)

    @functools.cached_property
    def world(self) -> World:
        """The ordinary world."""
        return synthetic_clients.ordinary(
            self.strategy, self.options.num_clients, self.options.rounds, self.options.seed
        )

    # Shapes, from tracing only.

    @functools.cached_property
    def key(self) -> Any:
        """The shape of a key."""
        return jax.eval_shape(lambda: jax_settings.key(0))

    @functools.cached_property
    def start(self) -> Carry:
        """The shapes of the initial state and of the tables of facts."""
        return jax.eval_shape(lambda key: driver.initialize(self.strategy, self.game, key, self.world), self.key)

    def hooks(self) -> dict[str, contract.Hook]:
        """Return every hook of the strategy with the shapes of its arguments."""
        k = self.options.num_selected
        shape: Any = jax.ShapeDtypeStruct
        weights = None if self.selection.weights is None else shape((k,), jnp.float32)
        answer = Selection(shape((k,), jnp.int32), weights, shape((k,), bool))
        round = shape((), jnp.int32)
        outcome = jax.eval_shape(
            lambda round, selection: driver.outcome_of(self.strategy, self.world, round, selection), round, answer
        )
        return contract.hooks(self.strategy, self.key, *self.start, None, answer, outcome)

    @functools.cached_property
    def selection(self) -> Any:
        """The shapes of the result of `select`."""
        select, shapes = contract.hooks(self.strategy, self.key, *self.start, None, None, None)["select"]
        return jax.eval_shape(select, *shapes)

    # Games.

    @functools.cached_property
    def games(self) -> dict[str, Games]:
        """Games of all worlds in which every client is available, played as one batch."""
        many, world = self.options.games, self.world
        return self._play(
            {
                "ordinary": (world, many),
                "relabelled": (synthetic_clients.relabelled(world, self.order), many),
                "alike": (synthetic_clients.alike(world), many),
                "twins": (synthetic_clients.twins(world), FEW),
                "extreme": (synthetic_clients.extreme(world), FEW),
                "diverging": (synthetic_clients.diverging(world), FEW),
            },
            self.game,
            self.options.rounds,
        )

    @functools.cached_property
    def sparse_games(self) -> Games:
        """Games of a world with few available clients."""
        world = synthetic_clients.sparse(self.world, self.options.num_selected)
        return self._play({"sparse": (world, FEW)}, self.game, self.options.rounds)["sparse"]

    def small_games(self, num_selected: int) -> Games:
        """Return a few short games with another K."""
        game = self.game._replace(num_selected=num_selected)
        return self._play({"ordinary": (self.world, 4)}, game, min(3, self.options.rounds))["ordinary"]

    def _play(self, table: dict[str, tuple[World, int]], game: Game, rounds: int) -> dict[str, Games]:
        """Play all games as one program, with a vmap over (world, key) and a scan over rounds."""
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *(world for world, _ in table.values()))
        counts = [count for _, count in table.values()]
        index = np.repeat(np.arange(len(table)), counts)
        keys = jax.random.split(jax_settings.key(self.options.seed), len(index))

        def initialize(key: jax.Array, world: jax.Array, all_worlds: World) -> Carry:
            return driver.initialize(self.strategy, game, key, jax.tree.map(lambda leaf: leaf[world], all_worlds))

        def play(carry: Carry, key: jax.Array, world: jax.Array, all_worlds: World) -> Record:
            chosen = jax.tree.map(lambda leaf: leaf[world], all_worlds)
            return driver.play(self.strategy, rounds, carry, jax.random.fold_in(key, 1), chosen)[1]

        carry = jax.jit(jax.vmap(initialize, (0, 0, None)))(keys, index, stacked)
        carry = driver.prepare(self.strategy, carry)
        records = jax.jit(jax.vmap(play, (0, 0, 0, None)))(carry, keys, index, stacked)
        records = Games(*(None if leaf is None else np.asarray(leaf) for leaf in records))  # pyright: ignore
        ends = np.cumsum(counts)
        return {
            name: jax.tree.map(lambda leaf, part=slice(end - count, end): leaf[part], records)
            for name, count, end in zip(table, counts, ends)
        }

    @functools.cached_property
    def loop(self) -> "Loop":
        """The first ordinary games without vmap and scan: one compiled round, called from Python."""
        try:
            with jax.debug_key_reuse(True):
                return self._loop("")
        except jax.errors.KeyReuseError as error:
            remark = (str(error).strip().splitlines() or [""])[0]
        except Exception as error:  # JAX's key checker does not support every operation
            remark = f"{UNCHECKED}{type(error).__name__}"
        return self._loop(remark)

    def _loop(self, key_reuse: str) -> "Loop":
        traces: Counter[str] = Counter()
        strategy = self.strategy._replace(
            **{name: _counted(traces, name, getattr(self.strategy, name)) for name in ("select", "observe", "update")}
        )
        world = jax.tree.map(jnp.asarray, self.world)
        initialize = jax.jit(lambda key, world: driver.initialize(strategy, self.game, key, world))
        step = jax.jit(lambda carry, round, key, world: driver.one_round(strategy, carry, round, key, world))

        def play(key: jax.Array) -> tuple[list[Carry], list[Record]]:
            batch = jax.tree.map(lambda leaf: leaf[None], initialize(key, world))
            carry = jax.tree.map(lambda leaf: leaf[0], driver.prepare(strategy, batch))
            carries, records = [], []
            for round in range(self.options.rounds):
                carries.append(carry)
                carry, record = step(carry, jnp.int32(round), jax.random.fold_in(key, 1), world)
                records.append(record)
            return carries, records

        first, *others = (play(key) for key in self._keys[:SEPARATE])
        return Loop(step, *first, [records for _, records in others], traces, key_reuse)

    def repeat(self) -> list[Record]:
        """Play the first ordinary game again with the same compiled round."""
        key, world = jax.random.fold_in(self._keys[0], 1), jax.tree.map(jnp.asarray, self.world)
        loop = self.loop
        with jax.debug_key_reuse(not loop.key_reuse):  # another setting would recompile the round
            rounds = range(self.options.rounds)
            return [loop.step(loop.carries[round], jnp.int32(round), key, world)[1] for round in rounds]

    def eager_round(self, round: int) -> Record:
        """Play a round of the first ordinary game without compilation."""
        carry, key = self.loop.carries[round], jax.random.fold_in(self._keys[0], 1)
        with jax.disable_jit():
            return driver.one_round(self.strategy, carry, jnp.int32(round), key, self.world)[1]

    @functools.cached_property
    def _keys(self) -> jax.Array:
        """The keys of `games`."""
        return jax.random.split(jax_settings.key(self.options.seed), 3 * self.options.games + 3 * FEW)


class Loop(NamedTuple):
    """Games played round by round."""

    step: Callable[..., Any]  # the compiled round
    carries: list[Carry]  # carries before each round of the first game
    records: list[Record]
    others: list[list[Record]]  # records of the other games
    traces: Counter[str]  # number of traces per hook
    key_reuse: str  # message of JAX's key checker; empty if it found no reuse


def _counted(traces: Counter[str], name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        traces[name] += 1
        return hook(*arguments)

    return call
