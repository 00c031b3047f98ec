"""Timing of a preset's rounds on synthetic images, with their ceiling; compilation is timed separately."""

import time
from typing import Any, NamedTuple

import ceiling
import jax
import numpy as np
import synthetic
from jax.sharding import NamedSharding
from timing import FEWEST

import fedjax_sel
from fedjax_sel import devices, models
from fedjax_sel.config import Config
from fedjax_sel.core import memory
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run

UNTIMED = 2  # chunks before the timed ones; they contain FedCor's warm-up


class Timed(NamedTuple):
    """The timing of a preset's rounds."""

    work: Any  # a client's `schedule.LocalWork`
    seed_rounds: int  # per chunk
    compile_seconds: float
    chunk_seconds: np.ndarray  # [chunks]
    ceiling_seconds: np.ndarray  # [chunks], a chunk's multiplications alone
    flops: float  # operations of one seed-round's multiplications
    program_bytes: int  # memory of the compiled chunk per device, reported by XLA

    @property
    def seed_rounds_per_second(self) -> np.ndarray:
        """Speed of each chunk, [chunks]."""
        return self.seed_rounds / self.chunk_seconds

    @property
    def ceiling_seed_rounds_per_second(self) -> float:
        """Median speed of the multiplications alone."""
        return float(self.seed_rounds / np.median(self.ceiling_seconds))

    @property
    def share_of_ceiling(self) -> float:
        """Median ceiling time over median round time."""
        return float(np.median(self.ceiling_seconds) / np.median(self.chunk_seconds))


def setting(
    preset: str, seeds: int, algo: str = "random", precision: Any = "float32", model: str | None = None, **changes: Any
) -> Config:
    """Return a preset's configuration on synthetic images, with ten rounds per chunk for an MLP and one otherwise.

    Args:
        preset: one of `fedjax_sel.papers.PRESETS`.
        seeds: number of replicates.
        algo: the strategy's name.
        precision: precision of the model's matrix products.
        model: replacement for the preset's model; plain Flax models run without dropout.
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
    """Compile a chunk of rounds and time it, alternating with its ceiling.

    Args:
        config: the configuration, from `setting`.
        evaluate: whether every round ends with an evaluation on the test set.
        chunks: number of timed chunks, after `UNTIMED` ones.
        seconds: time after which no further chunk starts; at least FEWEST chunks are timed.
        unroll: see `client.Trainer`.
    """
    length, seeds = config.run.chunk, len(config.run.seeds)
    config = config.replace(rounds=length * (UNTIMED + chunks))
    program = unrolled(run.prepare(pose(config), eval_every=1 if evaluate else 0), unroll)
    started = time.perf_counter()
    compiled = program.chunk.lower(program.carry, np.int32(0), program.federation, program.streams).compile()
    compile_seconds = time.perf_counter() - started

    bare, flops = ceiling.bare_multiplications(program, seeds, length, evaluate)
    carry = program.carry
    for number in range(UNTIMED):
        carry, _ = jax.block_until_ready(
            compiled(carry, np.int32(length * number), program.federation, program.streams)
        )
    jax.block_until_ready(bare())
    chunk_seconds, ceiling_seconds = [], []
    while len(chunk_seconds) < chunks and (
        len(chunk_seconds) < FEWEST or sum(chunk_seconds + ceiling_seconds) < seconds
    ):
        first = np.int32(length * (UNTIMED + len(chunk_seconds)))
        started = time.perf_counter()
        carry, _ = jax.block_until_ready(compiled(carry, first, program.federation, program.streams))
        chunk_seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        jax.block_until_ready(bare())
        ceiling_seconds.append(time.perf_counter() - started)
    return Timed(
        program.plan.trainer.work, seeds * length, compile_seconds, np.array(chunk_seconds), np.array(ceiling_seconds),
        flops, memory.program_bytes(compiled),
    )  # fmt: skip


def unrolled(program: run.Program, unroll: int | None) -> run.Program:
    """Return the program with a client's training loop unrolled; None leaves it unchanged."""
    if unroll is None:
        return program
    plan = program.plan._replace(trainer=program.plan.trainer._replace(unroll=unroll))
    out_shardings = (
        NamedSharding(plan.mesh, devices.PER_SEED), NamedSharding(plan.mesh, devices.WHOLE)
    )  # fmt: skip
    chunk = jax.jit(run.rounds(plan, program.length), donate_argnums=0, out_shardings=out_shardings)
    return program._replace(plan=plan, chunk=chunk)


def peak_bytes() -> int | None:
    """Return this process's peak memory on its first device; None if the device does not report it."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
