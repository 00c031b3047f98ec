"""PyTorch clients for the Flower example."""

# pyright: reportMissingImports=false
import functools

import numpy as np
import setting as settings
import torch
from setting import Examples, Setting

from fedjax_sel.adapters.torch_client import TorchClient

PROFILE_SIZE = 64


def module(setting: Setting) -> torch.nn.Module:
    """Return the network that all clients train."""
    data = settings.problem(setting).dataset
    pixels = int(np.prod(data.train_images.shape[1:]))
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(pixels, PROFILE_SIZE), torch.nn.ReLU(),
        torch.nn.Linear(PROFILE_SIZE, 30), torch.nn.ReLU(), torch.nn.Linear(30, data.num_classes),
    )  # fmt: skip


class Digits(TorchClient):
    """A client that trains two passes of SGD."""

    def fit(self, config):
        """Train, and return a list per pass with the losses of each mini-batch."""
        optimizer, passes = torch.optim.SGD(self.module.parameters(), lr=0.05), []
        for _ in range(2):
            losses = []
            for batch in torch.randperm(len(self.targets)).split(10):
                batch_losses = self.losses(self.module(self.inputs[batch]), self.targets[batch])
                optimizer.zero_grad()
                batch_losses.mean().backward()
                optimizer.step()
                losses.append(batch_losses.detach())
            passes.append(losses)
        return passes


@functools.cache
def client(setting: Setting, number: int) -> Digits:
    """Return the client with this number; each Ray actor builds it once."""
    torch.set_num_threads(1)
    torch.manual_seed(1000 * setting.seed + number)
    own = settings.of_client(setting, number)
    inputs, labels = torch.from_numpy(own.inputs), torch.from_numpy(own.labels).long()
    return Digits(
        str(number), module(setting), inputs, labels, num_classes=settings.problem(setting).dataset.num_classes
    )


def initial(setting: Setting) -> dict[str, np.ndarray]:
    """Return the initial weights."""
    torch.manual_seed(setting.seed)
    return {name: value.numpy(force=True) for name, value in module(setting).state_dict().items()}


def evaluate(setting: Setting, weights: dict[str, np.ndarray], examples: Examples) -> dict[str, float]:
    """Evaluate a model on examples."""
    network = module(setting)
    network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    with torch.no_grad():
        outputs = network(torch.from_numpy(examples.inputs))
        losses = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(examples.labels).long(), reduction="none")
    return settings.measures(losses.numpy(), outputs.argmax(dim=1).numpy(), examples.labels)
