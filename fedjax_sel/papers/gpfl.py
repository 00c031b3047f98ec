"""GPFL (Na, Liang, Yiu): the settings of Table II.

The columns labeled FEMNIST are Fashion-MNIST, as the released logs show: 500 rounds, one seed. The model is FedCor's
MLP. Its dropout of 0.5 comes from the code (joapolarbear/PBFL uses `fedcor.models.MLP`); the text does not mention it.
The CIFAR-10 columns have 2000 rounds of 40 steps and the CNN of section V, which is FedCor's. The paper states momentum
for Fashion-MNIST only, so it is zero for CIFAR-10. Clients hold out no data.

The authors' FedCor baseline is `--algo fedcor --algo-args preset=gpfl-port`. Their power-of-choice baseline is
`--algo pow_d --algo-args variant=train-first`.
"""

from fedjax_sel.config import Config
from fedjax_sel.papers.fedcor import PARTITIONS

FASHION_MNIST = Config().replace(
    dataset="fashion_mnist",
    num_clients=100,
    num_selected=5,
    model="mlp",
    model_dropout=0.5,
    local_steps=20,
    batch_size=64,
    learning_rate=0.005,
    momentum=0.1,
    weight_decay=1e-4,
    aggregation="uniform",
    rounds=500,
    seeds=1,
)
CIFAR10 = FASHION_MNIST.replace(
    dataset="cifar10",
    model="cnn",
    model_dropout=0.0,
    local_steps=40,
    batch_size=50,
    learning_rate=0.01,
    momentum=0.0,
    weight_decay=3e-4,
    rounds=2000,
    chunk=1,
)

PRESETS: dict[str, Config] = {
    f"gpfl/{data}-{name}": base.replace(**partition)
    for data, base in (("fmnist", FASHION_MNIST), ("cifar10", CIFAR10))
    for name, partition in PARTITIONS.items()
}

RELEASED_LOGS: dict[str, float] = {
    "alpha = 0": 0.669,
    "alpha = 0.1": 0.746,
    "alpha = 2": 0.754,
    "alpha = 5": 0.718,
    "alpha = 0.5 t / T": 0.700,
    "alpha = t / T": 0.739,
    "alpha = 2 t / T": 0.770,
    "alpha = 5 t / T": 0.758,
}
"""Exploration weight -> accuracy over the last ten rounds, from the logs released with the code (2SPC on Fashion-MNIST,
500 rounds, one seed); Fig. 7 prints no numbers."""
