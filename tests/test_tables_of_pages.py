"""Numbers of README, docs and results that name their file are what it holds (tools/tables.py)."""

import json
from pathlib import Path

import pytest

from tests import scripts

ROOT = Path(__file__).parents[1]
tables = scripts.load("tools/tables.py")

CSV = "algo,setting,mean,sd\nrandom,a,0.5,0.01\nfedcor,a,0.6256,0.02\nrandom,b,0.4,\nfedcor,b,N/A,N/A\n"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "r.csv").write_text(CSV)
    (tmp_path / "r.json").write_text(json.dumps({"cases": [{"name": "x", "took": {"ms": 1.25}}, {"name": "y"}]}))
    return tmp_path


@pytest.mark.parametrize("path", tables.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_page_says_what_its_files_hold(path):
    text = path.read_text(encoding="utf-8")
    assert tables.filled(text) == text, "run tools/tables.py"


def test_a_table_of_two_sources(root):
    about = """<!-- table
one = r.csv where setting=a
two = r.csv where setting=b
key algo
only fedcor as FedCor, random
| | a | b |
| {label} | {one.mean:.2f} ± {one.sd:.2f} | {two.mean:.1%} |
-->"""
    expected = "\n| | a | b |\n|---|---|---|\n| FedCor | 0.63 ± 0.02 | N/A |\n| random | 0.50 ± 0.01 | 40.0% |\n"
    page = f"before\n\n{about}\nwhatever stood here\n<!-- end -->\n\nafter <!-- end -->\n"
    assert tables.filled(page, root) == f"before\n\n{about}{expected}<!-- end -->\n\nafter <!-- end -->\n"
    assert tables.filled(tables.filled(page, root), root) == tables.filled(page, root)


def test_rows_of_different_records(root):
    sources = "a = r.csv where algo=random, setting=a\nb = r.csv where algo=fedcor, setting=a"
    page = f"<!-- table\n{sources}\n| | x |\n| one | {{a.mean:.1f}} |\n| two | {{b.mean:.1f}} |\n--><!-- end -->"
    assert tables.filled(page, root).endswith("\n| | x |\n|---|---|\n| one | 0.5 |\n| two | 0.6 |\n<!-- end -->")
    with pytest.raises(tables.WrongBlockError, match="2 lines of the file match"):
        tables.filled(page.replace("b = r.csv where algo=fedcor, setting=a", "b = r.csv where algo=fedcor"), root)


def test_significant_values_are_bold(tmp_path):
    (tmp_path / "v.csv").write_text("row,x_gain,x_verdict\na,0.25,better\nb,-0.5,worse\nc,0.75,not significant\n")
    page = "<!-- table\nv = v.csv\n| | |\n| {v.row} | {v.x_gain*:+.1f}, {v.x_gain:.2f} |\n--><!-- end -->"
    rows = ["| a | **+0.2**, 0.25 |", "| b | **-0.5**, -0.50 |", "| c | +0.8, 0.75 |"]
    assert tables.filled(page, tmp_path).splitlines()[-4:-1] == rows


def test_cells_of_a_record_that_a_file_lacks_are_empty(root):
    sources = "a = r.csv where setting=a\nb = r.csv where setting=b, algo=random"
    cells = "{a.algo} | {a.mean:.1f} | {b.mean:.1f} (of {b.sd})"
    page = f"<!-- table\n{sources}\nkey algo\n| | a | b |\n| {cells} |\n--><!-- end -->"
    assert tables.filled(page, root).splitlines()[-3:-1] == ["| random | 0.5 | 0.4 (of ) |", "| fedcor | 0.6 |  |"]


def test_order_by_a_number(root):
    page = "<!-- table\nr = r.csv where setting=a\nsort -r.mean\n| name |\n| {r.algo} |\n--><!-- end -->"
    assert tables.filled(page, root).endswith("\n| name |\n|---|\n| fedcor |\n| random |\n<!-- end -->")


def test_a_number_in_the_heading(root):
    sources = "r = r.csv where setting=a\none = r.csv where algo=random, setting=a"
    page = f"<!-- table\n{sources}\nkey algo\nonly fedcor\n| {{one.mean:.1f}} |\n| {{r.mean:.1f}} |\n--><!-- end -->"
    assert tables.filled(page, root).endswith("\n| 0.5 |\n|---|\n| 0.6 |\n<!-- end -->")


def test_a_number_in_a_sentence(root):
    page = "It takes <!-- value r.json#cases where name=x: {took.ms:.1f} ms -->9 ms<!-- end --> here."
    filled = tables.filled(page, root)
    assert filled == page.replace("9 ms<", "1.2 ms<")
    (root / "r.json").write_text(json.dumps({"cases": [{"name": "x", "took": {"ms": 3.0}}]}))
    assert tables.filled(filled, root) != filled  # a number that its file no longer holds is found


def test_an_example_is_left_alone(root):
    page = "```\n<!-- value nowhere.csv: {x} -->1<!-- end -->\n```\n`<!-- value nowhere.csv: {x} -->1<!-- end -->`\n"
    assert tables.filled(page, root) == page


def test_what_a_condition_names_may_have_a_comma_and_a_colon(tmp_path):
    (tmp_path / "r.csv").write_text('row,what,n\na,"x, at once: y",1\na,x,2\n')
    page = "<!-- value r.csv where row=a, what=x, at once: y: {n} in all -->1 in all<!-- end -->"
    assert tables.filled(page.replace(">1 in all<", "><"), tmp_path) == page


@pytest.mark.parametrize(
    "block,why",
    [
        ("<!-- value nowhere.csv: {x} -->", "No such file"),
        ("<!-- value r.csv where algo=random: {mean} -->", "2 lines of the file match"),
        ("<!-- value r.csv where algo=afl: {mean} -->", "no line of r.csv matches"),
        ("<!-- value r.csv where algo=fedcor, setting=a: {median} -->", "there is no median"),
        ("<!-- value r.csv {mean} -->", "no ': {'"),
        ("<!-- table\na = r.csv\nb = r.csv\n| x |\n| {a.mean} |\n-->", "several files need a key"),
        ("<!-- table\na = r.csv\nkey algo\n| x |\n| {a.mean} |\n-->", "several lines of one algo"),
        ("<!-- table\na = r.csv\nonce algo\n| x |\n| {a.mean} |\n-->", "not understood: 'once algo'"),
        ("<!-- table\na = r.csv\n| x |\n-->", "two lines that begin with"),
        ("<!-- table\na = r.csv\nkey algo\n| x |\n| 1 |\n| 2 |\n-->", "several rows take no key"),
    ],
)
def test_a_block_that_cannot_be_filled(root, block, why):
    with pytest.raises(tables.WrongBlockError, match=why):
        tables.filled(block + "<!-- end -->", root)
