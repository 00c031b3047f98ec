"""From an experiment to what it asks for: data, partitions, model, task, strategy. Nothing is on a device yet."""

import dataclasses

import numpy as np

from fedjax_sel.config import Config
from fedjax_sel.data import partition as partitions
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import model_choice
from fedjax_sel.experiment.checking import check, server_validation
from fedjax_sel.experiment.dealing import Given, gather
from fedjax_sel.experiment.fitting import check_that_they_fit
from fedjax_sel.experiment.optimization import Optimizers
from fedjax_sel.experiment.values import Experiment, experiment_of
from fedjax_sel.models import Model
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a configuration asks for, in host memory: data, partitions, model, strategy. Nothing is on a device yet."""

    config: Config
    dataset: Dataset
    partitions: tuple[Partition, ...]
    model: Model
    task: Task
    strategy: Strategy
    optimizers: Optimizers
    reachable: np.ndarray | None = None  # bool [T or more, N] from a trace

    @property
    def given(self) -> Given:
        """The experiment's data as they were read and dealt out."""
        return Given(self.dataset, self.partitions, self.reachable)


def pose(experiment_or_config: Experiment | Config) -> Problem:
    """Check an experiment, load the data and deal them out.

    Raises:
        UserError: one sentence with the field, the value and the way out.
    """
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    strategy, optimizers, task = check(experiment)
    dataset, dealt, reachable = gather(experiment, server_validation(config, strategy))
    largest = max(int(part.sizes.max()) for part in dealt)
    usable = largest - partitions.holdout_size(largest, config.data.holdout)
    if not config.training.full_batch and config.training.batch_size > usable:
        raise UserError(
            f"--batch-size: {config.training.batch_size} is more than the {usable} training examples of the largest "
            f"client; choose at most that many, fewer --num-clients, or --full-batch"
        )
    model = model_choice.choose(experiment, dataset)
    check_that_they_fit(config, dataset, model, task, strategy)
    return Problem(config, dataset, dealt, model, task, strategy, optimizers, reachable)
