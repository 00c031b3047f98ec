"""The speed of this version relative to another checkout; both time the same rounds, alternately.

    git worktree add ../before COMMIT
    python benchmarks/two_versions.py ../before             writes results/two_versions.json

Each case of `rounds_per_second.py` runs in its own process, with both checkouts in changing order. The ratio is this
version's seed-rounds per second over the other's, in adjacent turns; reported are median, smallest and largest.
Below one, this version is slower. `same_program` states whether both versions pass the same StableHLO to XLA, source
locations aside; if so, a ratio other than one is measurement noise.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import reports

# preset, strategy, replicates
CASES = (
    ("fedcor/fmnist-1spc", "gpfl", 1),
    ("fedcor/fmnist-2spc", "random", 1),
    ("fedcor/fmnist-2spc", "fedcor", 5),
    ("fl_dp3s/mnist-xi1", "fl_dp3s", 1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="runs per version and case (default: 5)")
    parser.add_argument("--chunks", type=int, default=7, metavar="N", help="timed chunks per run (default: 7)")
    parser.add_argument(
        "--algos", nargs="+", metavar="NAME", choices=[algo for _, algo, _ in CASES],
        default=[algo for _, algo, _ in CASES], help="strategies whose case runs (default: all)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("results/two_versions.json"), help="JSON file to write")
    arguments = parser.parse_args()
    cases = []
    for preset, algo, seeds in (case for case in CASES if case[1] in arguments.algos):
        case = {"preset": preset, "seeds": seeds, "evaluate": False, "algo": algo, "precision": "float32"}
        turns = []
        for turn in range(arguments.turns):
            order = 1 if turn % 2 else -1
            pair = [timed(one, case | {"chunks": arguments.chunks}) for one in (reports.ROOT, arguments.other)[::order]]
            turns.append(pair[::-order])
        same = program_of(arguments.other, case) == program_of(reports.ROOT, case)
        cases.append(case | {"same_program": same} | compared(turns))
        print(describe(cases[-1]), flush=True)
    head = reports.head(["CHECKOUT", *(one for one in sys.argv[1:] if one != str(arguments.other))])
    reports.write(arguments.out, head | {"other": reports.commit(arguments.other), "cases": cases})


def timed(checkout: Path, case: dict[str, Any], **variables: str) -> dict[str, Any]:
    """Time a case with a checkout's package and script, in a child process."""
    command = [sys.executable, "benchmarks/rounds_per_second.py", "--case", json.dumps(case)]
    variables = os.environ | {"PYTHONPATH": str(checkout.resolve())} | variables
    return json.loads(subprocess.run(command, cwd=checkout, env=variables, stdout=subprocess.PIPE, check=True).stdout)


def program_of(checkout: Path, case: dict[str, Any]) -> list[str]:
    """Return the StableHLO lines of a case's largest program, a chunk of rounds."""
    with tempfile.TemporaryDirectory() as folder:
        timed(checkout, case | {"chunks": 1}, JAX_DUMP_IR_TO=folder)
        texts = [file.read_text() for file in Path(folder).glob("*chunk*.mlir")]
    return without_places(max(texts, key=len))


def without_places(text: str) -> list[str]:
    """Return a StableHLO program's lines without source locations."""
    text = re.sub(r"^#loc.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"#loc\d+", "#loc", text)
    return [line for line in text.splitlines() if line]


def compared(turns: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the speed ratios of the turns, each a pair (other version, this version), and their raw numbers."""
    ratios = [this["seed_rounds_per_second"] / other["seed_rounds_per_second"] for other, this in turns]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "smallest": round(min(ratios), 3),
        "largest": round(max(ratios), 3),
        "seed_rounds_per_second": [[turn["seed_rounds_per_second"] for turn in pair] for pair in turns],
        "compile_ratio": round(
            statistics.median(this["compile_seconds"] / other["compile_seconds"] for other, this in turns), 3
        ),
        "compile_seconds": [[turn["compile_seconds"] for turn in pair] for pair in turns],
        "processor": turns[0][1]["processor"],
        "jax": turns[0][1]["jax"],
    }


def describe(case: dict[str, Any]) -> str:
    """Format a case in one line."""
    return (
        f"{case['preset']:20} {case['algo']:8} {case['seeds']} seeds: {case['ratio']:.3f} times the other version's "
        f"seed-rounds per second ({case['smallest']:.3f} to {case['largest']:.3f}), "
        f"{case['compile_ratio']:.3f} times its compile time, "
        f"{'the same program' if case['same_program'] else 'a different program'}"
    )


if __name__ == "__main__":
    main()
