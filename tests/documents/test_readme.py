"""The README is short, and says what is so."""

import csv
import json
import re
from collections import Counter

import numpy as np

from fedjax_sel import strategies
from studies.leaderboard.protocol import SETTINGS
from tests.documents import pages

TEXT = (pages.ROOT / "README.md").read_text(encoding="utf-8")
VERDICTS = ("better", "worse")
READ = re.sub(r"<!--.*?-->", "", TEXT, flags=re.DOTALL)  # without the sources of tables


def table(heading):
    """The rows of the table whose header begins so, as lists of cells."""
    lines = READ.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading)) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def read_rivals(name):
    """The settings of a file of comparisons with other simulators."""
    return json.loads((pages.ROOT / "results" / f"{name}.json").read_text())["settings"]


def test_it_is_short():
    assert len(READ.split()) < 700


def leaderboard(part):
    with (pages.ROOT / "results" / "leaderboard" / part / "table.csv").open(newline="") as file:
        return {row["row"]: row for row in csv.DictReader(file)}


def test_it_counts_the_strategies_and_its_table_has_the_better_ones():
    assert f"It has {len(strategies.names())} [strategies]" in TEXT
    shown = {re.search(r"\w+", cells[0].strip("["))[0] for cells in table("| strategy | server sees |")}
    better = {
        name
        for task in ("gray-2labels", "color-2labels", "text-roles")
        for name, row in leaderboard(task).items()
        if row["accuracy_verdict"] == "better" and name not in ("full", "random + fedyogi")
    }
    assert better and {name for name in better if "fedyogi" not in name} == shown


def test_its_advice_follows_from_the_results():
    tasks = [leaderboard(f"{task}-2labels") for task in ("gray", "color")]
    gains = [float(task["random + fedyogi"]["accuracy_difference"]) for task in tasks]
    kept = [float(task["random + fedyogi"]["accuracy_at_best_round_difference"]) for task in tasks]
    decay = leaderboard("gray-2labels-decay")
    falling = float(decay["random"]["accuracy_mean"]) - float(tasks[0]["random"]["accuracy_mean"])
    words = (
        f"it gains {gains[0]:.3f} (gray), {gains[1]:.3f} (color), at validated rounds {kept[0]:.3f} (color: not "
        f"significant), but loses {-float(leaderboard('text-roles')['random + fedyogi']['accuracy_difference']):.3f} "
        f"(text). A falling rate gains as much (gray: {falling:.3f})."
    )
    assert words in " ".join(READ.split())
    added = [float(task["fed_cbs + fedyogi"]["accuracy_difference"]) for task in tasks]
    words = "It adds {:.3f} (gray) and {:.3f} (color) to FedYogi; both together are most accurate in six of nine "
    assert f"{words.format(*added)}image settings, second in three." in " ".join(READ.split())
    assert Counter(places("accuracy")) == {1: 6, 2: 3}
    verdicts = [task["random + fedyogi"]["accuracy_at_best_round_verdict"] for task in tasks]
    assert verdicts == ["better", "not significant"]
    assert leaderboard("gray-2labels-own")["clustered"]["accuracy_verdict"] == "not significant"
    lost = tasks[0]["fedcor + fedyogi"]
    assert lost["accuracy_verdict"] == "not significant"
    for row in ("fed_cbs", "fedcor", "random + fedyogi"):  # early stopping takes away a part
        assert all(
            float(task[row]["accuracy_at_best_round_difference"]) < float(task[row]["accuracy_difference"])
            for task in tasks
        )
    rows = set(tasks[0]) & set(tasks[1])
    on_both = {name for name in rows if all(task[name]["accuracy_verdict"] == "better" for task in tasks)}
    assert {name for name in on_both if name.endswith(" + fedyogi")} == {"random + fedyogi", "fed_cbs + fedyogi"}
    assert {"fed_cbs", "clustered", "fedcor"} <= on_both
    cnn = [leaderboard("look-cnn")[row] for row in ("fed_cbs", "fedcor", "clustered")]
    of_cnn = [float(one[f"accuracy{when}_difference"]) for one in cnn for when in ("", "_at_best_round")]
    assert {one["accuracy_at_equal_seconds_verdict"] for one in cnn} == {"not significant"}
    words = (
        "`fed_cbs` gains {:.3f} (best validated round: {:.3f}), `fedcor` {:.3f} ({:.3f}), in equal seconds neither "
        "significantly; `clustered` {:.3f} (not significant; {:.3f})."
    )
    assert words.format(*of_cnn) in " ".join(READ.split())
    verdicts = [one[f"accuracy{when}_verdict"] for one in cnn for when in ("", "_at_best_round")]
    assert verdicts == ["better", "better", "better", "better", "not significant", "better"]
    noise = leaderboard("gray-dir0.3-noise")
    measures = ("accuracy_difference", "accuracy_at_best_round_difference")
    (usual, kept), (left, least) = (
        [float(one["fed_cbs"][measure]) for measure in measures] for one in (tasks[0], decay)
    )
    for row in ("fed_cbs", "fedcor"):  # so that both together are no advice
        best = [float(one[row]["accuracy_at_best_round_mean"]) for one in (tasks[0], decay)]
        assert best[1] < best[0]
    text = " ".join(READ.split())
    every = float(tasks[0]["fed_cbs"]["accuracy_at_best_test_round_difference"])
    words = f"of {usual:.3f} (gray), `fed_cbs` keeps {kept:.3f} at the best validated round, {every:.3f} at the [best"
    assert words in text
    link = "[falling rate](results/leaderboard/README.md#objections)"
    assert f"#at-the-best-round); with a {link}, {left:.3f}, validated {least:.3f}." in text
    gray = SETTINGS["gray-2labels"].config
    tests = gray.num_training_clients / (2 * gray.selection.num_selected * gray.run.eval_clients_every)
    assert f"Not billed: clients' tests, up to {tests:.1f} times training's traffic." in text
    assert leaderboard("text-roles")["random + fedyogi"]["accuracy_verdict"] == "worse"
    assert noise["fed_cbs"]["accuracy_verdict"] == "worse"
    assert f"With wrong labels, it loses {-float(noise['fed_cbs']['accuracy_difference']):.3f}." in text
    mild = [leaderboard(f"{task}-dir0.3") for task in ("gray", "color")]
    gains = [float(one["fed_cbs"]["accuracy_difference"]) for one in mild]
    gains += [float(one["clustered"]["accuracy_difference"]) for one in mild]
    words = "`fed_cbs` gains {:.3f} (gray), {:.3f} (color), `clustered` {:.3f} and {:.3f} (not significant)."
    assert words.format(*gains) in " ".join(READ.split())
    assert not any(one["clustered"]["accuracy_verdict"] == "better" for one in mild)
    sized, by_share = ([leaderboard(f"{name}{of}") for name in ("gray-sizes", "text-roles")] for of in ("", "-md"))
    gains = [
        float(one["random"]["accuracy_mean"]) - float(usual["random"]["accuracy_mean"])
        for usual, one in zip(sized, by_share)
    ]
    more = [(one["clustered"], one["fed_cbs"]) if "fed_cbs" in one else (one["clustered"],) for one in by_share]
    added = [float(row["accuracy_difference"]) for of_one in more[::-1] for row in of_one]  # text first
    at_equal_seconds = (gain_at_equal_seconds(f"{name}-md") for name in ("gray-sizes", "many-dir0.1", "text-roles"))
    words = (
        "(`random[variant=md]`) gains {:.3f} (text: {:.3f}), at equal seconds {:.3f} (500 clients: {:.3f}, text: "
        "{:.3f}). Beyond it, `clustered` gains {:.3f} (text: {:.3f}), `fed_cbs` {:.3f}, neither significant at best "
        "rounds; at equal seconds, only `fed_cbs`."
    ).format(*gains, *at_equal_seconds, added[1], added[0], added[2])
    assert words in " ".join(READ.split()) and more[1][0]["accuracy_verdict"] == "not significant"
    for one in (sized[0], by_share[0]):  # also beyond data share
        in_time = {row: one[row]["accuracy_at_equal_seconds_verdict"] for row in ("clustered", "fed_cbs")}
        assert in_time == {"clustered": "not significant", "fed_cbs": "better"}
    at_best = {by_share[0][row]["accuracy_at_best_round_verdict"] for row in ("clustered", "fed_cbs")}
    assert at_best == {"not significant"}
    traffic = [float(leaderboard(name)["fedcor"]["times_random"]) for name in ("gray-1label", "text-roles")]
    assert [round(times) for times in traffic] == [2, 8]
    assert "(2 to 8 times the traffic; on images, worse at equal traffic)" in READ


def places(measure):
    """The place of Fed-CBS under FedYogi among the rows of each of the nine settings of images, without `full`."""
    found = []
    for name, setting in SETTINGS.items():
        rows = {} if setting.task in ("text", "cnn", "resnet", "look") else leaderboard(name)
        values = {row: float(one[f"{measure}_mean"]) for row, one in rows.items() if row != "full"}
        if values:
            found.append(sorted(values, key=values.get, reverse=True).index("fed_cbs + fedyogi") + 1)
    return found


def gain_at_equal_seconds(objection):
    """The gain of an objection's random selection over the usual one at equal seconds, from the leaderboard's page."""
    text = (pages.ROOT / "results" / "leaderboard" / "README.md").read_text(encoding="utf-8")
    row = text[text.index(f"| `{objection}`") :].split("test set, at equal seconds | ")[1]
    return float(row[row.index("(") + 1 :].strip("*").split("*")[0].split(",")[0])


def rank_correlations(names, measure):
    """Kendall's rank correlations of the leaderboard's page, [settings, settings], above the diagonal."""
    text = (pages.ROOT / "results" / "leaderboard" / "README.md").read_text(encoding="utf-8")
    heading, _, *rows = text[text.index(f"| Kendall's rank correlation, {measure}") :].split("\n\n")[0].splitlines()
    columns = [cell.strip() for cell in heading.strip("|").split("|")][1:]
    cells = {row.strip("|").split("|")[0].strip(): row.strip("|").split("|")[1:] for row in rows}
    found = np.full((len(names), len(names)), np.nan)
    for i, one in enumerate(names):
        for j, other in enumerate(names):
            words = (cells[one][columns.index(other)] + cells[other][columns.index(one)]).split()
            found[i, j] = float(words[0]) if words else np.nan
    return found


def test_what_choosing_says_follows_from_the_results():
    advice = (pages.ROOT / "docs" / "choosing_a_strategy.md").read_text(encoding="utf-8")
    advice = " ".join(advice.split())
    equal_sizes = ("gray-2labels", "color-2labels", "gray-dir0.1", "color-dir0.1", "gray-dir0.3", "color-dir0.3")
    uneven = ("gray-sizes", "many-dir0.1")
    settings = {name: leaderboard(name) for name in ("gray-1label", *equal_sizes, *uneven)}

    def significant(row, measure="accuracy", verdict="better"):
        return [name for name, one in settings.items() if one[row][f"{measure}_verdict"] == verdict]

    page = (pages.ROOT / "results" / "leaderboard" / "gray-2labels" / "README.md").read_text(encoding="utf-8")
    changes = [
        re.search(rf"([0-9.]+) \({re.escape(row)}\)", page)[1] for row in ("random", "fed_cbs", "random + fedyogi")
    ]
    left = float(settings["gray-2labels"]["fed_cbs + fedyogi"]["accuracy_difference"])
    words = "by {} under `random`, {} under `fed_cbs`, {} under FedYogi, where `fed_cbs` still gains"
    assert f"{words.format(*changes)} {left:.3f}." in advice
    later = [
        re.search(
            r"random selection improves by ([0-9.]+)\.\s",
            (pages.ROOT / "results" / "leaderboard" / name / "README.md").read_text(encoding="utf-8"),
        )[1]
        for name in ("gray-1label", "many-dir0.1", "look-cnn")
    ]
    assert f"`random` still improves in the last fifth ({', '.join(later[:2])}; CNN: {later[2]})" in advice
    assert not significant("gpfl") + significant("e3cs")
    price = pages.ROOT / "results" / "papers_setting"
    for kind, ahead in (("absent", "fed_cbs"), ("lost", "fedcor")):
        with (price / f"information-{kind}-fmnist-2spc" / "pairs.csv").open(newline="") as file:
            found = [row for row in csv.DictReader(file) if row["measure"] == "last_rounds_accuracy"]
        better = [row["row"] for row in found if row["verdict"] == "better"]
        assert better == [ahead]
        if kind == "lost":
            gain = next(row["difference"] for row in found if row["row"] == ahead)
            assert f"only FedCor ({float(gain):.3f})." in advice
    everywhere, rows = (*settings.values(), leaderboard("text-roles")), ("divfl", "pow_d", "hics_fl")
    worse = [sum(one[row]["accuracy_verdict"] == "worse" for one in everywhere) for row in rows]
    assert worse == [5, 4, 3] and "`divfl` loses in five settings, `pow_d` in four, `hics_fl` in three." in advice
    texts = [page.read_text(encoding="utf-8") for page in (pages.ROOT / "results" / "leaderboard").glob("*/README.md")]
    ends = [text.split("At an end of its grid: ")[1] for text in texts if "At an end of its grid: " in text]
    assert len(ends) == 6 and all(end.startswith("FedYogi, ") for end in ends)
    assert "FedYogi's at ends of grids in six settings" in advice
    lost = [-float(settings["gray-1label"][row]["accuracy_difference"]) for row in ("greedyfed", "gpfl", "oort")]
    of_color = [one["greedyfed"] for name, one in settings.items() if name.startswith("color")]
    on_color = sorted(-float(one["accuracy_difference"]) for one in of_color)
    assert {one["accuracy_verdict"] for one in of_color} == {"worse"}
    lost[:0] = [on_color[0], on_color[-1]]
    words = "On color, `greedyfed` loses {:.3f} to {:.3f}; with one label, {:.3f}, `gpfl` {:.3f}, `oort` {:.3f}."
    assert words.format(*lost) in advice
    assert significant("fedcor + fedyogi") == ["gray-1label"]
    lost = settings["gray-2labels"]["fedcor + fedyogi"]
    assert f"loses {-float(lost['accuracy_at_best_round_difference']):.3f} at the best round with two." in advice
    assert lost["accuracy_at_best_round_verdict"] == "worse"
    assert significant("clustered + fedyogi") == ["gray-1label", *uneven]
    assert set(uneven) <= set(significant("oort")) & set(significant("clustered")) & set(significant("fed_cbs"))
    gains = [float(settings[name]["oort"]["accuracy_difference"]) for name in uneven]
    assert "`oort` ({:.3f}, {:.3f})".format(*gains) in advice
    sized = {name: leaderboard(name) for name in (*uneven, "text-roles")}
    by_share = [leaderboard(f"{name}-md") for name in sized]
    gains = [
        float(one["random"]["accuracy_mean"]) - float(usual["random"]["accuracy_mean"])
        for usual, one in zip(sized.values(), by_share)
    ]
    assert "(`random[variant=md]`) gains {:.3f}, {:.3f} and {:.3f}.".format(*gains) in advice
    more = {
        row: [one[row] for one in by_share if row in one and row != "random"]
        for row in ("clustered", "fed_cbs", "fedcor")
    }
    differences = {row: [float(one["accuracy_difference"]) for one in found] for row, found in more.items()}
    assert (
        "`clustered` gains {:.3f} and {:.3f} (text: {:.3f}, not significant), `fed_cbs` {:.3f} (500 clients: {:.3f}, "
        "not significant), `fedcor` loses; at best rounds, none significantly."
    ).format(*differences["clustered"], *differences["fed_cbs"]) in advice
    assert not [one for found in more.values() for one in found if one["accuracy_at_best_round_verdict"] == "better"]
    verdicts = {row: [one["accuracy_verdict"] for one in found] for row, found in more.items()}
    assert verdicts == {
        "clustered": ["better", "better", "not significant"], "fed_cbs": ["better", "not significant"],
        "fedcor": ["worse"] * 3,
    }  # fmt: skip
    names = [f"{name}-md{optimizer}" for name in ("many-dir0.1", "text-roles") for optimizer in ("", "-fedyogi")]
    words = "data share loses {:.3f} (500 clients; FedYogi: {:.3f}) and {:.3f} (text; {:.3f})."
    assert words.format(*(-gain_at_equal_seconds(name) for name in names)) in advice
    own = [leaderboard(f"{task}-2labels-own") for task in ("gray", "color")]
    better = [{name for name, one in of_task.items() if one["accuracy_verdict"] == "better"} for of_task in own]
    assert better == [{"fed_cbs", "fedcor", "oort", "fl_dp3s", "gpfl", "pow_d"},
                      {"fed_cbs", "fedcor", "clustered", "fl_dp3s", "gpfl"}]  # fmt: skip
    gains = [
        float(own[task][row]["accuracy_difference"])
        for task, row in ((0, "oort"), (0, "fl_dp3s"), (1, "fl_dp3s"), (0, "gpfl"), (1, "gpfl"), (0, "pow_d"))
    ]
    words = "`oort` gains {:.3f} on gray, `fl_dp3s` {:.3f} (color: {:.3f}), `gpfl` {:.3f} ({:.3f}), `pow_d` {:.3f}"
    assert words.format(*gains) in advice
    for of_task in own:
        at_best = {name for name, one in of_task.items() if one["accuracy_at_best_round_verdict"] == "better"}
        assert at_best == {"fed_cbs", "fedcor"}
    gains = [float(settings["many-dir0.1"][row]["accuracy_difference"]) for row in ("pow_d", "greedyfed")]
    assert "With 500 clients, `pow_d` and `greedyfed` gain {:.3f} and {:.3f}.".format(*gains) in advice
    assert all(settings["many-dir0.1"][row]["accuracy_verdict"] == "better" for row in ("pow_d", "greedyfed"))
    traffic = sorted(float(setting["full"]["times_random"]) for setting in settings.values())
    assert f"for {traffic[0]:.0f} to {traffic[-1]:.0f} times the traffic" in advice
    decay = leaderboard("gray-2labels-decay")
    usual, rows = settings["gray-2labels"], ("fed_cbs", "fedcor", "clustered")
    left = [float(decay[row][f"accuracy{when}_difference"]) for when in ("", "_at_best_round") for row in rows]
    words = "leaves `fed_cbs` {:.3f}, `fedcor` {:.3f}, `clustered` {:.3f}; at best rounds {:.3f}, {:.3f} and {:.3f}."
    assert words.format(*left) in advice
    found = [float(row["accuracy_mean"]) for row in (usual["random"], decay["random"], usual["random + fedyogi"])]
    assert "`random` from {:.3f} to {:.3f}, as much as FedYogi ({:.3f}), and".format(*found) in advice
    in_time = [significant(row, "accuracy_at_equal_seconds") for row in ("fed_cbs", "clustered", "fedcor")]
    assert [len(names) for names in in_time] == [9, 6, 5] and not {*uneven} & {*in_time[1]}
    lost = (leaderboard("text-roles")["clustered"], settings["gray-sizes"]["clustered + fedyogi"])
    lost += (settings["many-dir0.1"]["pow_d"],)
    assert {one["accuracy_at_equal_seconds_verdict"] for one in lost} == {"worse"}
    words = (
        "`fed_cbs` gains in nine settings (CNN: none significantly), `clustered` in six (text: {:.3f}; "
        "uneven sizes, FedYogi: {:.3f}), `fedcor` in five; `pow_d` loses in ten (500 clients: {:.3f}), `divfl` in nine."
    )
    of_cnn = {one["accuracy_at_equal_seconds_verdict"] for one in leaderboard("look-cnn").values()}
    assert of_cnn == {"", "not significant"}  # random selection has none
    changes = [float(one["accuracy_at_equal_seconds_difference"]) for one in lost]
    assert words.format(*changes[:2], -changes[2]) in advice
    worse = [
        sum(one[row]["accuracy_at_equal_seconds_verdict"] == "worse" for one in everywhere)
        for row in ("pow_d", "divfl")
    ]
    assert worse == [10, 9]
    of_all = {name: float(one["full"]["accuracy_difference"]) for name, one in settings.items()}
    shares = [float(settings[name]["fed_cbs"]["accuracy_difference"]) / gain for name, gain in of_all.items()]
    words = (
        f"gain {min(of_all.values()):.3f} to {max(of_all.values()):.3f}; `fed_cbs` reaches {100 * min(shares):.0f} to "
        f"{100 * max(shares):.0f} % of it."
    )
    assert words in advice
    one_label = settings["gray-1label"]
    gains = [float(one_label[row]["accuracy_difference"]) for row in ("fl_dp3s", "divfl", "fed_cbs")]
    at_equal_megabytes = float(one_label["divfl"]["accuracy_at_equal_megabytes_difference"])
    words = f"`fl_dp3s` and `divfl` gain as much as `fed_cbs` (at equal megabytes, `divfl`: {at_equal_megabytes:.3f})."
    assert max(gains) - min(gains) < 0.001 and words in advice
    with_cnn = [*settings.values(), leaderboard("look-cnn")]
    assert all(setting["fedcor"]["accuracy_at_equal_megabytes_verdict"] == "worse" for setting in with_cnn)
    traffic = sorted(float(setting["fedcor"]["times_random"]) for setting in with_cnn)
    words = (
        f"`fedcor` ({traffic[0]:.1f} to {traffic[-1]:.1f} times the traffic) is worse than `random` in all ten image"
    )
    assert len(with_cnn) == 10 and words in advice
    minus = with_cnn[-1]
    minus = float(minus["fedcor"]["accuracy_mean"]) - float(minus["fed_cbs"]["accuracy_mean"])
    assert f"(not at best rounds) and the CNN ({minus:.3f}, not significant)" in advice
    page = (pages.ROOT / "results/leaderboard/look-cnn/README.md").read_text(encoding="utf-8")
    assert f"| fedcor minus fed_cbs | +{minus:.3f} (" in page  # not in bold
    ahead = {name for name, one in settings.items() if one["fedcor"]["accuracy_mean"] > one["fed_cbs"]["accuracy_mean"]}
    assert ahead == {"gray-2labels"}
    at_best = [float(settings["gray-2labels"][row]["accuracy_at_best_round_mean"]) for row in ("fedcor", "fed_cbs")]
    assert abs(at_best[0] - at_best[1]) < 0.0005
    names = (*equal_sizes, *uneven, "text-roles", "gray-1label")
    groups = [0] * len(equal_sizes) + [1] * 3 + [2]

    def correlations(measure):
        found = {0: [], 1: [], None: []}
        values = rank_correlations(names, measure)
        for i, j in zip(*np.triu_indices(len(groups), 1)):
            found[groups[i] if groups[i] == groups[j] else None].append(values[i, j])
        return {group: (min(ones), max(ones)) for group, ones in found.items()}

    last, best = correlations("test accuracy, last ten rounds"), correlations("at the best round")
    assert "(rank correlation {:.2f} to {:.2f}; at best rounds {:.2f} to {:.2f})".format(*last[0], *best[0]) in advice
    words = (
        "({:.2f} to {:.2f}; {:.2f} to {:.2f}); across groups less ({:.2f} to {:.2f}; at best rounds not always, up to "
    )
    assert f"{words.format(*last[1], *best[1], *last[None])}{best[None][1]:.2f})" in advice
    mild, noisy, rare, turned = (
        leaderboard(f"gray-dir0.3-{name}")["fed_cbs"] for name in ("mild", "noise", "tail", "turns")
    )
    words = f"turned, it gains {float(turned['accuracy_difference']):.3f}, at best rounds nothing significant."
    assert words in advice and turned["accuracy_at_best_round_verdict"] == "not significant"
    assert f"`fed_cbs` gains {float(mild['accuracy_difference']):.3f}" in advice
    assert (
        f"With 80 % noisy labels at 30 % of the clients, it loses {-float(noisy['accuracy_difference']):.3f}." in advice
    )
    assert f"it gains {float(rare['accuracy_difference']):.3f} on a balanced test set, nothing on" in advice
    assert rare["accuracy_verdict"] == "better" and rare["clients_verdict"] == "not significant"
    with (pages.ROOT / "results" / "asynchronous" / "tiers" / "table.csv").open(newline="") as file:
        timed = {row["row"]: row for row in csv.DictReader(file)}
    assert max(timed, key=lambda name: float(timed[name]["accuracy"])) == "buffer-10 fed_cbs"
    ends = [float(row["accuracy"]) for name, row in timed.items() if name.endswith(" random")]
    best = float(timed["buffer-10 fed_cbs"]["accuracy"])
    megabytes = float(timed["buffer-10 fed_cbs"]["megabytes"])
    assert f"with `fed_cbs` have the highest mean ({best:.3f}; highest `random`: {max(ends):.3f})" in advice
    assert f"for {megabytes / float(timed['sync random']['megabytes']):.1f} times the megabytes" in advice


def test_its_speeds_are_those_of_the_file_that_it_names():
    assert "](results/rivals.json)" in TEXT
    found = json.loads((pages.ROOT / "results" / "rivals.json").read_text())
    (measured,) = found["settings"].values()
    assert found["processor"] == "AMD EPYC" and found["cores"] == 2
    assert measured["about"].endswith("5 clients x 20 steps x batch 64")
    names = {
        "PyTorch, stacked weights": "torch_batched",
        "FedJAX": "fedjax",
        "pfl-research": "pfl",
        "Flower": "flower",
    }
    assert set(names.values()) <= set(measured["rivals"])
    ours = round(measured["ours"]["rounds_per_second"], 1)
    times_theirs = {name: ours / round(measured["rivals"][key]["rounds_per_second"], 1) for name, key in names.items()}
    words = (
        "{:.1f} rounds/s: {:.1f} times PyTorch (stacked weights), {:.1f} FedJAX, {:.1f} pfl-research, {:.1f} Flower."
    )
    words = words.format(ours, *times_theirs.values())
    assert words in " ".join(READ.split())
    assert all(
        measured["rivals"][key]["same_model"] and measured["rivals"][key]["same_accuracy"] for key in names.values()
    )
    cases = [*read_rivals("rivals_cifar10").values()]  # those of the Xeon had another form of convolutions
    times = sorted(
        round(case["ours"]["rounds_per_second"], 2) / round(case["rivals"]["pfl"]["rounds_per_second"], 2)
        for case in cases
    )
    assert len(cases) == 2 and times[0] >= 1
    assert f"With convolutions, [{times[0]:.1f} to {times[-1]:.1f} times](" in " ".join(READ.split())


def test_what_the_statistics_page_says_of_families_is_what_the_results_say():
    folder, sizes = pages.ROOT / "results" / "papers_setting", set()
    for path in (
        folder / f"{data}-{name}" for data in ("fmnist", "mnist") for name in ("1spc", "2spc", "dir", "xi0.8")
    ):
        with (path / "pairs.csv").open(newline="") as file:
            found = list(csv.DictReader(file))
        sizes |= set(Counter(row["measure"] for row in found if not row["measure"].endswith("_of_leaders")).values())
    text = (pages.ROOT / "docs" / "statistics.md").read_text(encoding="utf-8").replace("\n  ", " ")
    assert sizes == {28} and "whatever their baseline (28 in the papers' setting)" in text


def test_what_the_privacy_page_says_of_leads_is_what_the_study_says():
    found = {}
    settings = ("gray-2labels", "gray-dir0.1", "color-2labels")
    for task in (*settings, "gray-2labels-client"):
        with (pages.ROOT / "results" / "privacy" / task / "table.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                found.setdefault((task, row["algo"]), {})[float(row["epsilon"])] = row["verdict"] == "better"

    def least(task, algo):
        better = found[task, algo]
        kept = [one for one in sorted(better) if all(better[other] for other in better if other >= one)]
        return kept[0]

    assert [least(task, "fed_cbs") for task in settings] == [0.1, 0.1, 0.1]
    assert [least(task, "fedcor") for task in settings] == [3, 3, 1]
    assert [least(task, "clustered") for task in settings] == [10, np.inf, np.inf]
    hidden = [found["gray-2labels-client", algo] for algo in ("fed_cbs", "fedcor")]
    assert not any(better for one in hidden for epsilon, better in one.items() if epsilon <= 10)
