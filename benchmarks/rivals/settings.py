"""The timed settings and the rivals, as plain values without third-party imports."""

from typing import Any

FMNIST_MLP = {
    "preset": "fedcor/fmnist-2spc",
    "config": {"local_steps": 20, "learning_rate_milestones": ()},
    "model": "mlp",
    "warm_rounds": 10,
    "rounds": 200,
    "chunk": 10,
}

SETTINGS: dict[str, dict[str, Any]] = {
    "fmnist_mlp": {**FMNIST_MLP, "about": "FedCor, Fashion-MNIST: MLP 784-64-30-10, 5 clients x 20 steps x batch 64"},
    "fmnist_mlp_10": {
        **FMNIST_MLP,
        "about": "the same with 10 clients a round",
        "config": FMNIST_MLP["config"] | {"num_selected": 10},
    },
    "cifar10_cnn": {
        "about": "FedCor, CIFAR-10: CNN 32-64-64 + 64, 5 clients x 40 steps x batch 50",
        "preset": "fedcor/cifar10-2spc",
        "config": {"local_steps": 40, "learning_rate_milestones": ()},  # five passes over 400 examples
        "model": "cnn",
        "warm_rounds": 1,
        "rounds": 5,
        "chunk": 1,
    },
    "cifar10_resnet8": {
        "about": "resnet8 with group normalization, CIFAR-10: 78,042 weights, 5 clients x 1 epoch (8 steps) x batch 50",
        "preset": "fedcor/cifar10-2spc",
        "config": {
            "model": "resnet8",
            "local_steps": 8,
            "learning_rate": 0.1,
            "weight_decay": 0.0,
            "learning_rate_milestones": (),
        },
        "model": "resnet8",
        "rivals": ("torch_loop",),
        "warm_rounds": 1,
        "rounds": 4,
        "chunk": 1,
    },
    "pfl_cifar10": {
        "about": "pfl-research's CIFAR-10 benchmark: 1,000 users x 50 images, its CNN 32-64 + 128, "
        "50 clients x 1 epoch (5 steps) x batch 10",
        "preset": "fedcor/cifar10-2spc",
        "config": {
            "partition": "iid",
            "num_clients": 1000,
            "num_selected": 50,
            "holdout": 0.0,
            "loss_on": "train",
            "local_steps": 5,
            "batch_size": 10,
            "learning_rate": 0.1,
            "weight_decay": 0.0,
            "learning_rate_milestones": (),
            "model_dropout": 0.5,  # its CNN drops a quarter after the convolutions and half before the last layer
        },
        "model": "pfl_cnn",
        "warm_rounds": 1,
        "rounds": 4,
        "chunk": 1,
    },
}
"""Each setting is a preset of fedjax_sel with the changes in `config`. `warm_rounds` precede the timed `rounds`;
`chunk` is the number of rounds per program of fedjax_sel. `rivals` names the rivals that implement the network
(default: all). All clients hold the same number of examples. The learning rate is constant, because not all rivals
can change it."""

EXACT = {
    "config": {"model_dropout": 0.0, "local_steps": 2, "learning_rate": 0.1, "batch_size": None, "num_selected": 5},
    "warm_rounds": 1,
    "rounds": 1,
    "chunk": 1,
}
"""Changes that make a setting deterministic: no dropout, and full batches (None). All rivals must then reach the same
model, up to float32's rounding."""

RIVALS: dict[str, dict[str, Any]] = {
    "torch_loop": {"venv": "torch", "runner": "torch_loop.py"},
    "torch_batched": {"venv": "torch", "runner": "torch_batched.py"},
    "fedjax": {"venv": "fedjax", "runner": "fedjax_runner.py"},
    "fedjax_pmap": {"venv": "fedjax", "runner": "fedjax_runner.py", "options": {"backend": "pmap"}},
    "fedjax_newest": {"venv": "fedjax_newest", "runner": "fedjax_runner.py"},
    "fedjax_source": {"venv": "fedjax_source", "runner": "fedjax_runner.py"},
    "pfl": {"venv": "pfl", "runner": "pfl_runner.py"},
    "flower": {"venv": "flower", "runner": "flower_runner.py"},
}
"""`venv` names the environment and its file in requirements/; README.md describes the rivals."""
