"""Weights & Biases; `WANDB_MODE=offline` keeps a run on this machine until `wandb sync`."""

import os
from typing import Any

from fedjax_sel.errors import UserError
from fedjax_sel.logs.base import PROJECT, Log, Step


class WandB(Log):
    """Writes every measure of every seed to Weights & Biases; its own variables (WANDB_PROJECT, ...) count."""

    tool = package = "wandb"

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Begin a run there, or go on with one.

        Raises:
            UserError: it does not start, for want of a login for example.
        """
        wandb = self._module
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=self.name,
                id=before,
                resume=None if before is None else "allow",
                dir=str(self.folder.resolve()),  # its service has a working folder of its own
                config=config,
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UserError(
                f"--log wandb: Weights & Biases does not start ({reason}); log in with wandb login, or set "
                "WANDB_MODE=offline, which keeps the run on this machine"
            ) from error
        return self._run.id

    def write(self, found: list[Step]) -> None:
        """Write rounds."""
        for step, values in found:
            self._run.log(values, step=step)

    def finish(self, finished: bool) -> None:
        """End the run there; one that was interrupted counts as failed until it goes on."""
        self._run.finish(exit_code=0 if finished else 1)
