"""LeNet-5, in the variant used in federated learning: 5x5 convolutions 6-16, fully-connected layers 120-84."""

import flax.linen as nn
import jax


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998, section II.B) with ReLU, max-pooling and Flax's default initialization.

    Images smaller than 32 pixels per side are padded by two at each edge, as MNIST's are in the paper.
    P = 61,706 with 10 classes on 28x28x1 or 32x32x1, 62,006 on 32x32x3.

    Attributes:
        num_classes: C.
    """

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images [B, H, W, channels] to logits [B, C]; H and W are at least 12."""
        padding = 2 if min(images.shape[1:3]) < 32 else 0
        x = nn.relu(nn.Conv(6, (5, 5), padding=padding)(images))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(16, (5, 5), padding="VALID")(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(84)(nn.relu(nn.Dense(120)(x))))
        return nn.Dense(self.num_classes)(x)
