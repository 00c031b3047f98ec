# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which clients should train this round?
#
# In federated learning the data stay with the clients. In every round the server selects a few clients, the *cohort*, and
# sends them its model. Each client trains the model on its own data and returns its change, and the server averages the
# changes. If every client holds a different kind of data, the selection matters: a cohort that holds only zeros and ones
# teaches only zeros and ones.
#
# This notebook compares two selection strategies on small images of digits. There are 50 clients, and 10 train per round.
#
# * `random`: every set of ten clients is equally likely.
# * `fl_dp3s`: clients with different data are more likely. Before the first round, every client sends a *profile* of its data,
#   the mean output of the model's first fully-connected layer. The cohort is then drawn from a k-DPP, a distribution that
#   rarely selects two clients with similar profiles (Zhang et al. 2023, FL-DP3S).
#
# The notebook runs on a CPU, a GPU or a TPU, and takes about a minute on two CPU cores.

# %% [markdown]
# ## Install
#
# This cell does nothing if `fedjax_sel` is installed. The package is not on PyPI and has no public address yet, so you need
# a copy of it. The cell installs from the first of these that it finds:
#
# * `FEDJAX_SEL_SOURCE`, set in the cell's first lines or in the environment: a folder, an archive, or `git+https://` and a
#   repository's address;
# * the clone that contains this notebook, or that lies beside it as `fedjax_sel`;
# * a wheel or a ZIP in the working folder whose name starts with `fedjax_sel`. On Colab, run `pip wheel --no-deps .` in your
#   clone, drag the wheel into the *Files* pane on the left, and run the cell.
#
# The installed JAX and NumPy stay unchanged, since a hosted machine's accelerator needs its own versions. The notebook is tested
# with Colab's versions of August 2026 (Python 3.13, JAX 0.7.2, Flax 0.11.2, NumPy 2.1.3), though on a
# CPU and not on Colab itself. TensorFlow is not needed.

# %%
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FEDJAX_SEL_SOURCE = os.environ.get("FEDJAX_SEL_SOURCE")

SCRATCH = Path(tempfile.mkdtemp())  # folder for the notebook's files

installed = {package.name.lower(): package.version for package in importlib.metadata.distributions()}
if "fedjax-sel" not in installed:
    here = Path.cwd()
    clones = [
        folder for folder in (here, here.parent, here / "fedjax_sel") if (folder / "fedjax_sel" / "version.py").exists()
    ]
    archives = sorted([*here.glob("fedjax_sel*.whl"), *here.glob("fedjax_sel*.zip")], key=os.path.getmtime)
    source = FEDJAX_SEL_SOURCE or next(map(str, [*clones, *archives[::-1]]), None)
    if source is None:
        sys.exit(
            f"fedjax_sel is not on PyPI: put its wheel into {here}, or set FEDJAX_SEL_SOURCE to its location, and run "
            "this cell again."
        )
    kept = [f"{name}=={installed[name]}" for name in ("jax", "jaxlib", "numpy") if name in installed]
    (SCRATCH / "kept.txt").write_text("\n".join(kept))
    print(f"installing {source} with its dependencies; unchanged: {', '.join(kept) or 'nothing'}")
    pip = [sys.executable, "-m", "pip", "install", "-q", "-c", str(SCRATCH / "kept.txt"), source]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(pip)}\n{done.stdout}{done.stderr}")
    importlib.invalidate_caches()

import fedjax_sel

{"fedjax_sel": fedjax_sel.__version__} | {name: importlib.metadata.version(name) for name in ("jax", "flax", "numpy")}

# %% [markdown]
# ## The setting
#
# A preset fixes data, partition, model and training; `replace` changes single settings. Several seeds run at once. Each seed
# has its own partition, initial model and random choices.

# %%
ROUNDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_ROUNDS", "60"))
SEEDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_SEEDS", "3"))

SETTING = fedjax_sel.preset("quickstart").replace(rounds=ROUNDS, seeds=SEEDS)
SETTING.to_json()

# %% [markdown]
# ## The partition
#
# `shards` sorts the training images by label, cuts them into equal pieces, and gives each client one piece. So a client holds
# one label, or two if its piece crosses a border. This is the partition of seed 0:

# %%
import matplotlib.pyplot as plt
from IPython.display import Image, display

from fedjax_sel import data

digits = data.load("digits")
partition = data.partition.make("shards", digits.train_labels, num_clients=50, seed=0, shards_per_client=1)
counts = partition.label_counts(digits.train_labels, digits.num_classes)  # [clients, labels]

figure, axis = plt.subplots(figsize=(9, 2.6), layout="constrained")
picture = axis.imshow(counts.T, aspect="auto", cmap="Blues", origin="lower")
axis.set(xlabel="client", ylabel="label", yticks=range(digits.num_classes))
figure.colorbar(picture, label="images")
display(figure)
plt.close(figure)

# %% [markdown]
# ## Run both
#
# Everything else is equal. For each seed, both strategies start from the same model on the same partition, and a client
# selected by both in a round trains on the same batches. The first rounds take longest, because they include compilation.

# %%
results = {
    strategy: fedjax_sel.run(SETTING.replace(algo=strategy), progress=True) for strategy in ("random", "fl_dp3s")
}

# %% [markdown]
# The run uses these devices. On a CPU every core counts as one, if JAX was not used before the first run.

# %%
import jax

jax.devices()

# %% [markdown]
# ## Results
#
# A line is the mean over the seeds, a band one standard deviation. *GEMD* is the distance between the label distributions of
# the cohort and of all clients; zero means equal. Does `fl_dp3s` select more diverse cohorts (GEMD)? Does it learn faster
# by rounds (accuracy, upper left) and by bytes (accuracy, lower right)?

# %%
from fedjax_sel.reporting import plots


def show_curves() -> None:
    path = SCRATCH / "curves.png"
    plots.curves(results, path)
    display(Image(path.read_bytes(), width=900))


show_curves()

# %% [markdown]
# ## Cost
#
# Profiles have a price. All 50 clients need the model before the first round, where `random` sends it to 10, and each returns
# 64 numbers. (The ten selected clients already have the model, so 40 more models are sent, not 50.) The ledger counts
# the traffic of a federation, without the simulator's own measurements for these curves.
#
# The start is the extra traffic of the first round.

# %%
MEGABYTE = 1e6


def show_costs() -> None:
    rows = {}
    for name, result in results.items():
        ledger = result.ledger  # int arrays [seeds, rounds]
        down, up = ledger.bytes_down / MEGABYTE, ledger.bytes_up / MEGABYTE
        start_down, start_up = down[:, 0] - down[:, 1], up[:, 0] - up[:, 1]
        rows[name] = {
            "models down": f"{ledger.models_down.sum(axis=1).mean():.0f}",
            "models up": f"{ledger.models_up.sum(axis=1).mean():.0f}",
            "MB down": f"{down.sum(axis=1).mean():.3f}",
            "MB up": f"{up.sum(axis=1).mean():.3f}",
            "start, MB down": f"{start_down.mean():.3f}",
            "start, MB up": f"{start_up.mean():.3f}",
            "start's share": f"{(start_down + start_up).sum() / (down + up).sum():.1%}",
        }
    width = max(map(len, rows)) + 3
    print(f"{ROUNDS} rounds, a seed".ljust(20) + "".join(name.rjust(width) for name in rows))
    for label in next(iter(rows.values())):
        print(label.ljust(20) + "".join(cells[label].rjust(width) for cells in rows.values()))


show_costs()

# %% [markdown]
# ## Your turn: another profile
#
# The profile above is taken before the activation (`fc1`). Does the ReLU matter, or a much larger profile? Set `PROFILE` to
# `fc1-relu`, `gradient` (of the client's loss) or `representative-gradient` (the change after one local training). Run the cell,
# and compare the curves and the costs.

# %%
PROFILE = "fc1"

if PROFILE != "fc1":
    setting = SETTING.replace(algo="fl_dp3s", algo_args={"profile": PROFILE})
    results[f"fl_dp3s {PROFILE}"] = fedjax_sel.run(setting, progress=True)
    show_curves()
    show_costs()

# %% [markdown]
# ## Larger: Fashion-MNIST
#
# The settings of the papers are presets. This one is FedCor's: 100 clients with one shard each, 10 per round, 500 rounds. The
# first call downloads the images, so it needs a network. On two CPU cores it takes much longer than the digits.
#
# ```python
# config = fedjax_sel.preset("fedcor/fmnist-1spc").replace(seeds=2)
# results = {
#     strategy: fedjax_sel.run(config.replace(algo=strategy), progress=True) for strategy in ("random", "fl_dp3s")
# }
# show_curves()
# ```
#
# In a terminal, `python -m fedjax_sel.train --preset fedcor/fmnist-1spc --algo fl_dp3s --seeds 2` runs `fl_dp3s` in the
# same way, and also writes a folder with the numbers. `--dry-run` estimates time and cost first, and `fedjax-sel list` lists all names.
#
# ## Read on
#
# * [02_compare_strategies](02_compare_strategies.ipynb): the information that strategies buy, its cost, and a comparison that
#   survives a lost runtime.
# * [03_your_own_strategy](03_your_own_strategy.ipynb): write a strategy, check it, and read its bill.
# * [04_inside_fedcor_and_fl_dp3s](04_inside_fedcor_and_fl_dp3s.ipynb): what these two strategies learn about the clients, in plots.
# * [05_your_own_model_and_data](05_your_own_model_and_data.ipynb): your arrays, your network, your loss.
