"""Experiments of values: what may be given, what is refused, and that names and values give the same experiment."""

import dataclasses
import functools
import pickle
import shutil

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Dataset, Experiment, UserError, callbacks, models, strategies, tasks
from fedjax_sel.config import VALUES, Config
from fedjax_sel.experiment import problem
from fedjax_sel.models import Weights
from fedjax_sel.runs import checkpoint, sweep
from fedjax_sel.runs import experiment as writer
from fedjax_sel.simulation import run
from fedjax_sel.strategies.facts import ALL, Request, at_start
from fedjax_sel.training import optimizers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(130, 6)).astype(np.float32)
Y = (X @ RNG.normal(size=6)).astype(np.float32)
DATA = Dataset.from_arrays(train=(X[:100], Y[:100]), test=(X[100:], Y[100:]), name="patients")
PARTS = [list(range(first, 100, 5)) for first in range(5)]


class Net(nn.Module):
    """With everything that a module can carry."""

    momentum: float = 0.9
    rate: float = 0.2

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.BatchNorm(use_running_average=not train, momentum=self.momentum)(nn.Dense(8)(x))
        return nn.Dense(1)(nn.Dropout(self.rate, deterministic=not train)(nn.relu(x)))[:, 0]


class Wide(nn.Module):
    """Made for images."""

    @nn.compact
    def __call__(self, x):
        b, h, w, c = x.shape
        return nn.Dense(1)(x.reshape(b, h * w * c))[:, 0]


def right(prediction, targets):
    return jnp.abs(prediction - targets) < 0.1


def own_task(**parts):
    return tasks.regression()._replace(**parts)


def of(**changes):
    parts = {"dataset": DATA, "partition": PARTS, "model": Net(), "task": "regression", "algo": "random"}
    settings = {"num_selected": 2, "rounds": 3, "chunk": 1, "local_steps": 2, "batch_size": 5, "learning_rate": 0.05}
    settings["train_metrics_every"] = 3
    return Experiment.of(**{**parts, **settings, **changes})


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A finished run, and its folder."""
    out = tmp_path_factory.mktemp("values") / "run"
    return fedjax_sel.run(of(names={"model": "net-1"}), out=str(out)), out


# ---- what comes out ----


@pytest.mark.slow
def test_a_result_is_named_after_its_task(kept):
    result, _ = kept
    assert list(result.measured) == [
        "test_absolute_error", "test_loss", "train_absolute_error", "train_loss", "worst_decile_absolute_error",
        "gini_absolute_error", "jain_absolute_error", "undefined_clients", "gemd", "test_squared_error",
    ]  # fmt: skip
    np.testing.assert_allclose(result.test_squared_error, result.test_loss, rtol=1e-5)
    assert not result.higher_is_better and np.isnan(result.gemd).all()
    below = result.measured["test_absolute_error"][0]
    assert result.rounds_to_target(float(below[1]))[0] == np.flatnonzero(below <= below[1])[0] + 1
    with pytest.raises(AttributeError, match="no 'test_accuracy'; its measures are test_absolute_error"):
        _ = result.test_accuracy


@pytest.mark.slow
def test_the_folder_gives_the_same_with_its_weights(kept):
    result, out = kept
    for again in (fedjax_sel.load(str(out)), fedjax_sel.run(of(names={"model": "net-1"}), out=str(out))):
        assert again.measured.keys() == result.measured.keys() and not again.higher_is_better
        for name, values in result.measured.items():
            np.testing.assert_array_equal(again.measured[name], values)
        chex.assert_trees_all_equal(again.params, dict(result.params))
    found = again.model.apply(again.weights_of(0), X[100:], None).prediction  # what `run` read is as what it ran
    np.testing.assert_allclose(found, result.model.apply(result.weights_of(0), X[100:], None).prediction, rtol=1e-6)
    prediction = result.model.apply(result.weights_of(0), X[100:], None).prediction
    np.testing.assert_allclose(np.mean((prediction - Y[100:]) ** 2), result.test_loss[0, -1], rtol=1e-5)
    variables = {"params": jax.tree.map(lambda leaf: leaf[0], again.params), **result.weights_of(0).carried}
    np.testing.assert_allclose(Net().apply(variables, X[100:]), prediction, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_weights_of_the_rounds_before_are_not_those_of_a_run_that_goes_on(kept, tmp_path):
    out = shutil.copytree(kept[1], tmp_path / "run")
    longer = of(names={"model": "net-1"}, rounds=9)
    unfinished = fedjax_sel.run(longer, out=str(out), callbacks=[callbacks.StopAtTarget(1e9)])
    assert not unfinished.finished
    chex.assert_trees_all_equal(fedjax_sel.load(out).params, dict(unfinished.params))
    result = fedjax_sel.run(longer, out=str(out))
    again = fedjax_sel.load(str(out))
    chex.assert_trees_all_equal(again.params, dict(result.params))
    assert (again.params["Dense_1"]["kernel"] != kept[0].params["Dense_1"]["kernel"]).any()


@pytest.mark.slow
def test_weights_of_fewer_rounds_do_not_outlive_the_run_that_went_on(kept, tmp_path, monkeypatch):
    """A process that dies between the last rounds and their weights leaves those of no other round."""
    out = shutil.copytree(kept[1], tmp_path / "run")
    longer = of(names={"model": "net-1"}, rounds=9)

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer.Writer, "end", die)
        with pytest.raises(KeyboardInterrupt):
            fedjax_sel.run(longer, out=str(out))
    assert fedjax_sel.load(str(out)).weights is None
    fedjax_sel.run(longer, out=str(out))
    expected = fedjax_sel.run(longer)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)  # two programs, of other chunks
    jax.tree.map(close, fedjax_sel.load(str(out)).params, dict(expected.params))


def test_weights_find_their_places_by_name():
    """A file has them in the order of its text: "10" before "2"."""
    own = Weights([np.full(2, place) for place in range(12)], ())
    read = Weights({str(place): own.trained[place] for place in sorted(range(12), key=str)}, ())
    found = checkpoint.like(own, read)
    assert isinstance(found.trained, list) and [int(leaf[0]) for leaf in found.trained] == list(range(12))
    with pytest.raises(
        UserError, match=r"^the weights do not match this model: 'trained/11' is missing in one of them"
    ):
        checkpoint.like(Weights(own.trained[:11], ()), read)


@pytest.mark.parametrize("damage", ["cut", "another run's"])
def test_weights_that_are_not_the_runs_are_refused(kept, tmp_path, damage):
    out = shutil.copytree(kept[1], tmp_path / "run")
    if damage == "cut":
        (out / "params.npz").write_bytes((out / "params.npz").read_bytes()[:-100])
    else:
        with np.load(out / "params.npz") as arrays:
            np.savez(out / "params.npz", **{name: array + 1 for name, array in arrays.items()})
    with pytest.raises(UserError, match=r"params.npz: the weights were changed, .*; restore the file"):
        fedjax_sel.load(str(out))


@pytest.mark.parametrize("name", ["params.npz", "result.json"])
def test_without_weights_or_their_digest_a_result_has_none(kept, tmp_path, name):
    out = shutil.copytree(kept[1], tmp_path / "run")
    (out / name).unlink()
    assert fedjax_sel.load(str(out)).weights is None


def test_a_finished_run_with_other_weights_is_not_called_finished(kept, tmp_path):
    out = shutil.copytree(kept[1], tmp_path / "run")
    with np.load(out / "params.npz") as arrays:
        np.savez(out / "params.npz", **{name: array + 1 for name, array in arrays.items()})
    with pytest.raises(UserError, match=r"params.npz: the weights were changed, because their SHA-256 is not"):
        fedjax_sel.run(of(names={"model": "net-1"}), out=str(out))


def test_how_each_client_fares(kept):
    found = fedjax_sel.per_client(kept[0], of())
    assert found["loss"].shape == (1, 5)
    predicted = np.asarray(kept[0].model.apply(kept[0].weights_of(0), X[:100], None).prediction)
    errors = np.abs(predicted - Y[:100])
    np.testing.assert_allclose(found["absolute_error"][0], [errors[part].mean() for part in PARTS], rtol=1e-4)
    np.testing.assert_allclose(found["absolute_error"].mean(), kept[0].train_absolute_error[0, -1], rtol=1e-4)


def test_a_table_for_pandas(kept):
    pandas = pytest.importorskip("pandas")
    table = kept[0].to_pandas()
    assert isinstance(table, pandas.DataFrame) and len(table) == 3 and table["bytes_up"].sum() > 0


# ---- batch statistics ----


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["fedavg", "fedadam", "scaffold"])
def test_batch_statistics_are_averaged_whatever_the_servers_optimizer(optimizer):
    """One step a client without dropout: each client's statistics are those of its batch, and the mean is by hand."""
    posed = problem.pose(of(optimizer=optimizer, model=Net(rate=0.0), local_steps=1, batch_size=20, rounds=1))
    program = run.prepare(posed)
    before = jax.device_get(program.carry.params)
    carry, records = program.chunk(program.carry, np.int32(0), program.federation, program.streams)
    after, cohort = jax.device_get(carry.params), np.asarray(records.cohort)[0, 0]
    kernel, bias = (before.trained["Dense_0"][name][0] for name in ("kernel", "bias"))
    hidden = [X[np.asarray(PARTS[client])] @ kernel + bias for client in cohort]
    for name, of_client in (("mean", np.mean), ("var", np.var)):
        old = before.carried["batch_stats"]["BatchNorm_0"][name][0]
        new = np.mean([0.9 * old + 0.1 * of_client(values, axis=0) for values in hidden], axis=0)
        np.testing.assert_allclose(after.carried["batch_stats"]["BatchNorm_0"][name][0], new, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_running_variances_stay_positive_where_a_cohort_weighs_more_than_everybody():
    parts = [list(range(60)), *(list(range(first, 100, 4)) for first in range(60, 64))]
    narrow = Dataset.from_arrays(train=(X[:100] / 10, Y[:100]), test=(X[100:] / 10, Y[100:]))
    settings = {"dataset": narrow, "partition": parts, "aggregation": "unbiased", "model": Net(momentum=0.5)}
    result = fedjax_sel.run(of(**settings, learning_rate=0.001))
    variance = result.weights_of(result.seeds[0]).carried["batch_stats"]["BatchNorm_0"]["var"]
    assert (variance > 0).all() and np.isfinite(result.test_loss).all()


@pytest.mark.slow
def test_a_model_that_says_how_it_lies_on_devices_is_one_that_does_not():
    class Laid(nn.Module):
        boxed: bool

        @nn.compact
        def __call__(self, x):
            kernel = nn.initializers.lecun_normal()
            return nn.Dense(1, kernel_init=nn.with_partitioning(kernel, (None, "m")) if self.boxed else kernel)(x)[:, 0]

    plain, boxed = (fedjax_sel.run(of(model=Laid(boxed), rounds=1)) for boxed in (False, True))
    chex.assert_trees_all_equal(plain.params, boxed.params)  # of one structure


def test_what_a_model_carries_is_billed(kept):
    result, _ = kept
    trained, carried = 6 * 8 + 8 + 8 + 8 + 8 + 1, 16
    assert (result.model.num_params, result.model.num_carried, result.model.profile_size) == (trained, carried, 8)
    np.testing.assert_array_equal(result.ledger.bytes_up, 2 * 4 * (trained + carried))


# ---- values in the place of names ----


@pytest.mark.slow
def test_named_parts_as_values_give_the_same_bits():
    settings = {"num_clients": 10, "num_selected": 3, "rounds": 3, "local_steps": 2, "chunk": 3}
    named = Config().replace(algo="fl_dp3s", optimizer="fedprox", **settings)
    posed = problem.pose(named)
    values = Experiment.of(
        dataset=posed.dataset, partition=posed.partitions[0], algo=strategies.make("fl_dp3s"),
        optimizer=optimizers.make("fedprox"), task=tasks.classification(), **settings,
    )  # fmt: skip
    one, two = fedjax_sel.run(named), fedjax_sel.run(values)
    np.testing.assert_array_equal(one.cohorts, two.cohorts)
    np.testing.assert_array_equal(one.test_loss, two.test_loss)
    chex.assert_trees_all_equal(one.params, two.params)


@pytest.mark.slow
def test_functions_are_models():
    made = models.from_functions(
        lambda key: {"w": 0.1 * jax.random.normal(key, (6,))}, lambda params, x: x @ params["w"], name="line"
    )
    result = fedjax_sel.run(of(model=made, rounds=20, chunk=20, learning_rate=0.1))
    assert result.test_loss[0, -1] < 0.3 * result.test_loss[0, 0]
    with pytest.raises(UserError, match="requests profiles, but no fully-connected layer was found in line"):
        problem.pose(of(model=made, algo="fl_dp3s"))


@pytest.mark.slow
def test_who_can_be_reached_as_a_table():
    there = np.ones((3, 5), bool)
    there[:, :3] = False
    assert set(fedjax_sel.run(of(available=there)).cohorts.ravel()) <= {3, 4}
    with pytest.raises(UserError, match="table covers 5 clients and 3 rounds, but the run has 5 clients and 4 rounds"):
        problem.pose(of(available=there, rounds=4))


@pytest.mark.parametrize("field", VALUES)
def test_a_configuration_says_where_values_go(field):
    with pytest.raises(UserError, match=rf"a value of type Net is not a name; pass it to .*\({field}="):
        Config().replace(**{field: Net()})
    with pytest.raises(UserError, match=f"{field}: a value of type object|{field}: <object"):
        Experiment.of(**{field: object()})


def sloped(*, slope: float = 1.0):
    return tasks.regression()._replace(name="sloped", losses=lambda p, t: slope * (p - t) ** 2)


def patients():
    return DATA


def every_fifth(*, clients: int = 5):
    return lambda dataset, num_clients, seed: [list(range(first, 100, clients)) for first in range(clients)]


def net(*, rate: float = 0.2):
    return Net(rate=rate)


def test_plugins_for_every_part():
    here = __name__
    config = Config().replace(
        model=f"{here}:net", model_args={"rate": "0.0"}, dataset=f"{here}:patients", partition=f"{here}:every_fifth",
        task=f"{here}:sloped", task_args={"slope": "2"}, num_clients=5, num_selected=2, local_steps=1, batch_size=5,
    )  # fmt: skip
    posed = problem.pose(config)
    assert posed.model.name == "Net" and posed.task.name == "sloped" and posed.dataset is DATA
    assert float(posed.task.losses(jnp.array([3.0]), jnp.array([1.0]))[0]) == 8.0
    np.testing.assert_array_equal(posed.partitions[0].indices[1], PARTS[1])


@pytest.mark.slow
def test_a_folder_knows_that_less_is_better(tmp_path):
    """Of a plug-in's task, too, whose name says nothing."""
    config = Config().replace(
        model=f"{__name__}:net", dataset=f"{__name__}:patients", partition=f"{__name__}:every_fifth",
        task=f"{__name__}:sloped", num_clients=5, num_selected=2, local_steps=1, batch_size=5, rounds=2, chunk=1,
    )  # fmt: skip
    result = fedjax_sel.run(config, out=str(tmp_path / "run"))
    (tmp_path / "run" / "result.json").unlink()  # then the checkpoint says so
    for again in (fedjax_sel.load(str(tmp_path / "run")), fedjax_sel.run(config, out=str(tmp_path / "run"))):
        assert not again.higher_is_better and not result.higher_is_better


# ---- callbacks ----


class Watcher:
    def __init__(self, fails=False):
        self.seen, self.fails = [], fails

    def start(self, config, rounds):
        self.seen.append(("start", rounds))

    def chunk(self, rounds, first):
        if self.fails and first == 1:
            raise RuntimeError("disk of my own is full")
        self.seen.append((first, rounds.num_rounds))

    def end(self, result):
        self.seen.append(("end", result.num_rounds))


@pytest.mark.slow
def test_callbacks_change_nothing_and_see_everything(kept):
    watcher = Watcher()
    result = fedjax_sel.run(of(), callbacks=watcher)
    assert watcher.seen == [("start", 0), (0, 1), (1, 1), (2, 1), ("end", 3)]
    np.testing.assert_array_equal(result.test_loss, kept[0].test_loss)


@pytest.mark.slow
def test_a_callback_that_raises_ends_the_run_which_goes_on_later(kept, tmp_path):
    out = str(tmp_path / "run")
    settings = {"names": {"model": "net-1"}, "checkpoint_every": 1}
    with pytest.raises(RuntimeError, match="disk of my own"):
        fedjax_sel.run(of(**settings), out=out, callbacks=[Watcher(fails=True)])
    watcher = Watcher()
    result = fedjax_sel.run(of(**settings), out=out, callbacks=[watcher])
    assert watcher.seen[0][1] > 0
    np.testing.assert_array_equal(result.test_loss, kept[0].test_loss)


@pytest.mark.slow
def test_a_target_ends_a_run(kept, tmp_path):
    target = float(kept[0].test_absolute_error[0, 0])
    result = fedjax_sel.run(of(rounds=9), callbacks=[callbacks.StopAtTarget(target)])
    assert result.num_rounds == 2 and not result.finished  # the device is one chunk ahead


@pytest.mark.parametrize("task", ["classification", "multilabel", "next_token"])
@pytest.mark.parametrize("target", [90, 0, -0.5])
def test_a_target_that_is_no_share(target, task):
    with pytest.raises(UserError, match=rf"StopAtTarget: {target} is not in .0, 1.; give an accuracy such as 0.62"):
        callbacks.StopAtTarget(target).start(fedjax_sel.Config().replace(task=task), 0)
    callbacks.StopAtTarget(target).start(fedjax_sel.Config().replace(task="regression"), 0)


@pytest.mark.parametrize("field", ["out", "data_dir"])
@pytest.mark.parametrize("value", [3, b"runs", True])
def test_a_folder_that_is_no_path(field, value):
    with pytest.raises(UserError, match=rf"--{field.replace('_', '-')}: {value!r} is not a path; give a str"):
        fedjax_sel.Config().replace(**{field: value})


@pytest.mark.parametrize("table", [
    np.full((3, 5), 0.5), np.full((3, 5), np.nan), np.ones(5),
])  # fmt: skip
def test_a_table_of_availability_that_is_none(table):
    with pytest.raises(UserError, match=r"available: .* is not a table of 0 and 1, rounds by clients") as caught:
        of(available=table)
    assert "\n" not in str(caught.value)


def test_an_availability_that_reaches_no_client():
    there = np.zeros((5, 5), bool)
    there[4] = True  # after the last round
    with pytest.raises(UserError, match="available: no client is available in any of the 3 rounds; mark"):
        problem.pose(of(available=there, rounds=3))


@pytest.mark.slow
def test_a_target_that_was_reached_before_a_run_went_on(tmp_path):
    class Reached:
        def __init__(self, *rounds):
            self.rounds_to_target = lambda target: np.array(rounds)

    stop = callbacks.StopAtTarget(0.5)
    stop.start(fedjax_sel.Config(), 2)
    assert not stop.chunk(Reached(np.nan, 1.0), 2)
    stop.start(fedjax_sel.Config(), 2)
    stop.resume(Reached(2.0, np.nan))
    assert stop.chunk(Reached(np.nan, 1.0), 2)

    class Behind:
        def resume(self, earlier):
            self.losses = earlier.test_loss

    settings, out = {"names": {"model": "net-1"}}, str(tmp_path / "run")
    early = fedjax_sel.run(of(rounds=9, **settings), out=out, callbacks=callbacks.StopAtTarget(np.inf))
    behind = Behind()
    whole = fedjax_sel.run(of(rounds=9, **settings), out=out, callbacks=behind)
    assert early.num_rounds == 2 and whole.finished
    np.testing.assert_array_equal(behind.losses, early.test_loss)


@pytest.mark.slow
def test_a_target_that_was_reached_ends_every_later_start_at_once(tmp_path):
    settings, out = {"names": {"model": "net-1"}}, str(tmp_path / "run")
    first, again = (
        fedjax_sel.run(of(rounds=9, **settings), out=out, callbacks=callbacks.StopAtTarget(np.inf)) for _ in range(2)
    )
    assert first.num_rounds == again.num_rounds == 2 and not again.finished
    np.testing.assert_array_equal(first.test_loss, again.test_loss)
    chex.assert_trees_all_equal(dict(again.params), dict(first.params))
    assert fedjax_sel.load(out).num_rounds == 2


@pytest.mark.slow
def test_callbacks_hear_of_the_error_that_ends_a_run():
    class Heard:
        def __init__(self):
            self.errors = []

        def fail(self, error):
            self.errors.append(error)
            raise OSError("is not heard")

    first, last = Heard(), Heard()
    with pytest.raises(RuntimeError, match="disk of my own") as found:
        fedjax_sel.run(of(), callbacks=[first, Watcher(fails=True), last])
    assert first.errors == last.errors == [found.value]
    fedjax_sel.run(of(rounds=1), callbacks=first)
    assert len(first.errors) == 1


def test_what_is_no_callback_is_refused():
    with pytest.raises(
        UserError,
        match="callbacks: a value of type int has none of the methods start, resume, chunk, snapshot, end, fail",
    ):
        fedjax_sel.run(of(), callbacks=[3])


def test_a_result_comes_from_another_process(kept):
    result, _ = kept
    sent = pickle.loads(pickle.dumps(result))
    assert sent.model is None and sent.config == result.config and sent.seeds == result.seeds
    chex.assert_trees_all_equal(sent.weights, result.weights)
    np.testing.assert_array_equal(sent.test_absolute_error, result.test_absolute_error)


# ---- replaced, and compared ----


def test_a_name_takes_the_place_of_a_value():
    """Else the folder would be called after the one, and hold the other."""
    own = strategies.make("pow_d", num_candidates=3)
    made = of(algo=own, available=np.ones((3, 5)), optimizer=optimizers.make("fedyogi"))
    assert made.strategy is own and made.replace(rounds=2).strategy is own
    assert made.replace(algo="random").strategy is None
    named = made.replace(algo="random", available=0.5, optimizer="fedavg")
    assert (named.strategy, named.available, named.optimizer) == (None, None, None)
    assert problem.pose(named).strategy.name == "random"
    again = named.replace(algo=own, names={"algo": "mine"})
    assert again.strategy is own and again.config.selection.algo == "value:mine"


@pytest.mark.slow
def test_strategies_are_compared_on_what_is_given_as_values(tmp_path):
    """As single runs give it, in a table with the measure of the task; and read the second time."""
    experiment = of(names={"model": "net-1"}, seeds=2)
    few, many = (strategies.make("pow_d", num_candidates=number) for number in (3, 4))
    found = fedjax_sel.run_comparison(["random", few, many], experiment, out=tmp_path)
    assert found.rows[0].algo == "random" and len({row.algo for row in found.rows}) == 3
    assert all(row.algo.startswith("pow_d-") for row in found.rows[1:])
    for row, algo in zip(found.rows, ("random", few, many)):
        alone = fedjax_sel.run(experiment.replace(algo=algo))
        np.testing.assert_array_equal(found.result(row.algo).cohorts, alone.cohorts)
        np.testing.assert_array_equal(found.result(row.algo).test_absolute_error, alone.test_absolute_error)
    text = found.as_markdown()
    assert "patients (given arrays), by-hand; 5 clients" in text and "test absolute error" in text
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.csv")}
    both = {"whole": experiment, "config": fedjax_sel.preset("quickstart").replace(rounds=1, seeds=2, num_selected=2)}
    again = fedjax_sel.run_comparison(["random", few, many], experiment, out=tmp_path)
    assert again.finished and {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.csv")} == written
    yogi = optimizers.make("fedyogi")
    found = fedjax_sel.run_comparison(few, both, out=tmp_path / "both", optimizers=["fedavg", yogi])
    assert [(row.setting, row.optimizer, row.algo) for row in found.rows] == [
        (setting, optimizer, "pow_d") for setting in both for optimizer in ("fedavg", "fedyogi")
    ]


# ---- refusals ----


@pytest.mark.parametrize("wrong", ["quickstart", {}, None])
def test_what_is_no_experiment(wrong):
    with pytest.raises(
        UserError, match=r"^config: .* is not a configuration; give one, such as fedjax_sel\.preset\('quick"
    ):
        fedjax_sel.run(wrong, out="runs/x")
    if wrong is not None:
        with pytest.raises(UserError, match="is not a configuration; give one"):
            Experiment.of(wrong)


def test_a_callback_that_is_a_class():
    with pytest.raises(UserError, match=r"callbacks: StopAtTarget is a class; give an instance, StopAtTarget\("):
        fedjax_sel.run(of(), callbacks=[callbacks.StopAtTarget])


@pytest.mark.parametrize("seeds", [b"3", None, 2.5])
def test_seeds_that_are_no_numbers(seeds):
    with pytest.raises(UserError, match=r"--seeds: .* is not a whole number"):
        of(seeds=seeds)


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"model": object()}, "model: a value of type object is not a flax.linen or NNX module"),
        ({"dataset": {"x": X}}, "dataset: a value of type dict is neither a name nor a fedjax_sel.data.Dataset"),
        ({"algo": Net()}, "algo: a value of type Net is neither a name nor"),
        ({"partition": object()}, "partition: a value of type object is not a Partition"),
        ({"partition": [[0, 1], [1, 700]]}, "700"),
        ({"partition": lambda *_: 3}, "the function returned a value of type int"),
        ({"partition": PARTS, "num_clients": 4, "num_selected": 2}, "has 5 clients, but num_clients is 4"),
        ({"task": "classification"}, "are not one class per example"),
        ({"task": "next_token"}, "needs integer tokens"),
        ({"task": tasks.regression()._replace(losses=lambda p, t: ((p - t) ** 2).mean())}, "one float32 number each"),
        ({"model": nn.Dense(3)}, "predictions of the targets' shape"),
        ({"model": "mlp"}, r"gives float32\[B, 1\] for float32\[B\] \(use targets\[:, None\]\)"),
        ({"model": "cnn"}, r"'cnn' needs images of at least 18x18 pixels, but an input is \(6,\); choose --model mlp"),
        ({"model": "char_lstm"}, "reads sequences of characters"),
        ({"algo": "gpfl", "server_validation": 0.001}, "server-validation"),
        ({"task": own_task(measures=())}, "invalid names of measures \\(none\\)"),
        ({"task": own_task(measures=(tasks.Measure("loss", right),))}, "invalid names of measures \\(loss\\)"),
        ({"task": own_task(measures=(tasks.Measure("a", right),) * 2)}, "invalid names of measures \\(a, a\\); give"),
        ({"task": own_task(measures=(tasks.Measure("a", lambda p, t: right(p, t).mean()),))}, "measure 'a' returns"),
        ({"task": own_task(measures=(tasks.Measure("a", lambda p, t: p.missing),))}, "measure 'a' failed on"),
        ({"model": models.from_functions(lambda key: {"w": jnp.ones(6)}, lambda w, x: (x,))}, "complaint failed on"),
        ({"model": models.from_functions(lambda key: {}, lambda w, x: x)}, "functions has no parameters, so there is"),
        ({"model": models.from_functions(lambda key: {}, lambda w, x: w["b"])}, r"cannot process inputs .* \(KeyErr"),
        ({"model": Wide()}, r"model Wide: cannot process inputs of shape \(6,\) \(ValueError: not enough values"),
        ({"model": models.from_flax(Net()).build(jax.ShapeDtypeStruct((2, 9), jnp.float32))},
         r"model Net: cannot process inputs of shape \(6,\) \(ScopeParamShapeError: "),
        ({"names": {"modle": "x"}}, "names: 'modle' is not given as a value"),
        ({"out": "runs/x"}, "model: the value has no name"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(changes, words):
    with pytest.raises(UserError, match=words) as caught:
        problem.pose(of(**changes))
    assert "\n" not in str(caught.value)


LETTERS = RNG.integers(7, size=(40, 6)).astype(np.int32)


@pytest.mark.parametrize(
    "targets,task,model,words",
    [
        (LETTERS, "next_token", nn.Embed(5, 5), "needs tokens below 5, .*, but one token is 6"),
        (LETTERS % 2 * 2 - 1, "multilabel",
         models.from_functions(lambda key: {"w": jnp.ones(6)}, lambda w, x: w["w"] * x),
         "needs labels that are 0 or 1, but one label is -1"),
        (LETTERS[:, 0] % 2, "classification", "char_lstm", "contain 6, but the model reads characters 0 to 1"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_learned_are_one_sentence(targets, task, model, words):
    data = Dataset.from_arrays(train=(LETTERS[:30], targets[:30]), test=(LETTERS[30:], targets[30:]))
    with pytest.raises(UserError, match=words):
        problem.pose(of(dataset=data, partition="iid", num_clients=3, task=task, model=model, names={}))


def test_a_padded_text_is_not_read_as_its_last_character():
    padded, labels = np.where(LETTERS == 0, -1, LETTERS), LETTERS[:, 0] % 7
    data = Dataset.from_arrays(train=(padded[:30], labels[:30]), test=(padded[30:], labels[30:]), num_classes=7)
    with pytest.raises(UserError, match="contain -1, but the model reads characters 0 to 6"):
        problem.pose(
            of(dataset=data, partition="iid", num_clients=3, task="classification", model="char_lstm", names={})
        )


def test_tokens_of_the_servers_examples_count():
    data = Dataset.from_arrays(train=(LETTERS[:30], LETTERS[:30]), test=(LETTERS[30:] % 5, LETTERS[30:] % 5))
    of_server = data.give_server(0.5, 0)
    of_server = dataclasses.replace(
        of_server, train_images=of_server.train_images % 5, train_labels=of_server.train_labels % 5
    )
    with pytest.raises(UserError, match=r"needs tokens below 5, .*, but one token is 6"):
        problem.pose(
            of(dataset=of_server, partition="iid", num_clients=3, task="next_token", model=nn.Embed(5, 5), names={})
        )


def test_the_servers_own_examples_are_not_replaced_by_the_default_share(tmp_path):
    inputs, labels = LETTERS.astype(np.float32), LETTERS[:, 0] % 2
    data = Dataset.from_arrays(train=(inputs[:30], labels[:30]), test=(inputs[30:], labels[30:])).give_server(0.5, 0)
    common = {"dataset": data, "partition": "iid", "num_clients": 3, "model": "mlp", "task": "classification"}
    posed = problem.pose(of(**common, algo="gpfl", names={}))
    assert posed.dataset.num_server_examples == data.num_server_examples == 15
    common["names"] = {"dataset": "mine"}
    jobs = [sweep.Job("mine", algo, of(**common, algo=algo, out=str(tmp_path / algo))) for algo in ("random", "gpfl")]
    assert [one.problem.dataset.num_server_examples for one in sweep.check(jobs)] == [15, 15]
    with pytest.raises(UserError, match=r"the server holds examples of .* already"):
        problem.pose(of(**common, server_validation=0.1))


def of_a_column(losses, **parts):
    """An experiment whose model predicts [B, 1] for targets [B], and whose task does not mind."""
    task = own_task(name="mine", losses=losses, complaint=lambda prediction, targets, number: None, **parts)
    return of(model=nn.Dense(1), task=task, names={})


def absolute(prediction, targets):
    return jnp.abs(prediction[:, 0] - targets)


@pytest.mark.parametrize(
    "mixes",
    [lambda p, t: ((p - t) ** 2).mean(axis=1), lambda p, t: absolute(p, t) / len(t),
     lambda p, t: absolute(p, t) / t.std(), lambda p, t: absolute(p, t[::-1])],
    ids=["broadcast", "mean", "spread", "order"],
)  # fmt: skip
def test_what_is_told_of_an_example_depends_on_it_alone(mixes):
    words = r"of an example depends on the rest of the batch \(.* beside another example, .* beside copies of itself\)"
    measured = tasks.Measure("near", absolute)
    with pytest.raises(UserError, match=f"^--task mine: losses {words}") as caught:
        problem.pose(of_a_column(mixes, measures=(measured,)))
    assert "\n" not in str(caught.value)


def test_what_is_measured_of_an_example_depends_on_it_alone():
    far = tasks.Measure("far", lambda p, t: absolute(p, t) / t.std())
    with pytest.raises(UserError, match=r"^--task mine: measure 'far' of an example depends on the rest of the batch"):
        problem.pose(of_a_column(absolute, measures=(far,)))


def test_a_task_of_its_own_whose_loss_is_of_rates_or_chances_is_taken():
    chance = lambda p, t: -jnp.log1p(-p[:, 0] / 2) * jnp.abs(t) - jnp.log(p[:, 0])  # noqa: E731
    problem.pose(of_a_column(chance, measures=(tasks.Measure("above", lambda p, t: p[:, 0] > t),)))


@pytest.mark.slow
def test_a_model_of_half_the_width_is_summed_in_float32(tmp_path):
    class Half(nn.Module):
        dtype: type = jnp.float32

        @nn.compact
        def __call__(self, x):
            return nn.Dense(2, dtype=self.dtype)(nn.Dense(3, dtype=self.dtype)(x))

    labels = (Y > 0).astype(np.int32)
    data = Dataset.from_arrays(train=(np.repeat(X[:100], 60, 0), np.repeat(labels[:100], 60)), test=(X, labels))
    settings = {
        "dataset": data,
        "partition": "iid",
        "num_clients": 3,
        "task": "classification",
        "rounds": 1,
        "local_steps": 1,
    }
    found = [
        fedjax_sel.run(of(model=Half(dtype), algo="fl_dp3s", train_metrics_every=1, **settings))
        for dtype in (jnp.float32, jnp.bfloat16)
    ]
    for name in ("train_loss", "test_loss"):
        whole, half = (result.measured[name] for result in found)
        assert half.dtype == whole.dtype
        np.testing.assert_allclose(half, whole, rtol=0.02)


def test_a_strategy_that_wants_labels_is_refused_where_there_are_none():
    wanted = (Request("label_histogram", ALL, at_start()),)
    with pytest.raises(UserError, match="requests label histograms, but patients has no classes"):
        problem.pose(of(algo=strategies.make("random")._replace(requests=wanted)))


def test_a_folder_of_values_is_not_run_by_name(kept):
    with pytest.raises(UserError, match=r"refers to a value given in Python"):
        fedjax_sel.run(fedjax_sel.load(str(kept[1])).config)


def test_another_name_is_another_experiment(kept):
    with pytest.raises(UserError, match="another configuration"):
        fedjax_sel.run(of(names={"model": "net-2"}), out=str(kept[1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "field,one,other",
    [
        ("algo", strategies.make("pow_d", num_candidates=4), strategies.make("pow_d", num_candidates=5)),
        ("optimizer", optimizers.make("fedprox", mu=0.1), optimizers.make("fedprox", mu=1.0)),
    ],
)
def test_a_folder_tells_parameters_apart(tmp_path, field, one, other):
    names, out = {"model": "net-1"}, str(tmp_path / "run")
    first = fedjax_sel.run(of(names=names, **{field: one}), out=out)
    np.testing.assert_array_equal(fedjax_sel.run(of(names=names, **{field: one}), out=out).cohorts, first.cohorts)
    with pytest.raises(UserError, match=f"another configuration.*{field} "):
        fedjax_sel.run(of(names=names, **{field: other}), out=out)


def test_devices_that_depend_on_labels_are_refused_before_a_comparison_without_classes(tmp_path):
    with pytest.raises(UserError, match="--timing: its devices depend on labels, but the data have no classes"):
        fedjax_sel.run_comparison(["random", "full"], of(timing="correlated", names={"model": "net-1"}), out=tmp_path)
