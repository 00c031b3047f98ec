"""Every block of Python on every page runs, in the page's order, in a folder of its own.

A few pages by default, all of them under `slow`. Some have tests of their own, which also look at what comes out.
"""

import ast
import re
import sys

import pytest

import fedjax_sel
from tests.documents import pages

OWN_TESTS = {
    "docs/add_a_strategy.md": "tests/test_add_a_strategy.py",
    "docs/selector.md": "tests/selector/test_page.py",
    "docs/your_data_in_five_minutes.md": "tests/data/test_your_data_page.py",
    "docs/your_own_data.md": "tests/data/test_your_own_data_page.py",
    "docs/your_own_experiment.md": "tests/test_your_own_experiment_page.py",
}
SMOKE = ("docs/devices.md", "docs/optimizers.md", "docs/statistics.md")  # these train nothing
WITH_PYTHON = [pages.name(page) for page in pages.everywhere() if pages.blocks(page, "python")]


def check_readme(names):
    assert names["comparison"].seeds == 10
    assert names["comparison"].low < names["comparison"].difference < names["comparison"].high
    assert names["ours"].ledger.bytes_down.sum() > names["uniform"].ledger.bytes_down.sum()


def check_tutorial(names):
    assert names["result"].test_accuracy.shape == (3, 30)
    assert names["ledger"].models_down[0, 0] == 50 and (names["ledger"].models_down[0, 1:] == 10).all()


def check_information(names):
    page = (pages.ROOT / "docs" / "information_and_cost.md").read_text(encoding="utf-8")
    assert names["config"].selection.num_selected == 10 and names["config"].partition.num_clients == 50
    assert "`random` sends 10 models down in each of 20 rounds" in page and "`pow_d` asks 20 candidates" in page
    assert names["algo"] == "fl_dp3s" and names["ledger"].models_down[0, 0] == 50


def run_tuned():
    config = fedjax_sel.preset("quickstart").replace(rounds=3, seeds=6)
    for algo, rate in (("random", 0.1), ("fed_cbs", 0.249)):
        fedjax_sel.run(config.replace(algo=algo, learning_rate=rate), out=f"runs/tuned/{algo}")


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_names_of_the_package_that_its_python_uses_exist(page):
    for block in pages.blocks(pages.ROOT / page, "python"):
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedjax_sel"):
                try:
                    exec(ast.unparse(node), {})
                except (fedjax_sel.UserError, ModuleNotFoundError) as error:  # an extra that is not installed
                    assert not str(getattr(error, "name", "")).startswith("fedjax_sel"), error
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fedjax_sel":
                assert hasattr(fedjax_sel, node.attr), node.attr


BEFORE = {  # what the page's commands leave, smaller
    "docs/report_in_a_paper.md": lambda: fedjax_sel.run_comparison(
        ["random", "fed_cbs", "fl_dp3s"], fedjax_sel.preset("quickstart").replace(rounds=3, seeds=6), out="runs/paper"
    ),
    "docs/tune_and_compare.md": run_tuned,
}
CHECKS = {
    "README.md": check_readme,
    "docs/tutorial.md": check_tutorial,
    "docs/information_and_cost.md": check_information,
    "docs/statistics.md": lambda names: names["comparison"].verdict == "better" or pytest.fail("the page says: better"),
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page in SMOKE else pytest.mark.slow)
        for page in WITH_PYTHON
        if page not in OWN_TESTS
    ],
)
def test_its_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    if page in BEFORE:
        BEFORE[page]()
    try:
        names = pages.run(pages.blocks(page, "python"))
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("fedjax_sel", "jax", "numpy"):
            raise
        pytest.skip(f"the page needs {error.name}, an extra that is not installed")
    except fedjax_sel.UserError as error:
        if not re.search(r"the package \w+ is missing; pip install", str(error)):
            raise
        pytest.skip(f"an extra that is not installed: {error}")
    if page in CHECKS:
        CHECKS[page](names)


def test_pages_with_tests_of_their_own_have_them():
    for page, test in OWN_TESTS.items():
        assert page in WITH_PYTHON and page.split("/")[1] in (pages.ROOT / test).read_text(encoding="utf-8")


def test_a_page_that_is_wrong_is_found_with_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n```python\nx = 1\n```\n\nSave this as `kept.py`:\n\n```python\ny = 2\n```\n\n```python\nx / 0\n```\n"
    )
    found = pages.blocks(page, "python")
    assert [(block.line, block.saved_as) for block in found] == [(4, None), (10, "kept.py"), (14, None)]
    with pytest.raises(ZeroDivisionError) as error:
        pages.run([found[0], found[2]])
    assert error.traceback[-1].lineno + 1 == 14 and error.traceback[-1].path == page
