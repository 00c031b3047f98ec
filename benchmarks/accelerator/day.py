"""A queue of cases, most important first, within a budget; what they find is in the file as soon as it is there."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import reports

from accelerator import children
from accelerator.children import Child, ChildError

Record = dict[str, Any]
Launch = Callable[[Mapping[str, Child]], Iterator[tuple[str, Record]]]

MOST_OVER = 60.0  # seconds past the budget after which what still runs is ended,
SHARE_OVER = 0.25  # or this share of the budget, if that is less
PATIENCE = (3.0, 60.0)  # a case may take so many times its estimate, and so many seconds more
MOST_OF_ONE = 0.4  # of the budget, and no more than this share, so that one that hangs leaves others theirs
PACES = (0.2, 5.0)  # bounds of what estimates are multiplied with


class Case(NamedTuple):
    """What is run, or left out, as a whole."""

    name: str
    seconds: float  # that it takes beside the start of its processes
    work: Callable[[Launch], Iterator[Record]]  # starts processes, and yields what is to be kept
    tier: int = 1  # of importance: all parts' first tiers come before any second
    starts: int = 1  # processes one after another
    flags: tuple[str, ...] = ()  # for XLA_FLAGS of its processes
    takes_the_rest: bool = False  # of the budget; `seconds` is then the least that it needs


class Part(NamedTuple):
    """Cases of one purpose."""

    name: str
    title: str
    cases: Sequence[Case]
    describe: Callable[[Record], str]  # a record in a line


def alone(child: Child) -> Callable[[Launch], Iterator[Record]]:
    """Return the work of a case that is one process, whose records are kept as they are."""

    def work(launch: Launch) -> Iterator[Record]:
        for _, record in launch({"": child}):
            yield record

    return work


class Day:
    """Parts, what is left of the budget, and the file."""

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
        """Write the head of the file.

        Args:
            parts: what there is to do, most important first.
            seconds: the budget: nothing is begun that would end later.
            out: the file.
            head: what it says first.
            begun: since when they count, of time.monotonic().
            start: seconds that a process takes to start.
            flags: for XLA_FLAGS of all processes, where they know them.
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
        """Run what the budget holds.

        Returns:
            What is in the file.
        """
        queue = [(part, case) for part in self._parts for case in part.cases]
        queue.sort(key=lambda item: item[1].tier)  # stable
        for last in (False, True):  # by then estimates are better
            queue = [item for item in queue if not self._tried(*item, last)]
        return self.report

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def _tried(self, part: Part, case: Case, last: bool) -> bool:
        """Run a case if the budget holds it; whether it was begun."""
        estimate, left = self._estimate(part, case), self._budget - self.elapsed
        run: Record = {"case": case.name, "estimated_seconds": round(estimate, 1)}
        if estimate > left:
            if last:
                run["not_begun"] = f"would take about {estimate:.0f} s, and {max(left, 0):.0f} were left"
                self._of(part)["runs"].append(run)
                self._say(f"{part.name}, {case.name}: not begun, {run['not_begun']}")
                self._write()
            return False
        self._say(f"{part.name}, {case.name}: begins, about {estimate:.0f} s")
        flags = self._known_of((*self._flags, *case.flags))
        begun, own, whole = time.monotonic(), self._of(part), True
        left = self._budget - self.elapsed
        limit = left + self._over if case.takes_the_rest else self._limit(estimate)

        def launch(them: Mapping[str, Child]) -> Iterator[tuple[str, Record]]:
            spent = time.monotonic() - begun
            return children.run(them, flags, left - spent, limit - spent)

        try:
            self._refuse_unknown(case.flags)
            for record in case.work(launch):
                whole &= not {"error", "not_begun"} & set(record)
                own["cases"].append({"case": case.name, **record})
                self._write()
                self._say(f"{part.name}, {case.name}: {_outcome(part, record)}")
        except Exception as error:  # whatever it is, the others are to go on
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
        """Seconds that a case takes, by what others have taken."""
        paces = self._paces[part.name] or [pace for paces in self._paces.values() for pace in paces]
        pace = statistics.median(paces) if paces else 1.0
        return case.starts * self._start + case.seconds * pace

    def _limit(self, estimate: float) -> float:
        """Seconds after which what should have taken so many is ended."""
        left = self._budget - self.elapsed + self._over
        return min(PATIENCE[0] * estimate + PATIENCE[1], max(MOST_OF_ONE * self._budget, estimate), left)

    @property
    def _over(self) -> float:
        """Seconds past the budget after which what still runs is ended."""
        return min(MOST_OVER, SHARE_OVER * self._budget)

    def _known_of(self, flags: Sequence[str]) -> list[str]:
        """Those that this XLA knows: another ends the process. Asked in processes of their own, once."""
        new = [flag for flag in flags if flag not in self._known]
        if new and self._answers(new):
            self._known |= dict.fromkeys(new, True)
        elif new:
            self._known |= {flag: len(new) > 1 and self._answers([flag]) for flag in new}
        return [flag for flag in flags if self._known[flag]]

    def _refuse_unknown(self, flags: Sequence[str]) -> None:
        if unknown := [flag for flag in flags if not self._known[flag]]:
            raise ChildError(f"this jaxlib does not know {', '.join(unknown)}")

    def _answers(self, flags: Sequence[str]) -> bool:
        limit = self._limit(self._start)
        try:
            return bool(list(children.run({"": Child("accelerator.machine:answer")}, flags, limit, limit)))
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
