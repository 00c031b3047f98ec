"""Writes what all take alike into one .npz: images, who holds them, cohorts, first weights.

The first argument is the JSON of a setting, whose `data` is the file. The data and the partition are fedjax_sel's own
(seed 0); cohorts and first weights are drawn here with NumPy. Prints how many training examples every client holds.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ours

from fedjax_sel.data import federation as fed
from fedjax_sel.experiment.problem import Problem, pose

SHAPES: dict[str, Any] = {  # kernels of the layers; the first number of the dense ones follows from the images
    "mlp": [(784, 64), (64, 30), (30, 10)],
    "cnn": [(3, 3, 3, 32), (3, 3, 32, 64), (3, 3, 64, 64), (4 * 4 * 64, 64), (64, 10)],
    "pfl_cnn": [(3, 3, 3, 32), (3, 3, 32, 64), (14 * 14 * 64, 128), (128, 10)],
}


def write(problem: Problem, model: str, num_rounds: int, path: Path) -> int:
    """Write the file.

    Args:
        problem: fedjax_sel's, of one seed.
        model: one of SHAPES.
        num_rounds: T, cohorts to draw.
        path: where to.

    Returns:
        n, the training examples of every client.
    """
    config = problem.config
    federation = fed.build(problem.dataset, problem.partitions, config.data.holdout, config.run.seeds)
    sizes = np.unique(federation.train_sizes)
    assert len(sizes) == 1, "all clients of a setting hold equally many examples"
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
    for index, shape in enumerate(SHAPES[model]):
        limit = 1 / np.sqrt(np.prod(shape[:-1]))  # PyTorch's default
        arrays[f"kernel{index}"] = generator.uniform(-limit, limit, shape).astype(np.float32)
        arrays[f"bias{index}"] = generator.uniform(-limit, limit, shape[-1:]).astype(np.float32)
    arrays["num_layers"] = len(SHAPES[model])
    np.savez(path, **arrays)
    return int(sizes[0])


def main() -> None:
    spec = json.loads(sys.argv[1])
    num_rounds = spec["warm_rounds"] + spec["rounds"]
    print(write(pose(ours.config_of(spec)), spec["model"], num_rounds, Path(spec["data"])))


if __name__ == "__main__":
    main()
