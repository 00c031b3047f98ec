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
# # Your own model and data
#
# Which clients should train **your** network on **your** data? The data set, partition, model and task of a setting can be given
# as values instead of names. This notebook shows:
#
# 1. images in arrays, a partition over clinics, and an unmodified Flax module;
# 2. a regression on a table, with clients defined by the data, and your own loss;
# 3. a list of other sources, such as LEAF.
#
# It takes about two minutes on two CPU cores. Nothing is downloaded: both data sets come with scikit-learn.

# %% [markdown]
# ## Install
#
# This cell does nothing if `fedjax_sel` is installed. [01_quickstart](01_quickstart.ipynb) explains where it finds the package.

# %% jupyter={"source_hidden": true}
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
# ## 1. Images, clinics, and a Flax module
#
# `Dataset.from_arrays` takes pairs (inputs, targets), whose first axis counts examples. uint8 arrays `[n, height, width]`
# are images and are normalized on the device; floats stay unchanged. Here the digits stand for scans, and their labels for
# findings.

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from sklearn.datasets import load_diabetes, load_digits

from fedjax_sel import Dataset, Experiment
from fedjax_sel.reporting.plots import styles_of

ROUNDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_ROUNDS", "30"))
SEEDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_SEEDS", "3"))

raw = load_digits()
rng = np.random.default_rng(0)
shuffled = rng.permutation(len(raw.images))
images, findings = (raw.images * 15).astype(np.uint8)[shuffled], raw.target[shuffled]
train, test = np.arange(1400), np.arange(1400, len(images))
scans = Dataset.from_arrays(train=(images[train], findings[train]), test=(images[test], findings[test]), name="scans")
print(
    f"{len(train)} training examples, {len(test)} to test on, {scans.num_classes} findings, images {scans.image_shape}"
)

# %% [markdown]
# An explicit partition is a list with the positions of each client's training examples. These clinics specialize in two or
# three findings each, and differ in size. (A name such as `partition="dirichlet"` draws a partition per seed instead.)

# %%
NUM_CLINICS = 20
clinics = []
for number in range(NUM_CLINICS):
    treated = [number % 10, (number + 1) % 10, (3 * number + 5) % 10]
    cases = np.flatnonzero(np.isin(findings[train], treated))
    clinics.append(rng.choice(cases, size=rng.integers(30, 120), replace=False))

held = np.array([np.bincount(findings[own], minlength=10) for own in clinics])
figure, axis = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
picture = axis.imshow(held.T, aspect="auto", cmap="Blues", origin="lower")
axis.set(xlabel="clinic", ylabel="finding", xticks=range(NUM_CLINICS), yticks=range(10))
figure.colorbar(picture, label="scans")
display(figure)
plt.close(figure)

# %% [markdown]
# The model is any unmodified `flax.linen` module (or NNX: `models.from_nnx`). Dropout gets its random keys, the training flag is
# detected by name, and batch statistics are averaged and billed with the weights.

# %%
import flax.linen as nn


class ScanNet(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Conv(16, (3, 3))(x)))
        x = nn.max_pool(x, (2, 2), (2, 2)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.2, deterministic=not train)(nn.relu(nn.Dense(32)(x)))
        return nn.Dense(10)(x)


def clinical(algo) -> Experiment:
    return Experiment.of(
        dataset=scans, partition=clinics, model=ScanNet(), algo=algo, num_selected=5, local_epochs=2, batch_size=16,
        learning_rate=0.05, rounds=ROUNDS, seeds=SEEDS, chunk=5,
    )  # fmt: skip


results = {algo: fedjax_sel.run(clinical(algo), progress=True) for algo in ("random", "fl_dp3s")}

# %% [markdown]
# `fl_dp3s` buys profiles, the mean output of the first fully-connected layer. It detects this layer in the module;
# `models.from_flax(ScanNet(), profile_layer="Dense_1")` would name another.
#
# How accurate is the final model, overall and for each clinic? A mean can hide a clinic with poor accuracy. (Left: the mean over
# the seeds and one standard deviation to either side. Right: a dot is a clinic, its mean over the seeds.)


# %%
COLORS = {name: style.color for name, style in styles_of(["random", "fl_dp3s", "pow_d"]).items()}


def show(axis, results, name: str, scale: float = 1.0) -> None:
    """Draw a measure over the rounds: the mean over seeds, and one standard deviation to either side."""
    for algo, result in results.items():
        values = scale * result.measured[name]
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        rounds = np.arange(1, result.num_rounds + 1)
        axis.plot(rounds, mean, color=COLORS[algo], linewidth=1.8, label=algo)
        low, high = np.maximum(mean - deviation, 0), mean + deviation
        axis.fill_between(rounds, low, high, color=COLORS[algo], alpha=0.12, linewidth=0)
    axis.grid(alpha=0.25)
    axis.set_xlabel("round")


figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
show(axes[0], results, "test_accuracy")
axes[0].set(ylabel="test accuracy", ylim=(0, 1))
axes[0].legend(frameon=False, loc="lower right")
for shift, (algo, result) in zip((-0.15, 0.15), results.items()):
    own = fedjax_sel.per_client(result, clinical(algo))["accuracy"].mean(axis=0)  # over seeds, [clinics]
    axes[1].plot(np.arange(NUM_CLINICS) + shift, own, "o", color=COLORS[algo], markersize=4)
    print(
        f"{algo.ljust(8)} test accuracy {result.test_accuracy[:, -1].mean():.3f}, of the clinic with the lowest {own.min():.3f}"
    )
axes[1].set(xlabel="clinic", ylabel="accuracy on its own scans", ylim=(0, 1.03), xticks=range(0, NUM_CLINICS, 2))
axes[1].grid(alpha=0.25)
display(figure)
plt.close(figure)

# %% [markdown]
# ### Use the trained network
#
# `result.weights_of(seed)` returns weights in the module's own pytree, so the module works with them outside of the package.
# (In training, images were normalized by `scans.mean` and `scans.std`; here you normalize them yourself.)

# %%
result = results["fl_dp3s"]
weights = result.weights_of(0)
pixels = (images[test][..., None] / 255.0 - scans.mean) / scans.std
logits = ScanNet().apply({"params": weights.trained, **weights.carried}, pixels)
accuracy = (np.argmax(logits, axis=1) == findings[test]).mean()
print(f"by the module itself {accuracy:.4f}, by the run {result.test_accuracy[0, -1]:.4f}")

figure, axes = plt.subplots(2, 10, figsize=(9, 2.4), layout="constrained")
doubtful = np.argsort(np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2])[:20]  # least sure of these
for axis, one in zip(axes.flat, doubtful):
    right = np.argmax(logits[one]) == findings[test][one]
    axis.imshow(images[test][one], cmap="gray_r")
    axis.set_title(
        f"{findings[test][one]} → {np.argmax(logits[one])}", color="black" if right else "#D55E00", fontsize=10
    )
    axis.axis("off")
figure.suptitle("the scans that the network is least sure of: finding → prediction")
display(figure)
plt.close(figure)

# %% [markdown]
# ## 2. A table, patients, and your own loss
#
# The target is now a number: the progression of diabetes within a year, from age, sex, weight and blood values. There are no
# classes, so there are no label histograms and no GEMD; strategies that need them report this. Everything else works.
#
# The data define the clients: `client_ids` names the owner of each example, and `partition="natural"` follows it. Here a client
# holds the patients of one sex and one decade of age.

# %%
table = load_diabetes(scaled=False)
shuffled = np.random.default_rng(0).permutation(len(table.data))
inputs, progression = table.data[shuffled], table.target[shuffled]
train, test = np.arange(350), np.arange(350, len(inputs))
inputs = (inputs - inputs[train].mean(axis=0)) / inputs[train].std(axis=0)
mean, deviation = progression[train].mean(), progression[train].std()

age, sex = table.data[shuffled, 0], table.data[shuffled, 1]
groups = np.array([f"{'FM'[int(s) - 1]} {int(a) // 10 * 10}s" for a, s in zip(age, sex)])[train]
patients = Dataset.from_arrays(
    train=(inputs[train], (progression[train] - mean) / deviation),
    test=(inputs[test], (progression[test] - mean) / deviation),
    client_ids=groups, name="diabetes",
)  # fmt: skip
names, sizes = np.unique(groups, return_counts=True)
print("patients of each client:", dict(zip(names.tolist(), sizes.tolist())))

# %% [markdown]
# A **task** defines the per-example loss and the metrics. `tasks.regression` uses the squared error; the Huber loss, less
# sensitive to outliers, is one function away. Curves and targets use the first metric, here the absolute error. Strategies
# that buy losses receive this loss.

# %%
import jax.numpy as jnp

from fedjax_sel import tasks


def huber(prediction, target):  # [B], [B] -> the loss of each example, [B]
    error = jnp.abs(prediction - target)
    return jnp.where(error < 1, error**2 / 2, error - 0.5)


class Regressor(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(16)(x)))[:, 0]


def of_patients(algo) -> Experiment:
    return Experiment.of(
        dataset=patients, partition="natural", min_client_size=1, num_clients=len(names), model=Regressor(),
        task=tasks.regression()._replace(name="huber", losses=huber), algo=algo, num_selected=4, local_epochs=3,
        batch_size=8, learning_rate=0.05, rounds=ROUNDS, seeds=SEEDS, chunk=5,
    )  # fmt: skip


regressions = {algo: fedjax_sel.run(of_patients(algo), progress=True) for algo in ("random", "pow_d", "fl_dp3s")}
print("measured:", ", ".join(regressions["random"].measured))

# %%
with_one = np.hstack([inputs, np.ones((len(inputs), 1))])
together = with_one[test] @ np.linalg.lstsq(with_one[train], progression[train], rcond=None)[0]
error_together, error_of_mean = np.abs(together - progression[test]).mean(), np.abs(mean - progression[test]).mean()

figure, axis = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
show(axis, regressions, "test_absolute_error", deviation)
axis.axhline(error_of_mean, color="gray", linestyle=":", label="always the mean")
axis.axhline(error_together, color="gray", linestyle="--", label="least squares on all patients together")
axis.set(ylabel="test error (points of progression)", ylim=(0, None))
axis.legend(frameon=False, loc="lower left", ncols=2)
display(figure)
plt.close(figure)
for algo, result in regressions.items():
    print(f"{algo.ljust(8)} error in the end {deviation * result.test_absolute_error[:, -1].mean():.1f}")
print(f"least squares on all patients together {error_together:.1f}, always the mean {error_of_mean:.1f}")

# %% [markdown]
# ## 3. Other sources of data
#
# * **LEAF.** `dataset="leaf:FOLDER"` reads the output of LEAF's `preprocess.sh` for FEMNIST and Shakespeare. Each writer, or each
#   role in a play, is a client of `partition="natural"`. A smaller `num_clients` draws clients at random from the ones with at
#   least `min_client_size` examples. `model="char_lstm"` is LEAF's model for Shakespeare.
# * **Hugging Face and PyTorch.** `Dataset.from_huggingface(load_dataset(...), inputs="img", targets="label",
#   client_column="writer")` and `Dataset.from_torch(train, test)`; neither package is a dependency.
# * **By name**: `mnist`, `fashion_mnist` and `cifar10` are downloaded at first use. Folders prepared by tensorflow-datasets are
#   read.
# * **Partitions**: besides lists and `natural` there are `iid`, `shards`, `dirichlet` and more. A function of
#   (data set, number of clients, seed) draws a partition per seed.
# * Inputs and targets may be dicts or tuples of arrays, for models with several inputs.
#
# To keep such runs in a persistent folder, as in [02_compare_strategies](02_compare_strategies.ipynb), name your functions:
# `Experiment.of(..., names={"model": "scannet-1"})`. A folder identifies arrays by their SHA-256, but functions only by name.
# Change the name when you change the model; the folder then rejects a mixture of the two.
