"""Entries: what they run, what they share, and that every one of them comes to its end."""

import pytest

import fedjax_sel
from fedjax_sel.config import validate
from fedjax_sel.errors import UserError
from studies.papers import page, published, runner
from studies.papers.entries import ENTRIES
from studies.papers.entry import Cell, Part, Scale, folder_of
from tests.studies.papers.small import made_small

WHOLE = Scale()
TRAINED = [name for name, entry in ENTRIES.items() if entry.runs]


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_published_and_has_a_rule(name):
    entry = ENTRIES[name]
    assert entry.name == name == entry.published.id
    assert entry.rule.endswith(".") and entry.cost


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_configurations_are_such_as_can_run(name):
    for config in ENTRIES[name].runs.values():
        assert config.run.out is None
        validate(config)


def test_scale():
    config = fedjax_sel.preset("fedcor/fmnist-1spc")
    assert Scale().apply(config) == config and Scale().whole_rounds and Scale().in_words() == ""
    fifth = Scale(share=0.2)
    assert fifth.apply(config).run.rounds == 100 and not fifth.whole_rounds and fifth.in_words() == "0.2 of the rounds"
    assert Scale(share=1e-9).apply(config).run.rounds == 1
    few = Scale(seeds=(3,), rounds=7)
    assert few.apply(config).run.seeds == (3,) and few.apply(config).run.rounds == 7
    assert few.in_words() == "seed 3; 7 rounds" and not few.whole_rounds
    assert Scale(seeds=(0, 1)).whole_rounds and Scale(seeds=(0, 1), rounds=1).in_words() == "seeds 0, 1; 1 round"


@pytest.mark.parametrize(
    "given,message",
    [
        ({"share": 0.0}, "--scale: 0 is outside 0"),
        ({"share": 1.5}, "--scale: 1.5 is outside 0"),
        ({"share": float("nan")}, "--scale: nan is outside 0"),
        ({"rounds": 0}, "--rounds: 0 is below 1"),
        ({"rounds": 3, "share": 0.5}, "--rounds and --scale"),
    ],
)
def test_a_scale_that_leaves_nothing(given, message):
    with pytest.raises(UserError, match=message):
        Scale(**given)


def test_columns_by_how_they_begin():
    entry = ENTRIES["fedcor/table1"]
    assert entry.of_part(Part()) == entry
    assert entry.of_part(Part(("fmnist",))).columns == ("fmnist-2spc", "fmnist-1spc", "fmnist-dir")
    some = entry.of_part(Part(("cifar10-dir", "fmnist-1")))
    assert set(some.columns) == {"fmnist-1spc", "cifar10-dir"} and len(some.runs) == 12
    with pytest.raises(UserError, match=r"^--columns: fedcor/table1 has no column 'mnist'; it has fmnist-2spc, "):
        entry.of_part(Part(("fmnist", "mnist")))
    with pytest.raises(UserError, match="it has none"):
        ENTRIES["fedgp/fig1"].of_part(Part(("fmnist",)))
    asked = ENTRIES["gpfl/fig3"]
    assert set(asked.columns) - set(asked.of_part(Part()).columns) == set(asked.on_request) == {"femnist", "writers"}
    assert asked.of_part(Part(("femnist",))).columns == ("femnist",)


def test_rows_by_their_names():
    entry = ENTRIES["fedcor/table1"]
    some = entry.of_part(Part(("cifar10-2spc",), ("random", "fedcor")))
    assert list(some.runs) == [Cell("cifar10-2spc", "random"), Cell("cifar10-2spc", "fedcor")]
    assert entry.of_part(Part(rows=("fedcor code-2022",))).columns == entry.columns
    with pytest.raises(UserError, match=r"^--rows: fedcor/table1 has no row 'gpfl'; it has 'random', "):
        entry.of_part(Part(rows=("random", "gpfl")))
    with pytest.raises(UserError, match=r"^--rows: fedcor/fig8 has none of them in these columns; "):
        ENTRIES["fedcor/fig8"].of_part(Part(("cifar10",), ("beta=0.5",)))


def folders(name, tmp_path, scale=WHOLE):
    return {cell: config.run.out for cell, config in runner.configurations(ENTRIES[name], tmp_path, scale).items()}


@pytest.mark.slow
def test_entries_that_need_the_same_run_share_its_folder(tmp_path):
    table, gp = folders("fedcor/table1", tmp_path), folders("fedgp/table1", tmp_path)
    for cell in table:
        if cell.row in ("random", "afl", "pow_d"):
            assert table[cell] == gp[cell]
    assert len(set(table.values())) == len(table)
    intervals, betas = folders("fedcor/fig5", tmp_path), folders("fedcor/fig8", tmp_path)
    main = table[Cell("fmnist-1spc", "fedcor")]
    assert main == intervals[Cell("fmnist-1spc", "interval=10")] == betas[Cell("fmnist-1spc", "beta=0.95")]
    assert main not in (gp[Cell("fmnist-1spc", "fedgp")], intervals[Cell("fmnist-1spc", "interval=20")])
    # on CIFAR-10 the study of the interval anneals by 0.97, and the main comparison by 0.9
    assert table[Cell("cifar10-dir", "fedcor")] != intervals[Cell("cifar10-dir", "interval=50")]
    seen, printed = folders("gpfl/fig4", tmp_path), Cell("fmnist-2spc", "gpfl, Eq. 8 as printed")
    assert seen == folders("gpfl/fig5", tmp_path)
    assert {*seen.values()} - {*folders("gpfl/table2", tmp_path).values()} == {seen[printed]}
    gpfl = folders("gpfl/table2", tmp_path)  # clients differ in their samples under Dir alone
    for column, same in (("fmnist-1spc", True), ("fmnist-2spc", True), ("fmnist-dir", False)):
        assert (gpfl[Cell(column, "random")] == gpfl[Cell(column, "random as published")]) == same
    coherent = Cell("fmnist-2spc", "gpfl, coherent reading")
    assert folders("gpfl/table2", tmp_path)[coherent] in folders("gpfl/fig7", tmp_path).values()


def test_other_lengths_and_seeds_have_other_folders(tmp_path):
    entries = [folders("fedcor/fig4", tmp_path, scale) for scale in (Scale(), Scale(share=0.5), Scale(seeds=(0, 1)))]
    assert not set.intersection(*(set(one.values()) for one in entries))
    config = fedjax_sel.preset("quickstart")
    assert folder_of(tmp_path, config) != folder_of(tmp_path, config.replace(checkpoint_every=10))  # it leaves others
    assert folder_of(tmp_path, config) == folder_of(tmp_path, config.replace(data_dir="elsewhere", out="there"))


def test_every_published_result_has_its_entry():
    assert list(ENTRIES) == list(published.ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_every_entry_at_a_tiny_scale(name, tmp_path):
    entry = made_small(ENTRIES[name])
    pages = []

    def judged(found):
        pages.append(entry.judge(found.results, Scale()))

    found = runner.run(entry, Part(), tmp_path, Scale(rounds=2), lambda line: None, judged)
    assert not found.failed and set(found.results) == set(entry.runs)
    assert pages[-1].rows
    page.write(tmp_path / "page", [f"# {name}"], pages[-1])
    written = {path.name for path in (tmp_path / "page").iterdir()}
    assert written == {"README.md", "rows.csv", *pages[-1].pictures, *pages[-1].tables}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if not entry.of_part(Part()).runs])
def test_what_trains_nothing_is_reproducible(name):
    one, two = (ENTRIES[name].judge({}, Scale()) for _ in range(2))
    assert one.rows and one.rows == two.rows and one.tables == two.tables
