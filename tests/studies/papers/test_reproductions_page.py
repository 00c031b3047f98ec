"""docs/reproductions.md and results/papers/README.md say what the entries say."""

import json
import re
import shlex
from pathlib import Path

import pytest

from studies.papers import heading, overview, page, published, verdicts
from studies.papers.entries import ENTRIES
from studies.papers.page import Page, Row
from tests import scripts

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "results" / "papers" / "README.md").read_text(encoding="utf-8")


def test_their_generated_parts_are_up_to_date():
    tool = scripts.load("tools/reproductions_page.py")
    for path, text in tool.updated().items():
        assert path.read_text(encoding="utf-8") == text, "run tools/reproductions_page.py"


def test_every_claim_is_in_the_short_tables():
    assert list(overview.IN_SHORT) == list(published.ENTRIES)
    short = overview.in_short(ENTRIES, ROOT / "results", "../results")
    rows = [line for line in short.splitlines() if line.startswith("| [")]
    missing = re.findall(rf"^{overview.NOT_RUN.capitalize()}: (.*)\.$", short, flags=re.MULTILINE)
    assert len(rows) + len(", ".join(missing).split(", ")) == len(published.ENTRIES)
    cells = [cell for row in rows for cell in re.sub(r"\[.*?\]\(.*?\):", "", row).split("|")[1:4]]
    assert max(len(cell.split()) for cell in cells) <= 8


def test_the_page_counts_the_rules_that_changed_after_a_run():
    page = (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8")
    rows = re.findall(r"results/papers/(\w+/\w+)/README.* \| (.*) \|$", page, flags=re.MULTILINE)
    whole, changed = {name for name, _ in rows}, {name for name, verdict in rows if overview.CHANGED in verdict}
    assert f"† marks {len(changed)} of {len(whole)} pages" in page
    assert all("after" in ENTRIES[name].rule or "first" in ENTRIES[name].rule for name in changed)
    hints = r"\badded\b|at first,|first rules?\b|(after|of) (a|the) (first|last|other) run"
    assert not [name for name in whole - changed if re.search(hints, ENTRIES[name].rule)]


def test_every_published_result_and_every_rule_is_there():
    rows = re.findall(r"^\| (\w+/\w+) \|", TEXT, flags=re.MULTILINE)
    assert rows == list(published.ENTRIES)
    assert all(entry.rule in TEXT for entry in ENTRIES.values())


PAGES = [
    one
    for pages in (f"{overview.PAPERS}/*/*/README.md", f"{overview.LOOKS}/*/*/*/README.md")
    for one in sorted((ROOT / "results").glob(pages))
]


@pytest.mark.parametrize("path", PAGES, ids=lambda one: "/".join(one.parts[-4:-1]))
def test_the_pages_of_results_have_the_claims_rules_and_readings_of_their_entries(path):
    entry = ENTRIES["/".join(path.parts[-3:-1])]
    text = path.read_text(encoding="utf-8")
    assert all(words in text for words in (entry.published.claim, entry.rule, entry.published.reading)), (
        f"write it again: python -m studies reproduce {entry.name}"
    )


def test_its_commands_name_entries():
    commands = re.findall(r"python -m studies reproduce ([a-z][^`\n]*)", TEXT)
    assert commands and all(shlex.split(command)[0] in ENTRIES for command in commands)


def test_every_verdict_is_explained():
    said = {value for name, value in vars(verdicts).items() if name.isupper() and isinstance(value, str)}
    words = said - {verdicts.ORDER, verdicts.NUMBERS}  # sentences of the rules
    section = TEXT.split("## Verdicts")[1].split("## Table by table")[0]
    assert all(word in section for word in {*words, "too few seeds"})


def written(folder, scale="", finished="", verdict_of=("agrees",)):
    """Write a page with verdicts, in the setting `a`."""
    done, planned = map(int, (finished or "4 of 4").split(" of "))
    about = {"scale": scale, "finished": done, "planned": planned, "commands": []}
    page.write(folder, [], Page([Row("a", "b", "yes", "", 1, "", verdict) for verdict in verdict_of]))
    (folder / heading.ABOUT).write_text(json.dumps(about))


def test_a_finding_counts_verdicts(tmp_path):
    papers = tmp_path / overview.PAPERS
    rows = [Row("a", "b", "yes", "", 1, "", verdict) for verdict in ("agrees", "", "differs", "agrees")]
    rows.append(Row("a", "what no paper says", "", "", 1, "", "worse"))
    page.write(papers / "fedgp" / "fig1", ["**All 4 runs are finished.**"], Page(rows))
    written(papers / "fedgp" / "fig2", finished="3 of 4", verdict_of=["differs"])
    text = overview.markdown(ENTRIES, tmp_path, "results")
    assert "| [2 agree, 1 differs](results/papers/fedgp/fig1/README.md) |" in text
    assert "| [1 differs (3 of 4 runs)](results/papers/fedgp/fig2/README.md) |" in text
    assert text.count(overview.NOT_RUN) == len(ENTRIES) - 2


def test_the_short_tables_count_what_holds(tmp_path):
    written(tmp_path / "papers" / "fedgp" / "fig1", verdict_of=["agrees", "reproduced", "differs", "inconclusive"])
    written(tmp_path / "papers" / "fedgp" / "fig2", verdict_of=["inconclusive", "by construction"])
    written(tmp_path / "looks" / "short" / "fedgp" / "fig3", "seed 0; 60 rounds")
    text = overview.in_short(ENTRIES, tmp_path, "r")
    verdicts_of = dict(re.findall(r"^\| \[[^]]*\]\((\S+)/README\.md\): .* \| ([^|]*) \|$", text, flags=re.MULTILINE))
    assert verdicts_of["r/papers/fedgp/fig1"] == "2 of 4, 1 fails"
    assert verdicts_of["r/papers/fedgp/fig2"] == "undecided†"  # its rule was extended after the last run
    assert verdicts_of["r/looks/short/fedgp/fig3"] == "look"
    assert "Not run yet: Table 1, Fig. 4, " in text


def test_a_comparison_that_several_figures_share_is_counted_once(tmp_path):
    """The main comparison's run has another name in each study, and its p-value another family."""
    papers = tmp_path / overview.PAPERS / "fedcor"

    def row(what, p, paper="yes", verdict="reproduced"):
        return Row("fmnist-dir", what, paper, f"0.635 against 0.559 (p = {p})", 10, "+0.076", verdict)

    page.write(papers / "fig4", [], Page([row("fedcor ends above random", 0.02), row("ours", 0.1, "", "better")]))
    page.write(
        papers / "fig5", [], Page([row("interval=10 ends above random", 0.01), row("interval=20 ends above random", 1)])
    )
    variants = [row(f"beta={beta} ends above random", 0.03) for beta in (0.75, 0.95)]
    page.write(papers / "fig8", [], Page([*variants, row("beta=0.5 ends above random", 1, verdict="inconclusive")]))
    text = overview.markdown(ENTRIES, tmp_path, "results")
    assert "6 rows with a verdict, which are 4 distinct comparisons" in text
    assert "share runs. Among these: 3 reproduced, 1 inconclusive." in text


def test_looks_stand_beside_what_the_whole_entry_found(tmp_path):
    """Several of an entry, each with what it is of; none of which nothing is finished."""
    papers, looks = tmp_path / "papers" / "fedgp", tmp_path / "looks"
    written(papers / "fig2", verdict_of=["differs"])
    written(looks / "short" / "fedgp" / "fig2", "seed 0; 60 rounds", "4 of 36")
    written(looks / "shorter" / "fedgp" / "fig2", "2 rounds")
    written(looks / "short" / "fedgp" / "fig3", "seed 0; 60 rounds", "0 of 4")
    (looks / "short" / "runs" / "fmnist-random-60-0123").mkdir(parents=True)
    text = overview.markdown(ENTRIES, tmp_path, "results")
    first = "a look, a; seed 0; 60 rounds: [1 agrees (4 of 36 runs)](results/looks/short/fedgp/fig2/README.md)"
    second = "a look, a; 2 rounds: [1 agrees](results/looks/shorter/fedgp/fig2/README.md)"
    assert f"| [1 differs](results/papers/fedgp/fig2/README.md); {first}; {second} |" in text
    assert text.count("a look") == 2
