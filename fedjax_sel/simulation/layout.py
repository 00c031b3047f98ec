"""Layout of a run on the devices: seeds per group, clients per batch, and padding."""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from fedjax_sel import devices
from fedjax_sel.core import parsing
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.availability import Mode
from fedjax_sel.experiment.checking import STALENESS
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.simulation import availability, clock, evaluation, keys
from fedjax_sel.simulation.ledger import BYTES_PER_FLOAT, fact_counts
from fedjax_sel.simulation.state import Asynchrony, Plan
from fedjax_sel.strategies import privacy
from fedjax_sel.timing import Clock
from fedjax_sel.training import client, schedule

ACCELERATOR_BLOCK = 2000  # examples that an accelerator evaluates as one block
ACCELERATOR_JOBS = 8  # evaluation blocks or measured clients that it works on together; bounds the memory
COPIES = 3  # copies of the state on a device: the old one, the new one, and one being saved
ROWS_BY_THE_CLOCK = 720  # drawn rows of availability that follows the clock, 30 days of hours; then they repeat
CPU_CACHE_BYTES = 2**21  # cache of a core; models of clients that train together should fit


class Layout(NamedTuple):
    """A problem's layout on the devices, before anything is transferred."""

    federation: Federation  # all seeds, in host memory
    plan: Plan  # static configuration of a group of seeds
    seeds_at_once: int  # seeds per group; groups take turns


def lay_out(problem: Problem, seeds_at_once: int, eval_every: int | None = None) -> Layout:
    """Choose the device layout of a problem, in groups of `seeds_at_once` (a divisor of the number of seeds).

    `eval_every` overrides the configured evaluation period; 0 disables evaluation (benchmarks).
    """
    config = problem.config
    run = config.run
    wanted = parsing.mesh_shape(run.mesh) if run.mesh else None
    test_blocks = -(-problem.dataset.num_test_examples // problem.model.cpu_block)  # of one replicate; devices share
    places = problem.strategy.num_places(config.num_training_clients, config.cohort_size)
    mesh = devices.make_mesh(seeds_at_once, places, test_blocks, wanted)
    data_seeds = [seed if run.data_seed is None else run.data_seed for seed in run.seeds]
    federation = fed.build(
        problem.dataset, problem.partitions, config.data.holdout, data_seeds, problem.availability_trace,
        problem.client_tests,
    )  # fmt: skip
    every = run.eval_every if eval_every is None else eval_every
    plan = _plan(problem, mesh, federation, seeds_at_once, places, every)
    if problem.law is not None:
        federation = clock.timed(federation, problem.law, data_seeds, plan.trainer, config.timing.deadline)
    mode, rows, share = problem.mode, run.rounds, config.selection.available_share
    if plan.availability_seconds:
        rows = ROWS_BY_THE_CLOCK
        mode = mode if share is None else Mode("share", lambda *_: lambda *_: share)
    if mode is not None:
        table: Any = availability.draw(federation, mode, run.seeds, rows)
        federation = federation._replace(availability_table=table)
    return Layout(federation, plan, seeds_at_once)


def _plan(
    problem: Problem, mesh: Any, federation: Federation, seeds_at_once: int, places: int, eval_every: int
) -> Plan:
    config = problem.config
    training = config.training
    train_sizes = np.asarray(federation.train_sizes)
    work = schedule.plan(train_sizes, training.batch_size, training.local_steps, training.epochs, training.full_batch)
    on_cpu = jax.default_backend() == "cpu"
    groups, devices_of_a_group = mesh.devices.shape
    at_once = config.run.cohort_batch
    if at_once is None:
        share = -(-seeds_at_once // groups * places // devices_of_a_group)
        fits = (
            share * problem.model.size * BYTES_PER_FLOAT <= CPU_CACHE_BYTES
            and share * work.batch_size <= problem.model.cpu_block
        )
        # Clients that train one after another need no padding to the longest.
        at_once = 1 if on_cpu and not (fits and work.equal_steps is not None) else 0
    num_reports = config.selection.num_selected if problem.strategy.max_selected is None else places
    milestones = {round: training.learning_rate_decay for round in training.learning_rate_milestones}
    chosen = problem.optimizers
    selection, counts = config.selection, fact_counts(problem.model, problem.dataset.num_classes)
    noise = privacy.planned(selection.privacy, selection.privacy_unit, problem.strategy, config.size, counts)
    private_training = privacy.planned_training(training.private_training, config.run.rounds, selection.num_selected)
    bounds = client.Bounds()
    if noise is not None:
        of_example = noise.settings.gradient if noise.unit == "example" else None
        bounds = client.Bounds(noise.settings.loss, noise.settings.profile, of_example)
    trainer = client.Trainer(
        model=problem.model,
        task=problem.task,
        work=work,
        optimizer=chosen.federated,
        client_optimizer=chosen.client,
        learning_rate=optax.piecewise_constant_schedule(training.learning_rate, milestones),  # pyright: ignore
        evaluation_block=evaluation.block_size(
            int(np.asarray(federation.sizes).max()), min(problem.model.cpu_block if on_cpu else 256, 256)
        ),
        micro_batch=problem.model.cpu_micro_batch if on_cpu and at_once == 1 else work.batch_size,
        bounds=bounds,
    )
    return Plan(
        mesh=mesh,
        strategy=problem.strategy,
        trainer=trainer,
        server=chosen.server,
        aggregation=training.aggregation,
        loss_on=config.data.loss_on,
        keep_client_optimizers=config.has_effect("momentum_buffer") and training.momentum_buffer == "persistent",
        available=config.selection.available_share,
        all_at_start=config.selection.start_queries == "all",
        report_failure_rate=config.selection.report_failure_rate,
        cohort_size=config.cohort_size,
        num_places=places,
        asynchrony=_asynchrony(problem),
        availability_seconds=config.row_seconds,
        clock=None if problem.law is None else Clock(problem.law.jitter, num_reports, config.timing.server_seconds),
        num_rounds=config.run.rounds,
        eval_every=eval_every,
        train_metrics_every=config.run.train_metrics_every,
        eval_clients_every=config.run.eval_clients_every or config.last_every,
        last_every=config.last_every,
        tests_in_training_set=problem.client_tests is not None and problem.client_tests[0].in_training_set,
        evaluation_block=problem.model.cpu_block if on_cpu else ACCELERATOR_BLOCK,
        clients_at_once=at_once,
        facts_at_once=1 if on_cpu else ACCELERATOR_JOBS,
        blocks_at_once=1 if on_cpu else ACCELERATOR_JOBS,
        noise=noise,
        private_training=private_training,
        epsilons=privacy.epsilons(noise, private_training),
    )


def _asynchrony(problem: Problem) -> Asynchrony | None:
    config, chosen = problem.config, problem.config.timing
    if not config.has_effect("staleness"):
        return None
    weight = STALENESS.make(chosen.staleness, **dict(chosen.staleness_args))
    return Asynchrony(None if config.uses_late_reports else chosen.concurrency, weight, chosen.max_staleness)


def availability_table(experiment: Experiment, seed: int) -> np.ndarray:
    """Return the mask of available clients in each round of a seed, bool [T, N]."""
    problem = pose(experiment.replace(seeds=[seed], seeds_at_once=None, mesh=None))
    host, plan, _ = lay_out(problem, 1)
    streams, rounds = keys.streams(keys.roots([seed], {})), np.arange(plan.num_rounds)
    seconds = None if plan.availability_seconds == 0 else plan.availability_seconds * rounds[:, None].astype("f4")
    mask = jax.jit(jax.vmap(partial(availability.available_clients, plan), (None, None, 0, 0)))(
        host, streams, rounds, seconds
    )
    if mask is None:
        return np.ones((plan.num_rounds, problem.config.num_training_clients), bool)
    return np.array(mask[:, 0])
