"""Configurations: round trips, precedence, refusals."""

import dataclasses
import json

import numpy as np
import pytest

from fedjax_sel import Config, UserError, preset
from fedjax_sel.config import RunConfig, flat_types
from fedjax_sel.papers import PRESETS
from fedjax_sel.validation import validate


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_survive_json(name):
    config = preset(name)
    validate(config)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_papers_settings():
    fedcor = preset("fedcor/fmnist-1spc")
    flat = fedcor.flat()
    expected = {
        "dataset": "fashion_mnist", "partition": "shards", "shards_per_client": 1, "num_clients": 100,
        "num_selected": 10, "model": "mlp", "model_dropout": 0.5, "local_epochs": 3, "batch_size": 64,
        "learning_rate": 0.005, "learning_rate_milestones": (150, 300), "learning_rate_decay": 0.5,
        "weight_decay": 1e-4, "momentum": 0.0, "rounds": 500, "holdout": 0.2, "seeds": (0, 1, 2, 3, 4),
        "aggregation": "uniform", "eval_every": 1,
    }  # fmt: skip
    assert {name: flat[name] for name in expected} == expected
    assert preset("fedcor/fmnist-2spc").selection.num_selected == 5
    dp3s = preset("fl_dp3s/mnist-xih").flat()
    assert (dp3s["skewness"], dp3s["model"], dp3s["batch_size"], dp3s["momentum"]) == ("H", "cnn_small", 10, 0.5)
    assert (dp3s["aggregation"], dp3s["train_metrics_every"]) == ("samples", 1)
    assert preset("gpfl/fmnist-dir").training.local_steps == 20


def test_every_field_has_a_help_text_and_a_unique_flat_name():
    parts = [field.default_factory if field.default is dataclasses.MISSING else type(field.default)
             for field in dataclasses.fields(Config)]  # fmt: skip
    names = [field.name for part in parts for field in dataclasses.fields(part)]
    assert len(names) == len(set(names)) == len(flat_types())
    assert all(field.metadata["help"] for part in parts for field in dataclasses.fields(part))


def test_steps_and_epochs_displace_one_another():
    config = Config().replace(local_steps=7)
    assert (config.training.local_steps, config.training.local_epochs) == (7, None)
    config = config.replace(local_epochs=2)
    assert (config.training.local_steps, config.training.local_epochs) == (None, 2)
    with pytest.raises(UserError, match="exactly one"):
        validate(Config().replace(local_steps=7, local_epochs=2))


@pytest.mark.parametrize(
    "given,seeds",
    [(3, (0, 1, 2)), ("3", (0, 1, 2)), ([3], (3,)), ("3,", (3,)), ("4 2", (4, 2)), ("4,2", (4, 2)), ((5, 6), (5, 6))],
)
def test_seeds_are_a_count_or_a_list(given, seeds):
    assert Config().replace(seeds=given).run.seeds == seeds


def test_values_are_converted_to_the_fields_type():
    config = Config().replace(rounds="7", alpha=1, skewness=0.8, full_batch="true", algo_args="a=1 b=x", data_dir=None)
    assert config.run.rounds == 7 and isinstance(config.partition.alpha, float)
    assert config.partition.skewness == "0.8" and config.training.full_batch is True
    assert config.selection.algo_args == (("a", "1"), ("b", "x"))


def test_the_fingerprint_tells_what_changes_the_run_from_what_does_not():
    base = Config()
    same = base.replace(out="elsewhere", data_dir="there", target_accuracy=0.5, rounds=3, resume="never", keep=5)
    assert same.fingerprint() == base.fingerprint()
    for name, value in {"available": 0.5, "seeds": 2, "learning_rate": 0.1, "algo": "random", "chunk": 4}.items():
        assert base.replace(**{name: value}).fingerprint() != base.fingerprint()


@pytest.mark.parametrize(
    "wrong",
    [
        {"algo_args": 5}, {"algo_args": None}, {"algo_args": [1]}, {"rounds": float("inf")}, {"rounds": None},
        {"learning_rate": 10**400}, {"learning_rate_milestones": 5.5}, {"learning_rate_milestones": None},
        {"dataset": None}, {"algo": None}, {"seeds": None}, {"seeds": 2.5}, {"full_batch": "perhaps"}, {"rounds": True},
        {"no_such_name": 1},
    ],
    ids=lambda wrong: next(f"{name}={str(value)[:5]}" for name, value in wrong.items()),
)  # fmt: skip
def test_values_of_the_wrong_type_are_refused(wrong):
    with pytest.raises(UserError):
        Config().replace(**wrong)


def test_values_set_past_replace_are_refused_before_anything_runs():
    for run in (RunConfig(rounds="ten"), RunConfig(seeds=2.5), RunConfig(chunk=None)):  # pyright: ignore
        with pytest.raises(UserError):
            validate(Config(run=run))


def test_seeds_and_milestones_from_other_sequences():
    assert Config().replace(seeds=range(3)).run.seeds == (0, 1, 2)
    assert Config().replace(seeds=np.array([4, 5])).run.seeds == (4, 5)
    fedcor = preset("fedcor/fmnist-1spc")
    assert fedcor.replace(learning_rate_milestones="none").training.learning_rate_milestones == ()
