"""TensorBoard callback; writes event files to the folder, for `tensorboard --logdir`."""

from typing import Any

from fedjax_sel.logs.base import Log, Step


class TensorBoard(Log):
    """Callback that logs all metrics of each seed for TensorBoard; requires the package tensorboardX."""

    tool, package = "tensorboard", "tensorboardX"
    rewrites = True  # a killed process may have lost buffered events

    def begin(self, config: dict[str, Any], before: str | None) -> None:
        """Open an event file; a resumed run replaces its earlier files and starts again at its first round."""
        purge = {} if before is None else {"purge_step": 0}
        self._writer = self._module.SummaryWriter(str(self.folder), **purge)
        self._writer.add_text("configuration", "\n".join(f"    {key}: {value}" for key, value in config.items()))

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        for step, values in found:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def finish(self, finished: bool) -> None:
        """Close the file."""
        del finished
        self._writer.close()
