"""`fedjax-sel list`: all there is, whole, at every width."""

import itertools
import typing

import pytest

from fedjax_sel import data, models, papers, strategies, tasks, timing
from fedjax_sel.cli import command_line, listing
from fedjax_sel.config import MODES, ModelConfig, PartitionConfig
from fedjax_sel.data import partition
from fedjax_sel.papers import PRESETS
from fedjax_sel.training import optimizers

NAMES = {
    "strategies": strategies.names(), "optimizers": optimizers.names(), "models": models.names(),
    "datasets": data.names(), "partitions": partition.SCHEMES, "tasks": tuple(tasks.TABLE), "presets": tuple(PRESETS),
    "timing": tuple(timing.TABLE), "availability": MODES,
}  # fmt: skip


def shown(monkeypatch, width, *names):
    monkeypatch.setenv("COLUMNS", str(width))
    return listing.text(names)


def one_line(text):
    return " ".join(text.split())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_cut_and_all_is_wrapped(monkeypatch, width):
    text = shown(monkeypatch, width)
    assert "…" not in text
    words = one_line(text)
    for name in itertools.chain.from_iterable(NAMES.values()):
        assert name in words
    for line in text.splitlines():
        assert len(line) <= width or len(line.split()) <= 2, line  # a word that is longer than the terminal
    for name in strategies.names():
        given = strategies.parameters(name)
        from_preset = [key for key, parameter in given.items() if parameter.default is None and "preset" in given]
        assert not from_preset or f"from preset: {', '.join(from_preset)}" in words
        for key, parameter in given.items():
            if key in from_preset:
                continue
            default = str(parameter.default).lower() if parameter.default is None else parameter.default
            values = [one for kind in (parameter.kind, *typing.get_args(parameter.kind)) for one in _choices(kind)]
            allowed = ", ".join(dict.fromkeys(values))
            assert f"{key}={default} ({allowed}" in words, (name, key)
    for name in PRESETS:
        assert one_line(f"{name} {papers.sentence(name)}") in words


def _choices(kind):
    return map(str, typing.get_args(kind)) if typing.get_origin(kind) is typing.Literal else ()


def test_the_wider_the_fewer_lines(monkeypatch):
    assert len(shown(monkeypatch, 60).splitlines()) > 1.2 * len(shown(monkeypatch, 160).splitlines())


def test_allowed_values_of_partitions_and_models_are_all_there(monkeypatch):
    text = one_line(shown(monkeypatch, 100, "partitions", "models"))
    for kind, name in ((PartitionConfig, "skewness"), (PartitionConfig, "dirichlet_form")):
        assert f"({', '.join(typing.get_args(typing.get_type_hints(kind)[name]))})" in text
    assert set(typing.get_args(typing.get_type_hints(ModelConfig)["model"])) == set(models.names())
    assert "--partition" in text and "--algo" not in text


def test_a_strategy_in_full(monkeypatch):
    """Idea, symbols, what it buys, how it differs, and for each parameter what it is."""
    text = shown(monkeypatch, 120, "fedcor")
    assert text.startswith("--algo fedcor\n") and "Differs from the paper:" in text
    assert "    X         State.embeddings           [d, N]    covariance Sigma" in text
    assert "  anneal: from preset (a number from 0 (excluded) to 1)\n      annealing factor beta, in (0, 1].\n" in text
    assert one_line(text).count("fedcor/fmnist-1spc") == 1 and "See also:" in text
    for key in strategies.parameters("fedcor"):
        assert f"\n  {key}=" in text or f"\n  {key}: from preset" in text


def test_a_symbol_table_keeps_its_columns(monkeypatch):
    text = shown(monkeypatch, 80, "fedcor")
    heading, first = text[text.index("    symbol") :].splitlines()[:2]
    assert heading.index("meaning") == first.index("covariance")


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("name", [name for names in NAMES.values() for name in names])
def test_every_name_has_a_page(monkeypatch, name):
    text = shown(monkeypatch, 80, name)
    first, empty, sentence, *_ = text.splitlines()
    assert first.startswith("--") and first.endswith(f" {name}") and empty == "" and len(sentence) > 10
    assert "Args:" not in text and "\n\n\n" not in text


def test_laws_and_modes_show_their_parameters(monkeypatch):
    section, page = (one_line(shown(monkeypatch, 100, name)) for name in ("timing", "daily"))
    assert "shares=0.06:0.44:0.5 (a text)" in section and "by=label (none, label, size)" in section
    assert page.startswith("--available daily") and "period=24.0 (a number at least 1) rounds per day." in page


def test_a_preset_shows_the_flags_that_it_stands_for(monkeypatch):
    text = shown(monkeypatch, 100, "fl_dp3s/mnist-xih")
    assert "  --skewness H\n" in text and "  --momentum 0.5\n" in text and "--algo" not in text
    flags = [word for line in text.splitlines() if line.startswith("  --") for word in line.split()]
    config, _ = command_line.parse(command_line.make_parser("x", "", ""), flags)
    assert config == PRESETS["fl_dp3s/mnist-xih"]


def test_a_strategy_of_ones_own_in_full(monkeypatch, tmp_path):
    (tmp_path / "listed_plugin.py").write_text(
        '"""Mine: the clients that I like."""\nfrom fedjax_sel.strategies.random import random\n\n\n'
        'def mine(taste: float = 2.0):\n    """Make mine.\n\n    Args:\n        taste: how much I like them.\n    """\n'
        "    return random()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = shown(monkeypatch, 100, "listed_plugin:mine")
    assert "Mine: the clients that I like." in text and "taste=2.0 (a number)\n      how much I like them." in text


def test_paragraphs_keep_tables_and_fill_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    text = "A sentence that is\nin two lines.\n\n    x    [N]   a table\n    y    [K]   another row\n"
    text += "* an item that is long enough to be\n  wrapped here, surely\n* b"
    assert command_line.page(text).splitlines() == [
        "A sentence that is in two lines.", "", "    x    [N]   a table", "    y    [K]   another row",
        "* an item that is long enough to be", "  wrapped here, surely", "* b",
    ]  # fmt: skip
