"""docs/performance.md says what the files in results/ say."""

import json

import pytest

from tests.documents import pages

TEXT = (pages.ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


def read(name):
    return json.loads((pages.ROOT / "results" / name).read_text())


def rows(heading):
    lines = TEXT.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading)) + 2
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[start:end]]


def close(shown, value, digits):
    """Whether a number is what rounding makes of a value (a half may go either way)."""
    return abs(float(shown.split()[0].rstrip("%x")) - value) <= 0.5 * 10.0**-digits + 1e-9


def test_rounds_a_second():
    cases = read("rounds_per_second.json")["cases"] + read("rounds_per_second_cnn_small.json")["cases"]
    found = {(case["preset"], case["seeds"], case["evaluate"]): case for case in cases}
    table = rows("| preset | seeds | clients x steps x batch |")
    assert len(table) == len(cases) / 2
    for preset, seeds, work, speed, evaluated, share, compilation in table:
        bare, whole = (found[preset.strip("`"), int(seeds), evaluate] for evaluate in (False, True))
        digits = len(speed.split(".")[1])
        assert work == f"{bare['clients']} x {bare['local_steps']} x {bare['batch_size']}"
        assert close(speed, bare["seed_rounds_per_second"], digits)
        assert close(evaluated, whole["seed_rounds_per_second"], digits)
        both = share.replace("(", "").replace(")", "").split()
        assert close(both[0], 100 * bare["share_of_ceiling"], 0) and close(both[1], 100 * whole["share_of_ceiling"], 0)
        assert close(compilation, bare["compile_seconds"], 1)


NAMES = {
    "PyTorch, stacked weights": "torch_batched",
    "FedJAX, on our JAX": "fedjax_newest",
    "FedJAX, on its newest JAX": "fedjax",
    "PyTorch, a loop over clients": "torch_loop",
    "pfl-research": "pfl",
    "Flower's simulation": "flower",
}


def divided(ratio, ours, theirs):
    """Whether a ratio is what a reader gets from the two speeds beside it."""
    return ratio == f"{float(ours) / float(theirs):.1f}"


@pytest.mark.parametrize("file,columns", [("rivals.json", (1, 2)), ("rivals_xeon.json", (3, 4))])
def test_beside_other_simulators(file, columns):
    measured = read(file)["settings"]["fmnist_mlp"]
    ours, *others = rows("| simulator |")
    assert close(ours[columns[0]], measured["ours"]["rounds_per_second"], 1)
    assert f"{measured['ours_5_seeds']['rounds_per_second']:.1f}" in TEXT.split("With five seeds at once")[1][:120]
    shown = {NAMES[row[0]]: [row[column] for column in columns] for row in others if row[columns[0]]}
    assert set(shown) == set(measured["rivals"])
    for name, (speed, ratio) in shown.items():
        assert close(speed, measured["rivals"][name]["rounds_per_second"], 1)
        assert divided(ratio, ours[columns[0]], speed)


def test_networks_with_convolutions():
    table = rows("| network | machine |")
    for start, setting in ((0, "cifar10_cnn"), (2, "pfl_cifar10")):
        for row, file in zip(table[start : start + 2], ("rivals_cifar10.json", "rivals_cifar10_xeon.json")):
            measured = read(file)["settings"][setting]
            assert close(row[2], measured["ours"]["rounds_per_second"], 2)
            for place, rival in ((3, "torch_loop"), (5, "pfl")):
                assert close(row[place], measured["rivals"][rival]["rounds_per_second"], 2)
                assert divided(row[place + 1], row[2], row[place])
    last, measured = table[4], read("rivals_resnet8.json")["settings"]["cifar10_resnet8"]
    assert close(last[2], measured["ours"]["rounds_per_second"], 2)
    assert close(last[3], measured["rivals"]["torch_loop"]["rounds_per_second"], 2) and divided(
        last[4], last[2], last[3]
    )


def test_selection_takes_what_the_page_says():
    cases = {case["algo"]: case for case in read("selection_cost.json")["cases"] if case["num_clients"] == 100}
    shown = {
        name.strip("` "): float(milliseconds)
        for names, milliseconds in rows("| strategy | ms a round |")
        for name in names.removesuffix(", fits included").split(",")
    }
    assert shown == {name: round(case["milliseconds_per_round"], 1) for name, case in cases.items()}


def test_one_h100():
    parts = {part["name"]: part["cases"] for part in read("accelerator_nvidia-h100-80gb-hbm3.json")["parts"]}
    table = rows("| preset | seeds | seed-rounds/s | share of the ceiling | compilation |")
    assert len(table) == len(parts["rounds"])
    for (preset, seeds, speed, share, compilation, memory), case in zip(table, parts["rounds"]):
        assert (preset.strip("`"), int(seeds)) == (case["preset"], case["seeds"])
        digits = len(speed.partition(".")[2])
        assert close(speed.replace(",", ""), case["seed_rounds_per_second"]["median"], digits)
        assert close(share, 100 * case["share_of_ceiling"], 0) and close(compilation, case["compile_seconds"], 1)
        assert close(memory, case["peak_megabytes"] / 1000, 1)
    done = [case for case in parts["agreement"] if "error" not in case]
    same = sum(case["rounds_with_equal_cohorts"] == case["rounds"] for case in done)
    agree = sum(case["agrees"] for case in done)
    assert f"{same} of {len(done)} strategies select the same cohorts, and {agree} agree to 5e-6" in TEXT
