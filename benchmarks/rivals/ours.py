"""fedjax_sel on the same data, cohorts and initial weights as the rivals.

The first argument is the work as JSON. Its `seeds` is the number of replicates that train at once, each with its own
partition and shuffles. Timed rounds are chunks of the compiled program of `fedjax_sel.run`, without evaluation.
"""

import dataclasses
import json
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import work as work_

PLAIN = ("resnet8",)  # networks in plain Flax


def config_of(spec: dict[str, Any]) -> Any:
    """Return a setting's configuration: its preset with changes, and random selection as a placeholder."""
    import fedjax_sel

    seeds, rounds = spec.get("seeds", 1), spec["warm_rounds"] + spec["rounds"]
    config = fedjax_sel.preset(spec["preset"]).replace(**spec["config"], algo="random", seeds=seeds)
    config = config.replace(rounds=rounds, chunk=spec["chunk"], train_metrics_every=0)
    return config if seeds > 1 else config.replace(training_seed=spec.get("seed", 0))


class Prepared(NamedTuple):
    """The timed program, with the model and weights."""

    model: Any
    weights: Any  # initial weights
    program: Any


def prepare(spec: dict[str, Any], work: work_.Work) -> Prepared:
    """Return a setting's program, with the rivals' cohorts and initial weights."""
    from fedjax_sel.experiment.problem import pose
    from fedjax_sel.simulation import run

    problem = pose(config_of(spec))
    model = pfl_cnn(problem) if work.model == "pfl_cnn" else problem.model
    weights = (plain_weights if work.model in PLAIN else first_weights)(model, work.layers)
    model = model._replace(init=lambda key: weights)
    # An Experiment with a model value would reject the configuration's model_dropout.
    problem = dataclasses.replace(problem, model=model, strategy=scripted(work.cohorts))
    return Prepared(model, weights, run.prepare(problem, eval_every=0))


def main() -> None:
    spec = json.loads(sys.argv[1])
    from fedjax_sel import devices

    devices.use_every_core()
    import jax

    work = work_.Work(spec)
    model, weights, program = prepare(spec, work)
    rest = (program.federation, program.streams)
    started = time.perf_counter()
    compiled = program.chunk.lower(program.carry, np.int32(0), *rest).compile()
    compile_seconds = time.perf_counter() - started
    carry = program.carry
    clock = work_.Clock(work)
    for first in range(0, work.total_rounds, program.length):
        carry, _ = compiled(carry, np.int32(first), *rest)
        last = first + program.length
        if last in (work.warm_rounds, work.total_rounds):
            jax.block_until_ready(carry)
        for _ in range(program.length):
            clock()
    accuracy, loss = test(model, carry.params, work)
    more = (
        {"loss_before": test(model, jax.tree.map(lambda leaf: leaf[None], weights), work)[1][0]}
        if spec.get("also_before")
        else {}
    )
    work_.report(
        clock, accuracy[0], loss[0], ["jax", "fedjax_sel"], compile_seconds=round(compile_seconds, 2),
        accuracies=accuracy, losses=loss, devices=len(jax.devices()), **more,
    )  # fmt: skip


def scripted(cohorts: np.ndarray) -> Any:
    """Return a strategy that plays back given cohorts.

    Args:
        cohorts: int [T, K].

    Returns:
        The strategy.
    """
    import jax.numpy as jnp

    from fedjax_sel.strategies.contract import Selection, Strategy

    def select(key, state, now) -> Selection:
        return Selection.of(jnp.asarray(cohorts, jnp.int32)[now.round], None)

    return Strategy("scripted", select)


def first_weights(model: Any, layers: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Return the shared weights in the model's pytree, whose leaves are each layer's bias and kernel, in order."""
    import jax

    leaves, structure = jax.tree.flatten(jax.eval_shape(model.init, jax.random.key(0)))
    values = []
    for index, leaf in enumerate(leaves):
        kernel, bias = layers[index // 2]
        if kernel.ndim == 4:
            kernel = kernel.transpose(1, 0, 2, 3)  # our patches are column-major
        kernel = kernel.reshape(-1, kernel.shape[-1])
        fitting = [value for value in (bias, kernel, kernel.T) if value.shape == leaf.shape]
        if len(fitting) != 1:
            raise ValueError(f"expected weights of shape {leaf.shape}, got {kernel.shape} and {bias.shape}")
        values.append(np.ascontiguousarray(fitting[0]))
    return jax.tree.unflatten(structure, values)


def plain_weights(model: Any, layers: list[tuple[np.ndarray, np.ndarray]]) -> Any:
    """Return the shared weights in the pytree of a plain Flax module, which uses the same kernel layout."""
    import jax

    paths, structure = jax.tree_util.tree_flatten_with_path(jax.eval_shape(model.init, jax.random.key(0)))
    named = [([key.key for key in path if hasattr(key, "key")], leaf) for path, leaf in paths]
    modules = sorted({tuple(names[:-1]) for names, _ in named}, key=calling_order)
    place = {module: index for index, module in enumerate(modules)}
    if len(modules) != len(layers):
        raise ValueError(f"expected {len(modules)} layers, got {len(layers)}")
    values = []
    for (*module, name), leaf in named:
        kernel, bias = layers[place[tuple(module)]]
        value = bias if name == "bias" else kernel
        if value.shape != leaf.shape:
            raise ValueError(f"{'/'.join(module)}: expected {name} of shape {leaf.shape}, got {value.shape}")
        values.append(value)
    return jax.tree.unflatten(structure, values)


def calling_order(path: tuple[str, ...]) -> list[tuple[int, int, str]]:
    """Return a sort key that orders a ResNet's layers by call: stem, blocks with their normalization, output."""
    ranks = {"Conv": 0, "GroupNorm": 0, "ResidualBlock": 1, "Dense": 2}
    parts = [part.rsplit("_", 1) for part in path]
    return [(ranks[kind], int(number), kind) for kind, number in parts]


def pfl_cnn(problem: Any) -> Any:
    """Return the CNN of pfl-research's CIFAR-10 benchmark, built from this package's layers."""
    import flax.linen as nn

    from fedjax_sel import models
    from fedjax_sel.models.core import Output
    from fedjax_sel.models.layers import Conv, Dense, Dropout

    dropout = problem.config.model.model_dropout > 0

    class PflCNN(nn.Module):
        @nn.compact
        def __call__(self, images, train: bool = False):
            x = nn.relu(Conv(32, 3)(images))
            x = nn.relu(Conv(64, 3, pooled=True)(x))  # ReLU and max-pooling commute
            x = Dropout(0.25 if dropout else 0.0)(x, train)
            first = Dense(128)(x.reshape(x.shape[0], -1))
            x = Dropout(0.5 if dropout else 0.0)(nn.relu(first), train)
            return Output(Dense(10)(x), first)

    model = problem.model
    return models.from_module("pfl_cnn", PflCNN(), (32, 32, 3), model.cpu_block, model.cpu_micro_batch)


def test(model: Any, params: Any, work: work_.Work) -> tuple[list[float], list[float]]:
    """Return each replicate's accuracy and mean loss on the test set."""
    import jax
    import optax

    @jax.jit
    def block(params, images, labels):
        def one(params):
            logits = model.apply(params, images, None).prediction
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return (logits.argmax(1) == labels).sum(), losses.sum()

        return jax.lax.map(one, params)

    params = jax.device_put(jax.device_get(params), jax.devices()[0])
    counts = [(len(labels), *block(params, images, labels)) for images, labels in work.test_blocks()]
    total = sum(count for count, _, _ in counts)
    accuracy = np.sum([correct for _, correct, _ in counts], axis=0) / total
    loss = np.sum([losses for _, _, losses in counts], axis=0) / total
    return accuracy.tolist(), loss.tolist()


if __name__ == "__main__":
    main()
