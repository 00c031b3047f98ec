"""Residual networks for small images with group normalisation, as federated learning trains them.

He et al., "Deep Residual Learning for Image Recognition" (2016), with group normalisation (Wu and He 2018) in place of
batch normalisation, whose statistics clients with different data do not share (Hsieh et al. 2020). Initialised as Flax
does by default.
"""

from functools import partial

import flax.linen as nn
import jax


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, and what goes around them; projected by a 1x1 convolution where the shape changes.

    Attributes:
        features: output channels.
        stride: of the first convolution.
        groups: of channels that are normalised together.
    """

    features: int
    stride: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [B, H, W, channels] to [B, H / stride, W / stride, features]."""
        conv = partial(nn.Conv, self.features, use_bias=False)
        y = nn.relu(nn.GroupNorm(self.groups)(conv((3, 3), strides=self.stride, padding=1)(x)))
        y = nn.GroupNorm(self.groups)(conv((3, 3), padding=1)(y))
        if x.shape != y.shape:
            x = nn.GroupNorm(self.groups)(conv((1, 1), strides=self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A 3x3 stem, stages of residual blocks of which each but the first halves the sides, and a mean over the pixels.

    Attributes:
        num_classes: C.
        features: channels of each stage.
        blocks: of each stage.
        groups: of channels that are normalised together.
    """

    num_classes: int
    features: tuple[int, ...]
    blocks: int
    groups: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images [B, H, W, channels] to logits [B, C]."""
        x = nn.Conv(self.features[0], (3, 3), padding=1, use_bias=False)(images)
        x = nn.relu(nn.GroupNorm(self.groups)(x))
        for stage, features in enumerate(self.features):
            for block in range(self.blocks):
                x = ResidualBlock(features, 2 if stage > 0 and block == 0 else 1, self.groups)(x)
        return nn.Dense(self.num_classes)(x.mean((1, 2)))


def resnet8(num_classes: int) -> ResNet:
    """Return the ResNet of three stages of one block, 16-32-64 channels, in 8 groups.

    P = 78,042 with 10 classes on colour images, 77,754 on grey ones.

    Args:
        num_classes: C.
    """
    return ResNet(num_classes, (16, 32, 64), blocks=1, groups=8)


def resnet18(num_classes: int) -> ResNet:
    """Return the ResNet-18 for CIFAR: a 3x3 stem without pooling, four stages of two blocks, 64-128-256-512 channels.

    Normalised in 32 groups. P = 11,173,962 with 10 classes on colour images, 11,220,132 with 100.

    Args:
        num_classes: C.
    """
    return ResNet(num_classes, (64, 128, 256, 512), blocks=2, groups=32)
