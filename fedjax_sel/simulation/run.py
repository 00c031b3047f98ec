"""From a problem to a program on the devices, and through its rounds chunk by chunk."""

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel import devices
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.experiment.problem import Problem
from fedjax_sel.simulation import bill as bills
from fedjax_sel.simulation import client_table, information, keys, layout
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.client_table import HostStore, Kept
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.layout import Layout
from fedjax_sel.simulation.plan import Carry, Plan, Records
from fedjax_sel.simulation.round import many_rounds
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.simulation.server_evaluation import evaluate_for_strategy
from fedjax_sel.strategies import contract, protocol
from fedjax_sel.strategies.base import Env, Information, keep_state


class Program(NamedTuple):
    """A run that is ready to start."""

    plan: Plan
    carry: Carry
    federation: Federation
    streams: Streams
    first: int  # rounds that the carry has behind it
    length: int  # rounds of a chunk
    chunk: Any  # jitted: (carry, first round, federation, streams) -> (carry, records); the carry is donated


def prepare(problem: Problem, eval_every: int | None = None) -> Program:
    """Put the data on the devices, measure what is due before the first round, and build the program.

    Args:
        problem: from `pose`.
        eval_every: overrides the configuration's; 0 for never (benchmarks).

    Returns:
        The program of all seeds; nothing of its rounds is compiled yet.
    """
    return prepare_groups(problem, layout.lay_out(problem, len(problem.config.run.seeds), eval_every))[0]


def prepare_groups(problem: Problem, laid_out: Layout, resumed: "State | None" = None) -> list[Program]:
    """Prepare a program, as `prepare` does, for each group of seeds that take turns (see `chunks`).

    Args:
        problem: from `pose`.
        laid_out: from `layout.lay_out`.
        resumed: where the run goes on, instead of from the start.

    Returns:
        A program for each group. They share images and compiled rounds; the state of each waits in host memory where
        there are several.
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
    out_shardings = (devices.sharding(mesh, per_seed), devices.sharding(mesh, devices.WHOLE))
    chunk = jax.jit(rounds(plan, length, first), donate_argnums=0, out_shardings=out_shardings)

    def starting(federation: Federation, roots: Streams) -> tuple[Carry | None, Streams]:
        carry, streams = begin(plan, federation, roots)
        return (carry if resumed is None else None), streams

    start = jax.jit(devices.over_seeds(mesh, starting, (SPECS, per_seed), per_seed))
    measure = _measuring(plan)
    programs = []
    for place in range(0, len(run.seeds), seeds_at_once):
        own = slice(place, place + seeds_at_once)
        tables = {name: getattr(host, name)[own] for name in fed.PER_REPLICATE}
        federation = Federation(**shared, **devices.place(mesh, tables, per_seed))
        carry, streams = start(federation, devices.place(mesh, jax.tree.map(itemgetter(own), roots), per_seed))
        if resumed is not None:
            carry = jax.tree.map(itemgetter(own), resumed.carry)
        if plan.store is not None:
            carry = _stored(plan, plan.store, carry, own, resumed is None)
        if resumed is None:
            carry = _before_first_round(plan, measure, carry, federation, streams)
        waits = seeds_at_once < len(run.seeds)
        carry = devices.fetch(carry) if waits else devices.place(mesh, carry, per_seed)
        programs.append(Program(plan, carry, federation, streams, first, length, chunk))
    return programs


def _stored(plan: Plan, store: HostStore, carry: Carry, seeds: slice, fresh: bool) -> Carry:
    """Return the carry with a table of clients in host memory, and fill the table."""
    if fresh:
        store.fill(seeds, devices.fetch(jax.jit(jax.vmap(plan.kept_at_first))(carry.params)))
    else:
        assert isinstance(carry.clients, Kept), "a checkpoint holds the table itself"
        store.load(seeds, carry.clients)
    slots = np.arange(seeds.start, seeds.start + len(jax.tree.leaves(carry.params)[0]), dtype=np.int32)
    return carry._replace(clients=devices.place(plan.mesh, client_table.on_host(store, slots), devices.PER_SEED))


class State(NamedTuple):
    """Where a run stands: all that its rounds hand on."""

    rounds: int  # that were run
    carry: Carry  # of all seeds, in host memory


def shapes_of_state(problem: Problem, laid_out: Layout) -> Carry:
    """Return the shapes and dtypes of the carry of all seeds."""
    group = shapes_of_group(problem, laid_out)
    count = len(problem.config.run.seeds)
    carry = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), group)
    store = laid_out.plan.store
    return carry if store is None else carry._replace(clients=store.shapes())


def shapes_of_group(problem: Problem, laid_out: Layout) -> Carry:
    """Return the shapes and dtypes of the carry of one group of seeds."""
    host, plan, seeds_at_once = laid_out
    tables = {name: getattr(host, name)[:seeds_at_once] for name in fed.PER_REPLICATE}
    roots = jax.tree.map(itemgetter(slice(seeds_at_once)), _roots(problem))
    shapes = devices.over_seeds(plan.mesh, partial(begin, plan), (SPECS, devices.PER_SEED), devices.PER_SEED)
    carry, _ = jax.eval_shape(shapes, *jax.tree.map(_shape_of, (host._replace(**tables), roots)))
    return carry


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _roots(problem: Problem) -> Streams:
    run = problem.config.run
    fixed = {"model": run.model_seed, "selection": run.selection_seed, "training": run.training_seed}
    return keys.roots(run.seeds, fixed)


SPECS: Any = Federation(
    *(devices.PER_SEED if name in fed.PER_REPLICATE else devices.WHOLE for name in Federation._fields)  # pyright: ignore
)


def rounds(plan: Plan, length: int, first: int = 0) -> Callable[..., tuple[Carry, Records]]:
    """Return the function of a chunk of rounds on the plan's devices, not yet compiled.

    Args:
        plan: static.
        length: rounds.
        first: rounds before the first chunk.

    Returns:
        (carry, first round, federation, streams) -> (carry, records with leading axes [length, S], on every device).
    """
    some_are_idle = (plan.num_rounds - first) % length != 0

    def chunk(carry, first, federation, streams):
        carry, records = many_rounds(plan, length, some_are_idle, carry, first, federation, streams)
        return carry, devices.of_all_seeds(plan.mesh, records, axis=1)

    in_specs = (devices.PER_SEED, devices.WHOLE, SPECS, devices.PER_SEED)
    return devices.over_seeds(plan.mesh, chunk, in_specs, (devices.PER_SEED, devices.WHOLE))


def begin(plan: Plan, federation: Federation, root_seeds: Streams) -> tuple[Carry, Streams]:
    """Return the state before anything is known, and the random streams."""
    model = plan.trainer.model
    num_classes = federation.label_counts.shape[-1]
    streams = keys.streams(root_seeds)
    params = jax.vmap(model.init)(streams.model)
    num_replicates, num_clients = federation.starts.shape

    def init(stream, sizes, all_sizes):
        env = Env(
            num_clients=num_clients,
            num_selected=plan.num_selected,
            num_rounds=plan.num_rounds,
            num_classes=num_classes,
            num_params=model.num_params,
            sizes=sizes,
            importance=sizes / sizes.sum(),
            all_sizes=all_sizes,
            params=jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), params.trained),
            output_layer=information.output_layer(model),
        )
        with contract.explained("init"):
            return plan.strategy.init(keys.of_round(stream, jnp.int32(keys.INITIALISATION)), env)

    carry = Carry(
        params=params,
        server=jax.vmap(plan.server.init)(params.trained),
        strategy=jax.vmap(init)(streams.selection, federation.train_sizes, federation.sizes),
        info=information.empty(plan.strategy, model, num_replicates, num_clients, num_classes),
        clients=client_table.on_devices(plan.kept_at_first, params, num_clients)
        if plan.store is None
        else client_table.on_host(plan.store, jnp.zeros((num_replicates,), jnp.int32)),  # their places come later
        shared=jax.vmap(plan.trainer.optimizer.init_shared)(params.trained),
        evaluation=evaluate_for_strategy(plan, federation, params),
        start=bills.nothing(num_replicates, num_clients, len(plan.strategy.requests)),
    )
    return jax.tree.map(_of_its_type, carry), streams


def _of_its_type(leaf: jax.Array) -> jax.Array:
    """Return a leaf that no longer adapts its type to others: after a round it would not, and a chunk compile again."""
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.astype(leaf.dtype)


Measure = Callable[[Carry, Federation, Streams], tuple[Information, Bill]]


def _measuring(plan: Plan) -> Measure:
    """Return what serves the requests that are due at the start, compiled once for all groups of seeds."""

    def measure(carry: Carry, federation: Federation, streams: Streams) -> tuple[Information, Bill]:
        context = RoundContext(plan, federation, carry, streams, jnp.int32(0), None)
        return information.measure_at_start(context, carry.info, carry.start)

    in_specs = (devices.PER_SEED, SPECS, devices.PER_SEED)
    return jax.jit(devices.over_seeds(plan.mesh, measure, in_specs, devices.PER_SEED))


def _before_first_round(plan: Plan, measure: Measure, carry: Carry, federation: Federation, streams: Streams) -> Carry:
    """Serve what is due at the start, and let the strategy work on it once, in float64 on the CPU."""
    if protocol.requests_at_start(plan.strategy):
        info, start = measure(carry, federation, streams)
        carry = carry._replace(info=info, start=start)
    if plan.strategy.prepare is keep_state:
        return carry
    host_state, host_info = devices.fetch((carry.strategy, carry.info))
    replicates = range(federation.starts.shape[0])
    states = [protocol.prepare(plan.strategy, *devices.of_replicate((host_state, host_info), s)) for s in replicates]
    stacked = jax.tree.map(devices.stacked, *states)
    return carry._replace(strategy=stacked)


View = Callable[[Carry], Any]
"""Carry of a group of seeds -> a pytree of its leaves."""


class Chunk(NamedTuple):
    """Rounds that were begun."""

    first: int  # rounds before them
    records: Records  # leading axes [rounds, S], still on the device: ask a leaf `is_ready()`, or fetch it
    copy_state: Callable[[], State]  # of the state after them, on the device; only before the next chunk is asked for
    copy: Callable[[View], Any]  # what a view sees of that state; only before the next chunk is asked for


def chunks(*programs: Program) -> Iterator[Chunk]:
    """Run all rounds of one program, or of several groups of seeds that take turns: a chunk of each, then the next.

    Rounds past the end are not among the records.
    """
    carries, plan, length = [program.carry for program in programs], programs[0].plan, programs[0].length
    for first in range(programs[0].first, plan.num_rounds, length):
        parts = []
        for turn, program in enumerate(programs):
            carry = devices.place(plan.mesh, carries[turn], devices.PER_SEED)
            carries[turn], records = program.chunk(carry, np.int32(first), program.federation, program.streams)
            if len(programs) > 1:
                carries[turn] = devices.fetch(carries[turn])
            parts.append(records)
        records = parts[0]
        if len(parts) > 1:
            records = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *parts)
        left = plan.num_rounds - first
        records = records if left >= length else jax.tree.map(itemgetter(slice(left)), records)
        copy_state = partial(_copy_state, min(first + length, plan.num_rounds), carries, plan.store)
        yield Chunk(first, records, copy_state, partial(_copy_view, carries))


def seen_at_first(programs: list[Program], view: View) -> Any:
    """Return what is seen of all seeds before the rounds of their programs, in host memory."""
    return devices.fetch(_copy_view([program.carry for program in programs], view))


def _copy_view(carries: list[Any], view: View) -> Any:
    parts = [view(carry) for carry in carries]
    return jax.tree.map(_joined, *parts) if len(parts) > 1 else _copy(parts[0])


def _copy_state(rounds: int, carries: list[Any], store: HostStore | None) -> State:
    if store is not None:  # it is whole when the chunk is computed
        carries = [carry._replace(clients=None) for carry in jax.block_until_ready(carries)]
    carry = jax.tree.map(_joined, *carries) if len(carries) > 1 else _copy(carries[0])
    return State(rounds, carry if store is None else carry._replace(clients=store.copy()))


def _joined(*leaves: Any) -> Any:
    """Join the leaves of groups in host memory, where random keys are jax arrays, too."""
    return np.concatenate(leaves) if isinstance(leaves[0], np.ndarray) else jnp.concatenate(leaves)


@jax.jit
def _copy(tree: Any) -> Any:
    return jax.tree.map(jnp.copy, tree)
