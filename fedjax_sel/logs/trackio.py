"""Callback for trackio; writes curves to a local database, for `trackio show`."""

import os
import secrets
from typing import Any

from fedjax_sel.logs.base import PROJECT, Log, Step


class Trackio(Log):
    """Callback that logs all metrics of each seed to trackio; reads TRACKIO_DIR, TRACKIO_PROJECT and so on."""

    tool = package = "trackio"

    def begin(self, config: dict[str, Any], before: str | None) -> str:
        """Open a new trackio run, or resume an earlier one.

        trackio resumes the newest run with a given name. Each run therefore has a unique name.
        """
        self._run = self._module.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=before or f"{self.name}-{secrets.token_hex(3)}",
            config=config,
            resume="never" if before is None else "allow",
        )
        return self._run.name

    def write(self, found: list[Step]) -> None:
        """Log rounds."""
        for step, values in found:
            self._run.log(values, step=step)

    def finish(self, finished: bool) -> None:
        """Close the trackio run."""
        del finished
        self._run.finish()
