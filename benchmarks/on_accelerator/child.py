"""The main function of a child process: it runs one generator and prints each record as a line of JSON."""

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from on_accelerator.children import described

_BEGUN = time.monotonic()


def main(function: str, settings: str) -> int:
    """Run "module:function" and print the records it yields.

    Args:
        function: name of a generator function that yields dictionaries.
        settings: its keyword arguments as JSON, including the time budget `seconds`.

    Returns:
        The exit code.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    records = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not mix with records
    module, _, name = function.partition(":")
    for record in getattr(importlib.import_module(module), name)(**json.loads(settings)):
        print(json.dumps(record), file=records, flush=True)
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()  # returns when the parent ends
    os._exit(1)


def each(
    cases: Iterable[dict[str, Any]], seconds: float, guess: float, measure: Callable[..., dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Measure one case after another; a case that fails is recorded and does not end the others.

    Args:
        cases: keyword arguments of `measure`, per case.
        seconds: time budget, counted from the start of this process.
        guess: estimated seconds per case; raised if a case takes longer.
        measure: function that returns a case's results.

    Yields:
        Each case with its results, its `error`, or the reason why it was `not_begun`.
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
