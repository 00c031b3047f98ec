"""Loss changes of all clients under many random cohorts: the distribution that FedCor's Gaussian process models.

Each client trains once from the round's model, and each cohort's model averages its clients' reports. A thousand
cohorts then cost one training of all clients and a thousand evaluations. All clients are available, no report is lost.
Shapes: S replicates, N clients, K selected, M cohorts, B cohorts at once.

Under FedAvg a cohort's model is a linear combination of the global model and the clients' updates, and so are the
outputs of its first layer. For the MLP, whose first layer takes nearly all of the work, one product per client
therefore replaces one per cohort.
"""

import io
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel import Config, Result, devices
from fedjax_sel.core import files
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models.core import Weights
from fedjax_sel.numerics import sampling
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.simulation import keys, layout, run
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.run import SPECS, Program
from fedjax_sel.simulation.state import Carry, Plan, RoundContext, ToTrain, to_train
from fedjax_sel.training import client, server
from studies.papers import state
from studies.papers.entry import Measure, Scale

COHORTS_AT_ONCE = 50
CALLED_AT_ONCE = 20  # such groups, if they share the outputs of the first layer
FIRST_LAYER = "Dense_0"  # of the MLP


class Piece(NamedTuple):
    """A batch of cohorts and their loss changes."""

    cohorts: np.ndarray  # client IDs, int32 [S, B, K]
    changes: np.ndarray  # changes of the clients' losses, float32 [S, B, N], nats


class _Reports(NamedTuple):
    """Reports of all clients and their losses at w^t, leaves [S, N, ...]."""

    averaged: Any  # pair: `Report.averaged`, and changes of non-trained model state; zeros if not finite
    finite: jax.Array  # bool
    loss: jax.Array  # nats


class Meter:
    """Measures loss changes in any round of one program; it compiles once."""

    def __init__(self, program: Program, at_once: int = COHORTS_AT_ONCE, shares_first_layer: bool = False):
        """Build the functions; they compile at the first measurement.

        Args:
            program: program that holds all seeds.
            at_once: cohorts whose models are evaluated together, B; bounds the memory.
            shares_first_layer: whether to combine the outputs of the first layer; for the MLP under FedAvg.
        """
        groups = CALLED_AT_ONCE if shares_first_layer else 1
        self._program, self._at_once = program, groups * at_once
        plan = program.plan
        per_seed, whole = devices.PER_SEED, devices.WHOLE
        train = partial(_train_all_clients, plan)
        self._train = jax.jit(devices.over_seeds(plan.mesh, train, (per_seed, whole, SPECS, per_seed), per_seed))
        pieces = partial(_losses, plan, groups, at_once, shares_first_layer)
        specs = (per_seed, per_seed, whole, whole, SPECS, per_seed)
        self._losses = jax.jit(devices.over_seeds(plan.mesh, pieces, specs, per_seed))

    def measure(self, carry: Carry, round: int, cohorts: int) -> Iterator[Piece]:
        """Measure every client's loss change under random cohorts, in batches.

        Cohort m is the cohort that a strategy's probe m would draw in this round.

        Args:
            carry: the run's state at w^t, leaves [S, ...].
            round: t, from 0.
            cohorts: number of cohorts, M.

        Yields:
            Batches of cohorts; the last may be smaller.
        """
        program = self._program
        carry = devices.place(program.plan.mesh, carry, devices.PER_SEED)
        now = np.int32(round)
        reports = self._train(carry, now, program.federation, program.streams)
        for first in range(0, cohorts, self._at_once):
            found = self._losses(reports, carry, now, np.int32(first), program.federation, program.streams)
            drawn, changes = jax.tree.map(np.asarray, jax.device_get(found))
            kept = min(self._at_once, cohorts - first)
            yield Piece(drawn[:, :kept], changes[:, :kept])


def _train_all_clients(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> _Reports:
    context = RoundContext(plan, federation, carry, streams, round, None)
    num_replicates, num_clients = federation.starts.shape
    replicates, clients = devices.pairs(num_replicates, jnp.arange(num_clients))
    job_keys = jax.vmap(lambda s, k: keys.client_key(streams.training[s], round, k))(replicates, clients)

    def train(shared: ToTrain, job: Any) -> _Reports:
        replicate, who, key = job
        kept = shared.kept(replicate, who)
        memory, received = shared.memory(replicate, kept), shared.received(replicate)
        result = client.train_and_report(
            plan.trainer, shared.federation, received, replicate, who, key, shared.round, None, kept.optimizer, memory
        )
        averaged = plan.trainer.optimizer.report(result.finished, memory).averaged, result.update.carried
        finite = server.is_finite(averaged)
        part = fed.loss_part(shared.federation, replicate, who, plan.loss_on)
        before = client.loss(plan.trainer, shared.federation, received, part)
        return _Reports(server.finite_part(averaged, finite), finite, before)

    jobs = (replicates, clients, job_keys)
    results = devices.spread(plan.mesh, train, to_train(context), jobs, plan.facts_at_once)
    return devices.unflatten(results, num_replicates)


def _losses(
    plan: Plan,
    groups: int,
    at_once: int,
    shares_first_layer: bool,
    reports: _Reports,
    carry: Carry,
    round: jax.Array,
    first: jax.Array,
    federation: Federation,
    streams: Streams,
) -> tuple[jax.Array, jax.Array]:
    """Return groups x B = M cohorts from number `first` on, int32 [S, M, K], and loss changes, float32 [S, M, N]."""
    num_replicates, num_clients = federation.starts.shape
    trainer = plan.trainer

    def models_of(stream, sizes, reports, state, params):
        def of_cohort(number):
            key = jax.random.fold_in(keys.probe_key(stream, round, number), keys.COHORT)
            cohort = sampling.uniform_without_replacement(key, num_clients, plan.cohort_size, None)
            all_train = jnp.ones(cohort.shape, bool)
            inclusion = jnp.full(cohort.shape, plan.cohort_size / num_clients)
            own = server.cohort_weights(plan.aggregation, sizes[cohort], all_train, sizes.sum(), inclusion)
            weights = jnp.where(reports.finite[cohort], own, 0.0)
            sums = jax.tree.map(
                lambda leaf: jnp.tensordot(weights, leaf[cohort], 1, precision=lax.Precision.HIGHEST),
                reports.averaged,
            )
            averaged, carried = server.mean_of_reports(sums, own, reports.finite[cohort])
            mean_update = Weights(trainer.optimizer.combine(averaged), carried)
            arrived = reports.finite[cohort].any()
            return cohort, server.new_model(plan.server, state, params, mean_update, arrived)[0]

        return lax.map(of_cohort, first + jnp.arange(groups * at_once))

    averages = (streams.facts, federation.train_sizes, reports, carry.server, carry.params)
    cohorts, models = jax.vmap(models_of)(*averages)
    parts, coefficients = (), jnp.zeros((num_replicates,))  # unused
    if shares_first_layer:
        # The coefficients of a cohort's model: the same average of unit vectors.
        parts = jax.tree.map(lambda *leaves: jnp.concatenate([leaves[0], leaves[1][:, None]], 1),
                             Weights(*reports.averaged), carry.params)  # fmt: skip
        units = jnp.broadcast_to(jnp.eye(num_clients + 1), (num_replicates, num_clients + 1, num_clients + 1))
        of_reports = reports._replace(averaged=(units[:, :-1], ()))
        coefficients = jax.vmap(models_of)(*averages[:2], of_reports, carry.server, Weights(units[:, -1]))[1].trained

    def evaluate(shared, job):
        """Return a client's losses at all models, [M]; one pass over its examples serves all of them."""
        federation, *by_replicate = shared
        replicate, who = job
        models, parts, coefficients = devices.replicate_slice(tuple(by_replicate), replicate)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)

        def totals(inputs, targets, counts):
            def total(weights, inputs):
                losses = client.example_losses(trainer.model, trainer.task, weights, inputs, targets)
                return jnp.sum(jnp.where(counts, losses, 0.0))

            if not shares_first_layer:
                return lax.map(lambda weights: total(weights, inputs), models)
            outputs: Any = jax.vmap(lambda part: trainer.model.apply(part, inputs, None).profile)(parts)

            def of_group(group):  # `outputs` is [N + 1, examples, Q]
                models, coefficients = group
                combined = jnp.tensordot(coefficients, outputs, 1, precision=lax.Precision.HIGHEST)
                with nn.intercept_methods(_skip_first_layer):
                    return lax.map(lambda pair: total(*pair), (models, combined))

            grouped = jax.tree.map(lambda leaf: leaf.reshape(groups, at_once, *leaf.shape[1:]), (models, coefficients))
            return lax.map(of_group, grouped).reshape(-1)

        return client.mean_over(trainer, federation, part, totals)

    jobs = devices.pairs(num_replicates, jnp.arange(num_clients))
    shared = (federation, models, parts, coefficients)
    after = devices.spread(plan.mesh, evaluate, shared, jobs, plan.facts_at_once)
    after = devices.unflatten(after, num_replicates)  # [S, N, M]
    return cohorts, jnp.swapaxes(after, 1, 2) - reports.loss[:, None]


def _skip_first_layer(apply: Any, args: tuple[Any, ...], kwargs: Any, context: nn.module.InterceptorContext) -> Any:
    """Return the input of the first layer, which stands for its output; apply other methods."""
    is_first = context.module.path == (FIRST_LAYER,) and context.method_name == "__call__"
    return args[0] if is_first else apply(*args, **kwargs)


COHORTS = 1000  # the paper's
FOLDER = "loss_changes"
_CHANGES, _COHORTS, _SECONDS = "changes", "cohorts", "seconds"


def cohorts(scale: Scale) -> int:
    """Return the number of random cohorts per round: the paper's number, or a fraction of it."""
    return max(2, round(scale.share * COHORTS))


def rounds_of(config: Config) -> tuple[int, ...]:
    """Return the measured rounds of a run, from 0."""
    every, rounds = config.run.checkpoint_every, config.run.rounds
    return (rounds,) if every is None else tuple(range(0, rounds, every))


def read(result: Result, scale: Scale) -> dict[int, np.ndarray]:
    """Return the measured loss changes of a run.

    Args:
        result: result of a run with a folder.
        scale: scale, which determines the number of cohorts.

    Returns:
        The clients' loss changes by round, nats, float32 [seeds, cohorts, N], without missing or damaged rounds.
    """
    return {round: arrays[_CHANGES] for round, arrays in _kept(result, scale).items()}


def drawn(result: Result, scale: Scale) -> dict[int, np.ndarray]:
    """Return the random cohorts behind the loss changes of `read`, by round, int32 [seeds, cohorts, K]."""
    return {round: arrays[_COHORTS] for round, arrays in _kept(result, scale).items()}


def is_there(result: Result, scale: Scale) -> bool:
    """Return whether all rounds of a run are measured."""
    return len(_kept(result, scale)) == len(rounds_of(result.config))


def took(result: Result, scale: Scale) -> float:
    """Return the seconds of the measurement, with compilation; NaN if an earlier version did not record them."""
    return sum(float(arrays.get(_SECONDS, np.nan)) for arrays in _kept(result, scale).values())


def measure(result: Result, scale: Scale) -> Iterator[str]:
    """Measure the missing rounds of a run.

    Args:
        result: result of a finished run whose folder has the checkpoints.
        scale: scale, which determines the number of cohorts.

    Yields:
        A progress line, possibly empty, after each step.

    Raises:
        DamagedRunError: a checkpoint is missing or damaged.
        UserError: a file cannot be written.
    """
    every, there, begun = rounds_of(result.config), _kept(result, scale), time.monotonic()
    missing = [round for round in every if round not in there]
    if not missing:
        return
    problem = pose(result.config)
    laid_out = layout.lay_out(problem, len(result.seeds))
    program = run.prepare_groups(problem, laid_out)[0]
    config = result.config
    meter = Meter(program, shares_first_layer=(config.model.model, config.training.optimizer) == ("mlp", "fedavg"))
    shapes = run.shapes_of_state(problem, laid_out)
    for round in missing:
        pieces = []
        carry = program.carry if round == 0 else _after(result, round, shapes)
        for piece in meter.measure(carry, round, cohorts(scale)):
            pieces.append(piece)
            yield ""
        content = io.BytesIO()
        arrays: dict[str, Any] = {
            _CHANGES: np.concatenate([piece.changes for piece in pieces], axis=1),
            _COHORTS: np.concatenate([piece.cohorts for piece in pieces], axis=1),
            _SECONDS: np.float64((now := time.monotonic()) - begun),
        }
        begun = now
        np.savez(content, **arrays)
        place = _file(result, round, scale)
        with run_files.writing(place.parent):
            files.write(place, content.getvalue())
        yield f"loss changes of {cohorts(scale)} cohorts after round {round} ({every.index(round) + 1} of {len(every)})"


MEASURE = Measure(measure, is_there, took)


def _after(result: Result, rounds: int, shapes: Carry) -> Carry:
    """Return the state of a run after `rounds` rounds."""
    return checkpoint.fill(shapes, state.checkpointed(result, rounds))


def _file(result: Result, round: int, scale: Scale) -> Path:
    return state.folder_of(result) / FOLDER / f"round-{round:08d}-{cohorts(scale)}.npz"


def _kept(result: Result, scale: Scale) -> dict[int, dict[str, np.ndarray]]:
    """Return the saved arrays of a run by round, without missing or damaged rounds."""
    found = {round: _read(_file(result, round, scale)) for round in rounds_of(result.config)}
    return {round: arrays for round, arrays in found.items() if arrays is not None}


def _read(place: Path) -> dict[str, np.ndarray] | None:
    if not place.exists():
        return None
    try:
        with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as arrays:
            found = dict(arrays)
            return found if _CHANGES in found else None
    except (OSError, ValueError, zipfile.BadZipFile):
        return None  # a damaged round is measured again
