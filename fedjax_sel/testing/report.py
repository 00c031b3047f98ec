"""Results of the conformance kit."""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from fedjax_sel.errors import UserError


class Violation(Exception):  # noqa: N818 - raised by a check, never by the kit
    """A strategy breaks the contract."""


@contextlib.contextmanager
def violations() -> Iterator[None]:
    """Convert user errors about a broken contract into violations."""
    try:
        yield
    except UserError as error:
        raise Violation(str(error)) from error


class NotApplicable(Exception):  # noqa: N818
    """A check does not apply to a strategy."""


class ConformanceError(AssertionError):
    """A strategy fails the kit; the message lists the failed checks."""


class Finding(NamedTuple):
    """The result of one check."""

    status: str  # passed, failed or skipped
    why: str  # reason or remark; usually empty if passed
    seconds: float


class Report(NamedTuple):
    """The results of all checks, in order."""

    strategy: str
    findings: dict[str, Finding]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the failed checks."""
        return tuple(name for name, finding in self.findings.items() if finding.status == "failed")

    def __str__(self) -> str:
        width = max(len(name) for name in self.findings)
        lines = [
            f"  {finding.status:7}  {name:{width}}  {finding.why}".rstrip() for name, finding in self.findings.items()
        ]
        verdict = f"{len(self.failed)} of {len(lines)} checks failed" if self.failed else "conforms"
        return "\n".join([f"{self.strategy}: {verdict}", *lines])

    def require(self) -> None:
        """Raise an error if a check failed.

        Raises:
            ConformanceError: at least one check failed; the message has one line per failed check.
        """
        if self.failed:
            lines = [f"  {name}: {self.findings[name].why}" for name in self.failed]
            raise ConformanceError("\n".join([f"strategy {self.strategy!r} does not conform:", *lines]))
