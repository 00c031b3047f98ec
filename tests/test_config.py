"""Configurations: round trips, precedence, refusals."""

import copy
import dataclasses
import json
import typing

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, Experiment, UserError, data, preset
from fedjax_sel.cli import command_line
from fedjax_sel.config import CONCERNS, PartitionConfig, RunConfig, flat_types, ranges, validate
from fedjax_sel.data.partition import SCHEMES
from fedjax_sel.experiment import problem
from fedjax_sel.papers import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_survive_json(name):
    config = preset(name)
    validate(config)
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_every_field_has_a_help_text_and_a_unique_flat_name():
    parts = [field.default_factory if field.default is dataclasses.MISSING else type(field.default)
             for field in dataclasses.fields(Config)]  # fmt: skip
    names = [field.name for part in parts for field in dataclasses.fields(part)]
    assert len(names) == len(set(names)) == len(flat_types())
    assert all(field.metadata["help"] for part in parts for field in dataclasses.fields(part))


def test_every_number_has_a_range():
    """`convert` and `validate` check the others."""
    numbers = {name for name, kind in flat_types().items() if {int, float} & {kind, *typing.get_args(kind)}}
    assert numbers - {name for name, own in ranges().items() if own} == {"local_epochs", "seeds", "seeds_at_once"}


def test_every_field_reads_by_its_flat_name():
    config = Config().replace(algo="pow_d", rounds=7)
    for name, value in config.flat().items():
        if name not in CONCERNS:  # `config.model` and `config.partition` are parts
            assert getattr(config, name) == value
    assert config.algo == "pow_d" and config.model.model == "mlp" and copy.deepcopy(config) == config
    with pytest.raises(AttributeError, match="a configuration has no field 'algorithm'"):
        config.algorithm  # noqa: B018


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
    same = base.replace(
        out="elsewhere", data_dir="there", target_accuracy=0.5, rounds=3, resume="never", keep=5, on_nonfinite="skip"
    )
    assert same.fingerprint() == base.fingerprint()
    for name, value in {"available": 0.5, "seeds": 2, "learning_rate": 0.1, "algo": "random", "chunk": 4}.items():
        assert base.replace(**{name: value}).fingerprint() != base.fingerprint()


OTHER_VALUES = {
    "data_dir": "elsewhere", "loss_on": "all", "shards_per_client": 2, "alpha": 3.0, "skewness": 0.8,
    "skewness_main": "random", "min_client_size": 12, "dirichlet_form": "yurochkin", "batch_size": 7,
    "learning_rate_decay": 0.1, "momentum_buffer": "persistent", "checkpoint_every": 3, "checkpoint_seconds": 1.0,
    "timing_args": {"jitter": 0.1}, "deadline": "q0.5", "over_select": 1.5, "server_seconds": 0.5,
    "available_args": {"share": 0.4}, "start_queries": "available", "classes_per_client": 3, "small_clients": "top-up",
    "noisy_clients": 0.5, "client_sizes": "lognormal:0.5", "privacy_unit": "client",
    "concurrency": 20, "staleness": "hinge", "late_reports": "use",
    "staleness_args": {"a": 1.0}, "max_staleness": 3, "max_seconds": 9.0, "availability_seconds": 5.0,
}  # fmt: skip


def test_values_without_effect_are_not_in_the_fingerprint():
    """Whatever a preset or Config.replace carries: equal experiments are equal."""
    idle = Config().replace(partition="mine:hospitals", full_batch=True, keep=0)
    assert {name for name in flat_types() if not idle.has_effect(name)} == set(OTHER_VALUES)
    carrying = idle.replace(**OTHER_VALUES)
    assert carrying.fingerprint() == idle.fingerprint() and carrying.effective() == idle
    assert Config.from_json(carrying.to_json()) == carrying  # what was given is kept all the same
    for name, needed in {
        "alpha": {"partition": "dirichlet"}, "skewness": {"partition": "skewness"}, "loss_on": {"holdout": 0.2},
        "dirichlet_form": {"partition": "dirichlet"}, "min_client_size": {"partition": "natural"},
        "learning_rate_decay": {"learning_rate_milestones": 5}, "momentum_buffer": {"momentum": 0.5},
        "batch_size": {"full_batch": False}, "shards_per_client": {"partition": "shards"},
        "available_args": {"available": "markov"}, "start_queries": {"available": 0.5},
        "classes_per_client": {"partition": "classes"}, "small_clients": {"partition": "extended_dirichlet"},
        "client_sizes": {"partition": "iid"},
        "noisy_clients": {"label_noise": 0.5},
    }.items():  # fmt: skip
        base = idle.replace(**needed)
        assert base.has_effect(name) and base.replace(**{name: OTHER_VALUES[name]}).fingerprint() != base.fingerprint()


def test_a_parameter_has_one_fingerprint_however_it_is_given():
    typed, text = (
        Config().replace(algo_args=given) for given in ({"pool": 5, "x": 0.5, "y": True}, "pool=5 x=0.5 y=true")
    )
    numpys = Config().replace(algo_args={"pool": np.int64(5), "x": np.float32(0.5), "y": np.bool_(True)})
    assert numpys.fingerprint() == typed.fingerprint() and json.dumps(numpys.to_json()) == json.dumps(typed.to_json())
    assert typed.fingerprint() == text.fingerprint() != Config().replace(algo_args={"pool": 6}).fingerprint()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_said_to_have_no_effect_on_a_partition_has_none(scheme):
    dataset = data.load("synthetic:train_size=600,test_size=20,num_writers=30")
    base = Config().replace(dataset=dataset.name, partition=scheme, num_clients=20, alpha=20.0)
    digest = problem.partitioned(Experiment(base), dataset)[1][0].digest()
    names = {field.name for field in dataclasses.fields(PartitionConfig)} & set(OTHER_VALUES) - {
        "noisy_clients",
        "unseen_clients",
    }
    for name in names:
        try:
            changed = base.replace(**{name: OTHER_VALUES[name]})
            changed = problem.partitioned(Experiment(changed), dataset)[1][0].digest() != digest
        except UserError:  # too few for such values
            changed = True
        assert base.has_effect(name) or not changed, f"{name} has an effect"
        assert changed or not base.has_effect(name) or name in ("min_client_size", "small_clients"), f"{name} has none"


@pytest.mark.slow
def test_what_is_said_to_have_no_effect_on_training_has_none():
    """To the bit, and all at once."""
    base = Config().replace(
        dataset="synthetic:train_size=120,test_size=40", num_clients=6, num_selected=2, local_epochs=1, full_batch=True,
        rounds=2, chunk=2, algo="pow_d",
    )  # fmt: skip
    rejected = {"data_dir", "concurrency"}  # without a data set on disk, and without a clock
    idle = {name: value for name, value in OTHER_VALUES.items() if not base.has_effect(name) and name not in rejected}
    assert {"batch_size", "learning_rate_decay", "momentum_buffer", "loss_on", "alpha"} <= set(idle)
    first, second = fedjax_sel.run(base), fedjax_sel.run(base.replace(**idle))
    np.testing.assert_array_equal(first.cohorts, second.cohorts)
    np.testing.assert_array_equal(first.test_loss, second.test_loss)


def test_a_flag_may_matter_to_one_preset_and_not_to_another():
    parser = command_line.make_parser("x", "", "")
    config, given = command_line.parse(parser, ["--alpha", "0.5"])
    command_line.reject_ineffective(given, [config, preset("fedcor/fmnist-dir")])
    with pytest.raises(
        UserError,
        match=r"--alpha 0.5: .* without --partition dirichlet_qp or dirichlet or extended_dirichlet; add that",
    ):
        command_line.reject_ineffective(given, [config, preset("fedcor/fmnist-1spc")])


@pytest.mark.parametrize(
    "wrong",
    [
        {"self": 1}, {"algo_args": {1: 2, "a": 3}}, {"algo_args": [[["a"], 1]]}, {"algo_args": [[1, 2], ["a", 3]]},
        {"algo_args": 5}, {"algo_args": None}, {"algo_args": [1]}, {"rounds": float("inf")}, {"rounds": None},
        {"learning_rate": 10**400}, {"rounds": "9" * 5000}, {"learning_rate_milestones": 5.5},
        {"learning_rate_milestones": None},
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


def test_a_count_of_seeds_that_is_a_typing_error_is_one_sentence_at_once():
    with pytest.raises(UserError, match=r"--seeds: 1000000000 exceeds the maximum of 10000 seeds; give fewer"):
        Config().replace(seeds=10**9)
