"""Client for PyTorch modules, complete except for `fit`.

class Phone(TorchClient):
    def fit(self, config):
        optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)
        for inputs, targets in batches(self.inputs, self.targets):
            optimizer.zero_grad()
            self.losses(self.module(inputs), targets).mean().backward()
            optimizer.step()

phone = Phone("phone 7", module, inputs, targets)
"""

# pyright: reportMissingImports=false
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedjax_sel.adapters.rounds import Arrays, DataClient, Passes
from fedjax_sel.errors import UserError


class TorchClient(DataClient):
    """Client for PyTorch modules; subclasses implement `fit`.

    Attributes:
        profile_layer: name of the layer whose output is the profile; None: the first `torch.nn.Linear`.
    """

    profile_layer: str | None = None

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        *,
        holdout: tuple[torch.Tensor, torch.Tensor] | None = None,
        num_classes: int | None = None,
    ):
        """Create a client.

        Args:
            name: unique name of the client.
            module: a module with the federation's architecture; each received model overwrites its weights.
            inputs: training inputs, [n, ...].
            targets: training labels, int64 [n].
            holdout: held-out inputs and labels.
            num_classes: number of classes, C; required for label histograms.
        """
        self.name, self.module, self.inputs, self.targets = name, module, inputs, targets
        self.holdout, self.num_classes = holdout, num_classes

    def fit(self, config: Mapping[str, Any]) -> Passes | None:
        """Train `self.module` on `self.inputs` and `self.targets`.

        Returns:
            Training losses, for strategies that request them: one list per pass over the data, with one tensor of
            per-example losses per mini-batch, taken before its step. Else None.
        """
        raise UserError(f"fit: {type(self).__name__} does not implement it; write this method")

    def losses(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the per-example losses, [n]; cross-entropy by default."""
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def losses_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the per-example losses in evaluation mode, [n], nats."""
        module = self._received(weights).eval()
        with torch.no_grad():
            return self.losses(module(inputs), targets).numpy(force=True)

    def profile_of(self, weights: Arrays, inputs: Any, relu: bool) -> np.ndarray:
        """Return the mean output of the first fully-connected layer, [Q]."""
        module, outputs = self._received(weights).eval(), []
        hook = self._layer().register_forward_hook(lambda layer, given, output: outputs.append(output))
        try:
            with torch.no_grad():
                module(inputs)
        finally:
            hook.remove()
        return (torch.relu(outputs[0]) if relu else outputs[0]).mean(dim=0).numpy(force=True)

    def gradient_of(self, weights: Arrays, inputs: Any, targets: Any) -> np.ndarray:
        """Return the gradient of the mean loss, flat, [P]."""
        module = self._received(weights).eval()
        parameters = [weight for _, weight in self._trained()]
        loss = self.losses(module(inputs), targets).mean()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy(force=True)

    def fitted(self, weights: Arrays, config: Mapping[str, Any]) -> tuple[Arrays, Passes | None]:
        """Train from the weights; return the trained weights, and the losses if `fit` returns them."""
        module = self._received(weights).train()
        passes = self.fit(config)
        if passes:
            passes = [[torch.as_tensor(batch).numpy(force=True) for batch in one] for one in passes]
        return {name: value.numpy(force=True).copy() for name, value in module.state_dict().items()}, passes

    def flat(self, weights: Arrays) -> np.ndarray:
        """Return the trained weights as one vector, [P]."""
        return np.concatenate([np.ravel(weights[name]) for name, _ in self._trained()])

    def joined(self, first: Any, second: Any) -> Any:
        """Return the concatenated examples."""
        return torch.cat([first, second])

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, weight) for name, weight in self.module.named_parameters() if weight.requires_grad]

    def _received(self, weights: Arrays) -> torch.nn.Module:
        self.module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
        return self.module

    def _layer(self) -> torch.nn.Module:
        if self.profile_layer is not None:
            return self.module.get_submodule(self.profile_layer)
        for layer in self.module.modules():
            if isinstance(layer, torch.nn.Linear):
                return layer
        raise UserError(f"profile_layer: client {self.name!r} has no torch.nn.Linear; set it to a layer's name")
