"""What FedCor and its supplement state of all runs, or of all of a study: training, method, baselines, studies."""

from studies.papers.published.entry import Stated

FMNIST = {
    "model": Stated("MLP model with two hidden layers", ("we adopt an MLP model with two hidden layers",)),
    "hidden_units": Stated((64, 30), ("hidden layers with 64 and 30 units",)),
    "batch_size": Stated(64, ("the local batch size B=64",)),
    "local_steps": Stated(20, ("the number of local iterations E=20",)),
    "learning_rate": Stated(0.005, ("is set to 0.005 initially, and halved",)),
    "learning_rate_milestones": Stated((150, 300), ("halved at the 150-th and 300-th rounds",)),
    "weight_decay": Stated(0.0001, ("with a weight decay of 0.0001 and no momentum is used",)),
}
"""Local training on Fashion-MNIST."""

CIFAR10 = {
    "model": Stated(
        "CNN model with three convolutional layers", ("we adopt a CNN model with three convolutional layers",)
    ),
    "channels": Stated((32, 64, 64), ("with 32, 64 and 64 kernels",)),
    "hidden_units": Stated(64, ("fed into a fully-connected layer with 64 units",)),
    "batch_size": Stated(50, ("the local batch size B=50",)),
    "local_steps": Stated(40, ("the number of local iterations E=40",)),
    "learning_rate": Stated(0.01, ("= 0.01 without learning rate decay",)),
    "weight_decay": Stated(0.0003, ("a weight decay of 0.0003 for the SGD optimizer",)),
}
"""Local training on CIFAR-10."""

TASKS = {
    "num_clients": Stated(100, ("N=100 clients, and set the participation fraction",)),
    "num_selected": Stated(
        {"1spc": 10, "2spc": 5, "dir": 5}, ("C=10 for the 1SPC setting", "C=5 for the 2SPC and Dir settings")
    ),
    "shards": Stated({"2spc": 200}, ("divide them into 200200200 shards",)),
    "alpha": Stated({"dir": 0.2}, (r"\alpha=0.2 (Dir)",)),
    "rounds": Stated({"fmnist": 500, "cifar10": 2000}, ("(500500500 for FMNIST and 200020002000 for CIFAR-10)",)),
    **{f"fmnist.{name}": stated for name, stated in FMNIST.items()},
    **{f"cifar10.{name}": stated for name, stated in CIFAR10.items()},
}
"""Data, partitions and local training, which all of the paper's runs share."""

METHOD = {
    "warmup": Stated(
        {"fmnist": 15, "cifar10": 20}, ("the warm-up phase to 151515 for FMNIST and 202020 for CIFAR-10",)
    ),
    "dimension": Stated(15, ("the dimension of client embedding d=15",)),
    "warmup_reuse": Stated(10, ("M=10,S=1 for the warm-up phase",)),
    "reuse": Stated(1, ("M=1,S=1 for the normal phase",)),
    "probes": Stated(1, ("M=1,S=1 for the normal phase",)),
    "discount": Stated(
        {"fmnist": 0.9, "cifar10": 0.99},
        (r"\theta=0.9 for experiments on FMNIST", r"\theta=0.99 for experiments on CIFAR-10"),
    ),
    "gp_learning_rate": Stated(0.01, ("with learning rate 0.01 to optimize for",)),
}
"""FedCor's own settings but for the interval and the annealing."""

INTERVAL = {
    "interval": Stated({"fmnist": 10, "cifar10": 50}, (r"\Delta t=10 and the annealing", r"\Delta t=50 and")),
    "anneal": Stated(
        {"fmnist": 0.95, "cifar10": 0.9},
        (r"\beta=0.95 for FMNIST experiments", r"\beta=0.9 for CIFAR-10 experiments"),
    ),
}
BASELINES = {
    "afl": Stated((0.75, 0.01, 0.1), (r"\alpha_{1}=0.75,\alpha_{2}=0.01 and", r"\alpha_{3}=0.1 as those in the paper")),
    "pow_d.candidates": Stated("d=2NC for Power-of-choice", ("d=2NC for Power-of-choice Selection Strategy",)),
}
FIVE_SEEDS = {"seeds": Stated(5, ("the average results using five random seeds in all experiments",))}
BETAS = {
    "interval": Stated({"fmnist": 10, "cifar10": 50}, (r"\Delta t=10 and", r"\Delta t=50,\beta=0.9,0.95,0.99")),
    "anneal": Stated(
        {"fmnist": (0.5, 0.75, 0.9), "cifar10": (0.9, 0.95, 0.99)},
        (r"\beta=0.5,0.75,0.9 for FMNIST", r"\Delta t=50,\beta=0.9,0.95,0.99 for CIFAR-10"),
    ),
}
APPENDIX_BETAS = {
    "interval": Stated({"fmnist": 10, "cifar10": 50}, ("to 101010 for FMNIST and 505050 for CIFAR-10",)),
    "anneal": Stated(
        {"fmnist": (0.95, 0.75, 0.5), "cifar10": (0.97, 0.95, 0.9)},
        (r"\beta=0.95,0.75,0.5 for FMNIST", r"\beta=0.97,0.95,0.9 for CIFAR-10"),
    ),
}
UNION_OF_BETAS = (
    "Section 5.4 has 0.5, 0.75, 0.9 and 0.9, 0.95, 0.99. Appendix D.1 has 0.95, 0.75, 0.5 and 0.97, 0.95, 0.9 for the "
    "same study. The union of the lists is run."
)
SAMPLES = {"samples": Stated(1000, ("We uniformly sample 1000 different client selections",))}
BETWEEN = {
    "samples": Stated(1000, ("for CIFAR-10), we randomly sample 1000 client",)),
    "interval": Stated({"fmnist": 10, "cifar10": 50}, (r"\Delta t=10 for FMNIST and", r"\Delta t=50 for CIFAR-10")),
}
SQUARE_ROOT = (
    "Eq. 151 as printed is not a cosine, because its value depends on the scale of the covariances. The square root "
    "of the denominator is added"
)
AS_IN_TABLE1 = (
    "Local training is read as in table1, with the released code's dropout of 0.5 on 80 % of a client's data."
)
