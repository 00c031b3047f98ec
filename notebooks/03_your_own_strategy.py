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
# # Your own strategy
#
# You have an idea for client selection. This notebook shows how to implement it in forty lines and how to verify it.
#
# The idea: **if clients report how many examples of each label they have, the server can choose cohorts whose pooled labels match
# those of all clients.** This needs no model, only a few numbers, once. (It reveals each client's labels to the server, which may
# be unacceptable in practice. A simulation shows the value of this information.)
#
# You will write the strategy, check it with the conformance kit, compare it with two others, and read its bill. It takes about
# two minutes on two CPU cores.

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
# ## Write it
#
# A strategy consists of a few pure functions and a declaration of the facts that it *buys*. This one buys the `label_histogram` of
# all clients before the first round. The simulator stores it in a table, `now.info.label_histogram.value`, `[N, C]`. In each round
# the strategy draws a pool of clients uniformly. It then builds the cohort greedily from the pool: each step adds the client
# that brings the pooled labels nearest to the labels of all clients.

# %%
import jax
import jax.numpy as jnp

from fedjax_sel import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies import ALL, NEVER, Now, Request, Selection, Strategy, at_start


def balanced_labels(*, pool: int = 30) -> Strategy:
    if pool < 1:
        raise UserError(f"balanced_labels: pool={pool} is below 1; give a size such as 30")

    def select(key, state, now: Now) -> Selection:
        counts, age = now.info.label_histogram  # [N, C], [N]
        counts = jnp.where((age < NEVER)[:, None], counts, 1.0)  # a client that never answered: one example per label
        wanted = counts.sum(axis=0) / counts.sum()  # label shares of all clients
        num_clients, k, available = now.env.num_clients, now.env.num_selected, now.available
        key_pool, key_picks = jax.random.split(key)
        drawn = sampling.uniform_without_replacement(key_pool, num_clients, min(max(pool, k), num_clients), available)
        in_pool = jnp.zeros((num_clients,), bool).at[drawn].set(True)

        def pick(carry, key):
            pooled, picked = carry  # [C], [N]
            pooled_with = pooled + counts  # pooled labels with each client as the next one, [N, C]
            distance = jnp.abs(pooled_with / pooled_with.sum(axis=1, keepdims=True) - wanted).sum(axis=1)
            score = jnp.where(eligible, -distance, -9.0)  # others fill the places that remain
            client = sampling.top_k(key, jnp.where(picked, -jnp.inf, score), 1)[0]  # ties are broken at random
            return (pooled + counts[client], picked.at[client].set(True)), client

        eligible = in_pool if available is None else in_pool & available
        none_yet = (jnp.zeros_like(wanted), jnp.zeros((num_clients,), bool))
        _, ids = jax.lax.scan(pick, none_yet, jax.random.split(key_picks, k))
        return Selection.of(ids, available)

    return Strategy("balanced_labels", select, requests=(Request("label_histogram", ALL, at_start()),))


# %% [markdown]
# The rules:
#
# * `select` is traced by JAX once: no `if` on arrays, no growing lists. It then runs inside the compiled rounds, for all seeds
#   at once.
# * All randomness comes from `key`, which differs in every round and seed.
# * `now.available` is None if all clients are available, else bool `[N]`. If too few are available, the mask is
#   False in the unused places.
# * A strategy trains, evaluates and averages nothing. The simulator does this in the same way for every strategy.

# %% [markdown]
# ## Check it
#
# The kit runs the strategy on simulated clients and checks common mistakes: equal cohorts for equal keys; ties; relabeled
# clients; K = 1 and K = N; unavailable clients.

# %%
from fedjax_sel.testing import examine

GAMES = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_GAMES", "128"))  # over which the kit counts frequencies

report = examine(balanced_labels, games=GAMES, run=False)
print(report)

# %% [markdown]
# Here is a common mistake that the kit finds: ties without a random choice. With clients sorted by label, `lax.top_k` would
# select clients of the first labels, round after round.


# %%
def careless() -> Strategy:
    def select(key, state, now: Now) -> Selection:
        evenness = -jnp.abs(now.info.label_histogram.value / 10 - 1).sum(axis=1)
        k = now.env.num_selected
        ids = jax.lax.top_k(evenness, k)[1]
        return Selection(ids, None, jnp.ones((k,), bool))

    return balanced_labels()._replace(name="careless", select=select)


found = examine(careless, games=GAMES, run=False).findings
for check, finding in found.items():
    if finding.status == "failed":
        print(f"{check}: {finding.why}\n")

# %% [markdown]
# The contract itself rejects another mistake: reading a fact that was not bought.

# %%
no_request = balanced_labels()._replace(name="no_request", requests=())
try:
    fedjax_sel.run(fedjax_sel.Experiment.of(algo=no_request, rounds=1))
except UserError as error:
    print(error)

# %% [markdown]
# ## Run it
#
# A strategy is a value and can replace a name. Two strategies serve as comparison: `random`, and `fl_dp3s`, which infers from
# profiles what ours reads from labels. The setting is the quickstart's, in which clients hold one or two labels.

# %%
from fedjax_sel import Experiment

ROUNDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_ROUNDS", "60"))
SEEDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_SEEDS", "3"))

SETTING = fedjax_sel.preset("quickstart").replace(rounds=ROUNDS, seeds=SEEDS)
STRATEGIES = {"random": "random", "fl_dp3s": "fl_dp3s", "balanced_labels": balanced_labels()}
results = {name: fedjax_sel.run(Experiment.of(SETTING, algo=algo), progress=True) for name, algo in STRATEGIES.items()}

# %% [markdown]
# ## Does it work?
#
# First look at the cohorts. Every column is a round, every row a label; a dark cell means that a large share of the cohort's
# images has this label. A balanced cohort has one shade of blue throughout.

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

from fedjax_sel import data
from fedjax_sel.reporting.plots import styles_of

digits = data.load("digits")
partition = data.partition.make("shards", digits.train_labels, num_clients=50, seed=0, shards_per_client=1)
counts = partition.label_counts(digits.train_labels, digits.num_classes)  # [clients, labels], of seed 0

figure, axes = plt.subplots(1, 3, figsize=(11, 3), sharey=True, layout="constrained")
for axis, (name, result) in zip(axes, results.items()):
    pooled = counts[result.cohorts[0]].sum(axis=1)  # [rounds, labels]
    shares = (pooled / pooled.sum(axis=1, keepdims=True)).T
    picture = axis.imshow(
        shares, aspect="auto", cmap="Blues", vmin=0, vmax=0.5, origin="lower",
        extent=(0.5, ROUNDS + 0.5, -0.5, digits.num_classes - 0.5),
    )  # fmt: skip
    axis.set(title=name, xlabel="round", yticks=range(digits.num_classes))
axes[0].set_ylabel("label")
figure.colorbar(picture, label="share of the cohort's images", extend="max")
display(figure)
plt.close(figure)

# %% [markdown]
# GEMD is the distance between the label distributions of the cohort and of all clients, which the strategy minimizes. Whether
# a small GEMD helps the model is a separate question, answered by the accuracy. (A line is the mean over the seeds, a band one
# standard deviation to either side.)

# %%
COLORS = {name: style.color for name, style in styles_of(results).items()}  # as in every picture of the package

figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
for name, result in results.items():
    for axis, values in zip(axes, (result.test_accuracy, result.gemd)):
        mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
        rounds = np.arange(1, result.num_rounds + 1)
        axis.plot(rounds, mean, color=COLORS[name], label=name, linewidth=1.8)
        axis.fill_between(
            rounds, np.maximum(mean - deviation, 0), mean + deviation, color=COLORS[name], alpha=0.12, linewidth=0
        )
axes[0].set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
axes[1].set(xlabel="round", ylabel="GEMD of the cohort (lower: more balanced)", ylim=(0, None))
axes[0].legend(loc="lower right", frameon=False)
for axis in axes:
    axis.grid(alpha=0.25)
display(figure)
plt.close(figure)

# %% [markdown]
# ## Read its bill
#
# The bill counts every number that a strategy receives, per seed and round. Facts bought before the first round are billed to
# the first round.

# %%
mine, uniform = results["balanced_labels"].ledger, results["random"].ledger
extra = mine.floats_up - uniform.floats_up  # [seeds, rounds]
print("numbers sent up beyond random's, in the first rounds:", extra[0, :5].tolist())
print(f"that is {counts.shape[0]} clients x {counts.shape[1]} labels = {counts.size}")
assert (extra.sum(axis=1) == counts.size).all() and (mine.models_down == uniform.models_down).all()
for name, result in results.items():
    total = (result.ledger.bytes_down + result.ledger.bytes_up).sum(axis=1).mean()
    accuracy = result.test_accuracy[:, -10:].mean()
    print(f"{name.ljust(16)} {total / 1e6:6.2f} MB sent   mean accuracy of the last 10 rounds {accuracy:.3f}")

# %% [markdown]
# ## Next steps
#
# * **Your turn:** is a pool of 30 a good choice? With `balanced_labels(pool=50)` every client is in every pool. Look at the
#   GEMD, and then at `result.selection_counts`: which clients train most often now?
# * Clients may be unavailable: `SETTING.replace(available=0.5)` makes a random half available in each round.
# * Saved as `my_strategies.py`, the same code runs from a terminal: `python -m fedjax_sel.train --algo
#   my_strategies:balanced_labels --algo-args pool=20`, and `python -m fedjax_sel test my_strategies:balanced_labels`
#   checks it.
# * `docs/add_a_strategy.md` explains a strategy that learns in every round, and lists the other facts.
