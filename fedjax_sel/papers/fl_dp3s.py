"""FL-DP3S (Zhang et al.): four degrees of skewness on MNIST and Fashion-MNIST.

The paper states neither widths nor optimizer. Its skewness protocol comes from flsim, whose MNIST configuration is used
here: convolutions with 20 and 50 channels, 500 hidden units, SGD with learning rate 0.01 and momentum 0.5, batches of
10, and five epochs (300 steps per client). The paper's main result is the number of rounds to 90 % training accuracy,
over 50 seeds. A preset runs one seed; add --seeds 50 for all.
"""

from fedjax_sel.config import Config

_COMMON = Config().replace(
    num_clients=100,
    num_selected=10,
    partition="skewness",
    model="cnn_small",
    local_epochs=5,
    batch_size=10,
    learning_rate=0.01,
    momentum=0.5,
    aggregation="samples",
    rounds=150,
    seeds=1,
    train_metrics_every=1,
    chunk=1,
)

PRESETS: dict[str, Config] = {
    f"fl_dp3s/{short}-xi{xi.lower()}": _COMMON.replace(dataset=dataset, skewness=xi)
    for short, dataset in (("mnist", "mnist"), ("fmnist", "fashion_mnist"))
    for xi in ("1", "H", "0.8", "0.5")
}
