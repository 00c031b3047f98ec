"""The networks in PyTorch, with given initial weights; used by the hand-written loop, pfl-research and Flower.

Images are [B, channels, H, W] with channels last in memory, where PyTorch's convolutions on a CPU are fastest.
"""

# pyright: reportMissingImports=false
import numpy as np
import torch
import work as work_
from torch import nn

EPSILON = 1e-6  # of normalization layers, as in Flax; PyTorch's default is 1e-5


class ChannelsLastFlatten(nn.Module):
    """A flatten layer [B, channels, H, W] -> [B, H * W * channels], without a copy for channels-last memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the images as rows."""
        return x.permute(0, 2, 3, 1).flatten(1)


def build(work: work_.Work) -> nn.Module:
    """Return the work's network with its initial weights.

    Args:
        work: the work, with the network's name and weights.

    Returns:
        The module, in training mode.
    """
    network = nn.Sequential(*_modules(work.model, work.dropout, [weight.shape for weight, _ in work.layers]))
    with_weights = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear | nn.GroupNorm)]
    axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}
    with torch.no_grad():
        for module, (kernel, bias) in zip(with_weights, work.layers, strict=True):
            module.weight.copy_(torch.from_numpy(np.transpose(kernel, axes[kernel.ndim])))
            if module.bias is not None:
                module.bias.copy_(torch.from_numpy(bias))
    return network.to(memory_format=torch.channels_last)


class ResidualBlock(nn.Module):
    """A residual block of two 3x3 convolutions with group normalization, as in `fedjax_sel.models`."""

    def __init__(self, inputs: int, features: int, groups: int):
        super().__init__()
        same = inputs == features
        stride = 1 if same else 2
        self.body = nn.Sequential(
            nn.Conv2d(inputs, features, 3, stride, 1, bias=False), nn.GroupNorm(groups, features, EPSILON), nn.ReLU(),
            nn.Conv2d(features, features, 3, 1, 1, bias=False), nn.GroupNorm(groups, features, EPSILON),
        )  # fmt: skip
        self.around = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, features, 1, stride, bias=False), nn.GroupNorm(groups, features, EPSILON)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block, [B, inputs, H, W] -> [B, features, H / stride, W / stride]."""
        return nn.functional.relu(self.around(x) + self.body(x))


class PixelMean(nn.Module):
    """A global average pooling layer, [B, channels, H, W] -> [B, channels]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean over the pixels."""
        return x.mean((2, 3))


def _resnet(features: tuple[int, ...], channels: int, classes: int, groups: int) -> list[nn.Module]:
    """Return a ResNet: a 3x3 stem, one residual block per stage, global average pooling, a dense layer."""
    stem = [
        nn.Conv2d(channels, features[0], 3, 1, 1, bias=False),
        nn.GroupNorm(groups, features[0], EPSILON),
        nn.ReLU(),
    ]
    blocks = [ResidualBlock(inputs, width, groups) for inputs, width in zip((features[0], *features), features)]
    return [*stem, *blocks, PixelMean(), nn.Linear(features[-1], classes)]


def _modules(model: str, dropout: float, shapes: list[tuple[int, ...]]) -> list[nn.Module]:
    if model == "resnet8":
        return _resnet((16, 32, 64), shapes[0][2], shapes[-1][1], groups=8)
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
    """Convert images to tensors [n, channels, H, W] in channels-last memory, and labels to int64 [n]."""
    return torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(labels)


@torch.no_grad()
def test(network: nn.Module, work: work_.Work) -> tuple[float, float]:
    """Return the accuracy and mean loss on the test set."""
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
