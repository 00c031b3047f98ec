"""Is this version as fast as another one? Both time the same rounds in turn, with the machine's mood shared.

    git worktree add ../before COMMIT
    python benchmarks/two_versions.py ../before             writes results/two_versions.json

Each case of `rounds_per_second.py` runs in a process of its own, of the other checkout and of this one alternately.
The ratio is of seed-rounds a second in neighbouring turns, this version's over the other's: its median over turns, and
its smallest and largest. Below one, this version is slower. Where both versions hand XLA the same program (its
StableHLO without the places in the source), a ratio other than one is the machine's: so each case says that too.
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
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="of each version in each case")
    parser.add_argument("--chunks", type=int, default=7, metavar="N", help="chunks that are timed in a turn")
    parser.add_argument("--out", type=Path, default=Path("results/two_versions.json"), help="where to write")
    arguments = parser.parse_args()
    cases = []
    for preset, algo, seeds in CASES:
        case = {"preset": preset, "seeds": seeds, "evaluate": False, "algo": algo, "precision": "float32"}
        turns = [
            [timed(checkout, case | {"chunks": arguments.chunks}) for checkout in (arguments.other, reports.ROOT)]
            for _ in range(arguments.turns)
        ]
        same = program_of(arguments.other, case) == program_of(reports.ROOT, case)
        cases.append(case | {"same_program": same} | compared(turns))
        print(describe(cases[-1]), flush=True)
    head = reports.head(["CHECKOUT", *(one for one in sys.argv[1:] if one != str(arguments.other))])
    reports.write(arguments.out, head | {"other": reports.commit(arguments.other), "cases": cases})


def timed(checkout: Path, case: dict[str, Any], **variables: str) -> dict[str, Any]:
    """Time a case with a checkout's own package and script, in a process of its own."""
    command = [sys.executable, "benchmarks/rounds_per_second.py", "--case", json.dumps(case)]
    variables = os.environ | {"PYTHONPATH": str(checkout.resolve())} | variables
    return json.loads(subprocess.run(command, cwd=checkout, env=variables, stdout=subprocess.PIPE, check=True).stdout)


def program_of(checkout: Path, case: dict[str, Any]) -> list[str]:
    """Return the lines of the largest program, a chunk of rounds, that a case hands to XLA."""
    with tempfile.TemporaryDirectory() as folder:
        timed(checkout, case | {"chunks": 1}, JAX_DUMP_IR_TO=folder)
        texts = [file.read_text() for file in Path(folder).glob("*chunk*.mlir")]
    return without_places(max(texts, key=len))


def without_places(text: str) -> list[str]:
    """Return a StableHLO program's lines without what only says where in the source they are from."""
    text = re.sub(r"^#loc.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"#loc\d+", "#loc", text)
    return [line for line in text.splitlines() if line]


def compared(turns: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the ratios of turns, each the other version's case and this one's, and what they are made of."""
    ratios = [this["seed_rounds_per_second"] / other["seed_rounds_per_second"] for other, this in turns]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "smallest": round(min(ratios), 3),
        "largest": round(max(ratios), 3),
        "seed_rounds_per_second": [[turn["seed_rounds_per_second"] for turn in pair] for pair in turns],
        "compile_seconds": [[turn["compile_seconds"] for turn in pair] for pair in turns],
        "processor": turns[0][1]["processor"],
        "jax": turns[0][1]["jax"],
    }


def describe(case: dict[str, Any]) -> str:
    """One line for a person."""
    return (
        f"{case['preset']:20} {case['algo']:8} {case['seeds']} seeds: {case['ratio']:.3f} times the other version's "
        f"seed-rounds a second ({case['smallest']:.3f} to {case['largest']:.3f}), "
        f"{'the same program' if case['same_program'] else 'another program'}"
    )


if __name__ == "__main__":
    main()
