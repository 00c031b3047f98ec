"""Every way to deal data trains and is billed; every kind of local work runs."""

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config

SMALL = Config().replace(
    dataset="synthetic:train_size=600,test_size=50,num_classes=10,image_size=4,num_writers=40",
    num_clients=20, num_selected=4, rounds=2, chunk=2, batch_size=4, local_steps=2, train_metrics_every=1,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"partition": "shards", "shards_per_client": 2, "holdout": 0.2, "loss_on": "all"},
        {"partition": "dirichlet_qp", "num_clients": 60, "alpha": 2.0, "local_epochs": 1, "aggregation": "samples"},
        {"partition": "skewness", "skewness": "H", "full_batch": True},
        {"partition": "skewness", "skewness": "0.8", "skewness_main": "random"},
        {"partition": "dirichlet", "dirichlet_form": "yurochkin", "alpha": 5.0, "local_epochs": 2},
        {"partition": "natural", "local_epochs": 1, "batch_size": 3},
        {"partition": "extended_dirichlet", "alpha": 5.0, "feature_skew": "noise:0.1", "holdout": 0.2},
        {"partition": "classes", "client_sizes": "lognormal:0.5", "label_noise": 0.2},
        {"partition": "iid", "num_selected": 20},
        {"partition": "iid", "num_clients": 1, "num_selected": 1},
    ],
    ids=lambda change: "-".join(str(value) for value in change.values()),
)
def test_it_runs(change):
    result = fedjax_sel.run(SMALL.replace(algo="random", **change))
    config = result.config
    k = config.selection.num_selected
    assert np.isfinite(result.test_loss).all() and np.isfinite(result.train_loss).all()
    assert (result.train_accuracy >= result.worst_decile_accuracy).all()
    np.testing.assert_array_equal(result.ledger.models_up, k)
    assert all(len(set(cohort)) == k for cohort in result.cohorts[0])
    if config.partition.partition == "iid" and k == config.partition.num_clients:
        np.testing.assert_allclose(result.gemd, 0, atol=1e-6)
