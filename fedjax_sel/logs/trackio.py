"""trackio: curves in a local database, for `trackio show`."""

import os
import secrets
from typing import Any

from fedjax_sel.logs.base import PROJECT, Log, Step


class Trackio(Log):
    """Writes every measure of every seed to trackio; its own variables (TRACKIO_DIR, TRACKIO_PROJECT, ...) count."""

    tool = package = "trackio"

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Begin a run there, or go on with one.

        trackio goes on with the newest run of a name, so every run gets a name that no other has.
        """
        self._run = self._module.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=before or f"{self.name}-{secrets.token_hex(3)}",
            config=config,
            resume="never" if before is None else "allow",
        )
        return self._run.name

    def write(self, found: list[Step]) -> None:
        """Write rounds."""
        for step, values in found:
            self._run.log(values, step=step)

    def finish(self, finished: bool) -> None:
        """End the run there."""
        del finished
        self._run.finish()
