"""FL-DP3S (Zhang et al.): four degrees of skewness on MNIST and Fashion-MNIST.

The paper gives neither widths nor optimiser. Its skewness protocol comes from flsim, whose MNIST set-up is assumed
here: convolutions 20 and 50, 500 hidden units, SGD 0.01 with momentum 0.5, batches of 10, five passes (300 steps a
client). Its headline counts rounds to 90 % accuracy on the training set, over 50 seeds; a preset runs one (--seeds 50
for all).
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
