"""A run as compiled programs: start, measurement, and chunks of rounds, with the memory they need."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from fedjax_sel import devices
from fedjax_sel.core import jax_settings
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.simulation import asynchronous, clock, keys, late, layout, ledger, queries
from fedjax_sel.simulation.availability import available_clients
from fedjax_sel.simulation.evaluation import evaluate_for_strategy
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.layout import Layout
from fedjax_sel.simulation.ledger import Bill
from fedjax_sel.simulation.round import one_round
from fedjax_sel.simulation.state import Carry, Plan, Records, RoundContext, env_of
from fedjax_sel.strategies import checks, protocol
from fedjax_sel.strategies.contract import Env, Information, Now, Strategy, no_state


class Program(NamedTuple):
    """A run that is ready to start."""

    plan: Plan
    carry: Carry
    federation: Federation
    streams: Streams
    first: int  # number of completed rounds at the start
    length: int  # rounds per chunk
    chunk: Any  # jitted: (carry, first round, federation, streams) -> (carry, records); the carry is donated


def prepare(problem: Problem, eval_every: int | None = None) -> Program:
    """Put the data on the devices, measure the facts due before the first round, and build the program of all seeds.

    The rounds are not compiled yet. `eval_every` overrides the configured period; 0 disables evaluation (benchmarks).
    """
    return prepare_groups(problem, layout.lay_out(problem, len(problem.config.run.seeds), eval_every))[0]


def prepare_groups(problem: Problem, laid_out: Layout, resumed: "State | None" = None) -> list[Program]:
    """Prepare one program per group of seeds; groups take turns on the devices (see `chunks`).

    The programs share images and compiled rounds. If there are several, each state waits in host memory for its turn.
    `resumed` is the state to resume from; None starts a new run.
    """
    run = problem.config.run
    devices.keep_programs()
    host, plan, seeds_at_once = laid_out
    mesh, per_seed = plan.mesh, devices.PER_SEED
    shared = {name: getattr(host, name) for name in Federation._fields if name not in fed.PER_REPLICATE}
    shared = devices.place(mesh, shared, devices.WHOLE)
    roots = _roots(problem)
    first = 0 if resumed is None else resumed.rounds
    length = min(run.chunk, run.rounds)
    out_shardings = (NamedSharding(mesh, per_seed), NamedSharding(mesh, devices.WHOLE))
    chunk = jax.jit(rounds(plan, length, first), donate_argnums=0, out_shardings=out_shardings)

    def starting(federation: Federation, roots: Streams) -> tuple[Carry | None, Streams]:
        carry, streams = initial_state(plan, federation, roots)
        return (carry if resumed is None else None), streams

    start = jax.jit(devices.over_seeds(mesh, starting, (SPECS, per_seed), per_seed))
    measure = _measure_at_start(plan)
    programs = []
    for place in range(0, len(run.seeds), seeds_at_once):
        own = slice(place, place + seeds_at_once)
        tables = fed.seeds_tables(host, own)
        federation = Federation(**shared, **devices.place(mesh, tables, per_seed))
        carry, streams = start(federation, devices.place(mesh, jax.tree.map(itemgetter(own), roots), per_seed))
        if resumed is not None:
            carry = jax.tree.map(itemgetter(own), resumed.carry)
        else:
            if protocol.requests_at_start(plan.strategy):
                info, bill = measure(carry, federation, streams)
                carry = carry._replace(info=info, start=bill, answered=jax.tree.map(jnp.copy, bill.perturbed))
            carry = carry._replace(strategy=_initial_states(plan, carry, federation, streams))
        waits = seeds_at_once < len(run.seeds)
        carry = jax.device_get(carry) if waits else devices.place(mesh, carry, per_seed)
        programs.append(Program(plan, carry, federation, streams, first, length, chunk))
    return programs


class State(NamedTuple):
    """A run's complete state between two chunks."""

    rounds: int  # number of completed rounds
    carry: Carry  # all seeds, in host memory


def shapes_of_state(problem: Problem, laid_out: Layout) -> Carry:
    """Return the shapes and dtypes of the carry of all seeds."""
    group = shapes_of_group(problem, laid_out)
    count = len(problem.config.run.seeds)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), group)


def shapes_of_group(problem: Problem, laid_out: Layout) -> Carry:
    """Return the shapes and dtypes of the carry of one group of seeds."""
    host, plan, seeds_at_once = laid_out
    tables = fed.seeds_tables(host, slice(seeds_at_once))
    roots = jax.tree.map(itemgetter(slice(seeds_at_once)), _roots(problem))
    start = devices.over_seeds(plan.mesh, partial(initial_state, plan), (SPECS, devices.PER_SEED), devices.PER_SEED)
    inputs = (host._replace(**tables), roots)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), inputs)
    carry, streams = jax.eval_shape(start, *shapes)
    of_start = jax.eval_shape(partial(_of_start, plan), carry, shapes[0], streams)
    key, env, info = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), of_start)
    return carry._replace(strategy=state_shapes(plan.strategy, key, env, info, seeds_at_once))


def _roots(problem: Problem) -> Streams:
    run = problem.config.run
    fixed = {"model": run.model_seed, "selection": run.selection_seed, "training": run.training_seed}
    return keys.roots(run.seeds, fixed, problem.config.hidden_unit is not None)


SPECS: Any = Federation(
    *(devices.PER_SEED if name in fed.PER_REPLICATE else devices.WHOLE for name in Federation._fields)  # pyright: ignore
)


def rounds(plan: Plan, length: int, first: int = 0) -> Callable[..., tuple[Carry, Records]]:
    """Return the function that runs a chunk of `length` rounds on the plan's devices, not yet compiled.

    It is (carry, first round, federation, streams) -> (carry, records with leading axes [length, S], on every device).
    `first` is the number of completed rounds before the first chunk. In the first and the last chunk, rounds past the
    chunk's end may be idle and change nothing; see `chunks`.
    """
    some_are_idle = plan.num_rounds % length != 0 or first % length != 0

    def chunk(carry, first, federation, streams):
        step = one_round if plan.asynchrony is None else _in_flight(plan).one_step

        def body(carry: Carry, round: jax.Array):
            @jax_settings.traced_once
            def run(carry: Carry) -> tuple[Carry, Records]:
                return step(plan, carry, round, federation, streams)

            if not some_are_idle:
                return run(carry)
            is_due = (round // length == first // length) & (round < plan.num_rounds)
            idle = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(run, carry)[1])
            return lax.cond(is_due, run, lambda carry: (carry, idle), carry)

        carry, records = lax.scan(body, carry, first + jnp.arange(length, dtype=jnp.int32))
        if plan.mesh.shape[devices.SEEDS] > 1:  # all devices get the records of all seeds
            records = lax.all_gather(records, devices.SEEDS, axis=1, tiled=True)
        return carry, records

    in_specs = (devices.PER_SEED, devices.WHOLE, SPECS, devices.PER_SEED)
    return devices.over_seeds(plan.mesh, chunk, in_specs, (devices.PER_SEED, devices.WHOLE))


def initial_state(plan: Plan, federation: Federation, root_seeds: Streams) -> tuple[Carry, Streams]:
    """Return the state before any fact is measured, and the random streams."""
    model, num_classes = plan.trainer.model, federation.label_counts.shape[-1]
    streams = keys.streams(root_seeds)
    params = jax.vmap(model.init)(streams.model)
    num_replicates, num_clients = federation.starts.shape
    clients = jax.tree.map(
        lambda leaf: jnp.zeros((num_replicates, num_clients, *leaf.shape[1:]), leaf.dtype) + leaf[:, None],
        jax.vmap(plan.kept_at_first)(params),
    )
    noisy = plan.noise is not None
    of_facts = ledger.fact_counts(model, num_classes)
    carry = Carry(
        params=params,
        server=jax.vmap(plan.server.init)(params.trained),
        strategy=(),  # `_initial_states` sets it
        info=protocol.empty_information(plan.strategy, of_facts, num_replicates, num_clients),
        clients=clients,
        shared=jax.vmap(plan.trainer.optimizer.init_shared)(params.trained),
        evaluation=evaluate_for_strategy(plan, federation, params),
        start=ledger.empty_bill(
            num_replicates, num_clients, len(plan.strategy.requests), plan.clock is not None, noisy
        ),
        answered=jnp.zeros((num_replicates, num_clients), jnp.int32) if noisy else None,
        trainings=None if plan.private_training is None else jnp.zeros((num_replicates, num_clients), jnp.int32),
    )
    seconds = None if plan.availability_seconds == 0 else jnp.zeros((num_replicates,))
    flight = None if plan.asynchrony is None else _in_flight(plan).empty_flight(plan, carry)
    carry = carry._replace(flight=flight, clock=seconds)
    return jax.tree.map(_strongly_typed, carry), streams


def _in_flight(plan: Plan) -> Any:
    """Return the module of rounds whose reports outlast them."""
    assert plan.asynchrony is not None
    return late if plan.asynchrony.concurrency is None else asynchronous


def _strongly_typed(leaf: jax.Array) -> jax.Array:
    """Remove a leaf's weak type: a round's output has none, so the second chunk would compile again."""
    return leaf if jax_settings.is_key(leaf) else leaf.astype(leaf.dtype)


def _measure_at_start(plan: Plan) -> Callable[[Carry, Federation, Streams], tuple[Information, Bill]]:
    """Return the jitted function that measures the facts due at the start; all groups of seeds share it."""

    def measure(carry: Carry, federation: Federation, streams: Streams) -> tuple[Information, Bill]:
        timing, first = clock.speeds(plan, federation.timing, streams, jnp.int32(keys.START)), jnp.int32(0)
        available = None if plan.all_at_start else available_clients(plan, federation, streams, first, carry.clock)
        context = RoundContext(plan, federation, carry, streams, first, available, timing)
        return queries.measure_at_start(context, carry.info, carry.start)

    in_specs = (devices.PER_SEED, SPECS, devices.PER_SEED)
    return jax.jit(devices.over_seeds(plan.mesh, measure, in_specs, devices.PER_SEED))


def _initial_states(plan: Plan, carry: Carry, federation: Federation, streams: Streams) -> Any:
    """Return the strategy's states before the first round, [S, ...] in host memory."""
    if plan.strategy.init is no_state:
        return ()
    on_host = jax.device_get(jax.jit(partial(_of_start, plan))(carry, federation, streams))
    return initial_states(plan.strategy, *on_host)


def _of_start(plan: Plan, carry: Carry, federation: Federation, streams: Streams) -> tuple[jax.Array, Env, Information]:
    """Return what `init` reads, leaves [S, ...]: a key, the environment, and the facts measured at the start."""
    start = jax.vmap(lambda stream: keys.round_key(stream, jnp.int32(keys.START)))(streams.selection)
    return start, env_of(plan, federation, carry.params.trained), carry.info


def initial_states(strategy: Strategy, stream: Any, env: Env, info: Information) -> Any:
    """Return the states before the first round from what `init` reads, leaves [S, ...] in host memory."""
    states = []
    for replicate in range(env.sizes.shape[0]):
        key, own, facts = devices.replicate_slice((stream, env, info), replicate)
        with checks.explained("init"):
            states.append(protocol.initial_state(strategy, key, Now(own, facts, jnp.int32(0), None)))
    return jax.tree.map(devices.stacked, *states)


def state_shapes(strategy: Strategy, key: Any, env: Env, info: Information, num_replicates: int) -> Any:
    """Return the shapes of `initial_states`, from the shapes of one replicate's arguments of `init`."""
    now = Now(env, info, jax.ShapeDtypeStruct((), jnp.int32), None)  # pyright: ignore
    with checks.explained("init"):
        state = protocol.state_shapes(strategy, key, now)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num_replicates, *leaf.shape), leaf.dtype), state)


View = Callable[[Carry], Any]
"""Function (carry of a group of seeds) -> a pytree of some of its leaves."""


class Chunk(NamedTuple):
    """A chunk of dispatched rounds; its results may still be computing."""

    first: int  # number of the first round
    records: Records  # leading axes [rounds, S], on the device: test a leaf with `is_ready()`, or fetch it
    copy: Callable[[View], Any]  # copies a view of the state after the chunk; call it before requesting the next chunk


def chunks(*programs: Program) -> Iterator[Chunk]:
    """Run all rounds, chunk by chunk; of several groups of seeds, each runs its chunk in turn.

    Chunks end at multiples of their length, or at the run's end; so do those after an extension. The records do not
    include idle rounds.
    """
    carries, plan, length = [program.carry for program in programs], programs[0].plan, programs[0].length
    first = programs[0].first
    while first < plan.num_rounds:
        end, parts = min((first // length + 1) * length, plan.num_rounds), []
        for turn, program in enumerate(programs):
            carry = devices.place(plan.mesh, carries[turn], devices.PER_SEED)
            carries[turn], records = program.chunk(carry, np.int32(first), program.federation, program.streams)
            if len(programs) > 1:
                carries[turn] = jax.device_get(carries[turn])
            parts.append(records)
        records = parts[0]
        if len(parts) > 1:
            records = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)
        records = records if end - first == length else jax.tree.map(itemgetter(slice(end - first)), records)
        yield Chunk(first, records, partial(_copy_view, carries))
        first = end


def seen_at_first(programs: list[Program], view: View) -> Any:
    """Return a view of the programs' starting state, all seeds, in host memory."""
    return jax.device_get(_copy_view([program.carry for program in programs], view))


def _copy_view(carries: list[Any], view: View) -> Any:
    parts = [view(carry) for carry in carries]
    return jax.tree.map(_joined, *parts) if len(parts) > 1 else _copy(parts[0])


def _joined(*leaves: Any) -> Any:
    """Concatenate the leaves of groups in host memory; random keys are JAX arrays there, too."""
    return np.concatenate(leaves) if isinstance(leaves[0], np.ndarray) else jnp.concatenate(leaves)


@jax.jit
def _copy(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)
