"""The scripts in benchmarks/: that their settings are sound, and their arithmetic."""

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.checking import check
from tests import scripts

FOLDER = Path(__file__).parents[1] / "benchmarks"
RIVALS = FOLDER / "rivals"


@pytest.fixture
def rivals(monkeypatch):
    """The modules of benchmarks/rivals, which import each other by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(RIVALS))
    before = set(sys.modules)
    yield lambda name: importlib.import_module(name)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(FOLDER) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_a_report_says_what_made_it(rivals, tmp_path, monkeypatch):
    reports = rivals("reports")
    script = str(FOLDER / "rivals" / "run.py")
    monkeypatch.setattr(sys, "argv", [script, "--algos", "fedcor[dimension=15]", "--out", f"{tmp_path}/a/b.json"])
    head = reports.head()
    assert head["command"] == "python benchmarks/rivals/run.py --algos 'fedcor[dimension=15]' --out b.json"
    assert set(head) == {"command", "commit", "date", "processor", "cores"} and head["cores"] >= 1
    assert reports.head(["--budget", "5"])["command"] == "python benchmarks/rivals/run.py --budget 5"
    reports.write(tmp_path / "a" / "b.json", head | {"cases": []})
    assert json.loads((tmp_path / "a" / "b.json").read_text()) == head | {"cases": []}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.json"]
    assert reports.commit(tmp_path) is None


def test_every_benchmark_that_writes_says_what_made_its_file():
    scripts = [path for path in FOLDER.rglob("*.py") if path.name != "reports.py"]
    writes = re.compile(r"reports\.write\(|json\.dumps\([^)]*indent")
    written = {path.name for path in scripts if writes.search(path.read_text())}
    headed = {path.name for path in scripts if "reports.head(" in path.read_text()}
    assert written - {"day.py"} == headed - {"accelerator.py"} and "accelerator.py" in headed  # it hands its head on
    assert len(headed) >= 11


def test_settings_of_the_rivals_are_sound(rivals):
    settings, ours = rivals("settings"), rivals("ours")
    for name, setting in settings.SETTINGS.items():
        config = ours.config_of(setting)
        check(Experiment(config))
        assert config.training.learning_rate_milestones == (), name
        assert setting["rounds"] % setting["chunk"] == setting["warm_rounds"] % setting["chunk"] == 0
        assert config.data.dataset in rivals("synthetic").SHAPES


@pytest.mark.slow
def test_resnet8_of_the_rivals_has_our_weights_in_their_places(rivals):
    """Every layer is filled with its place in the order of calls, which the names of the modules tell."""
    export, ours, settings = rivals("export"), rivals("ours"), rivals("settings")
    from fedjax_sel import models

    inputs = jax.ShapeDtypeStruct((1, 32, 32, 3), np.float32)
    model = models.make_plain("resnet8", inputs, 10)
    layers = export.first_layers("resnet8", np.random.default_rng(0))
    assert sum(kernel.size + bias.size for kernel, bias in layers) == model.num_params == 78_042
    numbered = [(np.full_like(kernel, place), np.full_like(bias, place)) for place, (kernel, bias) in enumerate(layers)]
    order = ["Conv_0", "GroupNorm_0"]
    for block, pairs in enumerate((2, 3, 3)):
        order += [f"ResidualBlock_{block}/{kind}_{i}" for i in range(pairs) for kind in ("Conv", "GroupNorm")]
    order.append("Dense_0")
    for path, leaf in jax.tree_util.tree_leaves_with_path(ours.plain_weights(model, numbered).trained):
        module = "/".join(key.key for key in path[:-1])
        assert (leaf == order.index(module)).all(), module
    with pytest.raises(ValueError, match="expected 19 layers, got 18"):
        ours.plain_weights(model, layers[:-1])
    assert settings.SETTINGS["cifar10_resnet8"]["rivals"] == ("torch_loop",)


SMALL = {  # smaller values for the settings of the rivals
    "fmnist_mlp": {"num_clients": 10},
    "fmnist_mlp_10": {"num_clients": 20},
    "cifar10_cnn": {"num_clients": 10, "local_steps": 2},
    "cifar10_resnet8": {"num_clients": 10, "local_steps": 2},
    "pfl_cifar10": {"num_clients": 20, "num_selected": 5},
}


@pytest.fixture
def our_side(rivals, tmp_path, monkeypatch, capsys):
    """setting of the rivals -> what `run.py` hands our scripts, in small, and a function that runs one of them."""

    def make(name):
        run, setting = rivals("run"), dict(rivals("settings").SETTINGS[name])
        dataset = rivals("synthetic").like(run.ours.config_of(setting).data.dataset, 2_000, 100)
        setting["config"] = setting["config"] | SMALL[name] | {"dataset": dataset}
        setting |= {"rounds": 1, "warm_rounds": 1, "chunk": 1}
        spec = {"seed": 0, "launched": 0.0} | run.specification(setting, str(tmp_path / "data.npz"))

        def printed(script):
            monkeypatch.setattr(sys, "argv", [script, json.dumps(spec)])
            rivals(script).main()
            return capsys.readouterr().out.strip().splitlines()[-1]

        return spec, printed

    return make


@pytest.mark.slow
def test_our_side_can_be_prepared_for_a_setting_with_dropout(rivals, our_side):
    spec, printed = our_side("fmnist_mlp")
    assert int(printed("export")) >= spec["batch_size"] and spec["dropout"] == 0.5
    prepared = rivals("ours").prepare(spec, rivals("work").Work(spec))
    for ours, first in zip(jax.tree.leaves(prepared.program.carry.params), jax.tree.leaves(prepared.weights)):
        np.testing.assert_array_equal(ours[0], first)
    assert "dropout" in str(jax.tree_util.tree_structure(prepared.model.draw(jax.random.key(0), 2))).lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_our_side_runs_every_setting_of_the_rivals(rivals, our_side, name):
    assert set(SMALL) == set(rivals("settings").SETTINGS)
    _, printed = our_side(name)
    printed("export")
    found = json.loads(printed("ours"))
    assert found["seconds"] > 0 and 0 <= found["accuracy"] <= 1 and np.isfinite(found["loss"])


@pytest.mark.parametrize(
    "preset,model,dropout", [("fedcor/fmnist-2spc", "resnet8", 0.0), ("fedcor/fmnist-2spc", "mlp", 0.5)]
)
def test_rounds_per_second_takes_any_preset_with_any_model(rivals, preset, model, dropout):
    config = rivals("rounds").setting(preset, 2, model=model)
    check(Experiment(config))
    assert (config.model.model, config.model.model_dropout) == (model, dropout)
    assert config.run.chunk == (10 if model == "mlp" else 1)
    case = {"preset": preset, "seeds": 2, "evaluate": True, "model": model}
    numbers = dict.fromkeys(
        ["seed_rounds_per_second", "p10", "p90", "share_of_ceiling", "compile_seconds", "peak_megabytes"], 1.0
    )
    assert f"{preset} {model}" in rivals("rounds_per_second").describe(case | numbers)


def requirements(name):
    """The lines of a file of requirements, and of those that it names."""
    for line in (RIVALS / "requirements" / name).read_text().splitlines():
        if line.startswith("-r "):
            yield from requirements(line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            yield line


def test_every_rival_has_a_runner_and_pins(rivals):
    for name, rival in rivals("settings").RIVALS.items():
        assert (RIVALS / rival["runner"]).exists(), name
        pins = list(requirements(f"{rival['venv']}.txt"))
        assert pins and all(re.fullmatch(r"[\w\-\[\]]+==[\d.]+", line) for line in pins), name


def test_a_ratio_compares_a_rival_with_the_runs_beside_it(rivals):
    def runs(*seconds):
        return [{"seconds": value, "accuracy": 0.5 + 0.001 * i} for i, value in enumerate(seconds)]

    table = {
        "ours": runs(1, 3, 5, 2, 4, 6),  # before the first rival, between, after the last; twice
        "together": runs(10, 20),
        "first": runs(8, 12),
        "second": runs(8, 10),
    }
    judge = rivals("run").judgment
    assert judge("first", table, 5)["ratios"] == [4.0, 4.0]  # 8 / mean(1, 3), 12 / mean(2, 4)
    assert judge("second", table, 5)["ratios"] == [2.0, 2.0]  # 8 / mean(3, 5), 10 / mean(4, 6)
    assert judge("first", table, 5)["ratio_5_seeds"] == 3.5  # the median of 40 / 10 and 60 / 20
    assert judge("first", table, 5)["same_accuracy"]


def test_a_rival_that_ends_elsewhere_or_fails_is_left_out(rivals, monkeypatch, tmp_path):
    """One that learns another model has no turn; one whose second turn fails has no ratio; the others keep theirs."""
    run, turns = rivals("run"), {"fails": 0}

    def measure(name, spec, arguments):
        if "also_before" in spec or spec.get("dropout") == 0.0:  # the variant without chance
            loss = {"elsewhere": 0.9}.get(name, 0.5)
            return {"loss": loss, "loss_before": 1.0}
        if name == "fails":
            turns["fails"] += 1
            if turns["fails"] == 2:
                raise RuntimeError("out of memory")
        seconds = {"ours": 1.0, "works": 3.0}.get(name, 2.0)
        return {"seconds": seconds, "startup_seconds": 0.1, "accuracy": 0.5, "loss": 0.5, "versions": {}}

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "start", lambda *given: "100")
    monkeypatch.setattr(run, "RIVALS", {name: {"venv": name} for name in ("elsewhere", "fails", "works")})
    monkeypatch.setattr(run.install, "python_of", lambda folder: sys.executable)
    given = argparse.Namespace(rivals=list(run.RIVALS), together=1, repeats=2, dir=tmp_path)
    setting = {name: value for name, value in run.SETTINGS["fmnist_mlp"].items() if name != "rivals"}
    found = run.compare(setting, given)["rivals"]
    assert found["elsewhere"] == {"exact_difference": 0.8, "same_model": False}
    assert found["fails"]["failed"] == "out of memory" and "ratio" not in found["fails"]
    assert found["works"]["ratios"] == [3.0, 3.0]


def test_a_ceiling_counts_the_turns_of_a_loop(rivals):
    ceiling = rivals("ceiling")
    left, right = np.ones((4, 8), np.float32), np.ones((8, 2), np.float32)

    def looped(right):
        once = left @ right
        return once, jax.lax.map(lambda x: x @ right, np.ones((3, 5, 8), np.float32))

    found = ceiling.products(jax.make_jaxpr(looped)(right).jaxpr)
    assert [times for *_, times in found] == [1, 3]
    assert sum(map(ceiling.operations, found)) == 2 * 8 * 2 * (4 + 3 * 5)


@pytest.mark.slow
def test_rounds_per_second_measures_what_its_results_hold(rivals, monkeypatch):
    rounds, script = rivals("rounds"), rivals("rounds_per_second")
    real = rounds.setting
    monkeypatch.setattr(rounds, "setting", lambda *given: real(*given, **rivals("on_accelerator.speed").TINY))
    case = {"preset": "fedcor/fmnist-2spc", "seeds": 2, "evaluate": True}
    case |= {"chunks": 3, "algo": "random", "precision": "float32"}
    measured = script.run_case(**case)
    stored = json.loads((FOLDER.parent / "results" / "rounds_per_second.json").read_text())["cases"][0]
    assert set(stored) <= set(case | measured)
    assert measured["p10"] <= measured["seed_rounds_per_second"] <= measured["p90"]
    assert measured["share_of_ceiling"] == pytest.approx(
        measured["seed_rounds_per_second"] / measured["ceiling_seed_rounds_per_second"], rel=0.05
    )
    assert "2 seeds with evaluation" in script.describe(case | measured)


@pytest.mark.parametrize("file", sorted((FOLDER.parent / "results").glob("*.json")), ids=lambda file: file.name)
def test_results_say_how_they_were_made_and_name_no_machine(file):
    text = file.read_text()
    assert json.loads(text)["command"].startswith("python ")
    assert not re.search(r"/(work|tmp|home|root|Users)/", text)


TINY = "--dataset synthetic:train_size=400,test_size=50,num_classes=10,image_size=8"
FAST = "--presets fedcor/fmnist-2spc --seeds 1"
RUNS = {  # script -> arguments of a tiny run; OUT: a file that it writes, RUN: a run's folder
    "benchmarks/absence.py": "ABSENCE --out OUT",
    "benchmarks/absence_answers.py": "--seeds 2 --rounds 2 --out OUT",
    "benchmarks/asynchronous.py": "--chunks 2 --out OUT",
    "benchmarks/clock_cost.py": "--chunks 2 --out OUT",
    "benchmarks/convolutions.py": "--models lenet --turns 1 --budget 0.1 --out OUT",
    "benchmarks/family_error.py": "--repetitions 2 --out OUT",
    "benchmarks/hics_entropies.py": "--rounds 1 --seeds 1 --out OUT",
    "benchmarks/pools.py": f"{TINY} --num-clients 20 --pools 12 --rounds 2 --out OUT",
    "benchmarks/profile_round.py": f"{FAST} --chunk 1 --out OUT",
    "benchmarks/rivals/run.py": "--settings fmnist_mlp --rivals torch_loop --repeats 1 --rounds 10 --together 2 "
    "--synthetic --dir NOWHERE --out OUT",
    "benchmarks/rounds_per_second.py": f"{FAST} --chunks 1 --out OUT",
    "benchmarks/selection_cost.py": "--algos random fl_dp3s --num-clients 20 --rounds 2 --budget 0.1 --out OUT",
    "benchmarks/wide.py": "--out OUT",
    "tools/generated_parts.py": "",
    "tools/keep_runs.py": "RUN --to KEPT",
    "tools/notebooks.py": "--text-only",
    "tools/price_of_information.py": "",
    "tools/reproductions_page.py": "",
    "tools/strategy_pictures.py": "random --out KEPT",
    "tools/tables.py": "",
}
SMALLER = {  # what the command line leaves as it is
    "benchmarks/asynchronous.py": {"CASES": (("fedcor/fmnist-2spc", "random", 10),)},
    "benchmarks/clock_cost.py": {"CASES": (("fedcor/fmnist-2spc", "random"),)},
    "benchmarks/wide.py": {"LAYERS": ((2048, 512),), "BATCHES": (4,), "STEPS": 2, "TURNS": 1},
}
ELSEWHERE = {  # scripts that other tests run
    "benchmarks/accelerator.py": "tests/test_accelerator.py",
    "benchmarks/rivals/export.py": "tests/test_benchmarks.py",
    "benchmarks/rivals/ours.py": "tests/test_benchmarks.py",
    "tools/build_site.py": "tests/documents/test_site.py",
    "tools/shakespeare.py": "tests/data/test_data_shakespeare.py",
    "tools/test_versions.py": "tests/test_pins.py",
}
RIVALS_ONLY = {
    "install.py",
    "fedjax_runner.py",
    "flower_runner.py",
    "pfl_runner.py",
    "torch_batched.py",
    "torch_loop.py",
}


def test_every_script_has_a_run():
    root = FOLDER.parent
    paths = [path for folder in (FOLDER, root / "tools") for path in folder.rglob("*.py")]
    scripts = {path for path in paths if '__name__ == "__main__"' in path.read_text()}
    named = {path.relative_to(root).as_posix() for path in scripts if path.name not in RIVALS_ONLY}
    assert named == set(RUNS) | set(ELSEWHERE)
    assert all(Path(script).stem in (root / test).read_text() for script, test in ELSEWHERE.items())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the checkout, whose pages and results the scripts may write."""
    place = tmp_path_factory.mktemp("checkout") / "here"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "site-packages")
    for folder in ("benchmarks", "docs", "fedjax_sel", "notebooks", "results", "studies", "tests", "tools"):
        shutil.copytree(FOLDER.parent / folder, place / folder, ignore=left_out if folder != "fedjax_sel" else None)
    for file in FOLDER.parent.glob("*.*"):
        if file.is_file():
            shutil.copy(file, place)
    return place


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory):
    """The folders of `absence.py`: copies of one run with all clients available, and of one without."""
    place = tmp_path_factory.mktemp("absence")
    for name, shares in {"whole": ("1",), "absent": ("0.7", "0.5")}.items():
        config = fedjax_sel.Config().replace(
            dataset=TINY.split()[1], num_clients=10, num_selected=2, batch_size=10, local_epochs=1, rounds=2, seeds=3,
            available=1.0 if name == "whole" else 0.5, out=str(place / name),
        )  # fmt: skip
        fedjax_sel.run(config)
        for share in shares:
            for algo in ("random", "fedcor", "fl_dp3s", "pow_d"):
                shutil.copytree(place / name, place / share / algo)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("script", RUNS)
def test_a_script_runs_in_small(script, checkout, comparisons, tmp_path):
    places = {"OUT": tmp_path / "out", "KEPT": tmp_path / "kept", "NOWHERE": tmp_path / "nowhere"}
    places |= {"ABSENCE": comparisons, "RUN": comparisons / "whole"}
    words = [str(places.get(word, word)) for word in RUNS[script].split()]
    command = [script]
    if script in SMALLER:
        lines = [f"module.{name} = {value!r}" for name, value in SMALLER[script].items()]
        lines = [f"import sys; sys.path.insert(0, {str(checkout / 'benchmarks')!r})", *lines, "module.main()"]
        command = ["-c", "\n".join([lines[0], f"import {Path(script).stem} as module", *lines[1:]])]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    pages = {path: path.read_bytes() for folder in ("docs", "notebooks") for path in (checkout / folder).rglob("*.*")}
    done = subprocess.run(
        [sys.executable, *command, *words], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: path.read_bytes() for path in pages} == pages
    if "OUT" in RUNS[script] and not script.startswith("benchmarks/absence"):
        report = json.loads(places["OUT"].read_text())
        assert (
            report["cases"] if "cases" in report else report["settings"]["fmnist_mlp"]["ours"]["rounds_per_second"] > 0
        )
        assert not re.search(r'"(failed|skipped)"', json.dumps(report))


@pytest.mark.slow
def test_a_rival_that_cannot_be_installed_is_named(tmp_path):
    command = [sys.executable, RIVALS / "install.py", "--only", "torch", "--dir", tmp_path, "--pip-args=--no-index"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.endswith("installation failed: torch\n")


@pytest.mark.slow
def test_in_the_benchmark_of_absence_those_who_are_away_answer_all_the_same():
    """More losses are bought than of those who can be reached."""
    module = scripts.load("benchmarks/absence_answers.py")
    some = module.run(seeds=1, rounds=2, available=0.5).ledger
    with module.all_answer():
        every = module.run(seeds=1, rounds=2, available=0.5, observe_all=True).ledger
    everybody = module.run(seeds=1, rounds=2, available=1).ledger
    assert (some.bytes_down < every.bytes_down).all()
    assert (every.bytes_down == everybody.bytes_down).all()
