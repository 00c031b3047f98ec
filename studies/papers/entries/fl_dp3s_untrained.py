"""FL-DP3S at the initial model: GEMD of the cohorts (Fig. 2), and outputs of the first dense layer (Theorem 1)."""

import functools
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel import Result, metrics, statistics, strategies
from fedjax_sel.core import files
from fedjax_sel.experiment.problem import Problem, pose
from fedjax_sel.models import Model, Weights
from fedjax_sel.papers import preset
from fedjax_sel.runs import run_files
from fedjax_sel.simulation import keys
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Env, Fact, Information, Now, Strategy
from studies.papers import normality, state, tables, verdicts
from studies.papers.entries.fl_dp3s import LEADERS, PAPER_SEEDS, SKEWNESSES
from studies.papers.entry import Cell, Entry, Measure, Results, Scale
from studies.papers.page import Page, Row

ROUNDS = 150  # as in the preset, for the same cohorts
CLIENTS = 10  # number of clients in the test of the outputs
FITS, LEVEL, MOST = 0.05, 0.05, 0.1
FOLDER = "untrained"
COLUMNS = ("mnist", "fmnist")
LOWER = (
    f"No client trains. Random selection and FL-DP3S do not depend on the training. Their cohorts of {ROUNDS} rounds "
    "follow from the seed and from the profiles of the initial model, and equal the cohorts of complete runs. "
    "Clustered sampling and FedSAE depend on it and are in fl_dp3s/fig2. The orders compare the mean GEMD of all "
    "rounds, FL-DP3S below random selection under each skewness. A family is one data set and skewness. "
    f"{verdicts.ORDER}"
)
GAUSSIAN = (
    "At the initial model, the outputs of each unit of the first dense layer are compared, for each of the first "
    f"{CLIENTS} clients (one label each), with the Gaussian of the same mean and deviation. The fit is good if no "
    "probability is wrong by much. The number is the largest difference of the distribution functions, averaged over "
    f"clients and units. Reproduced if its 95 % interval over seeds lies below {FITS:g}; contradicted if it lies "
    f"above. Exact normality is a stricter claim. At its level of {100 * LEVEL:.0f} %, the Anderson-Darling test "
    f"(null distribution by simulation) rejects {100 * LEVEL:.0f} % of Gaussian outputs. Reproduced if the 95 % "
    f"interval over seeds of the rejected share lies below {100 * MOST:.0f} %; contradicted if it lies above."
)


class Found(NamedTuple):
    """Measurements of one seed at its initial model."""

    gemd: np.ndarray  # by skewness, strategy of LEADERS and round, float32 [4, 2, T]
    distance: np.ndarray  # distance to the Gaussian by client and unit, float32 [clients, Q]
    p: np.ndarray  # p-values of the Anderson-Darling test, float32 [clients, Q]


def _settings(problem: Problem) -> list[Problem]:
    """Return the problem under each skewness."""
    return [pose(problem.config.replace(skewness="H" if xi == "h" else xi)) for xi in SKEWNESSES]


def first_layer(problem: Problem, seed: int) -> np.ndarray:
    """Return the outputs of the first dense layer at the initial model of a seed, float32 [n, Q].

    Args:
        problem: data and model.
        seed: seed of the replicate.
    """
    weights = problem.model.init(keys.streams(keys.roots([seed], {})).model[0])
    mean, std = (np.asarray(moment, np.float32) for moment in (problem.dataset.mean, problem.dataset.std))
    images, size = problem.dataset.train_images, problem.model.cpu_block
    pieces = (
        _outputs(problem.model, weights, (images[first : first + size] / np.float32(255) - mean) / std)
        for first in range(0, len(images), size)
    )
    return np.concatenate([np.asarray(piece) for piece in pieces])


@functools.partial(jax.jit, static_argnums=0)
def _outputs(model: Model, weights: Weights, inputs: jax.Array) -> jax.Array:
    found = model.apply(weights, inputs, None).profile
    assert found is not None, "the presets' models have such a layer"
    return found


def cohorts(problem: Problem, algo: str, profiles: np.ndarray, number: int, rounds: int) -> np.ndarray:
    """Return the cohorts of a strategy that does not depend on training, int32 [T, K].

    Args:
        problem: the problem, for the strategy's environment.
        algo: name of the strategy.
        profiles: profiles of the clients, float32 [N, Q].
        number: index of the seed.
        rounds: number of rounds, T.
    """
    config, (strategy, select) = problem.config, _strategy(algo)
    stream = keys.streams(keys.roots([config.run.seeds[number]], {})).selection[0]
    sizes = jnp.asarray(problem.partitions[number].sizes, jnp.int32)
    counts = (len(profiles), config.selection.num_selected, rounds, problem.dataset.num_classes)
    env = Env(*counts, problem.model.num_params, sizes, sizes / sizes.sum())
    facts = {"profile": Fact(jnp.asarray(profiles), jnp.zeros((len(profiles),), jnp.int32))}
    now = Now(env, Information(algo, facts if strategy.requests else {}), jnp.int32(0), None)
    state = protocol.initial_state(strategy, keys.round_key(stream, jnp.int32(keys.START)), now)
    return np.asarray(select(stream, state, now, jnp.arange(rounds, dtype=jnp.int32)))


@functools.cache
def _strategy(algo: str) -> tuple[Strategy, Callable[[jax.Array, Any, Now, jax.Array], jax.Array]]:
    """Return a strategy, and its compiled selection over several rounds."""
    strategy = strategies.make(algo)

    @jax.jit
    def select(stream: jax.Array, state: Any, now: Now, rounds: jax.Array) -> jax.Array:
        return lax.map(lambda t: strategy.select(keys.round_key(stream, t), state, now._replace(round=t)).ids, rounds)

    return strategy, select


def _look(problem: Problem, settings: list[Problem], number: int, rounds: int) -> Found:
    """Return the measurements of the seed with index `number`."""
    seed, labels = problem.config.run.seeds[number], problem.dataset.train_labels
    outputs = first_layer(problem, seed)
    gemd = np.empty((len(settings), len(LEADERS), rounds), np.float32)
    for place, setting in enumerate(settings):
        dealt = setting.partitions[number]
        profiles = np.stack([outputs[own].mean(axis=0) for own in dealt.indices])
        counts = dealt.label_counts(labels, problem.dataset.num_classes)
        for row, algo in enumerate(LEADERS):
            chosen = counts[cohorts(setting, algo, profiles, number, rounds)]  # [T, K, C]
            gemd[place, row] = jax.vmap(metrics.group_earth_movers_distance, (0, None))(
                jnp.asarray(chosen), jnp.asarray(counts.sum(axis=0))
            )
    indices = settings[SKEWNESSES.index("1")].partitions[number].indices[:CLIENTS]
    own = np.stack([outputs[one].T for one in indices])  # [clients, Q, examples]
    return Found(gemd, normality.distance(own), normality.anderson_darling_test(own))


def _rounds(scale: Scale) -> int:
    return max(2, round(scale.share * ROUNDS))


def _file(result: Result, seed: int, scale: Scale) -> Path:
    return state.folder_of(result) / FOLDER / f"seed-{seed}-{_rounds(scale)}.npz"


def _read(place: Path) -> Found | None:
    try:
        with np.load(io.BytesIO(place.read_bytes()), allow_pickle=False) as arrays:
            return Found(*(arrays[name] for name in Found._fields))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None  # a missing or damaged file is measured again


def _measure(result: Result, scale: Scale) -> Iterator[str]:
    missing = [number for number, seed in enumerate(result.seeds) if _read(_file(result, seed, scale)) is None]
    if not missing:
        return
    problem = pose(result.config)
    settings = _settings(problem)
    for number in missing:
        found = _look(problem, settings, number, _rounds(scale))
        content = io.BytesIO()
        np.savez(content, **{name: np.float32(values) for name, values in found._asdict().items()})  # pyright: ignore[reportArgumentType]
        place = _file(result, result.seeds[number], scale)
        with run_files.writing(place.parent):
            files.write(place, content.getvalue())
        yield f"seed {result.seeds[number]} at the initial model ({number + 1} of {len(result.seeds)})"


def _is_there(result: Result, scale: Scale) -> bool:
    return all(_read(_file(result, seed, scale)) is not None for seed in result.seeds)


def _measured(result: Result, scale: Scale) -> Found:
    """Return the measurements of all seeds, with a leading axis [S]."""
    found = [_read(_file(result, seed, scale)) for seed in result.seeds]
    return Found(*map(np.stack, zip(*(one for one in found if one is not None))))


def _judge_distance(results: Results, scale: Scale) -> Page:
    distances = {
        Cell(f"{cell.column}-xi{xi}", algo): gemd
        for cell, result in results.items()
        for xi, both in zip(SKEWNESSES, _measured(result, scale).gemd.mean(axis=3, dtype=np.float64).transpose(1, 2, 0))
        for algo, gemd in zip(LEADERS, both)
    }
    words = "has a lower GEMD than"
    return Page(tables.contest_rows(distances, "fl_dp3s", np.asarray, words, 3, False, whole=scale.whole_rounds))


def _judge_outputs(results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    for cell, result in results.items():
        found = _measured(result, scale)
        share = (found.p <= LEVEL).mean(axis=(1, 2))
        for what, paper, values, bound, digits in (
            ("greatest difference of the outputs to the Gaussian", "tends to follow", found.distance, FITS, 3),
            (f"share of outputs that the test rejects at {100 * LEVEL:.0f} %", "Gaussian", share, MOST, 2),
        ):
            each = values.reshape(len(values), -1).mean(axis=1, dtype=np.float64)
            low, high = map(float, statistics.mean_interval(each))
            rows.append(
                Row(f"{cell.column}-xi1", what, paper, tables.mean_and_sd(each, digits) + f" ({low:.{digits}f} to "
                    f"{high:.{digits}f})", len(each), "",
                    verdicts.of_bound(low, high, len(each), bound, above=False, whole=scale.whole_rounds))
            )  # fmt: skip
    return Page(rows)


_RUNS = {
    Cell(column, "initial model"): preset(f"fl_dp3s/{column}-xi1").replace(
        algo="random", seeds=PAPER_SEEDS, local_epochs=None, local_steps=1, rounds=1, train_metrics_every=0
    )
    for column in COLUMNS
}
_MEASURE = Measure(_measure, _is_there)
_entry = functools.partial(Entry, runs=_RUNS, measure=_MEASURE)

ENTRIES = (
    _entry("fl_dp3s/gemd", LOWER, judge=_judge_distance, cost="10 minutes a data set"),
    _entry("fl_dp3s/theorem1", GAUSSIAN, judge=_judge_outputs, cost="none beside fl_dp3s/gemd"),
)
