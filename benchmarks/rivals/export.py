"""Write the shared inputs of all rivals to one .npz file: images, partition, cohorts, initial weights.

The first argument is a setting as JSON; its `data` names the file. Data and partition come from fedjax_sel (seed 0);
cohorts and initial weights are drawn here with NumPy. Prints the number of training examples per client.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ours

from fedjax_sel.data import federation as fed
from fedjax_sel.experiment.problem import Problem, pose


def of_resnet(features: tuple[int, ...], channels: int = 3, classes: int = 10) -> list[tuple[int, ...]]:
    """Return a ResNet's weight shapes in call order, one block per stage; a 1-tuple is a normalization layer."""
    shapes: list[tuple[int, ...]] = [(3, 3, channels, features[0]), (features[0],)]
    before = features[0]
    for width in features:
        shapes += [(3, 3, before, width), (width,), (3, 3, width, width), (width,)]
        shapes += [(1, 1, before, width), (width,)] if width != before else []
        before = width
    return [*shapes, (before, classes)]


SHAPES: dict[str, Any] = {  # kernel shapes of the layers
    "mlp": [(784, 64), (64, 30), (30, 10)],
    "cnn": [(3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 64), (4 * 4 * 64, 64), (64, 10)],
    "pfl_cnn": [(3, 3, 3, 32), (3, 3, 32, 64), (14 * 14 * 64, 128), (128, 10)],
    "resnet8": of_resnet((16, 32, 64)),
}
UNBIASED = ("resnet8",)  # models whose convolutions have no bias


def write(problem: Problem, model: str, num_rounds: int, path: Path) -> int:
    """Write the file.

    Args:
        problem: the experiment, with a single seed.
        model: one of SHAPES.
        num_rounds: T, the number of cohorts to draw.
        path: the file to write.

    Returns:
        The number of training examples per client.
    """
    config = problem.config
    federation = fed.build(problem.dataset, problem.partitions, config.data.holdout, config.run.seeds)
    sizes = np.unique(federation.train_sizes)
    assert len(sizes) == 1, "all clients of a setting must have the same number of examples"
    starts = np.asarray(federation.starts)[0]
    rows = starts[:, None] + np.arange(sizes[0])
    arrays: dict[str, Any] = {name: getattr(federation, name) for name in ("scale", "shift")}
    for split in ("train", "test"):
        arrays[f"{split}_images"] = getattr(problem.dataset, f"{split}_images")
        arrays[f"{split}_labels"] = getattr(problem.dataset, f"{split}_labels")
    arrays["clients"] = np.asarray(federation.order)[0][rows]
    generator = np.random.default_rng(0)
    count = config.partition.num_clients
    chosen = [generator.choice(count, config.selection.num_selected, replace=False) for _ in range(num_rounds)]
    arrays["cohorts"] = np.stack(chosen)
    for index, (kernel, bias) in enumerate(first_layers(model, generator)):
        arrays[f"kernel{index}"], arrays[f"bias{index}"] = kernel, bias
    arrays["num_layers"] = len(SHAPES[model])
    np.savez(path, **arrays)
    return int(sizes[0])


def first_layers(model: str, generator: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw each layer's kernel and bias from PyTorch's default distribution; normalization layers get ones and zeros.

    A missing bias is an empty array.
    """
    layers = []
    for shape in SHAPES[model]:
        if len(shape) == 1:
            kernel, bias = np.ones(shape), np.zeros(shape)
        else:
            limit = 1 / np.sqrt(np.prod(shape[:-1]))
            kernel = generator.uniform(-limit, limit, shape)
            biases = 0 if len(shape) == 4 and model in UNBIASED else shape[-1]
            bias = generator.uniform(-limit, limit, biases)
        layers.append((kernel.astype(np.float32), bias.astype(np.float32)))
    return layers


def main() -> None:
    spec = json.loads(sys.argv[1])
    num_rounds = spec["warm_rounds"] + spec["rounds"]
    print(write(pose(ours.config_of(spec)), spec["model"], num_rounds, Path(spec["data"])))


if __name__ == "__main__":
    main()
