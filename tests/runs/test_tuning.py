"""`fedjax-sel tune`: the space, the trials and their order, going on after a stop, and the final command."""

import json
import math
import re
import shlex
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError
from fedjax_sel.cli import command_line, train, tune
from fedjax_sel.errors import NonFiniteUpdateError
from fedjax_sel.runs import tuning

optuna = pytest.importorskip("optuna")
RATE, EXPLORATION = "learning-rate=log:0.001:1", "exploration=0.5:20"
BASE = fedjax_sel.preset("quickstart").replace(algo="fed_cbs", seeds=(100, 101), tuning_share=0.1, out="out")


def command(capsys, *arguments):
    code = command_line.guarded(tune.main, list(map(str, arguments)))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def made_up(monkeypatch):
    """Runs whose accuracy is highest at a learning rate of 0.1; their configurations, in order."""
    ran = []

    def run(config, progress, further):
        assert progress and config.data.tuning_share == 0.1
        ran.append(config)
        rate = config.training.learning_rate
        if rate > 0.5:
            raise NonFiniteUpdateError("the update of client 3 is not finite; lower --learning-rate")
        curve = np.full((2, 12), 0.9 - abs(math.log10(rate / 0.1)) / 4)
        curve[:, :2] = 0  # not among the last ten
        return SimpleNamespace(measured={"test_accuracy": curve}, test_measure="test_accuracy", finished=True,
                               stopped_by=0)  # fmt: skip

    monkeypatch.setattr(tuning, "run_experiment", run)
    monkeypatch.setattr(tuning, "_check", lambda experiment: None)  # takes longer than all else
    return ran


def searched(trials, higher=True):
    space = tuning.parse_space([RATE, EXPLORATION], BASE)
    return [one._replace(config=None) for one in tuning.search(BASE, space, trials, higher)]


def test_the_first_trial_has_the_defaults_and_the_others_are_in_the_space(made_up):
    first, *others = searched(25)
    assert first.values == {"learning_rate": 0.05, "exploration": 10.0}
    assert made_up[0] == BASE.replace(out="out/trial-001")
    for one, config in zip(others, made_up[1:]):
        rate, exploration = one.values.values()
        assert 0.001 <= rate <= 1 and 0.5 <= exploration <= 20
        assert rate == float(f"{rate:.3g}") == config.training.learning_rate
        assert dict(config.selection.algo_args) == {"exploration": exploration}
        assert bool(one.error) == (rate > 0.5) == math.isnan(one.value)
    assert len({str(one.values) for one in others}) == 24
    late = [abs(math.log10(one.values["learning_rate"] / 0.1)) for one in others[12:]]
    assert np.median(late) < np.median([abs(math.log10(one.values["learning_rate"] / 0.1)) for one in others[:12]])


def test_a_repeated_search_proposes_the_same_values(made_up):
    whole = searched(20)
    assert str(searched(13)) == str(whole[:13])
    assert str(searched(20)) == str(whole)
    assert str(searched(20, higher=False)) != str(whole)


def test_the_space():
    given = ["batch-size=5,10", "num_selected=2:9", "local-epochs=log:1:8", "--momentum=0:0.9", "full-batch=true,false"]
    space = {one.name: one for one in tuning.parse_space(given, BASE)}
    assert space["batch_size"].ends == ("5", "10") and space["num_selected"].ends == (2, 9)
    whole = optuna.distributions.IntDistribution
    assert space["local_epochs"].values == whole(1, 8, log=True) and space["num_selected"].values == whole(2, 9)
    assert space["momentum"].values == optuna.distributions.FloatDistribution(0, 0.9)
    configs = tuning.at_ends(list(space.values()), BASE)
    assert [config.training.full_batch for config in configs[-2:]] == [True, False]
    (one,) = tuning.parse_space(["algo.learning_rate=0.1:1"], BASE.replace(algo="e3cs"))
    assert (one.field, one.parameter, one.default) == ("algo_args", "learning_rate", 0.5)
    (one,) = tuning.parse_space(["mu=log:0.001:1"], BASE.replace(optimizer="fedprox", optimizer_args={"mu": 0.3}))
    assert (one.field, one.default) == ("optimizer_args", 0.3)


@pytest.mark.parametrize("item,near", [
    ("learning-rate=log:0.001:0.1", {0.001: True, 0.0012: True, 0.0013: False, 0.07: False, 0.09: True, 0.5: True}),
    ("momentum=0.1:0.9", {0.1: True, 0.2: False, 0.9: True}),
    ("num-selected=2:4", {2: True, 3: False, 4: True}),
    ("batch-size=10,20", {"10": False}),
])  # fmt: skip
def test_a_value_at_an_end_of_its_range_is_named(item, near):
    (one,) = tuning.parse_space([item], BASE)
    assert {value: one.edge(value) != "" for value in near} == near and one.edge(None) == ""


def test_an_end_that_is_the_parameters_own_limit_is_not_named():
    (one,) = tuning.parse_space(["cut=0.1:1"], BASE.replace(algo="oort"))
    assert one.edge(0.99) == "" and "widen the range" in one.edge(0.1)
    (field,) = tuning.parse_space(["momentum=0:0.9"], BASE)
    assert field.edge(0.0) == "" and "widen the range" in field.edge(0.9)


@pytest.mark.parametrize("given,words", [
    (["--space", "learning-rat=1:2"], "--space: unknown 'learning_rat'; did you mean 'learning_rate'"),
    (["--space", "exploraton=1:2"], "did you mean 'exploration'?"),
    (["--space", "learning-rate=1"], "--space learning-rate=1: is not of the form NAME=LOW:HIGH, "),
    (["--space", "learning-rate"], "is not of the form NAME=LOW:HIGH, "),
    (["--space", "learning-rate=0.1:inf"], "is not of the form NAME=LOW:HIGH, "),
    (["--space", "learning-rate=2:1"], "LOW and HIGH must be numbers, with LOW below HIGH"),
    (["--space", "learning-rate=log:0:1"], "LOW and HIGH must be numbers above 0, with LOW below HIGH"),
    (["--space", "num-selected=2.5:5"], "LOW and HIGH must be whole numbers, with LOW below HIGH"),
    (["--space", "num-selected=5:60"], "--space num_selected, at 60: --num-selected: 60 exceeds the 50 clients"),
    (["--space", "exploration=-1:3"], "exploration=-1.0 of fed_cbs: must be at least 0"),
    (["--space", "batch-size=10,x"], "--space batch_size, at x: --batch-size: 'x' is not a whole number"),
    (["--space", "momentum=0:0.5", "momentum=0:0.9"], "momentum is given twice"),
    (["--space", "batch-size=5,10", "--full-batch"], "--batch-size 5 10: has no effect without --no-full-batch"),
    (["--space", "momentum=0:0.5", "--tuning-share", "0"], "--tuning-share: 0 would tune on the test set"),
    (["--space", "momentum=0:0.5", "--seeds", "3"], "--seeds: 0 is a seed of the final runs"),
    (["--space", "momentum=0:0.5", "--trials", "0"], "--trials: 0 is below 1"),
    (["--space", "seeds=1,2"], "--space: unknown 'seeds'"),
])  # fmt: skip
def test_what_cannot_be_tuned_is_one_sentence(capsys, tmp_path, given, words):
    code, _, err = command(capsys, "--algo", "fed_cbs", *given, "--out", tmp_path / "out")
    assert code == 2 and words in err and err.startswith("error: ") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_without_optuna(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = command(capsys, "--space", RATE, "--out", tmp_path)
    assert (code, err) == (2, 'error: tune: the package optuna is missing; run pip install "fedjax-sel[tune]"\n')


def test_the_command(capsys, tmp_path, made_up):
    given = ["--algo", "fed_cbs", "--space", RATE, EXPLORATION, "full-batch=true,false", "--momentum", "0.5",
             "--trials", "12", "--no-full-batch", "--out", tmp_path]  # fmt: skip
    code, out, err = command(capsys, *given)
    page = (tmp_path / "tuning.md").read_text()
    assert code == 0 and out.startswith(page) and "All trials failed" not in page
    assert len(re.findall(r"^trial \d+ of 12, learning_rate=", err, re.MULTILINE)) == 12
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| \d", line)]
    values = [float(row[-1]) for row in rows if not row[-1].startswith("failed: ")]
    assert len(rows) == 12 and values == sorted(values, reverse=True)
    assert all(row[-1].startswith("failed: ") for row in rows[len(values) :])
    words = shlex.split(page.strip().splitlines()[-1])
    assert words[:2] == ["fedjax-sel", "train"] and not {"--out", "--tuning-share", "--space"} & set(words)
    config, _ = command_line.parse(train.make_parser(), words[2:])
    best = made_up[int(rows[0][0]) - 1]
    assert config == best.replace(seeds=10, tuning_share=0, out=None)
    assert best.training.momentum == 0.5 and f"Best: trial {rows[0][0]}, learning_rate={rows[0][1]}, " in page


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.0, "momentum_buffer": "persistent"},
        {"timing": "tiers", "late_reports": "use"},
        {"full_batch": True, "batch_size": 20},
        {"seeds_at_once": 2},
        {"data_dir": "a folder"},
        {"learning_rate_milestones": (5, 9), "learning_rate_decay": 0.3},
    ],
)
def test_the_final_command_is_accepted(changes):
    """Also where the best trial leaves flags without an effect, which `train` rejects."""
    words = shlex.split(tune._final_command(BASE.replace(**changes), "quickstart"))
    config, flags = command_line.parse(train.make_parser(), words[2:])
    command_line.reject_ineffective(flags, [config])
    expected = BASE.replace(**changes | {"seeds_at_once": None}, seeds=10, tuning_share=0, out=None)
    assert config.meant() == expected.meant()


def test_the_final_command_clears_what_a_preset_has():
    best = fedjax_sel.preset("fedcor/fmnist-1spc").replace(learning_rate_milestones=())
    assert "--learning-rate-milestones none" in tune._final_command(best, "fedcor/fmnist-1spc")
    best = fedjax_sel.preset("fedcor/fmnist-1spc").replace(holdout=0.0, loss_on="train")
    words = shlex.split(tune._final_command(best, "fedcor/fmnist-1spc"))
    config, flags = command_line.parse(train.make_parser(), words[2:])
    command_line.reject_ineffective(flags, [config])
    assert (config.data.holdout, config.data.loss_on) == (0.0, "train")


def test_the_final_command_has_the_values_of_a_configuration_file(capsys, tmp_path, made_up):
    (tmp_path / "my.json").write_text(json.dumps(BASE.replace(momentum=0.5).to_json()))
    given = ["--config", tmp_path / "my.json", "--space", RATE, "--trials", "2", "--out", tmp_path / "found"]
    code, out, err = command(capsys, *given)
    words = shlex.split(out.split("Written to")[0].strip().splitlines()[-1])
    config, _ = command_line.parse(train.make_parser(), words[2:])
    assert code == 0 and config.training.momentum == 0.5, err


def test_all_trials_failed(capsys, tmp_path, made_up):
    code, out, _ = command(capsys, "--space", "learning-rate=0.6:1", "--learning-rate", "0.7", "--trials", "2",
                           "--out", tmp_path)  # fmt: skip
    assert (
        code == 3 and "All trials failed." in out and out.count("failed: the update of client 3 is not finite |") == 2
    )


def test_a_value_that_does_not_suit_the_data_fails_its_trial_only(tmp_path):
    """Only the data tell how many examples the largest client has."""
    base = fedjax_sel.Config().replace(rounds=1, chunk=1, seeds=1, num_clients=50, batch_size=5000, out=str(tmp_path))
    trials = list(tuning.search(base, tuning.parse_space(["batch-size=4000:5000"], base), 2, True))
    assert all(re.match(r"--batch-size: [45]\d{3} exceeds the \d+ training examples", one.error) for one in trials)
    assert len(trials) == 2


@pytest.mark.slow
def test_an_interrupted_search_goes_on_to_the_same_trials(capsys, tmp_path, monkeypatch):
    small = ["--num-clients", "12", "--num-selected", "3", "--rounds", "4", "--chunk", "2", "--seeds", "100,"]
    given = ["--algo", "random", *small, "--space", RATE, "--trials", "3", "--out"]
    assert command(capsys, *given, tmp_path / "whole")[0] == 0
    run, calls = tuning.run_experiment, []

    class Signal:
        def chunk(self, chunk, first):
            if len(calls) == 2:
                signal.raise_signal(signal.SIGINT)

    def interrupted(config, *others, **further):
        calls.append(config)
        return run(config, *others, **further, watching=[Signal()])

    monkeypatch.setattr(tuning, "run_experiment", interrupted)
    code, out, _ = command(capsys, *given, tmp_path / "parts")
    assert code == 130 and "Interrupted: 1 of 3 trials are in" in out and "the same command resumes" in out
    monkeypatch.undo()
    code, out, err = command(capsys, *given, tmp_path / "parts")
    assert code == 0 and "all 4 rounds are finished" in err
    pages = [(tmp_path / name / "tuning.md").read_text().replace(name, "") for name in ("whole", "parts")]
    assert pages[0] == pages[1]
    with pytest.raises(UserError, match="trial-002 has a run with another configuration"):
        tune.main([*given, str(tmp_path / "parts"), "--space", "learning-rate=0.2:0.3"])
