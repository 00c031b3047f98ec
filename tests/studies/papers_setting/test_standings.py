"""A setting's table, and all settings together."""

import csv
import io

import numpy as np
import pytest

from fedjax_sel import statistics
from studies.boards import measures
from studies.papers_setting import across, pictures, standings
from tests.studies.papers_setting import made_up

ROWS = {
    "random": made_up.level(0.5, first_seed=1),
    "fl_dp3s": made_up.level(0.6, first_seed=2),
    "pow_d": made_up.level(0.5, first_seed=3),
    "fedcor": made_up.level(0.55, down=4_000_000, first_seed=4),
    "random + fedyogi": made_up.level(0.7, first_seed=5),
    "fl_dp3s + fedyogi": made_up.level(0.65, first_seed=6),
}


def table(rows=ROWS):
    return standings.of_setting(rows, 10, {"random": 0.002})


def test_rows_are_compared_under_their_own_optimizer():
    found = table()
    against = {pair.row: pair.baseline for pair in found.pairs}
    assert against == {"fl_dp3s": "random", "pow_d": "random", "fedcor": "random", "random + fedyogi": "random",
                       "fl_dp3s + fedyogi": "random + fedyogi"}  # fmt: skip
    last = {pair.row: pair.found.verdict for pair in found.pairs if pair.measure == "last_rounds_accuracy"}
    assert last == {"fl_dp3s": "better", "pow_d": "not significant", "fedcor": "better", "random + fedyogi": "better",
                    "fl_dp3s + fedyogi": "worse"}  # fmt: skip
    assert found.verdict("last_rounds_accuracy", "random") == ""


def test_few_seeds_give_no_verdict():
    rows = {name: made_up.level(0.5 + place / 10, seeds=3) for place, name in enumerate(("random", "afl"))}
    pairs = table(rows).pairs
    assert {pair.found.verdict for pair in pairs} == {"too few seeds"}
    assert all("p = " not in (told := standings.difference(pair.found, 3)) and "too few" in told for pair in pairs)


def test_fewer_rounds_to_the_target_are_better():
    slow = made_up.series(np.tile(np.arange(1, 21) / 100, (10, 1)))
    fast = made_up.series(np.tile(np.arange(2, 22) / 100, (10, 1)))
    found = standings.of_setting({"random": slow, "afl": fast}, 10, {})
    assert found.verdict("rounds_to_target", "afl") == "better"
    assert found.shared.target == 0.15  # the mean of rounds 11 to 20 is 0.155 and 0.165
    assert found.rows[1].numbers["rounds_to_target"].tolist() == [19.0] * 10


def test_who_does_not_arrive_takes_at_least_so_much():
    late = made_up.series([[0.1] * 20] * 9 + [[0.9] * 20], down=3_000_000)
    found = standings.of_setting({"random": made_up.level(0.5), "afl": late}, 10, {})
    random, afl = standings.as_markdown(found).split("\n\n")[1].splitlines()[2:]
    assert "≥" not in random and "| 10 % | ≥ 19.0 ± 3.2 | ≥ 57 ± 9 | ≥ 19 ± 3 |" in afl


def test_who_arrives_after_the_equal_seconds_takes_at_least_so_much():
    rows = {
        "random": made_up.level(0.5, seconds=1.0),
        "afl": made_up.series([[0.1] * 5 + [0.9] * 15] * 10, seconds=9.0),
    }
    found = standings.of_setting(rows, 10, {})
    assert (found.rows[1].numbers["arrived"] == 1).all()
    text = standings.as_markdown(found)
    assert "≥ 20" in text and text.count("≥") == 1  # the equal seconds are those of random selection


def test_tables_for_programs_and_people():
    found = table()
    lines = list(csv.DictReader(io.StringIO(standings.as_csv(found))))
    assert [line["row"] for line in lines] == list(ROWS)
    assert lines[5]["algo"] == "fl_dp3s" and lines[5]["optimizer"] == "fedyogi"
    assert float(lines[1]["last_rounds_accuracy_mean"]) == pytest.approx(0.6, abs=1e-3)
    assert lines[1]["last_rounds_accuracy_verdict"] == "better" and lines[0]["last_rounds_accuracy_verdict"] == ""
    assert float(lines[0]["selection_milliseconds"]) == 2.0 and lines[1]["selection_milliseconds"] == ""
    assert float(lines[3]["megabytes_down"]) == 80 and float(lines[0]["equal_megabytes"]) == 40
    by_seed = list(csv.DictReader(io.StringIO(standings.seeds_as_csv(ROWS, found))))
    assert len(by_seed) == 60
    mean = np.mean([float(line["area_by_rounds"]) for line in by_seed if line["row"] == "fedcor"])
    assert mean == pytest.approx(float(lines[3]["area_by_rounds_mean"]))
    for text in (*standings.as_markdown(found).split("\n\n"), standings.pairs_as_markdown(found)):
        assert len(columns := {line.count("|") for line in text.splitlines()}) == 1 and columns.pop() <= 8
    assert "**+0.100" in standings.pairs_as_markdown(found)


def test_fairness_stands_beside_the_rows_that_have_it():
    values = {name: [0.1 * place] * 9 + [1.0] for place, name in enumerate(measures.FAIRNESS)}
    found = standings.of_setting(ROWS, 10, {}, {"pow_d": values})
    assert standings.has_fairness(found) and not standings.has_fairness(table())
    *_, last = standings.as_markdown(found).split("\n\n")
    assert last.splitlines()[2:] == [
        "| pow_d | 0.100 ± 0.316 | 0.190 ± 0.285 | 0.280 ± 0.253 | 0.370 ± 0.221 | 0.460 ± 0.190 |"
    ]
    lines = {line["row"]: line for line in csv.DictReader(io.StringIO(standings.as_csv(found)))}
    assert lines["random"]["participation_gap_mean"] == "" and lines["pow_d"]["participation_gap_mean"] == "0.28"
    assert "Gini" not in standings.as_markdown(table())


@pytest.mark.slow
def test_settings_together():
    other = {name: made_up.level(0.2 + place / 100, first_seed=place) for place, name in enumerate(ROWS)}
    together = across.of_settings({
        "fmnist-1spc": table(), "fmnist-2spc": table({**other, "afl": ROWS["pow_d"]}),
        "fmnist-dir": table({**ROWS, "fl_dp3s": made_up.level(0.9)}),
    })  # fmt: skip
    assert [one.name for one in together][:2] == ["random + fedyogi", "fl_dp3s"]  # and not afl
    assert len(together) == len(ROWS)
    ours = next(one for one in together if one.name == "fl_dp3s")
    assert ours.leads["last_rounds_accuracy"].shape == (3, 10)
    assert ours.leads["last_rounds_accuracy"].mean(axis=1) == pytest.approx([0.1, 0.01, 0.4], abs=2e-3)
    assert ours.verdicts["last_rounds_accuracy"] == ["better", "better", "better"]
    lines = list(csv.DictReader(io.StringIO(across.as_csv(together))))
    line = next(line for line in lines if line["row"] == "fl_dp3s")
    assert line["last_rounds_accuracy_better"] == "3" and line["settings"] == "3"
    assert float(line["last_rounds_accuracy_low"]) < float(line["last_rounds_accuracy_iqm"])
    assert float(line["last_rounds_accuracy_mean"]) == pytest.approx(0.17, abs=5e-3)
    assert float(line["last_rounds_accuracy_iqm"]) == pytest.approx(0.139, abs=5e-3)  # 7 of 30 cut at either end
    for text in across.as_markdown(together).split("\n\n"):
        assert len({line.count("|") for line in text.splitlines()}) == 1
    assert across.of_settings({"a": table(), "b": table({"afl": ROWS["pow_d"]})}) == []


def test_which_settings_are_looked_at_together():
    names = ["fmnist-1spc", "fmnist-2spc", "mnist-dir", "cifar10-2spc", "cifar10-dir"]
    assert across.groups(names) == {
        "Fashion-MNIST and MNIST": ["fmnist-1spc", "fmnist-2spc", "mnist-dir"],
        "Fashion-MNIST": ["fmnist-1spc", "fmnist-2spc"],
        "CIFAR-10": ["cifar10-2spc", "cifar10-dir"],
    }
    assert across.groups(["fmnist-dir"]) == {}


def test_all_comparisons_of_a_measure_are_one_family_and_leaders_another():
    found = table()
    numbers = {row.name: row.numbers["last_rounds_accuracy"] for row in found.rows}
    pairs = [pair for pair in found.pairs if pair.measure == "last_rounds_accuracy"]
    expected = statistics.compare([numbers[pair.row] - numbers[pair.baseline] for pair in pairs])
    assert [pair.found for pair in pairs] == expected
    assert list(found.leaders) == [
        ("random + fedyogi", "fl_dp3s"),
        ("random + fedyogi", "fedcor"),
        ("fl_dp3s", "fedcor"),
    ]
    assert {one.verdict for one in found.leaders.values()} == {"better"}
    text = standings.leaders_as_markdown(found.leaders)
    assert "| fl_dp3s minus fedcor | +0.050 |" in text and "| 10 of 10 | better |" in text
    lines = list(csv.DictReader(io.StringIO(standings.pairs_as_csv(found))))
    assert sum(line["measure"] == "last_rounds_accuracy_of_leaders" for line in lines) == 3
    full = {**ROWS, "full": made_up.level(0.9, first_seed=7)}
    assert table(full).verdict("last_rounds_accuracy", "full") == "better" and table(full).leaders == found.leaders
    assert "8 settings x 3 measures" in across.false_verdicts(dict.fromkeys("abcdefgh", found))


def together(count):
    """Rows of two settings, of which each but random selection leads."""
    leads = {score: np.full((2, 10), 0.1) for score in across.SCORES}
    verdicts = {measure: ["better", "better"] for measure in standings.TESTED}
    return [
        across.Together("random", leads, verdicts),
        *(across.Together(f"s{n}", leads, verdicts) for n in range(count)),
    ]


def test_profiles_color_few_lines_and_name_all():
    figure = pictures.profiles(together(12))
    styles = [line.get_linewidth() for line in figure.axes[0].lines]
    assert styles.count(0.6) == 4 and len(styles) == 13
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [*(f"s{n}" for n in range(8)), "other strategies", "random selection"]


def test_the_picture_of_leads_by_cost_explains_its_markers():
    rows = together(2)
    figure = pictures.leads_by_cost({"panel": rows}, {"panel": {one.name: 2.0 for one in rows}})
    (legend,) = figure.legends
    words = " ".join(text.get_text() for text in legend.get_texts())
    assert "filled: better in 1 or more of the 2 settings and worse in none" in words and "diamond: FedYogi" in words
