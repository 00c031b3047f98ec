"""Rounds of a preset on synthetic images, timed beside their ceiling: compilation and steady state apart."""

import time
from typing import Any, NamedTuple

import ceiling
import jax
import numpy as np
import synthetic
from timing import FEWEST

import fedjax_sel
from fedjax_sel import devices, models
from fedjax_sel.config import Config
from fedjax_sel.devices import memory
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run


class Timed(NamedTuple):
    """What was measured."""

    work: Any  # a client's, `schedule.LocalWork`
    seed_rounds: int  # of a chunk
    compile_seconds: float
    chunk_seconds: np.ndarray  # [chunks]
    ceiling_seconds: np.ndarray  # [chunks], of a chunk's multiplications alone
    flops: float  # operations of a seed-round's multiplications
    program_bytes: int  # what the compiled chunk needs of each device, as XLA says

    @property
    def seed_rounds_per_second(self) -> np.ndarray:
        """Of each chunk."""
        return self.seed_rounds / self.chunk_seconds

    @property
    def ceiling_seed_rounds_per_second(self) -> float:
        """Median of the multiplications alone."""
        return float(self.seed_rounds / np.median(self.ceiling_seconds))

    @property
    def share_of_ceiling(self) -> float:
        """Median ceiling time over median round time."""
        return float(np.median(self.ceiling_seconds) / np.median(self.chunk_seconds))


def setting(
    preset: str, seeds: int, algo: str = "random", precision: Any = "float32", model: str | None = None, **changes: Any
) -> Config:
    """Return a preset's configuration on synthetic images, ten rounds a chunk for an MLP and one for others.

    Args:
        preset: one of `fedjax_sel.papers.PRESETS`.
        seeds: replicates.
        algo: the strategy.
        precision: of the model's products.
        model: that takes the place of the preset's; one in plain Flax comes without the preset's dropout.
        **changes: other fields of the configuration.
    """
    config = fedjax_sel.preset(preset)
    if model is not None:
        plain: Any = {"model_dropout": 0.0} if model in models.PLAIN else {}
        config = config.replace(model=model, **plain)
    return config.replace(
        dataset=synthetic.like(config.data.dataset), seeds=seeds, algo=algo, precision=precision,
        chunk=10 if config.model.model == "mlp" else 1, train_metrics_every=0,
    ).replace(**changes)  # fmt: skip


def time_rounds(
    config: Config, evaluate: bool, chunks: int, seconds: float = float("inf"), unroll: int | None = None
) -> Timed:
    """Compile a chunk of rounds and time it, taking turns with its ceiling.

    Args:
        config: from `setting`.
        evaluate: whether every round is followed by an evaluation on the test set.
        chunks: that are timed, after a first one.
        seconds: no further chunk is begun after so many, but FEWEST are timed.
        unroll: see `client.Trainer`.

    Returns:
        The times.
    """
    length, seeds = config.run.chunk, len(config.run.seeds)
    config = config.replace(rounds=length * (chunks + 1))
    program = unrolled(run.prepare(pose(config), eval_every=1 if evaluate else 0), unroll)
    arguments = (np.int32(0), program.federation, program.streams)
    started = time.perf_counter()
    compiled = program.chunk.lower(program.carry, *arguments).compile()
    compile_seconds = time.perf_counter() - started

    bare, flops = ceiling.bare_multiplications(program, seeds, length, evaluate)
    carry, _ = jax.block_until_ready(compiled(program.carry, *arguments))  # not timed
    jax.block_until_ready(bare())
    chunk_seconds, ceiling_seconds = [], []
    while len(chunk_seconds) < chunks and (
        len(chunk_seconds) < FEWEST or sum(chunk_seconds + ceiling_seconds) < seconds
    ):
        started = time.perf_counter()
        carry, _ = jax.block_until_ready(compiled(carry, *arguments))
        chunk_seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        jax.block_until_ready(bare())
        ceiling_seconds.append(time.perf_counter() - started)
    return Timed(
        program.plan.trainer.work, seeds * length, compile_seconds, np.array(chunk_seconds), np.array(ceiling_seconds),
        flops, memory.of_program(compiled),
    )  # fmt: skip


def unrolled(program: run.Program, unroll: int | None) -> run.Program:
    """Return the program with so many steps as one turn of a client's loop."""
    if unroll is None:
        return program
    plan = program.plan._replace(trainer=program.plan.trainer._replace(unroll=unroll))
    out_shardings = (
        devices.sharding(plan.mesh, devices.PER_SEED), devices.sharding(plan.mesh, devices.WHOLE)
    )  # fmt: skip
    chunk = jax.jit(run.rounds(plan, program.length), donate_argnums=0, out_shardings=out_shardings)
    return program._replace(plan=plan, chunk=chunk)


def peak_bytes() -> int | None:
    """Return the most that this process has had on its first device; None where the device does not say."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
