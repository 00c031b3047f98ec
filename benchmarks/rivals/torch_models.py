"""The networks in PyTorch, with given first weights; used by the hand-written loop, pfl-research and Flower.

Images are [B, channels, H, W] with channels last in memory, where PyTorch's convolutions on a CPU are fastest.
"""

# pyright: reportMissingImports=false
import numpy as np
import torch
import work as work_
from torch import nn


class ChannelsLastFlatten(nn.Module):
    """[B, channels, H, W] -> [B, H * W * channels], which moves nothing where channels are last in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the images, each as one row."""
        return x.permute(0, 2, 3, 1).flatten(1)


def build(work: work_.Work) -> nn.Module:
    """Return the work's network with its first weights.

    Args:
        work: which network, and the weights.

    Returns:
        The module, in training mode.
    """
    network = nn.Sequential(*_modules(work.model, work.dropout, [weight.shape for weight, _ in work.layers]))
    with_weights = [module for module in network if isinstance(module, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        for module, (kernel, bias) in zip(with_weights, work.layers, strict=True):
            module.weight.copy_(torch.from_numpy(np.transpose(kernel, (3, 2, 0, 1) if kernel.ndim == 4 else (1, 0))))
            module.bias.copy_(torch.from_numpy(bias))
    return network.to(memory_format=torch.channels_last)


def _modules(model: str, dropout: float, shapes: list[tuple[int, ...]]) -> list[nn.Module]:
    layers: list[nn.Module] = [
        nn.Conv2d(shape[2], shape[3], shape[0]) if len(shape) == 4 else nn.Linear(*shape) for shape in shapes
    ]
    if model == "mlp":
        first, second, last = layers
        hidden = [nn.Dropout(dropout), nn.ReLU(), second, nn.Dropout(dropout), nn.ReLU()] if dropout else [
            nn.ReLU(), second, nn.ReLU()]  # fmt: skip
        return [nn.Flatten(), first, *hidden, last]
    if model == "cnn":
        conv1, conv2, conv3, first, last = layers
        pooled = [conv1, nn.MaxPool2d(2), nn.ReLU(), conv2, nn.MaxPool2d(2), nn.ReLU(), conv3, nn.ReLU()]
        return [*pooled, ChannelsLastFlatten(), first, nn.ReLU(), last]
    conv1, conv2, first, last = layers
    drop = [nn.Dropout(rate) if dropout else nn.Identity() for rate in (0.25, 0.5)]
    convolved = [conv1, nn.ReLU(), conv2, nn.ReLU(), nn.MaxPool2d(2), drop[0]]
    return [*convolved, ChannelsLastFlatten(), first, nn.ReLU(), drop[1], last]


def tensors(images: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 [n, H, W, channels] and int64 [n] -> [n, channels, H, W], channels last in memory, and labels."""
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)


@torch.no_grad()
def test(network: nn.Module, work: work_.Work) -> tuple[float, float]:
    """Accuracy and mean loss on the test set."""
    network.eval()
    correct = total = loss = 0.0
    for block in work.test_blocks():
        images, labels = tensors(*block)
        logits = network(images)
        loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        correct += (logits.argmax(1) == labels).sum().item()
        total += len(labels)
    network.train()
    return correct / total, loss / total
