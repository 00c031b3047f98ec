"""Problems: an experiment's data, partitions, model, task and strategy, ready for the devices."""

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
from fedjax_sel.experiment.fitting import check_compatibility
from fedjax_sel.experiment.optimization import Optimizers
from fedjax_sel.experiment.values import Experiment, experiment_of
from fedjax_sel.models import Model
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.tasks import Task


@dataclasses.dataclass(frozen=True)
class Problem:
    """An experiment's parts, built and checked; all data is in host memory."""

    config: Config
    dataset: Dataset
    partitions: tuple[Partition, ...]  # one per seed
    model: Model
    task: Task
    strategy: Strategy
    optimizers: Optimizers
    reachable: np.ndarray | None = None  # availability trace, bool [T or more, N]

    @property
    def given(self) -> Given:
        """The experiment's data, partitions and availability trace."""
        return Given(self.dataset, self.partitions, self.reachable)


def pose(experiment_or_config: Experiment | Config) -> Problem:
    """Check an experiment, load its data, partition it among the clients, and build the model.

    Raises:
        UserError: a setting is invalid, or the parts are incompatible.
    """
    experiment = experiment_of(experiment_or_config)
    config = experiment.config
    strategy, optimizers, task = check(experiment)
    dataset, dealt, reachable = gather(experiment, server_validation(config, strategy))
    largest = max(int(part.sizes.max()) for part in dealt)
    usable = largest - partitions.holdout_size(largest, config.data.holdout)
    if not config.training.full_batch and config.training.batch_size > usable:
        raise UserError(
            f"--batch-size: {config.training.batch_size} exceeds the {usable} training examples of the largest client; "
            f"choose at most {usable}, fewer --num-clients, or --full-batch"
        )
    model = model_choice.choose(experiment, dataset)
    check_compatibility(config, dataset, model, task, strategy)
    return Problem(config, dataset, dealt, model, task, strategy, optimizers, reachable)
