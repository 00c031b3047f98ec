"""Speed of FedCor's fit and of k-DPPs: sampling in every round, and eigendecompositions, at N = 100 and 3,550."""

from collections.abc import Iterator
from typing import Any

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.strategies.fedcor_presets import look_up
from on_accelerator.child import each
from on_accelerator.children import Child
from on_accelerator.day import Case, Part, alone

SECONDS = 1.0  # of timed calls per case
_ON_CPU = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "true"}  # a run's initial decomposition uses the CPU, float64


def part(small: bool) -> Part:
    """Return the part."""
    guess = 1 if small else 5

    def case(
        name: str, cases: list[tuple[str, int, int]], tier: int, environment: dict[str, str] | None = None
    ) -> Case:
        settings = {"cases": [dict(zip(("what", "clients", "seeds"), case)) for case in cases], "guess": guess}
        work = alone(Child("on_accelerator.selecting:time_all", settings, environment or {}))
        return Case(name, guess * len(cases), work, tier)

    if small:
        cases = [
            case("fit, samples and decompositions", [(what, 20, 2) for what in ("fit", "sample", "eigh", "subset")], 1)
        ]
    else:
        rounds = [("fit", 100, 1), ("fit", 100, 64), ("sample", 100, 1), ("sample", 100, 64)]
        rounds += [("sample", 3550, 1), ("sample", 3550, 8)]
        pools = [("eigh", 100, 1), ("eigh", 100, 64), ("eigh", 3550, 1), ("subset", 100, 1), ("subset", 100, 64)]
        cases = [
            case("fits and samples", rounds, 1),
            case("decompositions in a round, of pools and of available clients", pools, 2),
            case("decompositions before the first round", [("eigh", 100, 1), ("eigh", 3550, 1)], 3, _ON_CPU),
        ]
    return Part("selection", "FedCor's fit and k-DPPs", cases, describe)


def describe(record: dict[str, Any]) -> str:
    """Format a record in one line."""
    times = record["milliseconds"]
    return (
        f"{record['what']}, {record['clients']} clients, {record['seeds']} seeds: {times['median']:.3f} ms "
        f"({times['p10']:.3f} to {times['p90']:.3f}), compiled in {record['compile_seconds']:.1f} s"
    )


def time_all(seconds: float, cases: list[dict[str, Any]], guess: float) -> Iterator[dict[str, Any]]:
    """Time each case, with all seeds in one `vmap` on one device (in a child process)."""
    yield from each(cases, seconds, guess, _time)


def _time(what: str, clients: int, seeds: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from timing import steady

    from fedjax_sel.numerics import gaussian_process, kdpp

    numbers = look_up("fedcor", "paper", "fmnist")
    dimension, cohort = 15, min(10, clients // 2)
    keys = jax.random.split(jax.random.key(0), 3)

    def similar() -> jax.Array:
        """Return similarity matrices of random profiles, [seeds, N, N]."""
        profiles = jax.random.normal(keys[0], (seeds, clients, 30))
        squares = jnp.sum(profiles**2, axis=2)
        gram = jnp.einsum("snq,smq->snm", profiles, profiles)
        distances = jnp.sqrt(jnp.maximum(squares[:, :, None] + squares[:, None] - 2 * gram, 0.0))
        return 1 - distances / distances.max(axis=(1, 2), keepdims=True)

    if what == "fit":
        samples = numbers.warmup_reuse + 1
        given = (
            jax.random.normal(keys[0], (seeds, dimension, clients)) / dimension**0.5,
            0.1 * jax.random.normal(keys[1], (seeds, samples, clients)),
        )
        weights = numbers.discount ** jnp.arange(samples, dtype=jnp.float32)

        def fit(embeddings: jax.Array, residuals: jax.Array) -> jax.Array:
            steps, rate = numbers.warmup_steps, numbers.learning_rate
            return gaussian_process.fit_embeddings(embeddings, residuals, weights, numbers.noise, steps, rate)

        return {"adam_steps": numbers.warmup_steps, "samples": samples} | steady(jax.vmap(fit), *given, seconds=SECONDS)
    if what == "sample":
        values = jnp.sort(jax.random.uniform(keys[0], (seeds, clients)) ** 4)
        vectors = jnp.linalg.qr(jax.random.normal(keys[1], (clients, clients)))[0]
        given = (jax.random.split(keys[2], seeds), values, jnp.broadcast_to(vectors, (seeds, clients, clients)))
        draw = jax.vmap(lambda key, values, vectors: kdpp.sample(key, values, vectors, cohort))
        return {"cohort": cohort} | steady(draw, *given, seconds=SECONDS)
    with enable_x64(True):  # the precision of the strategies' decompositions
        similarity = similar().astype(jnp.float64)
        if what == "subset":
            there = jax.random.bernoulli(keys[1], 0.7, (seeds, clients))
            times = steady(jax.vmap(kdpp.eigendecompose_subset), similarity, there, seconds=SECONDS)
        else:
            times = steady(jax.vmap(kdpp.eigendecompose), similarity, seconds=SECONDS)
    return {"dtype": str(similarity.dtype)} | times
