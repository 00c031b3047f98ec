"""Weights & Biases callback; with `WANDB_MODE=offline`, a run stays on this machine until `wandb sync`."""

import os
from typing import Any

from fedjax_sel.errors import UserError
from fedjax_sel.logs.base import PROJECT, Log, Step


class WandB(Log):
    """Callback that logs all metrics of each seed to Weights & Biases; reads WANDB_PROJECT and so on."""

    tool = package = "wandb"

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a new run, or resume an earlier one.

        Raises:
            UserError: Weights & Biases does not start, for example without a login.
        """
        wandb = self._module
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=self.name,
                id=before,
                resume=None if before is None else "allow",
                dir=str(self.folder.resolve()),  # the wandb service runs in another working directory
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
        """Log rounds."""
        for step, values in found:
            self._run.log(values, step=step)

    def finish(self, finished: bool) -> None:
        """Close the run; an interrupted one has the status "failed" until it is resumed."""
        self._run.finish(exit_code=0 if finished else 1)
