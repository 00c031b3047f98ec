"""What a child process does: one function, whose records it prints as JSON, a line each."""

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from accelerator.children import described

_BEGUN = time.monotonic()


def main(function: str, settings: str) -> int:
    """Run "module:function" and print what it yields.

    Args:
        function: a generator of dictionaries.
        settings: its keywords, as JSON; among them `seconds`, in which it should be done.

    Returns:
        The exit code.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    records = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no record
    module, _, name = function.partition(":")
    for record in getattr(importlib.import_module(module), name)(**json.loads(settings)):
        print(json.dumps(record), file=records, flush=True)
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()  # ends when the parent does
    os._exit(1)


def each(
    cases: Iterable[dict[str, Any]], seconds: float, guess: float, measure: Callable[..., dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Measure one case after another; a case that fails is recorded and does not end the others.

    Args:
        cases: keywords of `measure`.
        seconds: of this process's life after which none should be running.
        guess: seconds that one takes, or more where one has taken more.
        measure: returns the results of a case.

    Yields:
        Each case with its results, its `error`, or why it was `not_begun`.
    """
    for case in cases:
        begun = time.monotonic()
        left = seconds - (begun - _BEGUN)
        if guess > left:
            yield case | {"not_begun": f"would take about {guess:.0f} s, and {max(left, 0):.0f} were left"}
            continue
        try:
            found = measure(**case)
        except Exception as error:
            yield case | {"error": described(error)}
            continue
        guess = max(guess, time.monotonic() - begun)
        yield case | found
