"""What the kit found."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from fedjax_sel.errors import UserError


class Violation(Exception):  # noqa: N818 - raised by a check, never by the kit
    """A strategy breaks the contract: one sentence that says how, and what to do."""


@contextlib.contextmanager
def violations() -> Iterator[None]:
    """Turn what a user would be told of a broken contract into a violation."""
    try:
        yield
    except UserError as error:
        raise Violation(str(error)) from error


class NotApplicable(Exception):  # noqa: N818
    """A check has nothing to look at, and why."""


class ConformanceError(AssertionError):
    """A strategy does not pass the kit; the message lists every check that failed."""


class Finding(NamedTuple):
    """The result of one check."""

    status: str  # passed, failed or skipped
    why: str  # a sentence; empty where it passed
    seconds: float


class Report(NamedTuple):
    """The results of all checks, in order."""

    strategy: str
    findings: dict[str, Finding]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(name for name, finding in self.findings.items() if finding.status == "failed")

    def __str__(self) -> str:
        width = max(len(name) for name in self.findings)
        lines = [
            f"  {finding.status:7}  {name:{width}}  {finding.why}".rstrip() for name, finding in self.findings.items()
        ]
        verdict = f"{len(self.failed)} of {len(lines)} checks failed" if self.failed else "conforms"
        return "\n".join([f"{self.strategy}: {verdict}", *lines])

    def require(self) -> None:
        """Raise where a check failed.

        Raises:
            ConformanceError: with one sentence for each.
        """
        if self.failed:
            lines = [f"  {name}: {self.findings[name].why}" for name in self.failed]
            raise ConformanceError("\n".join([f"strategy {self.strategy!r} does not conform:", *lines]))
