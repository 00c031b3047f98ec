"""The two convolutional networks of the papers. Pooling comes before the activation; no padding anywhere."""

import flax.linen as nn
import jax

from fedjax_sel.models.layers import DEFAULT_CONVOLUTION, Conv, Dense, Dropout, max_pool
from fedjax_sel.models.output import Output


class CNN(nn.Module):
    """FedCor's CIFAR-10 network: 3x3 convolutions 32-64-64, pooled after the first two, one hidden layer of 64.

    Attributes:
        num_classes: C.
        dropout: probability of zero, on the hidden layer.
        initializer: one of `layers.INITIALIZERS`.
        convolution: one of `layers.CONVOLUTIONS`.
    """

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    convolution: str = DEFAULT_CONVOLUTION

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> Output:
        """[B, H, W, channels] -> logits [B, C] and first fully-connected layer [B, 64]."""
        x = nn.relu(max_pool(Conv(32, 3, self.initializer, self.convolution)(images)))
        x = nn.relu(max_pool(Conv(64, 3, self.initializer, self.convolution)(x)))
        x = nn.relu(Conv(64, 3, self.initializer, self.convolution)(x))
        first = Dense(64, self.initializer)(x.reshape(x.shape[0], -1))
        x = nn.relu(Dropout(self.dropout)(first, train))
        return Output(Dense(self.num_classes, self.initializer)(x), first)


class SmallCNN(nn.Module):
    """FL-DP3S's network (assumed: flsim's for MNIST): 5x5 convolutions 20-50, both pooled, one hidden layer of 500.

    Attributes:
        num_classes: C.
        dropout: probability of zero, on the hidden layer.
        initializer: one of `layers.INITIALIZERS`.
        convolution: one of `layers.CONVOLUTIONS`.
    """

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    convolution: str = DEFAULT_CONVOLUTION

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> Output:
        """[B, H, W, channels] -> logits [B, C] and first fully-connected layer [B, 500]."""
        x = nn.relu(max_pool(Conv(20, 5, self.initializer, self.convolution)(images)))
        x = nn.relu(max_pool(Conv(50, 5, self.initializer, self.convolution)(x)))
        first = Dense(500, self.initializer)(x.reshape(x.shape[0], -1))
        x = nn.relu(Dropout(self.dropout)(first, train))
        return Output(Dense(self.num_classes, self.initializer)(x), first)
