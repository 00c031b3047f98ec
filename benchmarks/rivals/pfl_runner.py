"""Rival: pfl-research's federated averaging on its simulated backend, one process on all cores."""

# pyright: reportMissingImports=false
import types

import numpy as np
import torch
import torch_models
import work as work_
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Ticks(TrainingProcessCallback):
    """A callback that advances the clock after every round."""

    def __init__(self, clock: work_.Clock):
        self.clock = clock

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Count a round, and continue training."""
        del aggregate_metrics, model, central_iteration
        self.clock()
        return False, Metrics()


def loss(self, images, labels):
    """Return the training loss, which pfl-research expects as a method of the module."""
    return torch.nn.functional.cross_entropy(self(images), labels)


def main() -> None:
    work = work_.read()
    torch.manual_seed(work.seed)
    np.random.seed(work.seed)
    torch.set_num_threads(work_.num_cores())
    network = torch_models.build(work)
    network.loss = types.MethodType(loss, network)
    network.metrics = lambda *_: {}
    clients = {number: torch_models.tensors(*data) for number, data in work.selected_clients().items()}
    turns = iter(work.cohorts.flatten().tolist())
    drawn = work.generator()

    def dataset(number: int) -> Dataset:
        """Return a client's examples in the order of its steps; pfl-research cuts them into batches."""
        order = torch.from_numpy(work.order(drawn).flatten())
        images, labels = clients[number]
        return Dataset((images[order], labels[order]), user_id=str(number))

    def create(parameters, lr):
        return torch.optim.SGD(parameters, lr, weight_decay=work.weight_decay)

    model = PyTorchModel(network, create, torch.optim.SGD(network.parameters(), 1.0))
    federated = FederatedDataset(dataset, lambda: next(turns))
    backend = SimulatedBackend(training_data=federated, val_data=federated, postprocessors=[WeightByUser()])
    clock = work_.Clock(work)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.total_rounds,
            evaluation_frequency=work.total_rounds + 1,
            train_cohort_size=work.cohorts.shape[1],
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work.learning_rate, local_batch_size=work.batch_size
        ),
        callbacks=[Ticks(clock)],
        send_metrics_to_platform=False,
    )
    work_.report(clock, *torch_models.test(network, work), packages=["pfl", "torch"])


if __name__ == "__main__":
    main()
