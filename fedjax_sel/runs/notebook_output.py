"""Progress in a notebook: one output that is updated in place, instead of stderr, which notebooks show in red."""

import html
import time
from typing import Any

SECONDS_BETWEEN = 0.2  # limits the load on the browser


class NotebookOutput:
    """A cell's output for one run: its messages, and below them a status line with a progress bar."""

    def __init__(self, about: str):
        """Create an output that is empty at first.

        Args:
            about: the run's name, which starts each line.
        """
        self._about = about
        self._messages: list[str] = []
        self._line = ""
        self._share: float | None = None
        self._handle: Any = None
        self._shown = 0.0  # time.monotonic() of the last update

    def say(self, message: str) -> None:
        """Add a permanent message."""
        self._messages.append(message)
        self._show()

    def update(self, line: str, share: float) -> None:
        """Replace the status line.

        Args:
            line: the new status line.
            share: completed fraction of the run, in [0, 1]; 1 removes the bar.
        """
        self._line, self._share = line, share
        if share >= 1 or time.monotonic() - self._shown > SECONDS_BETWEEN:
            self._show()

    def close(self) -> None:
        """Show the last status line and remove the bar."""
        self._share = None
        if self._handle is not None:
            self._show()

    def _show(self) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports] (a notebook has it)

        self._shown = time.monotonic()
        bundle = {"text/plain": self._text(), "text/html": self._html()}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def _text(self) -> str:
        return "\n".join(f"{self._about}: {text}" for text in (*self._messages, self._line) if text)

    def _html(self) -> str:
        moving = self._share is not None and self._share < 1
        bar = f'<progress value="{self._share:.3f}" max="1"></progress> ' if moving else ""
        name = f"<b>{html.escape(self._about)}</b>: "
        lines = [name + html.escape(message) for message in self._messages]
        lines += [name + bar + html.escape(self._line)] if self._line else []
        return "<div>" + "<br>".join(lines) + "</div>"
