"""Residual networks for small images, with group normalization as is common in federated learning.

The networks follow He et al., "Deep Residual Learning for Image Recognition" (2016), with Flax's default
initialization. Group normalization (Wu and He 2018) replaces batch normalization, whose statistics differ between
clients with heterogeneous data (Hsieh et al. 2020).
"""

from functools import partial

import flax.linen as nn
import jax


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes.

    Attributes:
        features: number of output channels.
        stride: stride of the first convolution.
        groups: number of groups in group normalization.
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
    """A 3x3 stem, stages of residual blocks that each (except the first) halve the sides, and global average pooling.

    Attributes:
        num_classes: C.
        features: number of channels per stage.
        blocks: number of blocks per stage.
        groups: number of groups in group normalization.
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
    """Return a ResNet with three stages of one block, 16-32-64 channels and 8 groups.

    P = 78,042 with 10 classes on color images, 77,754 on gray images.

    Args:
        num_classes: C.
    """
    return ResNet(num_classes, (16, 32, 64), blocks=1, groups=8)


def resnet18(num_classes: int) -> ResNet:
    """Return the ResNet-18 for CIFAR: a 3x3 stem without pooling, four stages of two blocks, 64-128-256-512 channels.

    It has 32 groups. P = 11,173,962 with 10 classes on color images, 11,220,132 with 100 classes.

    Args:
        num_classes: C.
    """
    return ResNet(num_classes, (64, 128, 256, 512), blocks=2, groups=32)
