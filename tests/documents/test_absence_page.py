"""results/absence/README.md says what its CSV files say."""

import csv
from pathlib import Path

import pytest

from tests import scripts

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "absence"
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def rows(name):
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def benchmark(name):
    return scripts.load(f"benchmarks/{name}.py")


def test_what_each_strategy_loses_is_what_the_benchmark_prints():
    assert benchmark("absence").table(rows("lost.csv")) in TEXT


def test_why_fedcor_loses_is_what_the_benchmark_prints():
    assert benchmark("absence_answers").table(rows("answers.csv")) in TEXT


@pytest.mark.slow
def test_who_is_away_answers_all_the_same():
    """The benchmark of FedCor where all answer: more losses are bought than of those who can be reached."""
    module = benchmark("absence_answers")
    some = module.run(seeds=1, rounds=2, available=0.5).ledger
    with module.all_answer():
        every = module.run(seeds=1, rounds=2, available=0.5, observe_all=True).ledger
    everybody = module.run(seeds=1, rounds=2, available=1).ledger
    assert (some.bytes_down < every.bytes_down).all()
    assert (every.bytes_down == everybody.bytes_down).all()


def test_the_leads_over_random_are_those_of_the_comparisons():
    for share, shown in (("1", "all"), ("0.7", "70 %"), ("0.5", "50 %")):
        cells = [
            f"{float(row['difference']):+.3f} ({float(row['low']):+.3f} to {float(row['high']):+.3f}), {row['verdict']}"
            for row in rows(f"pairs_{share}.csv")
            if row["measure"] == "last_10_rounds"
        ]
        assert f"| {shown} | {' | '.join(cells)} |" in TEXT


def test_the_means_are_those_of_the_runs():
    for share, shown in (("1", "all"), ("0.7", "70 %"), ("0.5", "50 %")):
        cells = [
            f"{float(row['last_rounds_accuracy_mean']):.3f} ± {float(row['last_rounds_accuracy_sd']):.3f}, "
            f"GEMD {float(row['gemd_mean']):.2f}"
            for row in rows(f"available_{share}.csv")
        ]
        assert f"| {shown} | {' | '.join(cells)} |" in TEXT
