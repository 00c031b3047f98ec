"""docs/reproductions.md says what the entries say."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from fedjax_sel.papers import published
from fedjax_sel.reproduction import overview, page, verdicts
from fedjax_sel.reproduction.entries import ENTRIES
from fedjax_sel.reproduction.page import Page, Row

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8")


def test_its_generated_part_is_up_to_date():
    spec = importlib.util.spec_from_file_location("reproductions_page", ROOT / "tools" / "reproductions_page.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.updated(TEXT) == TEXT, "run tools/reproductions_page.py"


def test_every_published_result_and_every_rule_is_there():
    rows = re.findall(r"^\| (\w+/\w+) \|", TEXT, flags=re.MULTILINE)
    assert rows == list(published.ENTRIES)
    assert all(entry.rule in TEXT for entry in ENTRIES.values())


@pytest.mark.parametrize(
    "folder",
    [one for kind in (overview.PAPERS, overview.LOOKS) for one in sorted((ROOT / "results" / kind).glob("*/*/"))],
    ids=lambda one: "/".join(one.parts[-3:]),
)
def test_the_pages_of_results_have_the_claims_rules_and_readings_of_their_entries(folder):
    entry = ENTRIES[f"{folder.parent.name}/{folder.name}"]
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert all(words in text for words in (entry.published.claim, entry.rule, entry.published.reading)), (
        f"write it again: fedjax-sel reproduce {entry.name}"
    )


def test_its_commands_name_entries():
    commands = re.findall(r"fedjax-sel reproduce ([a-z][^`\n]*)", TEXT)
    assert commands and all(shlex.split(command)[0] in ENTRIES for command in commands)


def test_every_verdict_is_explained():
    said = {value for name, value in vars(verdicts).items() if name.isupper() and isinstance(value, str)}
    words = said - {verdicts.ORDER}  # a sentence of the rules
    section = TEXT.split("## The words")[1].split("## Table by table")[0]
    assert all(word in section for word in {*words, "too few seeds"})


def test_a_finding_counts_verdicts(tmp_path):
    rows = [Row("a", "b", "yes", "", 1, "", verdict) for verdict in ("agrees", "", "differs", "agrees")]
    rows.append(Row("a", "what no paper says", "", "", 1, "", "worse"))
    papers = tmp_path / overview.PAPERS
    page.write(papers / "fedgp" / "fig1", [], Page(rows))
    part = ["**1 of 4 runs is finished.**", "", "**3 of 4 runs are finished.**", ""]
    page.write(papers / "fedgp" / "fig2", part, Page(rows[2:3]))
    text = overview.markdown(ENTRIES, tmp_path, "results")
    assert "| [2 agree, 1 differs](results/papers/fedgp/fig1/README.md) |" in text
    assert "| [1 differs (3 of 4 runs)](results/papers/fedgp/fig2/README.md) |" in text
    assert text.count(overview.NOT_RUN) == len(ENTRIES) - 2


def test_a_look_stands_beside_what_the_whole_entry_found(tmp_path):
    for kind, name, scale in [("papers", "fig2", ""), ("looks", "fig2", "seed 0; 60 rounds"), ("looks", "fig3", "x")]:
        rows = [Row("a", "b", "yes", "", 1, "", "agrees" if scale else "differs")]
        page.write(tmp_path / kind / "fedgp" / name, [page.scaled(scale)] if scale else [], Page(rows))
    text = overview.markdown(ENTRIES, tmp_path, "results")
    look = "a look, seed 0; 60 rounds: [1 agrees](results/looks/fedgp/fig2/README.md) |"
    assert f"| [1 differs](results/papers/fedgp/fig2/README.md); {look}" in text
    assert f"| {overview.NOT_RUN}; a look, x: [1 agrees](results/looks/fedgp/fig3/README.md) |" in text
