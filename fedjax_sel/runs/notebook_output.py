"""Progress in a notebook: one output that is replaced as a run goes on, and nothing on standard error, which is red."""

import html
import time
from typing import Any

SECONDS_BETWEEN = 0.2  # a browser has other things to do


class NotebookOutput:
    """What a cell shows of one run: its messages, and below them a line with a bar that moves."""

    def __init__(self, about: str):
        """Make an output that shows nothing yet.

        Args:
            about: which run it is; begins the line.
        """
        self._about = about
        self._messages: list[str] = []
        self._line = ""
        self._share: float | None = None
        self._handle: Any = None
        self._shown = 0.0  # when, of time.monotonic()

    def say(self, message: str) -> None:
        """Add a message that stays."""
        self._messages.append(message)
        self._show()

    def update(self, line: str, share: float) -> None:
        """Replace the line.

        Args:
            line: what is known by now.
            share: of the run that is done, from 0 to 1; with 1 there is no bar any more.
        """
        self._line, self._share = line, share
        if share >= 1 or time.monotonic() - self._shown > SECONDS_BETWEEN:
            self._show()

    def close(self) -> None:
        """Show what is known now, and take the bar away."""
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
