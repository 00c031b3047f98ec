"""TensorBoard: files in the folder, for `tensorboard --logdir`."""

from typing import Any

from fedjax_sel.logs.base import Log, Step


class TensorBoard(Log):
    """Writes every measure of every seed for TensorBoard; wants the package tensorboardX."""

    tool, package = "tensorboard", "tensorboardX"
    writes_anew = True  # nobody knows how much of it was on the disk when a process was killed

    def begin(self, config: dict[str, Any], before: str | None) -> None:
        """Open a file; that of a run that goes on begins at its first round, and takes the place of those before it."""
        again = {} if before is None else {"purge_step": 0}
        self._writer = self._module.SummaryWriter(str(self.folder), **again)
        self._writer.add_text("configuration", "\n".join(f"    {key}: {value}" for key, value in config.items()))

    def write(self, found: list[Step]) -> None:
        """Write rounds."""
        for step, values in found:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def finish(self, finished: bool) -> None:
        """Close the file."""
        del finished
        self._writer.close()
