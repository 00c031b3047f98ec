"""Rival: hand-written PyTorch with the cohort's weights stacked.

A dense layer of all clients is one `baddbmm`, a convolution one grouped convolution.
"""

# pyright: reportMissingImports=false
import numpy as np
import torch
import work as work_
from torch.nn.functional import conv2d, cross_entropy, dropout, max_pool2d


def dense(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Apply per-client dense layers, [K, B, inputs] -> [K, B, outputs]."""
    return torch.baddbmm(bias, x, kernel)


def conv(x: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Convolve without padding, [B, K * in, H, W] -> [B, K * out, H', W'], with kernel [K, out, in, size, size]."""
    return conv2d(x, kernel.flatten(0, 1), bias.flatten(), groups=len(kernel))


def flat(x: torch.Tensor, count: int) -> torch.Tensor:
    """Flatten images per client, [B, K * channels, H, W] -> [K, B, H * W * channels]."""
    return x.unflatten(1, (count, -1)).permute(1, 0, 3, 4, 2).flatten(2)


def forward(model: str, rate: float, layers: list[tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> torch.Tensor:
    """Return logits [K, B, C] of images [K, B, H, W, channels]; the dropout rate is 0 in evaluation."""
    if model == "mlp":
        x = x.flatten(2)
        for layer in layers[:-1]:
            x = dense(x, *layer)
            x = (dropout(x, rate) if rate else x).relu()
        return dense(x, *layers[-1])
    count = len(x)
    x = x.permute(1, 0, 4, 2, 3).flatten(1, 2)  # [B, K * channels, H, W]
    if model == "cnn":
        x = max_pool2d(conv(x, *layers[0]), 2).relu()
        x = max_pool2d(conv(x, *layers[1]), 2).relu()
        x = flat(conv(x, *layers[2]).relu(), count)
        x = dense(x, *layers[3]).relu()
    else:
        x = conv(x, *layers[0]).relu()
        x = max_pool2d(conv(x, *layers[1]).relu(), 2)
        x = dense(flat(dropout(x, 0.25) if rate else x, count), *layers[2]).relu()
        x = dropout(x, 0.5) if rate else x
    return dense(x, *layers[-1])


def stacked(work: work_.Work, server: list[torch.Tensor], count: int) -> list[torch.Tensor]:
    """Return the server's weights repeated per client, [K, ...]."""
    return [weight.expand(count, *weight.shape).clone().requires_grad_() for weight in server]


def layers_of(weights: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Group a flat list into (kernel, bias) per layer."""
    return list(zip(weights[::2], weights[1::2]))


def main() -> None:
    work = work_.read()
    torch.manual_seed(work.seed)
    torch.set_num_threads(work_.num_cores())
    everyone = work.selected_clients()
    place = {number: index for index, number in enumerate(everyone)}
    all_images, all_labels = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*everyone.values()))
    server = []
    for kernel, bias in work.layers:
        kernel = kernel.transpose(3, 2, 0, 1) if kernel.ndim == 4 else kernel
        server += [torch.from_numpy(kernel).contiguous(), torch.from_numpy(bias)[None]]
    clock = work_.Clock(work)
    for round, cohort in enumerate(work.cohorts):
        weights = stacked(work, server, len(cohort))
        orders = torch.from_numpy(np.stack([work.order(work.generator(round, number)) for number in cohort], axis=1))
        rows = torch.tensor([place[number] for number in cohort])[:, None]
        for batch in orders:  # [K, B]
            images, labels = all_images[rows, batch], all_labels[rows, batch]
            logits = forward(work.model, work.dropout, layers_of(weights), images)
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / work.batch_size
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                if work.weight_decay:
                    torch._foreach_mul_(weights, 1 - work.learning_rate * work.weight_decay)
                torch._foreach_add_(weights, gradients, alpha=-work.learning_rate)
        server = [weight.detach().mean(0) for weight in weights]
        clock()
    work_.report(clock, *test(work, server), packages=["torch"])


@torch.no_grad()
def test(work: work_.Work, server: list[torch.Tensor]) -> tuple[float, float]:
    """Return the server model's accuracy and mean loss on the test set."""
    layers = layers_of([weight[None] for weight in server])
    correct, losses = [], []
    for images, labels in work.test_blocks():
        logits = forward(work.model, 0.0, layers, torch.from_numpy(images)[None])[0]
        losses.append(cross_entropy(logits, torch.from_numpy(labels), reduction="none").numpy())
        correct.append(logits.argmax(1).numpy() == labels)
    return float(np.concatenate(correct).mean()), float(np.concatenate(losses).mean())


if __name__ == "__main__":
    main()
