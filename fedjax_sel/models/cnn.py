"""The two convolutional networks of the papers, without padding and with pooling before the activation."""

from functools import partial

import flax.linen as nn
import jax

from fedjax_sel.models.layers import DEFAULT_CONVOLUTION, Conv, Dense, Dropout
from fedjax_sel.models.output import Output


class CNN(nn.Module):
    """FedCor's CIFAR-10 network: 3x3 convolutions 32-64-64, pooled after the first two, one hidden layer of 64.

    Attributes:
        num_classes: C.
        dropout: dropout probability of the hidden layer.
        initializer: one of `layers.INITIALIZERS`.
        precision: one of `products.PRECISIONS`.
        convolution: one of `layers.CONVOLUTIONS`.
    """

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    precision: str = "float32"
    convolution: str = DEFAULT_CONVOLUTION

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> Output:
        """Map images [B, H, W, channels] to logits [B, C] and the first fully-connected layer [B, 64]."""
        dense = partial(Dense, initializer=self.initializer, precision=self.precision)
        conv = partial(Conv, initializer=self.initializer, precision=self.precision, form=self.convolution)
        x = nn.relu(conv(32, 3, pooled=True)(images))
        x = nn.relu(conv(64, 3, pooled=True)(x))
        x = nn.relu(conv(64, 3)(x))
        first = dense(64)(x.reshape(x.shape[0], -1))
        x = nn.relu(Dropout(self.dropout)(first, train))
        return Output(dense(self.num_classes)(x), first)


class SmallCNN(nn.Module):
    """FL-DP3S's network: 5x5 convolutions 20-50, both pooled, one hidden layer of 500.

    The paper does not specify it; this is flsim's network for MNIST.

    Attributes:
        num_classes: C.
        dropout: dropout probability of the hidden layer.
        initializer: one of `layers.INITIALIZERS`.
        precision: one of `products.PRECISIONS`.
        convolution: one of `layers.CONVOLUTIONS`.
    """

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    precision: str = "float32"
    convolution: str = DEFAULT_CONVOLUTION

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> Output:
        """Map images [B, H, W, channels] to logits [B, C] and the first fully-connected layer [B, 500]."""
        dense = partial(Dense, initializer=self.initializer, precision=self.precision)
        conv = partial(Conv, initializer=self.initializer, precision=self.precision, form=self.convolution)
        x = nn.relu(conv(20, 5, pooled=True)(images))
        x = nn.relu(conv(50, 5, pooled=True)(x))
        first = dense(500)(x.reshape(x.shape[0], -1))
        x = nn.relu(Dropout(self.dropout)(first, train))
        return Output(dense(self.num_classes)(x), first)
