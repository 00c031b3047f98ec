"""`--config FILE`: a run's own config.json, a flat or nested TOML, and what is none."""

import json

import pytest

import fedjax_sel
from fedjax_sel.cli import command_line

NESTED = """
[run]
rounds = 7
seeds = [3, 1]
[training]
local_steps = 2
[selection]
algo = "pow_d"
algo_args = { d = 20 }
"""
FLAT = 'rounds = 7\nseeds = [3, 1]\nlocal_steps = 2\nalgo = "pow_d"\nalgo_args = { d = 20 }\n'


def parse(*arguments):
    return command_line.parse(command_line.make_parser("x", "", ""), arguments)[0]


@pytest.mark.parametrize("text", [NESTED, FLAT])
def test_toml_and_json_and_flags_win(tmp_path, text):
    expected = fedjax_sel.preset("quickstart").replace(
        rounds=7, seeds="3 1", local_steps=2, algo="pow_d", algo_args={"d": 20}
    )
    (tmp_path / "run.toml").write_text(text)
    assert parse("--config", str(tmp_path / "run.toml")) == expected
    (tmp_path / "config.json").write_text(json.dumps(expected.to_json()))
    assert parse("--config", str(tmp_path / "config.json")).fingerprint() == expected.fingerprint()
    assert parse("--config", str(tmp_path / "run.toml"), "--rounds", "9").run.rounds == 9


@pytest.mark.parametrize(
    "name,content,words",
    [
        ("a.toml", "rounds =", "cannot read"),
        ("a.json", "[1, 2]", "instead of settings"),
        ("a.json", '{"ruonds": 3}', "rounds"),
        ("a.json", '{"rounds": "many"}', "many"),
        ("missing.json", None, "cannot read"),
    ],
)
def test_what_is_no_configuration(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(fedjax_sel.UserError, match=words) as caught:
        parse("--config", str(tmp_path / name))
    assert "\n" not in str(caught.value)
