"""The cost of selection alone: a strategy's own computation per round, with training and measurement stubbed.

A round here is `observe`, `candidates`, `select` and `update`, on random facts and updates of the real shapes. Facts
arrive on the strategy's schedule, with the ages that they have in a run, so work that is due in some rounds only counts
in proportion. The device layout is that of a run: if several devices share a seed's clients, all of them select.

Shapes: S replicates, N clients, K places of a cohort.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel import Experiment, devices
from fedjax_sel.core import jax_settings, memory
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.models import Model
from fedjax_sel.simulation.layout import lay_out
from fedjax_sel.simulation.ledger import distinct, fact_counts
from fedjax_sel.simulation.run import initial_states, state_shapes
from fedjax_sel.simulation.state import output_layer
from fedjax_sel.strategies import contract, protocol
from fedjax_sel.strategies.contract import Env, Fact, Information, Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.protocol import Keys, SelectionState

ROUNDS_A_CALL = 10
BUDGET_SECONDS = 10.0  # of timed rounds; fewer if the configured rounds take less


class Setting(NamedTuple):
    """Inputs of the cost: strategy, model and problem sizes."""

    strategy: Strategy
    model: Model
    num_classes: int  # C
    cohort_size: int
    num_rounds: int  # T
    sizes: np.ndarray  # examples of each client, int32 [S, N]; only their shares matter
    available: float | None = None  # probability that a client is available; None: all are, and no mask is passed
    has_clock: bool = False

    @property
    def num_places(self) -> int:
        """Number of places of a cohort, K."""
        return self.strategy.num_places(self.sizes.shape[1], self.cohort_size)


class Cost(NamedTuple):
    """Cost of a strategy's selection."""

    seconds_per_round: float  # all replicates together
    rounds: int  # number of timed rounds
    compile_seconds: float
    peak_bytes: int  # memory of the program on all devices: state, facts, updates, and temporary arrays
    state_bytes: int  # size of the strategy's state
    fact_bytes: int  # size of the fact tables


class _Carry(NamedTuple):
    """The scan carry of the benchmark, leaves [S, ...]."""

    state: Any
    info: Information


class _Stubs(NamedTuple):
    """Random finite stand-ins for measurements; passed as arguments, so that XLA cannot fold them as constants."""

    keys: jax.Array  # [S]
    env: Env
    facts: Information
    updates: Any  # the model's pytree, [S, K, ...]


def problem_setting(problem: Problem) -> Setting:
    """Return the setting of a run."""
    config = problem.config
    table, share = problem.availability_trace, config.selection.available_share
    if problem.mode is not None:
        table = lay_out(problem, len(config.run.seeds)).federation.availability_table
    elif table is not None:
        table = table[: config.run.rounds]
    return Setting(
        strategy=problem.strategy,
        model=problem.model,
        num_classes=problem.dataset.num_classes,
        cohort_size=config.cohort_size,
        num_rounds=config.run.rounds,
        sizes=np.stack([part.sizes for part in problem.partitions]).astype(np.int32),
        available=(None if share == 1.0 else share) if table is None else float(table.mean()),
        has_clock=problem.law is not None,
    )


def selection_seconds(experiment: Experiment, budget_seconds: float = BUDGET_SECONDS) -> float:
    """Return the seconds per round that selection takes on this machine, all replicates together."""
    return measure(problem_setting(pose(experiment)), budget_seconds).seconds_per_round


def measure(setting: Setting, budget_seconds: float = BUDGET_SECONDS, most_bytes: int | None = None) -> Cost:
    """Compile and time a strategy's rounds, from the first one on, for `budget_seconds` of timed seconds.

    Each call runs ten rounds; none starts after the budget. A shorter last call would need another program and is left
    out. A MemoryError is raised before state and facts together, or the whole program, take more than `most_bytes`.
    """
    key = jax_settings.key(0)
    initial: Callable[[jax.Array], tuple[jax.Array, _Carry, _Stubs]] = partial(_initial, setting)
    of_state, carry, stubs = jax.eval_shape(initial, key)
    stream, env, info = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (of_state, stubs.env, carry.info)
    )
    carry = carry._replace(state=state_shapes(setting.strategy, stream, env, info, len(setting.sizes)))
    state_bytes, fact_bytes = memory.array_bytes(carry.state), memory.array_bytes(carry.info)
    _check_bytes("state and facts", state_bytes + fact_bytes, most_bytes)
    started = time.perf_counter()
    mesh = devices.make_mesh(len(setting.sizes), setting.num_places, num_blocks=1)
    per_seed = devices.PER_SEED
    rounds = devices.over_seeds(mesh, partial(_rounds, setting), (per_seed, devices.WHOLE, per_seed), per_seed)
    program = jax.jit(rounds, donate_argnums=0).lower(carry, jnp.int32(0), stubs).compile()
    compile_seconds = time.perf_counter() - started
    program_bytes = mesh.size * memory.program_bytes(program)
    _check_bytes("the program", program_bytes, most_bytes)

    of_state, carry, stubs = jax.jit(initial)(key)
    carry = carry._replace(state=initial_states(setting.strategy, *jax.device_get((of_state, stubs.env, carry.info))))
    carry, stubs = devices.place(mesh, (carry, stubs), per_seed)
    jax.block_until_ready(program(jax.tree.map(jnp.copy, carry), jnp.int32(0), stubs))  # not timed
    length = min(ROUNDS_A_CALL, setting.num_rounds)
    spent, done = 0.0, 0
    while done + length <= setting.num_rounds and spent < budget_seconds:
        started = time.perf_counter()
        carry = jax.block_until_ready(program(carry, jnp.int32(done), stubs))[0]
        spent += time.perf_counter() - started
        done += length
    return Cost(spent / done, done, compile_seconds, program_bytes, state_bytes, fact_bytes)


def _check_bytes(what: str, size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise MemoryError(f"{what} would take {size / 1e6:,.1f} MB, more than the {most / 1e6:,.1f} MB allowed")


def _initial(setting: Setting, key: jax.Array) -> tuple[jax.Array, _Carry, _Stubs]:
    """Return the keys of `init`, the carry before the first round but for the state, and the stubs."""
    strategy, model = setting.strategy, setting.model
    num_replicates, num_clients = setting.sizes.shape
    key_state, key_facts, key_updates, key_rounds = jax.random.split(key, 4)

    sizes = jnp.asarray(setting.sizes)
    counts = (num_clients, setting.cohort_size, setting.num_rounds, setting.num_classes, model.num_params)
    shares = sizes / sizes.sum(axis=1, keepdims=True)
    env = Env(
        *counts, sizes, shares, sizes, jax.eval_shape(model.init, key).trained, output_layer(model), setting.has_clock
    )
    of_facts = fact_counts(model, setting.num_classes)
    empty = protocol.empty_information(strategy, of_facts, num_replicates, num_clients)
    info = facts = empty
    for position, kind in enumerate(empty.kinds()):
        fact: Fact = getattr(empty, kind)
        value = jax.random.uniform(jax.random.fold_in(key_facts, position), fact.value.shape)
        facts = facts.replace(kind, Fact(value, jnp.zeros_like(fact.age)))
    for _, request in protocol.requests_at_start(strategy):
        info = info.replace(request.kind, getattr(facts, request.kind))
    shapes = jax.eval_shape(model.init, key).trained
    leaves, structure = jax.tree.flatten(shapes)
    updates = [
        0.01 * jax.random.normal(key, (num_replicates, setting.num_places, *leaf.shape), jnp.float32)
        for key, leaf in zip(jax.random.split(key_updates, len(leaves)), leaves)
    ]
    stubs = _Stubs(jax.random.split(key_rounds, num_replicates), env, facts, jax.tree.unflatten(structure, updates))
    return jax.random.split(key_state, num_replicates), _Carry((), info), stubs


def _rounds(setting: Setting, carry: _Carry, first: jax.Array, stubs: _Stubs) -> tuple[_Carry, Selection]:
    """Run the rounds from `first` on, for all replicates; selections are [S, rounds, ...]."""

    def body(carry: _Carry, round: jax.Array):
        return jax.vmap(partial(_round, setting), in_axes=(0, None, 0))(carry, round, stubs)

    rounds = first + jnp.arange(min(ROUNDS_A_CALL, setting.num_rounds), dtype=jnp.int32)
    carry, selections = lax.scan(body, carry, rounds)
    return carry, jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), selections)


def _round(setting: Setting, carry: _Carry, round: jax.Array, stubs: _Stubs) -> tuple[_Carry, Selection]:
    """Run one round of one replicate; as in a real run, the round number is not batched."""
    strategy, num_clients = setting.strategy, setting.sizes.shape[1]
    keys = jax.random.split(jax.random.fold_in(stubs.keys, round), 5)
    level = jax.random.uniform(keys[0], minval=0.5, maxval=1.0)  # a different scale of facts and updates each round
    share = setting.available
    available = None if share is None else jax.random.uniform(keys[1], (num_clients,)) < share
    reachable = jnp.ones((num_clients,), bool) if available is None else available

    def serve(info: Information, bill: None, who: str, ids=None, mask=None, arrives=None) -> tuple[Information, None]:
        queried = reachable
        if ids is not None:
            queried = distinct(ids[None], (reachable[ids] if mask is None else mask)[None], num_clients)[0]
        for _, request in protocol.requests_to(strategy, who):
            values = level * getattr(stubs.facts, request.kind).value
            info = protocol.enter_answers(info, request.kind, values, queried & request.when.due(round))
        return info, bill

    selection_state = SelectionState(carry.state, Now(stubs.env, carry.info, round, available))
    selection_state, (selection, _) = protocol.select(strategy, serve, selection_state, Keys(keys[2], keys[3]))
    selection_state = protocol.query_cohort(serve, selection_state, selection)
    updates = jax.tree.map(lambda leaf: level * leaf, stubs.updates)
    losses = jax.random.uniform(keys[4], (2, setting.num_places))
    step, yes = jax.tree.map(lambda leaf: leaf[0], updates), jnp.ones((setting.num_places,), bool)
    metrics, lengths = contract.Unrequested(strategy.name, "server_metrics"), jnp.full((setting.num_places,), 0.1)
    if any(request.kind == "server_metrics" for request in strategy.requests):
        before = contract.Evaluation((1000 * level).astype(jnp.int32), level, 1 - level)
        metrics = contract.ServerMetrics(before, before._replace(accuracy=level**2))
    subset_loss = protocol.subset_loss_placeholder(strategy, losses[1])
    seconds = 10 * losses[0] if setting.has_clock else None
    outcome = Outcome(updates, losses[0], losses[1], step, selection.mask, yes, metrics, lengths, subset_loss, seconds)
    selection_state = protocol.learn(strategy, selection_state, selection, outcome)
    return _Carry(selection_state.state, selection_state.now.info), selection
