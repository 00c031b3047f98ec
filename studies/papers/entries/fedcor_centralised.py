"""FedCor: the accuracy of the two models with centralised training."""

import numpy as np

from fedjax_sel.papers import preset
from studies.papers import published, tables, verdicts
from studies.papers.entries.fedcor import PAPER_SEEDS, about, accuracy
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page

PASSES = 100
RULE = (
    f"One client holds all data and makes {PASSES} passes with the optimizer of the federated runs. The accuracy is "
    "the best after any pass, because the paper does not say when it stopped. The interval is the prediction "
    f"interval of one of our runs. {verdicts.NUMBERS}"
)


def _judge(results: Results, scale: Scale) -> Page:
    numbers = published.get("fedcor/centralised").numbers
    rows = []
    for cell, result in results.items():
        value = numbers[0].cell(cell.column, "accuracy")
        assert value is not None
        best = np.nanmax(result.measured[result.test_measure], axis=1)
        rows.append(tables.number_row(cell.column, "best test accuracy", value.value, best, 4, scale.whole_rounds))
    return Page(rows, about(results), {"accuracy.png": accuracy(results)} if results else {})


_RUNS = {
    Cell(column, "centralised"): preset(f"fedcor/{column}-1spc").replace(
        algo="random", partition="iid", shards_per_client=1, num_clients=1, num_selected=1, holdout=0.0,
        loss_on="train", local_epochs=1, learning_rate_milestones=(), rounds=PASSES, target_accuracy=None,
        seeds=PAPER_SEEDS,
    )
    for column in ("fmnist", "cifar10")
}  # fmt: skip

ENTRIES = (Entry("fedcor/centralised", RULE, _RUNS, _judge, "Fashion-MNIST 10 minutes; CIFAR-10 hours on a CPU"),)
