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
# # Inside FedCor and FL-DP3S
#
# Both strategies select cohorts of dissimilar clients without seeing a label. What do they know about the clients, and how do
# they turn it into a cohort?
#
# * **FL-DP3S** (Zhang et al.) queries all clients once, before the first round. Every client sends a *profile*, the mean output
#   of the first fully-connected layer over its data. Similarities of profiles form a kernel, and a k-DPP draws cohorts from it.
# * **FedCor** (Tang et al., CVPR 2022) observes how all clients' losses change from round to round, and learns their
#   correlations. It then adds, one by one, the client whose training is expected to lower the weighted sum of all losses most.
#
# This notebook runs both, and plots their internal state beside the hidden labels. It takes about two minutes on two CPU cores.

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
# ## The setting, and the hidden labels
#
# The setting is the quickstart's: each client holds one shard of the digits, so nearly all its images have one label. One seed is
# enough here. In all plots, clients are sorted by their main label.

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image, display

from fedjax_sel import data
from fedjax_sel.reporting.plots import styles_of

ROUNDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_ROUNDS", "45"))
WARMUP = max(ROUNDS // 3, 2)  # rounds with random cohorts

SETTING = fedjax_sel.preset("quickstart").replace(rounds=ROUNDS, seeds=1, chunk=1)
N, K = SETTING.partition.num_clients, SETTING.selection.num_selected

digits = data.load("digits")
partition = data.partition.make("shards", digits.train_labels, num_clients=N, seed=0, shards_per_client=1)
counts = partition.label_counts(digits.train_labels, digits.num_classes)  # [N, labels]
label = counts.argmax(axis=1)  # main label of each client
order = np.argsort(label, kind="stable")
borders = np.flatnonzero(np.diff(label[order])) + 0.5  # between clients of two labels
middles = [np.flatnonzero(label[order] == one).mean() for one in range(digits.num_classes)]

print(f"{N} clients, {K} in a round, {ROUNDS} rounds, {WARMUP} of them FedCor's warm-up")
print(f"{counts.max(axis=1).sum() / counts.sum():.0%} of the images have their client's main label")

# %% [markdown]
# ## Run and record
#
# `Snapshots` records a strategy's state before the first round and after each chunk of rounds; with `chunk=1`, above, after
# every round. `states` holds the strategy's own state, `facts` the bought facts, each with a leading axis of seeds. The run
# has the same bits with and without it.

# %%
from fedjax_sel.callbacks import Snapshots

inside, results = {}, {}
for name, arguments in (("random", {}), ("fl_dp3s", {}), ("fedcor", {"warmup": WARMUP, "noise": 0.01})):
    inside[name] = Snapshots()
    results[name] = fedjax_sel.run(
        SETTING.replace(algo=name, algo_args=arguments), callbacks=[inside[name]], progress=True
    )

print(
    "fl_dp3s keeps", ", ".join(inside["fl_dp3s"].states[-1]._fields), "and bought", inside["fl_dp3s"].facts[-1].kinds()
)
print("fedcor keeps", ", ".join(inside["fedcor"].states[-1]._fields), "and bought", inside["fedcor"].facts[-1].kinds())

# %% [markdown]
# ## FL-DP3S: from profiles to a kernel
#
# Left: the profile of each client, the mean output of the layer of an **untrained** model. Middle: the server's similarity
# S = 1 - distance, scaled to lie between 0 and 1 (Eq. 14). Blocks along the diagonal are clients with the same label; they are
# similar although no label was sent. Other blocks are digits that look alike to this network.
#
# Right: how often the k-DPP draws two clients into the same cohort, compared with a uniform draw (counted over many cohorts
# from the same kernel; blue is rarer, red more frequent).

# %%
import jax

from fedjax_sel.numerics import kdpp, sampling

known = inside["fl_dp3s"].states[0]
profiles = inside["fl_dp3s"].facts[0].profile.value[0]  # [N, Q]
similarity = known.similarity[0]  # S, [N, N]

DRAWS = 4000
DIVERGING = plt.get_cmap("RdBu_r", 21)
keys = jax.random.split(jax.random.key(0), DRAWS)
diverse = np.asarray(jax.vmap(lambda key: kdpp.sample(key, known.eigenvalues[0], known.eigenvectors[0], K))(keys))
uniform = np.asarray(jax.vmap(lambda key: sampling.uniform_without_replacement(key, N, K))(keys))

chosen = np.zeros((DRAWS, N))
np.put_along_axis(chosen, diverse, 1.0, axis=1)
together = chosen.T @ chosen / DRAWS / (K * (K - 1) / (N * (N - 1)))  # 1: as often as in a uniform draw
np.fill_diagonal(together, np.nan)


def by_label(axis, values, **options):
    """Draw a matrix of clients by clients, sorted by label, and return the picture."""
    picture = axis.imshow(values[np.ix_(order, order)], **options)
    for border in borders:
        axis.axhline(border, color="white", linewidth=0.4)
        axis.axvline(border, color="white", linewidth=0.4)
    axis.set(xticks=middles, xticklabels=range(10), yticks=middles, yticklabels=range(10))
    axis.tick_params(length=0)
    axis.set_xlabel("clients, by main label")
    return picture


figure, axes = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
figure.get_layout_engine().set(wspace=0.06)
largest = np.abs(profiles - profiles.mean(axis=0)).max()
picture = axes[0].imshow(
    (profiles - profiles.mean(axis=0))[order], aspect="auto", cmap=DIVERGING, vmin=-largest, vmax=largest
)
axes[0].set(xlabel="unit of the layer", ylabel="clients, by main label", yticks=middles, yticklabels=range(10))
axes[0].set_title("profiles, less their mean")
figure.colorbar(picture, ax=axes[0], label="output")
figure.colorbar(by_label(axes[1], similarity, cmap=plt.get_cmap("viridis", 20), vmin=0, vmax=1), ax=axes[1], label="S")
axes[1].set_title("similarity S")
figure.colorbar(
    by_label(axes[2], together, cmap=DIVERGING, vmin=0, vmax=2), ax=axes[2], extend="max", label="times as often"
)
axes[2].set_title("drawn together, relative to chance")
display(figure)
plt.close(figure)

same = label[:, None] == label
apart = ~np.eye(N, dtype=bool)
print(
    f"mean similarity: {similarity[same & apart].mean():.2f} of clients with one label, {similarity[~same].mean():.2f} of others"
)
print(
    f"drawn together:  {np.nanmean(together[same & apart]):.2f} of chance with one label, {np.nanmean(together[~same]):.2f} with others"
)

# %% [markdown]
# ### Labels per cohort
#
# How many different labels does a cohort contain? The bars show thousands of draws; the points are the cohorts of the run.


# %%
def labels_in(cohorts) -> np.ndarray:
    """Count the different main labels of each cohort, [..., K] -> [...]."""
    return np.array([len(set(label[row])) for row in np.reshape(cohorts, (-1, K))])


figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
bins = np.arange(1, digits.num_classes + 1)
for place, (words, cohorts, color) in enumerate((("uniform", uniform, "#999999"), ("k-DPP", diverse, "#009E73"))):
    share = np.array([(labels_in(cohorts) == count).mean() for count in bins])
    axis.bar(
        bins + 0.4 * place - 0.2,
        share,
        width=0.38,
        color=color,
        label=f"{words}: {labels_in(cohorts).mean():.1f} on average",
    )
run = labels_in(results["fl_dp3s"].cohorts[0])
axis.plot(bins, [(run == count).mean() for count in bins], "o", color="#D55E00", label="the run's cohorts")
axis.set(xlabel="different main labels in a cohort", ylabel="share of cohorts", xticks=bins)
axis.legend(frameon=False, loc="upper left")
display(figure)
plt.close(figure)

# %% [markdown]
# ## FedCor: the observed losses
#
# In the warm-up, cohorts are random, and all clients report their loss at the start of each round. The plot shows the change of
# loss per round: a column is a round, red is a rise and blue a fall. Clients of one label change together, because a
# cohort with this label helps all of them. These columns are FedCor's samples.

# %%
losses = np.stack([facts.loss.value[0] for facts in inside["fedcor"].facts])  # after each round, [rounds + 1, N]
heard = np.array([facts.loss.age[0].max() == 1 for facts in inside["fedcor"].facts])  # measured as that round opened
changes = np.diff(losses[heard], axis=0)  # [samples, N]

figure, axis = plt.subplots(figsize=(8.5, 4), layout="constrained")
largest = np.quantile(np.abs(changes), 0.98)
picture = axis.imshow(
    changes.T[order], aspect="auto", cmap=DIVERGING, vmin=-largest, vmax=largest, interpolation="nearest",
    extent=(0.5, len(changes) + 0.5, N - 0.5, -0.5),
)  # fmt: skip
for border in borders:
    axis.axhline(border, color="black", linewidth=0.3)
axis.set(xlabel="round", ylabel="clients, by main label", yticks=middles, yticklabels=range(10))
figure.colorbar(picture, label="change of the client's loss (nats)", extend="both")
display(figure)
plt.close(figure)

# %% [markdown]
# ## FedCor: the learned correlations
#
# Each client k gets an embedding x_k, fitted so that the Gaussian with covariance XᵀX makes the samples likely. The
# correlation of two clients is then the cosine of their embeddings. It emerges during the warm-up: the embeddings start
# at random, and the final blocks are the labels, which FedCor never saw.

# %%
import io

import PIL.Image


def film(figure, draw, frames, milliseconds: int) -> Image:
    """Return an animation: `draw(frame)` changes the figure for each frame."""
    pictures = []
    for frame in frames:
        draw(frame)
        figure.canvas.draw()
        drawn = PIL.Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
        pictures.append(drawn)
    plt.close(figure)
    common = sorted(pictures[-1].getcolors(1 << 24), reverse=True)[:48]  # few colors, in all frames: a small file
    colors = PIL.Image.new("P", (1, 1))
    colors.putpalette([channel for _, color in common for channel in color])
    pictures = [picture.quantize(palette=colors, dither=PIL.Image.Dither.NONE) for picture in pictures]
    file = io.BytesIO()
    times = [milliseconds] * (len(pictures) - 1) + [4 * milliseconds]
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)
    return Image(file.getvalue(), format="gif")


def correlations(state) -> np.ndarray:
    """Return the cosines of all clients' embeddings, [N, N]."""
    directions = state.embeddings[0] / np.linalg.norm(state.embeddings[0], axis=0)
    return directions.T @ directions


figure, axis = plt.subplots(figsize=(4.6, 4), dpi=75, layout="constrained")
picture = by_label(axis, correlations(inside["fedcor"].states[0]), cmap=DIVERGING, vmin=-1, vmax=1)
axis.set_ylabel("clients, by main label")
figure.colorbar(picture, label="correlation")


def draw(rounds: int) -> None:
    picture.set_data(correlations(inside["fedcor"].states[rounds])[np.ix_(order, order)])
    axis.set_title(f"after round {rounds}")


film(figure, draw, [*range(0, WARMUP, 3), WARMUP + 1], 900)

# %% [markdown]
# For how many clients does the most correlated other client have the same main label?


# %%
def purity(state) -> float:
    """Return the share of clients whose nearest neighbor has their main label."""
    found = correlations(state)
    np.fill_diagonal(found, -np.inf)
    return float((label[found.argmax(axis=1)] == label).mean())


chance = ((same.sum(axis=1) - 1) / (N - 1)).mean()
for rounds in sorted({0, WARMUP // 3, 2 * WARMUP // 3, WARMUP + 1, ROUNDS}):
    print(f"after round {rounds:2d}: {purity(inside['fedcor'].states[rounds]):.0%}")
print(f"by chance:      {chance:.0%}")

# %% [markdown]
# ## FedCor: one cohort, pick by pick
#
# The score of client k is the expected fall of the weighted sum of all losses if its own loss fell by alpha_k standard
# deviations. FedCor selects the highest score, conditions the Gaussian on this choice, and computes the scores again. A client
# correlated with a selected one then adds little, so the second pick has another label, and so on. (alpha shrinks with
# each selection of a client and is reset with every fit, so the same clients are not selected repeatedly.)

# %%
from fedjax_sel.numerics import gaussian_process

update = next(  # first round after the warm-up without an update
    rounds for rounds in range(WARMUP + 1, ROUNDS)
    if np.array_equal(inside["fedcor"].states[rounds].embeddings, inside["fedcor"].states[rounds + 1].embeddings)
)  # fmt: skip
before = inside["fedcor"].states[update]
importance = (counts.sum(axis=1) / counts.sum()).astype(np.float32)  # p_i = n_i / n
model = (before.embeddings[0], importance, np.exp(before.log_scale[0]))
picks = np.asarray(gaussian_process.select_greedily(*model, K, noise=0.01))
score = jax.jit(jax.vmap(lambda ids: gaussian_process.posterior_gains(*model, ids, noise=0.01)[-1]))

figure, axes = plt.subplots(3, 1, figsize=(9, 5.6), sharex=True, layout="constrained")
for axis, made in zip(axes, (0, 1, 4)):
    left = np.setdiff1d(np.arange(N), picks[:made])
    scores = np.full(N, np.nan)
    scores[left] = score(np.stack([[*picks[:made], client] for client in left]))
    next_one = np.flatnonzero(order == picks[made])[0]
    axis.bar(range(N), scores[order], color=[f"C{one}" for one in label[order]], width=0.85)
    axis.plot(next_one, scores[picks[made]], "v", color="black", markersize=8, clip_on=False, zorder=3)
    for client in picks[:made]:
        axis.axvline(np.flatnonzero(order == client)[0], color="black", linewidth=0.8, linestyle=":")
    axis.axhline(0, color="black", linewidth=0.6)
    axis.margins(y=0.15)
    axis.set_ylabel(f"score, {made} picked" if made else "score")
axes[-1].set(
    xticks=middles, xticklabels=range(10), xlabel="clients, by main label (dotted: picked; triangle: the next)"
)
axes[-1].tick_params(axis="x", length=0)
display(figure)
plt.close(figure)

print("labels of the picks, in order:", label[picks].tolist())
print("labels of the run's cohort:   ", label[results["fedcor"].cohorts[0, update]].tolist())

# %% [markdown]
# These picks were computed from a snapshot and two public functions. Do they equal the picks of the run, in every round after
# the warm-up without a new fit?

# %%
checked = []
for rounds in range(WARMUP + 1, ROUNDS):
    state, after = inside["fedcor"].states[rounds], inside["fedcor"].states[rounds + 1]
    if np.array_equal(state.embeddings, after.embeddings):
        ids = gaussian_process.select_greedily(
            state.embeddings[0], importance, np.exp(state.log_scale[0]), K, noise=0.01
        )
        checked.append(np.array_equal(ids, results["fedcor"].cohorts[0, rounds]))
print(f"{sum(checked)} of {len(checked)} rounds")  # on a CPU, all; elsewhere rounding can change close scores

# %% [markdown]
# ## All three at work
#
# A dot is a client, in the column of its main label. Orange clients are in this round's cohort; the size shows the number of
# selections so far. The animation starts near the end of the warm-up, in which FedCor's cohorts equal those of `random`, and
# shows the change after the warm-up.

# %%
row = np.array([np.flatnonzero(np.flatnonzero(label == label[client]) == client)[0] for client in range(N)])
so_far = {
    name: np.cumsum([np.isin(np.arange(N), cohort) for cohort in result.cohorts[0]], axis=0)
    for name, result in results.items()
}

figure, axes = plt.subplots(1, 3, figsize=(9.6, 2.9), dpi=75, sharey=True, layout="constrained")
dots = {}
for axis, name in zip(axes, results):
    dots[name] = axis.scatter(label, row, s=20, color="#bbbbbb")
    axis.set(xlim=(-0.7, 9.7), ylim=(-0.8, row.max() + 0.8), xticks=range(10), yticks=[], xlabel="main label")
axes[0].set_ylabel("clients")


def draw(round: int) -> None:
    for axis, (name, result) in zip(axes, results.items()):
        cohort = np.isin(np.arange(N), result.cohorts[0, round])
        dots[name].set_sizes(15 + 8 * so_far[name][round])
        dots[name].set_facecolor(np.where(cohort, "#D55E00", "#bbbbbb"))
        dots[name].set_edgecolor(np.where(cohort, "#D55E00", "#bbbbbb"))
        axis.set_title(f"{name}: {len(set(label[cohort]))} labels", fontsize=10)
    figure.suptitle(f"round {round + 1}", fontsize=11)


film(figure, draw, range(max(WARMUP - 8, 0), min(WARMUP + 16, ROUNDS)), 500)

# %%
figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.6), layout="constrained")
rounds = np.arange(1, ROUNDS + 1)
for (name, result), style in zip(results.items(), styles_of(results).values()):
    axes[0].plot(rounds, labels_in(result.cohorts[0]), color=style.color, linewidth=1.2, marker="o", markersize=3)
    axes[1].plot(rounds, result.test_accuracy[0], color=style.color, label=name, linewidth=1.8)
for axis in axes:
    axis.axvline(WARMUP + 0.5, color="gray", linewidth=0.8, linestyle="--")
    axis.grid(alpha=0.25)
axes[0].set(
    xlabel="round (dashed: FedCor's warm-up ends)", ylabel="different main labels in the cohort", ylim=(0, 10.5)
)
axes[1].set(xlabel="round (dashed: FedCor's warm-up ends)", ylabel="test accuracy, one seed", ylim=(0, 1))
axes[1].legend(loc="lower right", frameon=False)
display(figure)
plt.close(figure)

for name, result in results.items():
    print(
        f"{name.ljust(8)} {labels_in(result.cohorts[0, WARMUP:]).mean():.1f} labels in a cohort after the warm-up, on average"
    )

# %% [markdown]
# ## Your turn
#
# * With two shards per client (`SETTING.replace(shards_per_client=2)`, and the same in `partition.make`) labels overlap. How do
#   the blocks change?
# * FL-DP3S with another profile: `algo_args={"profile": "gradient"}`. Its facts are then called `gradient`.
# * Any strategy can be recorded in this way, including your own: `Snapshots().states[t]` is the state that its functions return.
# * [02_compare_strategies](02_compare_strategies.ipynb) shows the costs.
