"""All checks and measurements that need a GPU, in one command with a time budget.

    python benchmarks/accelerator.py                 eight minutes; writes results/accelerator_<device>.json
    python benchmarks/accelerator.py --minutes 30    includes less important cases
    python benchmarks/accelerator.py --minutes 1     on a CPU: tiny sizes, to test the script

Runs from a checkout without network access and needs jax, flax, optax, orbax-checkpoint, chex, rich, jinja2, filelock,
matplotlib and scikit-learn. The parts are agreement with the CPU, --deterministic, rounds per second, convolutions,
selection, graphs and compilation. The most important cases of all parts run first. Each result is written to the file
immediately. A case that fails or exceeds the budget is recorded with the reason.

The last part, papers, spends the remaining time on FL-DP3S on MNIST and FedCor on CIFAR-10, whose data must be in the
cache or in --data-dir. Its pages and runs are in a folder named like the file; the same command resumes them.
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [path for path in (str(ROOT / "benchmarks"), str(ROOT)) if path not in sys.path]

import reports  # noqa: E402
from on_accelerator import agreement, children, convolving, papers, resume, selecting, speed, variants  # noqa: E402
from on_accelerator.day import Day, Part, Record  # noqa: E402

LOOK_LIMIT = 120.0  # seconds for the first process to find the devices
SMALL_FLAGS = ("--xla_backend_optimization_level=0",)  # compilation would dominate tiny cases


def main() -> int:
    begun = time.monotonic()
    arguments = parse()
    if arguments.child:
        from on_accelerator import child

        return child.main(*arguments.child)
    try:
        look = {"": children.Child("on_accelerator.machine:look")}
        ((_, found),) = children.run(look, (), LOOK_LIMIT, LOOK_LIMIT)
    except children.ChildError as error:
        print(f"error: no device found: {error}", file=sys.stderr)
        return 1
    small = found["platform"] == "cpu" if arguments.small is None else arguments.small
    out = arguments.out or ROOT / "results" / file_name(found["devices"], small)
    parts = all_parts(small, found["platform"], found.pop("strategies"))
    parts += [papers.part(small, out.with_suffix(""), arguments.data_dir)]
    parts = [chosen(part, arguments.cases) for part in parts if part.name in arguments.parts]
    head = reports.head() | {
        "minutes": arguments.minutes,
        "small": small,
        "machine": found,
    }
    start = time.monotonic() - begun
    day = Day(parts, 60 * arguments.minutes, out, head, begun, start, SMALL_FLAGS if small else ())
    try:
        day.run()
    except KeyboardInterrupt:
        print(f"interrupted; {out.name} holds the results so far", file=sys.stderr)
        return 130
    print(summary(day.report))
    print(f"written to {out}")
    return 0


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, metavar="M", help="time budget in minutes (default: 8)")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, metavar="NAME", help=f"parts to run: {', '.join(PARTS)}"
    )
    parser.add_argument(
        "--cases", nargs="+", metavar="WORD", help="run only the cases whose name contains a WORD (default: all)"
    )
    parser.add_argument("--small", action=argparse.BooleanOptionalAction, help="use tiny sizes (default: on CPUs only)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder with prepared MNIST and CIFAR-10")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


PARTS = ("agreement", "resume", "rounds", "convolutions", "selection", "graphs", "compilation", "papers")


def all_parts(small: bool, platform: str, strategies: list[str]) -> list[Part]:
    """Return all parts but papers, most important first.

    Args:
        small: whether sizes are tiny.
        platform: cpu, gpu or tpu.
        strategies: the names of all strategies.
    """
    return [
        agreement.part(small, strategies),
        resume.part(small, shared=platform != "tpu"),
        speed.part(small, platform == "cpu"),
        convolving.part(small),
        selecting.part(small),
        variants.graphs(small),
        variants.compilation(small),
    ]


def chosen(part: Part, words: Sequence[str] | None) -> Part:
    """Return a part with only the cases whose name contains one of some words; None keeps all."""
    cases = [case for case in part.cases if words is None or any(word in case.name for word in words)]
    return part._replace(cases=cases)


def file_name(devices: str, small: bool) -> str:
    """Return the report's file name for a device: "1 x Good GPU" -> accelerator_good-gpu.json."""
    kind = re.sub(r"[^a-z0-9]+", "-", devices.split(" x ", 1)[-1].lower()).strip("-")
    return f"accelerator_{kind}{'_small' if small else ''}.json"


def summary(report: Record) -> str:
    """Return one line per part: the numbers of cases done, failed and skipped."""
    lines = []
    for part in report["parts"]:
        left_out = sum("not_begun" in run for run in part["runs"])
        failed = sum("error" in run for run in part["runs"])
        failures = sum("error" in case for case in part["cases"])
        done = len(part["runs"]) - left_out - failed
        counts = f"{done} cases done, {failed} failed, {left_out} skipped"
        lines.append(f"{part['name']:13} {counts}; {len(part['cases'])} results, {failures} of them errors")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
