"""A queue of cases, most important first, with a time budget; each result is written immediately."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import reports

from on_accelerator import children
from on_accelerator.children import Child, ChildError

Record = dict[str, Any]
Launch = Callable[[Mapping[str, Child]], Iterator[tuple[str, Record]]]

MOST_OVER = 60.0  # maximum overrun of the budget, seconds
SHARE_OVER = 0.25  # maximum overrun, as a fraction of the budget; the smaller of the two applies
PATIENCE = (3.0, 60.0)  # factor on a case's estimate, and extra seconds, before it is killed
MOST_OF_ONE = 0.4  # maximum fraction of the budget per case, so that a hanging case leaves time for others
PACES = (0.2, 5.0)  # bounds of the correction factor on estimates


class Case(NamedTuple):
    """A unit of work that is run or skipped as a whole."""

    name: str
    seconds: float  # estimated run time, without the start of its processes
    work: Callable[[Launch], Iterator[Record]]  # starts processes and yields records
    tier: int = 1  # importance; tier 1 of all parts runs before tier 2 of any
    starts: int = 1  # number of successive process starts
    flags: tuple[str, ...] = ()  # XLA_FLAGS of its processes
    takes_the_rest: bool = False  # whether it uses all remaining time; `seconds` is then the minimum


class Part(NamedTuple):
    """A group of cases with one purpose."""

    name: str
    title: str
    cases: Sequence[Case]
    describe: Callable[[Record], str]  # formats a record in one line


def alone(child: Child) -> Callable[[Launch], Iterator[Record]]:
    """Return the work of a single-process case, whose records are kept unchanged."""

    def work(launch: Launch) -> Iterator[Record]:
        for _, record in launch({"": child}):
            yield record

    return work


class Day:
    """A session: parts, time budget and report file."""

    def __init__(
        self,
        parts: Sequence[Part],
        seconds: float,
        out: Path,
        head: Record,
        begun: float,
        start: float,
        flags: Sequence[str] = (),
    ):
        """Write the report's head.

        Args:
            parts: the parts, most important first.
            seconds: the time budget; no case starts that would exceed it.
            out: the report file.
            head: the report's first entries.
            begun: start of the budget, a value of time.monotonic().
            start: seconds that a process takes to start.
            flags: XLA_FLAGS of all processes; unsupported flags are dropped.
        """
        self._parts, self._budget, self._out, self._flags = parts, seconds, out, tuple(flags)
        self._begun, self._start = begun, start
        self._paces: dict[str, list[float]] = {part.name: [] for part in parts}
        self._known: dict[str, bool] = {}
        self.report: Record = {
            **head,
            "seconds": 0.0,
            "parts": [{"name": part.name, "title": part.title, "runs": [], "cases": []} for part in parts],
        }
        self._write()

    def run(self) -> Record:
        """Run the cases that fit the budget, and return the report."""
        queue = [(part, case) for part in self._parts for case in part.cases]
        queue.sort(key=lambda item: item[1].tier)  # stable
        for last in (False, True):  # retry skipped cases once, with better estimates
            queue = [item for item in queue if not self._tried(*item, last)]
        return self.report

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def _tried(self, part: Part, case: Case, last: bool) -> bool:
        """Run a case if it fits the budget; return whether it was started."""
        estimate, left = self._estimate(part, case), self._budget - self.elapsed
        run: Record = {"case": case.name, "estimated_seconds": round(estimate, 1)}
        if estimate > left:
            if last:
                run["not_begun"] = f"would take about {estimate:.0f} s, and {max(left, 0):.0f} were left"
                self._of(part)["runs"].append(run)
                self._say(f"{part.name}, {case.name}: skipped, {run['not_begun']}")
                self._write()
            return False
        self._say(f"{part.name}, {case.name}: started, about {estimate:.0f} s")
        flags = self._known_of((*self._flags, *case.flags))
        begun, own, whole = time.monotonic(), self._of(part), True
        left = self._budget - self.elapsed
        limit = left + self._over if case.takes_the_rest else self._limit(estimate)

        def launch(them: Mapping[str, Child]) -> Iterator[tuple[str, Record]]:
            spent = time.monotonic() - begun
            return children.run(them, flags, left - spent, limit - spent)

        try:
            self._check_flags(case.flags)
            for record in case.work(launch):
                whole &= not {"error", "not_begun"} & set(record)
                own["cases"].append({"case": case.name, **record})
                self._write()
                self._say(f"{part.name}, {case.name}: {_outcome(part, record)}")
        except Exception as error:  # one failed case must not stop the others
            whole, run["error"] = False, children.described(error)
            self._say(f"{part.name}, {case.name}: failed, {run['error']}")
        run["seconds"] = round(time.monotonic() - begun, 1)
        pace = (run["seconds"] - case.starts * self._start) / case.seconds
        if (whole or pace > 1) and not case.takes_the_rest:
            self._paces[part.name].append(min(max(pace, PACES[0]), PACES[1]))
        own["runs"].append(run)
        self._write()
        return True

    def _estimate(self, part: Part, case: Case) -> float:
        """Estimate a case's seconds, corrected by the pace of finished cases."""
        paces = self._paces[part.name] or [pace for paces in self._paces.values() for pace in paces]
        pace = statistics.median(paces) if paces else 1.0
        return case.starts * self._start + case.seconds * pace

    def _limit(self, estimate: float) -> float:
        """Return the time limit of a case, in seconds."""
        left = self._budget - self.elapsed + self._over
        return min(PATIENCE[0] * estimate + PATIENCE[1], max(MOST_OF_ONE * self._budget, estimate), left)

    @property
    def _over(self) -> float:
        """Maximum overrun of the budget, in seconds."""
        return min(MOST_OVER, SHARE_OVER * self._budget)

    def _known_of(self, flags: Sequence[str]) -> list[str]:
        """Return the flags that this XLA supports, tested once in child processes: an unknown flag aborts."""
        new = [flag for flag in flags if flag not in self._known]
        if new and self._answers(new):
            self._known |= dict.fromkeys(new, True)
        elif new:
            self._known |= {flag: len(new) > 1 and self._answers([flag]) for flag in new}
        return [flag for flag in flags if self._known[flag]]

    def _check_flags(self, flags: Sequence[str]) -> None:
        if unknown := [flag for flag in flags if not self._known[flag]]:
            raise ChildError(f"this jaxlib does not support {', '.join(unknown)}")

    def _answers(self, flags: Sequence[str]) -> bool:
        limit = self._limit(self._start)
        try:
            return bool(list(children.run({"": Child("on_accelerator.machine:look")}, flags, limit, limit)))
        except ChildError:
            return False

    def _of(self, part: Part) -> Record:
        return next(entry for entry in self.report["parts"] if entry["name"] == part.name)

    def _say(self, text: str) -> None:
        print(f"[{self.elapsed:4.0f} of {self._budget:.0f} s] {text}", flush=True)

    def _write(self) -> None:
        self.report["seconds"] = round(self.elapsed, 1)
        reports.write(self._out, self.report)


def _outcome(part: Part, record: Record) -> str:
    for word in ("error", "not_begun"):
        if word in record:
            return f"{word.replace('_', ' ')}: {record[word]}"
    return part.describe(record)
