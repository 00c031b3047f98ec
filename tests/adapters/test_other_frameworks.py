"""The examples of other frameworks run: pfl-research's in pfl-research, FLARE's on a minimum of its interface."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedjax_sel.adapters import rounds
from tests.adapters import flare_minimum

HOME = Path(__file__).parents[2]
PFL = (HOME / "examples" / "pfl_research.py").read_text()
FLARE = (HOME / "examples" / "nvflare_controller.py").read_text()
N, K, T = 8, 3, 10


@pytest.mark.slow
def test_in_pfl_research(tmp_path):
    pytest.importorskip("pfl", reason="pfl-research is not installed: pip install 'pfl[pytorch]'")
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    checks = "assert len(selecting.cohorts) == ROUNDS and all(len(set(one)) == 3 for one in selecting.cohorts)\n"
    (tmp_path / "page.py").write_text(PFL + checks)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env={"PYTHONPATH": str(HOME), "PATH": ""}, capture_output=True,
        text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    slope, intercept, spent = done.stdout.splitlines()[-1].split(" ", 2)
    assert abs(float(slope) - 3) < 0.5 and abs(float(intercept) + 1) < 0.5
    assert spent == "Spent(models_down=50, models_up=30, floats_up=50)"


@pytest.mark.parametrize("algo", ["pow_d[num_candidates=5]", pytest.param("afl", marks=pytest.mark.slow)])
def test_on_a_minimum_of_flare(monkeypatch, algo):
    flare_minimum.put_in_place(monkeypatch)
    in_flare(algo)


@pytest.mark.parametrize("algo", ["ocs", "clustered"])
def test_flare_uses_the_weights_of_a_strategy(monkeypatch, algo):
    flare_minimum.put_in_place(monkeypatch)
    chosen, choose = [], rounds.choose
    monkeypatch.setattr(rounds, "choose", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    controller = controller_of(algo, num_params=2)
    controller.run()
    w = np.zeros(2)
    for cohort, weights in chosen:
        clients = {site: Site.trained(controller.sites[site], w) for site in cohort if site != "site-1"}
        w = w + sum(float(share) * (clients[k] - w) for k, share in zip(cohort, weights) if k in clients)
    np.testing.assert_allclose(controller.saved[-1].params["w"], w, rtol=1e-4)


def test_on_flares_own_classes():
    pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install nvflare")
    in_flare("afl")


def controller_of(algo, **given):
    there = {}
    exec(compile(FLARE, "examples/nvflare_controller.py", "exec"), there)
    sites = {f"site-{place}": Site(place, there["FLModel"]) for place in range(N)}

    class Controller(flare_minimum.InProcess, there["SelectingController"]):
        pass

    Controller.sites, Controller.first = sites, there["FLModel"](params={"w": np.zeros(2, np.float32)})
    return Controller(algo, {name: len(site.targets) for name, site in sites.items()}, K, T, **given)


def in_flare(algo):
    controller = controller_of(algo)
    sites = controller.sites
    controller.run()
    np.testing.assert_allclose(controller.saved[-1].params["w"], [3, -1], atol=0.3)
    assert len(controller.saved) == len(controller.cohorts) == T
    total = controller.selector.bill().total
    assert total.models_up == sum(name != "site-1" for cohort in controller.cohorts for name in cohort)
    asked = [kind for site in sites.values() for kind in site.asked]
    assert asked.count("loss") == (N if algo == "afl" else 5 * T) and asked.count("train") == K * T


class Site:
    """Holds a part of the line y = 3x - 1; the one called 1 never reports."""

    def __init__(self, place, kind):
        self.kind = kind  # FLModel
        rng = np.random.default_rng(place)
        x = rng.normal(loc=place / 4, size=20 + place)
        self.inputs, self.targets = np.stack([x, np.ones_like(x)], axis=1), 3 * x - 1 + 0.1 * rng.normal(size=x.size)
        self.silent, self.asked = place == 1, []

    def trained(self, w):
        for _ in range(60):
            w = w - 0.02 * self.inputs.T @ (self.inputs @ w - self.targets) / len(self.targets)
        return w

    def __call__(self, task, model):
        self.asked.append(task)
        w = np.array(model.params["w"], np.float64)
        loss = float(np.mean((self.inputs @ w - self.targets) ** 2))
        if task == "loss":
            return self.kind(params={"answer": loss})
        if task == "update_norm":
            return self.kind(params={"answer": np.linalg.norm(self.trained(w) - w)})
        assert task == "train"
        if self.silent:
            return None
        return self.kind(params={"w": self.trained(w)}, meta={"facts": dict.fromkeys(model.meta["wanted"], loss)})
