"""The page as a text: what stands on it, under which heading, and that no name breaks it."""

import base64
import dataclasses
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fedjax_sel.cli import command_line, compare, report
from fedjax_sel.config import flat_types
from fedjax_sel.reporting import comparison, html
from tests.reporting import made_up

NASTY = "</script><script>alert(1)</script> & \"q\" 'a' $x$ | <b>"


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch):
    monkeypatch.setattr(html, "plotly", lambda: "/* plotly */")


def numbers_of(text):
    """What the page's scripts read."""
    return json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[1])


def articles(text):
    return re.findall(r"<article.*?</article>", text, re.DOTALL)


def test_settings_stand_under_headings_of_their_own():
    text = html.render(made_up.chapters())
    first, second = articles(text)
    assert "1. a setting; 20 rounds</h2>" in first and "2. another setting; 20 rounds</h2>" in second
    assert "learning_rate 0.1, not 0.05" in second and "learning_rate 0.1, not" not in first
    assert 'data-run="fedcor"' in first and 'data-run="fedcor"' not in second
    assert [[run["name"] for run in one["runs"]] for one in numbers_of(text)["settings"]] == [
        ["random", "fedcor", "fl_dp3s", "oort"],
        ["random", "fl_dp3s"],
    ]


class Structure(HTMLParser):
    """The elements of a page; raises where one is closed that is not open."""

    EMPTY = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def values(self, tag, attribute):
        return [own[attribute] for name, own in self.found if name == tag and attribute in own]


def test_elements_are_closed_in_order_and_links_lead_to_sections():
    for chapters in (made_up.chapters(), made_up.chapters()[:1]):
        page = Structure(html.render(chapters))
        assert page.open == []
        ids = [own["id"] for _, own in page.found if "id" in own]
        assert len(set(ids)) == len(ids)
        assert {link[1:] for link in page.values("a", "href") if link.startswith("#")} <= set(ids)
        assert all("scope" in own for tag, own in page.found if tag == "th")
    sections = [link for link in page.values("a", "href") if link.startswith("#")]
    assert sections[:4] == ["#verdict-0", "#curves-0", "#budgets-0", "#results-0"]
    folded = [own["id"] for tag, own in page.found if tag == "details" and "id" in own and "open" not in own]
    assert folded == ["pairs-0", "selection-0", "reproduction-0"]


def card(text):
    """The headline of the first verdict, and its lines as texts."""
    found = re.search(r'<section class="card".*?</section>', text, re.DOTALL)[0]
    lines = re.findall(r"<tr data-run.*?</tr>", found, re.DOTALL)
    cells = [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line)] for line in lines]
    return re.search(r"<h2>(.*?)</h2>", found)[1], cells, found


def test_the_verdict_stands_first_and_has_the_numbers_of_the_tables():
    chapters = made_up.chapters()[:1]
    text = html.render(chapters)
    headline, lines, _ = card(text)
    assert text.index(headline) < text.index('id="controls"') < text.index("<article")
    assert headline == "Better than random: fedcor, fl_dp3s, oort (10 seeds, 3 comparisons)"
    assert [line[0] for line in lines] == ["fedcor", "fl_dp3s", "oort", "random"]
    assert lines[3][2:] == ["baseline", "", "", "", "40 MB", "1x", "nothing"]
    pairs = {pair["name"]: pair for pair in numbers_of(text)["settings"][0]["pairs"][0]["pairs"]}
    for name, value, difference, interval, leads, words, *_ in lines[:3]:
        own, low, high = pairs[name]["numbers"]
        assert (difference, interval) == (f"{own:+.3f}", f"{low:+.3f} to {high:+.3f}")
        assert words == pairs[name]["verdict"] == "better" and leads == "10 of 10"
        assert float(value) - float(lines[3][1]) == pytest.approx(own, abs=0.0011)


def test_too_few_seeds_are_named_with_the_seeds_that_are_needed_and_the_next_command():
    names = ("random", "fedcor", "fl_dp3s")
    runs = [made_up.run(name, 0.6 + 0.1 * i, seeds=5) for i, name in enumerate(names)]
    headline, lines, text = card(html.render([made_up.chapter(runs)]))
    assert headline == "No winner yet: 5 seeds are too few to tell (6 needed)"
    assert [line[5] for line in lines] == ["too few seeds", "too few seeds", ""]
    assert "--config config.json --algos random fedcor fl_dp3s --seeds 10 --out runs/more" in text
    assert "Next:" not in card(html.render(made_up.chapters()))[2]


def test_a_verdict_without_a_winner_says_so():
    equal = [made_up.run("random", 0.6), made_up.run("fedcor", 0.6)]
    headline, lines, _ = card(html.render([made_up.chapter(equal)]))
    assert headline == "No significant difference from random (10 seeds, 1 comparison)"
    worse = [made_up.run("random", 0.8), made_up.run("afl", 0.6)]
    headline, lines, _ = card(html.render([made_up.chapter(worse)]))
    assert headline == "Worse than random: afl (10 seeds, 1 comparison)" and lines[1][5] == "worse"
    headline, lines, _ = card(html.render([made_up.chapter(worse[:1])]))
    assert headline == "One strategy: nothing to compare it with" and lines[0][2:6] == ["", "", "", ""]
    running = worse[1]._replace(result=made_up.result(0.6, rounds=7, algo="afl"))
    headline, lines, _ = card(html.render([made_up.chapter([worse[0], running])]))
    assert headline == "No verdict yet: it needs two finished runs" and lines[1][5] == "7 of 20 rounds"


def test_equal_budgets_are_said_in_words():
    """Of a strategy that moves three times as much, the third of the rounds that the budget pays for counts."""
    cheap, dear = made_up.result(0.6), made_up.result(0.8, algo="fedcor")
    ledger = dear.ledger._replace(bytes_up=5 * dear.ledger.bytes_up)
    runs = [cheap, dataclasses.replace(dear, ledger=ledger)]
    rows = [comparison.row("", name, one) for name, one in zip(("random", "fedcor"), runs)]
    budget, target = comparison.at_equal_budgets(rows, runs)
    expected = dear.test_accuracy[:, 4:6].mean(), cheap.test_accuracy[:, -7:].mean()  # 40 MB pay for 6 rounds of 6 MB
    assert (
        budget
        == f"At the 40 MB of random, test accuracy is {expected[1]:.3f} for random and {expected[0]:.3f} for fedcor."
    )
    reached = dear.rounds_to_target(0.5).mean()
    assert f"fedcor after {comparison.short(reached)} rounds and {comparison.short(6 * reached)} MB" in target


def test_names_are_shown_and_never_read_as_html():
    runs = [made_up.run("random", 0.6), made_up.run(NASTY, 0.7, algo="random")]
    text = html.render([made_up.chapter(runs, title=NASTY, differs=NASTY)])
    assert "alert(1)</script>" not in text and "| <b>" not in text
    assert text.count("<script") == text.count("</script>") == 3
    assert numbers_of(text)["settings"][0]["runs"][1]["name"] == NASTY
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text


def test_nothing_is_asked_of_a_network():
    text = html.render(made_up.chapters())
    assert not re.search(
        r"""(src|href)=["'](?!data:|#)|@import|url\(|fetch\(|XMLHttpRequest|https?:(?!//www.w3.org)""", text
    )


def test_tables_hold_results_and_paired_differences():
    (first, _) = articles(html.render(made_up.chapters()))
    assert "final test accuracy" in first and "rounds to 50%" in first
    assert ">better<" in first and "joint p" in first and ">10 of 10<" in first
    assert "leaders: test accuracy" in first
    assert re.search(r'<tr data-run="fedcor"><th scope="row">fedcor</th>', first)


def test_unfinished_runs_are_not_held_against_others():
    runs = [made_up.run("random", 0.6), made_up.run("fedcor", 0.8, rounds=30)]
    halfway = made_up.result(0.7, rounds=7, algo="fl_dp3s")
    runs.append(runs[0]._replace(name="fl_dp3s", result=halfway))
    short = runs[1]._replace(result=made_up.result(0.7, rounds=7, algo="fedcor"))
    text = html.render([made_up.chapter([runs[0], short, runs[2]])])
    (one,) = numbers_of(text)["settings"]
    assert one["pairs"] == [] and "Paired differences appear once two runs are finished" in text
    assert (
        text.count("<td>7 of 20</td>") == 2
        and text.count("7 of 20 rounds") == 2
        and one["runs"][1]["cohorts"]["rounds"] == 7
    )
    table = re.search(r"<table.*?</table>", articles(text)[0], re.DOTALL)[0]
    heads = re.findall(r"<th scope=.col.>(.*?)</th>", table)
    row = re.search(r'<tr data-run="fedcor">.*?</tr>', table, re.DOTALL)[0]
    cells = dict(zip(heads[1:], re.findall(r"<td[^>]*>(.*?)</td>", row)))
    assert cells["rounds so far"] == "7 of 20"


def test_how_to_run_it_again_is_a_command_and_a_file(tmp_path):
    runs = [made_up.run("random", 0.6, resume="must"), made_up.run("fl_dp3s", 0.7)]
    gradient = made_up.run("fl_dp3s[profile=gradient]", 0.7, algo_args={"profile": "gradient"})
    text = html.render([made_up.chapter([*runs, gradient])])
    command = unescape(re.search(r'<pre class="command">(.*?)</pre>', text)[1])
    assert command.startswith("fedjax-sel compare --config config.json --algos random fl_dp3s ")
    assert "'fl_dp3s[profile=gradient]' --out" in command
    link = re.search(r'download="config.json" href="data:application/json;base64,([^"]+)"', text)[1]
    (tmp_path / "config.json").write_bytes(base64.b64decode(link))
    parser = command_line.make_parser("compare", "", "", only=set(flat_types()) - compare.NOT_FLAGS)
    again, _ = command_line.parse(parser, ["--config", str(tmp_path / "config.json")])
    assert again.replace(algo="random", algo_args={}).fingerprint() == runs[0].result.config.fingerprint()
    assert again.run.resume == "auto"


def test_equal_runs_are_one_item_of_the_command_and_python_values_have_none():
    runs = [made_up.run("random", 0.6), made_up.run("random", 0.7)]
    assert "--algos random --out" in html.render([made_up.chapter(runs)])
    text = html.render([made_up.chapter([made_up.run("random", 0.6, dataset="value:photos")])])
    assert '<pre class="command">' not in text


def test_a_run_that_seconds_ended_has_the_rounds_that_it_ran():
    found = made_up.result(0.6, rounds=7, seconds=2.5)
    config = made_up.config(timing="tiers", max_seconds=10.0, rounds=2000)
    run = html.Run("random", Path("nowhere"), dataclasses.replace(found, config=config))
    text = " ".join(html.render([made_up.chapter([run])]).split())
    assert "; 7 rounds. The accuracy is the mean of the last 7 rounds" in text


def test_cohorts_survive_packing():
    run = made_up.run("random", 0.6)
    found = html.cohorts(run)
    ids = np.frombuffer(base64.b64decode(found["ids"]), "<u2").reshape(10, 20, 3)
    np.testing.assert_array_equal(ids, run.result.cohorts)


def test_of_many_cohorts_a_page_holds_fewer_seeds_and_then_fewer_rounds(monkeypatch):
    run = made_up.run("random", 0.6)
    monkeypatch.setattr(html, "MOST_IDS", 130)  # two seeds of 60
    found = html.cohorts(run)
    assert (found["seeds"], found["of"], found["every"], found["rounds"]) == ([0, 1], 10, 1, 20)
    monkeypatch.setattr(html, "MOST_IDS", 20)  # a third of a seed
    found = html.cohorts(run)
    assert (found["seeds"], found["every"], found["rounds"]) == ([0], 3, 7)
    ids = np.frombuffer(base64.b64decode(found["ids"]), "<u2").reshape(7, 3)
    np.testing.assert_array_equal(ids, run.result.cohorts[0, ::3])


def test_seconds_are_those_of_the_rounds_and_not_of_the_compiler():
    run = made_up.run("random", 0.6)
    at = html.places(run.result)
    assert at["steady"] and at["seconds"][0] == 0.5 and at["seconds"][-1] == 10
    np.testing.assert_allclose(at["megabytes"], 2.0 * np.arange(1, 21))


def test_with_a_clock_the_page_has_simulated_seconds():
    runs = [made_up.run("random", 0.6, seconds=3.0), made_up.run("fedcor", 0.8, seconds=6.0)]
    text = html.render([made_up.chapter(runs)])
    first, second = numbers_of(text)["settings"][0]["runs"]
    assert first["at"]["simulated seconds"] == [3.0 * place for place in range(1, 21)]
    assert second["at"]["simulated seconds"][-1] == 120 and second["curves"]["seconds"]["mean"] == [6.0] * 20
    (article,) = articles(text)
    for words in (
        "simulated seconds",
        "seconds to 50%",
        "test accuracy after 60 s",
        "test accuracy after 60 simulated",
    ):
        assert words in article, words
    without = html.render(made_up.chapters())
    assert "simulated" not in "".join(articles(without))
    assert all("simulated seconds" not in run["at"] for one in numbers_of(without)["settings"] for run in one["runs"])


def test_points_of_a_long_run_are_means_of_blocks(monkeypatch):
    monkeypatch.setattr(html, "MOST_PLACES", 7)
    values = np.arange(40.0).reshape(2, 20)
    values[0, 2] = np.nan
    found = html.summary(values)
    assert len(found["mean"]) == 7  # of three rounds, the last of two
    assert found["low"][0] == 0.5 and found["high"][0] == 21 and found["mean"][-1] == (18.5 + 38.5) / 2
    assert html.places(made_up.result())["round"] == [3, 6, 9, 12, 15, 18, 20]


def test_a_single_seed_has_no_deviation():
    found = html.summary(np.array([[0.5, np.nan]]))
    assert found == {"mean": [0.5, None], "sd": [None, None], "low": [0.5, None], "high": [0.5, None]}


def test_without_plotly_one_sentence_says_what_to_install(monkeypatch, capsys, tmp_path):
    import sys

    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    assert command_line.guarded(report.main, [str(tmp_path), "--html", str(tmp_path / "a.html")]) == 2
    _, err = capsys.readouterr()
    assert err == "error: --html: the package plotly is missing; run pip install 'fedjax-sel[html]'\n"
