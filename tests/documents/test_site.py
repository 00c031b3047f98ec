"""The site: every page is there, generated parts are made, links lead somewhere, and it builds without a warning."""

import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest

import fedjax_sel
from fedjax_sel import strategies
from tests.documents import pages

TOOLS = pages.ROOT / "tools" / "site"


@pytest.fixture
def tool(monkeypatch):
    """A module of tools/site, by name."""
    monkeypatch.syspath_prepend(str(TOOLS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(TOOLS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def navigation():
    text = (pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    return re.findall(r"- (?:[^:\n]+: )?(\S+\.md)$", text, flags=re.MULTILINE)


def test_every_page_is_in_the_navigation_once():
    named = navigation()
    assert len(set(named)) == len(named)
    there = {page.relative_to(pages.ROOT / "docs").as_posix() for page in (pages.ROOT / "docs").rglob("*.md")}
    assert there <= set(named)
    missing = {name for name in named if not name.startswith("results/")} - there - {"contributing.md", "changelog.md"}
    assert not missing


LONGER = {"tutorial": 1400, "performance": 1500}  # most words; a tutorial defines its terms


@pytest.mark.parametrize("page", sorted((pages.ROOT / "docs").rglob("*.md")), ids=pages.name)
def test_a_page_is_short(page):
    usual = 1000 if page.parent.name == "docs" else 1500
    if page.parent.name != "api":
        seen = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)  # as in test_readme.py
        assert len(seen.split()) <= LONGER.get(page.stem, usual)


def test_no_empty_line_splits_a_table():
    split = re.compile(r"^\|.*\n\n\|.*\n(?!\|[-:| ]+\n)", re.MULTILINE)  # rows without a head of their own
    broken = {pages.name(page): split.findall(page.read_text(encoding="utf-8") + "\n") for page in pages.everywhere()}
    assert not {page: rows for page, rows in broken.items() if rows}


def test_generated_parts_are_up_to_date(tool):
    """Pages are whole where they are read without the site."""
    generated = tool("generated")
    texts = {page: page.read_text(encoding="utf-8") for page in (pages.ROOT / "docs").rglob("*.md")}
    there = {page: text for page, text in texts.items() if "<!-- generated: " in text}
    assert len(there) == len(strategies.names()) + 6
    for page, text in there.items():
        assert generated.filled(text, pages.ROOT, marked=True) == text, f"{page}: run tools/generated_parts.py"


def test_every_link_leads_to_a_file(tool):
    links = tool("repository_links")
    found = links.targets(pages.ROOT)
    assert found["results/wide.json"] == "results/wide.json"
    moved = links.redirected("[a](../results/wide.json) `[b](../x)`", "strategies/afl.md", pages.ROOT)
    assert moved == "[a](../results/wide.json) `[b](../x)`"  # which leads nowhere from there: it is as it was
    text = links.redirected("[a](../../results/wide.json#x)", "strategies/afl.md", pages.ROOT)
    assert text == "[a](../results/wide.json#x)"


def test_a_link_that_leads_nowhere_ends_the_build(tool, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").mkdir()
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).touch()
    (tmp_path / "docs" / "page.md").write_text("[there](page.md) [gone](../results/gone.json)")
    with pytest.raises(ValueError, match=r"docs/page.md links to ../results/gone.json, which does not exist"):
        tool("repository_links").targets(tmp_path)


def test_every_strategy_has_a_page_with_every_part(tool):
    parts = {"glance", "buys", "parameters", "differs", "results"}
    filled = tool("generated").filled
    for name in strategies.names():
        text = (pages.ROOT / "docs" / "strategies" / f"{name}.md").read_text(encoding="utf-8")
        marked = re.findall(r"<!-- generated: (\w+) (\w+) -->", text)
        assert {part for part, _ in marked} >= parts and {owner for _, owner in marked} == {name}
        has_presets = "preset" in strategies.parameters(name)
        assert ("presets" in {part for part, _ in marked}) == has_presets
        assert all(
            f"## {head}" in text for head in ("The idea", "The equations", "What it buys", "Parameters", "Results")
        )
        made = filled(text, pages.ROOT)
        listed = made if name != "fedgp" else filled((pages.ROOT / "docs/strategies/fedcor.md").read_text(), pages.ROOT)
        assert "<!-- generated" not in made and all(f"| `{one}` |" in listed for one in strategies.parameters(name))


def test_pages_name_the_strategies_that_exclude_secure_aggregation():
    single = re.compile(r"outcome\.updates|outcome\.subset_loss|gradients\(outcome\)")
    modules = {name: sys.modules[entry.factory.__module__] for name, entry in strategies.TABLE.items()}
    excluded = {name for name, module in modules.items() if single.search(inspect.getsource(module))}
    for name in strategies.names():  # with its defaults
        excluded |= {name for request in strategies.make(name).requests if request.kind in ("gradient", "update")}
    text = (pages.ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| \[`(\w+)`\].* \| no \|$", text, re.MULTILINE)) == excluded
    for name in strategies.names():
        page = (pages.ROOT / "docs" / "strategies" / f"{name}.md").read_text(encoding="utf-8")
        assert ("(../privacy.md#what-the-server-sees)" in page) == (name in excluded), name


def test_what_a_page_says_of_costs_comes_from_the_code(tool, monkeypatch):
    made = tool("strategy_pages")
    box = made.glance(pages.ROOT, "pow_d")
    assert "| sends beyond training ([symbols](index.md#symbols)) | each round: d down, d floats up |" in box
    assert "`variant=rpow-d`" in made.buys(pages.ROOT, "pow_d")
    entry = strategies.TABLE["random"]
    monkeypatch.setitem(strategies.TABLE, "random", entry._replace(factory=strategies.TABLE["afl"].factory))
    assert "1 / sqrt(n<sub>k</sub>) times a client's loss" in made.differs(pages.ROOT, "random")


def test_a_strategy_without_results_says_so(tool, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "selection_cost.json").write_text('{"cases": []}')
    assert tool("strategy_results").of_strategy(tmp_path, "afl") == "None are committed yet."


def test_the_leaderboards_tables_are_taken_in_as_soon_as_they_are_there(tool, tmp_path):
    part = tmp_path / "results" / "papers_setting" / "fmnist-1spc"
    part.mkdir(parents=True)
    (tmp_path / "results" / "selection_cost.json").write_text('{"cases": []}')
    (part / "README.md").write_text("# Fashion-MNIST, one label per client (`fmnist-1spc`)\n")
    (part / "table.csv").write_text(
        "row,algo,optimizer,seeds,megabytes_down,megabytes_up,last_rounds_accuracy_mean,last_rounds_accuracy_sd,"
        "last_rounds_accuracy_verdict,accuracy_at_100_percent_of_megabytes_verdict\n"
        "afl,afl,fedavg,10,200,100,0.51234,0.0321,better,worse\nafl + fedyogi,afl,fedyogi,10,100,100,0.6,0.1,,\n"
        "random,random,fedavg,10,100,100,0.5,0.1,,\n",
        encoding="utf-8",
    )
    results = tool("strategy_results")
    assert "papers_setting/accuracy.md" in results.of_strategy(tmp_path, "afl")
    assert results.of_strategy(tmp_path, "oort") == "None are committed yet."
    box = results.in_short(tmp_path, "afl")
    assert box.pop("megabytes").startswith("1.50 times")
    assert box.pop("after equal rounds, papers' setting").startswith("better in 1, worse in 0 of 1 [settings]")
    assert box.pop("at equal megabytes, papers' setting").startswith("better in 0, worse in 1 of 1 [settings]")
    assert not box
    tuned = tmp_path / "results" / "leaderboard" / "gray-1label"
    tuned.mkdir(parents=True)
    (tuned / "README.md").write_text("# Fashion-MNIST, MLP, one label per client\n")
    (tuned / "table.csv").write_text(
        "row,times_random,accuracy_verdict,accuracy_at_equal_megabytes_verdict,accuracy_at_equal_seconds_verdict\n"
        "random,1,,,\nafl,2,worse,worse,better\n"
    )
    box = results.in_short(tmp_path, "afl")
    assert box["megabytes"].startswith("1.50 to 2.00 times") and len(box) == 8
    assert box["after equal rounds"].startswith("better in 0, worse in 1 of 1 [settings with tuned rates]")
    assert box["at equal megabytes"].startswith("better in 0, worse in 1 of 1 ")
    assert box["worse after equal rounds"] == box["better at equal seconds"] == "Fashion-MNIST: one label per client"
    assert list(results.in_short(tmp_path, "oort")) == ["measured"]


def test_every_public_name_is_in_the_reference(tool):
    filled = tool("generated").filled
    text = "".join(
        filled(page.read_text(encoding="utf-8"), pages.ROOT) for page in (pages.ROOT / "docs" / "api").glob("*.md")
    )
    names = re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)
    documented = [name.split(".")[-1] for name in names if name.count(".") == 1]
    assert all(documented.count(name) == 1 for name in fedjax_sel.__all__ if name != "__version__")
    assert all(f"| [`{name}`](" in text for name in fedjax_sel.__all__ if name != "__version__")
    for name in names:
        module, _, attribute = name.rpartition(".")
        try:
            assert hasattr(importlib.import_module(module), attribute) or importlib.import_module(name), name
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("fedjax_sel"):  # else an extra that is not installed
                raise


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason='the site needs pip install -e ".[docs]"')
    pytest.importorskip("mkdocstrings")
    environment = {**os.environ, "PYTHONPATH": str(pages.ROOT)}
    command = [sys.executable, str(pages.ROOT / "tools" / "build_site.py"), "build", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WARNING" not in said and "ERROR" not in said, said
    for name in strategies.names():
        text = (tmp_path / "strategies" / f"{name}.html").read_text(encoding="utf-8")
        assert "<math" in text and "arithmatex" not in text and "<!-- generated" not in text
    front = (tmp_path / "index.html").read_text(encoding="utf-8")
    menu = front.partition("md-nav--primary")[2].partition('class="md-content"')[0]
    assert 'href="results/papers_setting/index.html"' in menu
    outside = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//')
    for page in tmp_path.rglob("*.html"):
        found = outside.search(page.read_text(encoding="utf-8"))
        assert found is None, f"{page} has something fetched from the network: {found[0]}"
