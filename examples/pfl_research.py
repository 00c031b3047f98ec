"""Power-of-choice in pfl-research's simulator, with its own federated averaging (pfl 0.6, Python 3.12 or older).

pip install -e . "pfl[pytorch]"
python examples/pfl_research.py

One object is the callback that selects the cohorts and the sampler of the FederatedDataset. pfl returns only the sum of
the cohort's updates, so strategies that read individual updates (`selector.reads`: gpfl, clustered) are not supported.
Neither are strategies with aggregation weights of their own (ocs, kvib, osmd, delta, random[variant=md]).
"""

# pyright: reportMissingImports=false
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

import fedjax_sel
from fedjax_sel.adapters import rounds


class Selecting(TrainingProcessCallback):
    """A callback that names the cohorts; its `next_user` is the FederatedDataset's sampler."""

    def __init__(self, selector, answer):  # answer(model, user, due) -> a fact of that user
        self.selector, self.answer, self.cohorts = selector, answer, []

    def next_user(self):
        return next(self.users)

    def on_train_begin(self, *, model):
        self.open(model)
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.selector.update()
        if self.selector.round < self.selector.num_rounds:
            self.open(model)
        return False, Metrics()

    def open(self, model):
        def ask(due, users):
            return {user: self.answer(model, user, due) for user in users}

        cohort, weights = rounds.choose(self.selector, None, ask)
        assert weights is None, "pfl averages with its own weights; choose a strategy without aggregation weights"
        for due in self.selector.asks():  # facts of the cohort, on the model before training
            self.selector.tell(due.kind, *rounds.fitting(due, ask(due, cohort)))
        self.cohorts.append(cohort)
        self.users = iter(cohort)


torch.manual_seed(0)
ROUNDS, USERS = 10, [f"user {place}" for place in range(8)]
data = {}
for place, user in enumerate(USERS):  # each user holds a different part of the line y = 3x - 1
    x = torch.randn(20 + place, 1) + place / 4
    data[user] = (x, 3 * x - 1 + 0.1 * torch.randn(len(x), 1))


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def loss(self, x, y, eval=False):
        return torch.mean((self.linear(x) - y) ** 2)

    def metrics(self, x, y, eval=True):
        return {}


def answer(model, user, due):
    with torch.no_grad():
        return float(model.pytorch_model.loss(*data[user]))


sizes = {user: len(x) for user, (x, _) in data.items()}
selector = fedjax_sel.Selector("pow_d[num_candidates=5]", len(USERS), 3, ROUNDS, sizes=sizes, clients=USERS)
selecting = Selecting(selector, answer)
network = Line()
users = FederatedDataset(lambda user: Dataset(data[user], user_id=user), selecting.next_user)
FederatedAveraging().run(
    NNAlgorithmParams(ROUNDS, ROUNDS + 1, train_cohort_size=3, val_cohort_size=0),
    SimulatedBackend(training_data=users, val_data=users),
    PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0)),
    NNTrainHyperParams(local_num_epochs=5, local_learning_rate=0.05, local_batch_size=10),
    callbacks=[selecting],
    send_metrics_to_platform=False,
)
print(network.linear.weight.item(), network.linear.bias.item(), selector.bill().total)
