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
# You have an idea whom to select. How much code is it to try it, and how do you know that it does what you think?
#
# The idea here: **if clients told how many examples of each label they have, one could choose cohorts whose pooled labels
# look like everybody's.** No model is needed for that, only a few numbers, once. (It tells the server who holds what,
# which may be more than your clients want to tell. A simulation lets you ask what it would be worth.)
#
# You will write it in forty lines, have it checked by the conformance kit, run it against two others, and read its bill.
# It takes about two minutes on two CPU cores.

# %% [markdown]
# ## Install
#
# This does nothing where `fedjax_sel` is there already; [01_quickstart](01_quickstart.ipynb) says where the cell takes it
# from.

# %% jupyter={"source_hidden": true}
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FEDJAX_SEL_SOURCE = os.environ.get("FEDJAX_SEL_SOURCE")

SCRATCH = Path(tempfile.mkdtemp())  # whatever the notebook writes goes here

if importlib.util.find_spec("fedjax_sel") is None:
    here = Path.cwd()
    clones = [folder for folder in (here, here.parent) if (folder / "fedjax_sel" / "version.py").exists()]
    archives = sorted([*here.glob("fedjax_sel*.whl"), *here.glob("fedjax_sel*.zip")], key=os.path.getmtime)
    source = FEDJAX_SEL_SOURCE or next(map(str, [*clones, *archives[::-1]]), None)
    if source is None:
        sys.exit(
            f"fedjax_sel is not on PyPI: put its wheel into {here}, or set FEDJAX_SEL_SOURCE to where it is, and run "
            "this cell again."
        )
    there = {package.name.lower(): package.version for package in importlib.metadata.distributions()}
    kept = [f"{name}=={there[name]}" for name in ("jax", "jaxlib", "numpy") if name in there]
    (SCRATCH / "kept.txt").write_text("\n".join(kept))
    print(f"installing {source} and what it needs; {', '.join(kept) or 'nothing'} stays")
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
# A strategy declares what it *buys* and is a handful of pure functions. This one buys `label_histogram` of all clients,
# before the first round; it then stands in a table, `info.label_histogram.value`, `[N, C]`. In each round it draws a pool
# of clients uniformly, and picks the cohort from the pool one by one: whoever brings the pooled labels nearest to those
# of all clients together.

# %%
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import ALL, Env, Request, Selection, Static, Strategy, at_start


class State(NamedTuple):
    num_selected: Static  # K, which stays a plain integer under jit


def balanced_labels(*, pool: int = 30) -> Strategy:
    if pool < 1:
        raise UserError(f"balanced_labels: pool={pool} is nobody; give 1 or more, such as 30")

    def init(key: jax.Array, env: Env) -> State:
        return State(Static(env.num_selected))

    def select(key, state: State, info, round, available) -> Selection:
        counts = info.label_histogram.value  # [N, C]
        wanted = counts.sum(axis=0) / counts.sum()  # everybody's mix
        num_clients, k = counts.shape[0], state.num_selected.value
        key_pool, key_picks = jax.random.split(key)
        drawn = sampling.uniform_without_replacement(key_pool, num_clients, min(max(pool, k), num_clients), available)
        in_pool = jnp.zeros((num_clients,), bool).at[drawn].set(True)

        def pick(carry, key):
            pooled, picked = carry  # [C], [N]
            mixes = pooled + counts  # if this client came next, [N, C]
            distance = jnp.abs(mixes / mixes.sum(axis=1, keepdims=True) - wanted).sum(axis=1)
            score = jnp.where(welcome, -distance, -9.0)  # others fill places only where too few are there
            client = sampling.top_k(key, jnp.where(picked, -jnp.inf, score), 1)[0]  # ties are broken at random
            return (pooled + counts[client], picked.at[client].set(True)), client

        welcome = in_pool if available is None else in_pool & available
        nobody_yet = (jnp.zeros_like(wanted), jnp.zeros((num_clients,), bool))
        _, ids = jax.lax.scan(pick, nobody_yet, jax.random.split(key_picks, k))
        return Selection(ids, None, jnp.ones((k,), bool) if available is None else available[ids])

    return Strategy("balanced_labels", init, select, requests=(Request("label_histogram", ALL, at_start()),))


# %% [markdown]
# What to notice:
#
# * `select` is traced by JAX, once: no `if` on arrays, no lists that grow. It then runs inside the compiled rounds, for all
#   seeds at once.
# * Everything random comes from `key`, which is another one in every round and seed.
# * `available` is None where everyone can be reached, else bool `[N]`. Where too few can, the mask says who does not count.
# * Nothing is trained, evaluated or averaged here. That is the simulator's work, and the same for every strategy.

# %% [markdown]
# ## Have it checked
#
# The kit plays the strategy against made-up clients and looks for what one's own tests easily forget: the same cohorts
# with and without `jit`, `scan` and `vmap`; ties; relabelled clients; K = 1 and K = N; clients that cannot be reached.

# %%
from fedjax_sel.testing import examine

GAMES = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_GAMES", "128"))  # over which the kit counts frequencies

report = examine(balanced_labels, games=GAMES, run=False)
print(report)

# %% [markdown]
# A kit that never complains is worth nothing, so here is a mistake that many make: no random choice among equals. On
# clients sorted by label, `lax.top_k` would then take those of the first labels, round after round.


# %%
def careless() -> Strategy:
    def select(key, state, info, round, available) -> Selection:
        evenness = -jnp.abs(info.label_histogram.value / 10 - 1).sum(axis=1)
        k = state.num_selected.value
        ids = jax.lax.top_k(evenness, k)[1]
        return Selection(ids, None, jnp.ones((k,), bool))

    return balanced_labels()._replace(name="careless", select=select)


found = examine(careless, games=GAMES, run=False).findings
for check, finding in found.items():
    if finding.status == "failed":
        print(f"{check}: {finding.why}\n")

# %% [markdown]
# And here is one that the contract itself refuses: reading what was not bought. Nothing is free by mistake.

# %%
penniless = balanced_labels()._replace(name="penniless", requests=())
try:
    fedjax_sel.run(fedjax_sel.Experiment.of(algo=penniless, rounds=1))
except UserError as error:
    print(error)

# %% [markdown]
# ## Run it
#
# A strategy is a value: it stands where a name would. The other two are there to compare with: `random`, and `fl_dp3s`,
# which guesses from profiles what ours is told. The setting is the quickstart's, in which clients hold one label or two.

# %%
from fedjax_sel import Experiment

ROUNDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_ROUNDS", "60"))
SEEDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_SEEDS", "3"))

SETTING = fedjax_sel.preset("quickstart").replace(rounds=ROUNDS, seeds=SEEDS)
STRATEGIES = {"random": "random", "fl_dp3s": "fl_dp3s", "balanced_labels": balanced_labels()}
results = {name: fedjax_sel.run(Experiment.of(SETTING, algo=algo), progress=True) for name, algo in STRATEGIES.items()}

# %% [markdown]
# ## Does it do what it should?
#
# First the cohorts themselves. Every column is a round, every row a label; dark means that a large share of the cohort's
# images has this label. A balanced cohort is one shade of blue all over.

# %%
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

from fedjax_sel import data
from fedjax_sel.reporting.styles import styles_of

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
# Then what it is good for. GEMD is the distance between the cohort's mix of labels and everybody's: what the strategy
# makes small. Whether that helps the model is another question, and the one that counts. (A line is the mean over the
# seeds, a band one standard deviation to either side.)

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
# Every number that a strategy is told is on the bill of the run, per seed and round. What was bought before the first
# round is billed to the first.

# %%
mine, uniform = results["balanced_labels"].ledger, results["random"].ledger
told = mine.floats_up - uniform.floats_up  # [seeds, rounds]
print("numbers sent up beyond random's, in the first rounds:", told[0, :5].tolist())
print(f"that is {counts.shape[0]} clients x {counts.shape[1]} labels = {counts.size}")
assert (told.sum(axis=1) == counts.size).all() and (mine.models_down == uniform.models_down).all()
for name, result in results.items():
    total = (result.ledger.bytes_down + result.ledger.bytes_up).sum(axis=1).mean()
    accuracy = result.test_accuracy[:, -10:].mean()
    print(f"{name.ljust(16)} {total / 1e6:6.2f} MB sent   mean accuracy of the last 10 rounds {accuracy:.3f}")

# %% [markdown]
# ## Go on
#
# * **Your turn:** is a pool of 30 a good one? With `balanced_labels(pool=50)` everybody is in it, in every round. Look at
#   the GEMD, and then at `result.selection_counts`: who trains how often now?
# * Clients may not always be there: `SETTING.replace(available=0.5)` lets half of them be reached in each round.
# * Saved as `my_strategies.py`, the same code runs from a terminal: `python -m fedjax_sel.train --algo
#   my_strategies:balanced_labels --algo-args pool=20`, and `python -m fedjax_sel test my_strategies:balanced_labels`
#   checks it.
# * `docs/add_a_strategy.md` walks through one that learns in every round, and says what else can be bought.
