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
# # Compare strategies: what is information worth?
#
# A strategy with more information about the clients can choose better. But information costs bytes: models sent to clients
# that do not train, and losses, profiles or gradients sent back. Most papers plot accuracy against rounds, where information is
# free. This notebook also plots it against megabytes.
#
# It compares five strategies, from one without queries to one with many. You will see
#
# * the information that each strategy buys, and its bill to the byte;
# * two curves per strategy: by rounds, and by megabytes;
# * the statistically significant differences;
# * a comparison that resumes after the runtime dies.
#
# It takes about two minutes on two CPU cores.

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
# ## The strategies
#
# The cost of a strategy follows from the requests that it declares. It adds to the cost that all strategies share: the cohort's
# K models down and K up in every round. N counts all clients, d the candidates, P the numbers in one model, Q those in a
# profile.

# %%
from IPython.display import Markdown, display

from fedjax_sel import strategies
from fedjax_sel.cli.catalogue import buys, costs

STRATEGIES = ("random", "pow_d", "fl_dp3s", "divfl", "fedcor")


def table(rows: dict[str, dict[str, str]]) -> None:
    """Show name -> column -> cell."""
    columns = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cells.values()) + " |" for name, cells in rows.items()]
    display(Markdown("\n".join(lines)))


made = {name: strategies.make(name) for name in STRATEGIES}
table({name: {"buys": buys(strategy), "and pays": costs(strategy)} for name, strategy in made.items()})

# %% [markdown]
# ## The setting
#
# The setting is the quickstart's: small images of digits, one shard per client. For each seed, all strategies get the same
# partition, initial model and batches. The runs are therefore paired, and paired differences are more precise than averages.
#
# With too few seeds no test can find a significant difference, however large it is:

# %%
from fedjax_sel import statistics

ROUNDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_ROUNDS", "50"))
SEEDS = int(os.environ.get("FEDJAX_SEL_NOTEBOOK_SEEDS", "8"))

SETTING = fedjax_sel.preset("quickstart").replace(rounds=ROUNDS, seeds=SEEDS)
least = statistics.least_pairs()
print(f"{SETTING.partition.num_clients} clients, {SETTING.selection.num_selected} of them in a round, {ROUNDS} rounds")
print(f"{len(STRATEGIES) - 1} comparisons with random: at least {least} seeds; there are {SEEDS}")

# %% [markdown]
# ## Run them in a persistent folder
#
# Each run gets a folder. Finished runs are reused, and interrupted runs resume from their last checkpoint, with the same bits on
# a CPU. If the runtime dies, run the notebook again. **Try it:** interrupt the next cell (the square button) and run
# it again.
#
# On Colab the disk is lost with the runtime, but your Drive stays: set `KEEP_IN_DRIVE`. (If you change the setting, use another
# folder. With more `ROUNDS`, the same folder works, and only the additional rounds are run.)

# %%
KEEP_IN_DRIVE = False

RUNS = Path(os.environ.get("FEDJAX_SEL_NOTEBOOK_RUNS", "runs/02_compare_strategies"))
if KEEP_IN_DRIVE:
    from google.colab import drive

    drive.mount("/content/drive")
    RUNS = Path("/content/drive/MyDrive") / RUNS

results = {}
for name in STRATEGIES:
    results[name] = fedjax_sel.run(SETTING.replace(algo=name), out=str(RUNS / name), progress=True)
    if not results[name].finished:
        raise KeyboardInterrupt("not all rounds were run; run this cell again, and they are")

# %% [markdown]
# ## Accuracy against rounds, and against megabytes
#
# A line is the mean over the seeds, a band one standard deviation to either side. The left plot ignores the cost of information.
# On the right, a line that starts late has paid for information first.

# %%
import matplotlib.pyplot as plt
import numpy as np

from fedjax_sel.reporting.plots import styles_of

MEGABYTE = 1e6


def megabytes(result) -> np.ndarray:
    """Sent up to and with each round, down and up, [seeds, rounds]."""
    return (result.ledger.bytes_down + result.ledger.bytes_up).cumsum(axis=1) / MEGABYTE


def show_curves() -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.3), sharey=True, layout="constrained")
    styles = styles_of(results)  # as in every picture of the package
    for name, result in results.items():
        mean, deviation = result.test_accuracy.mean(axis=0), result.test_accuracy.std(axis=0, ddof=1)
        for axis, x in zip(axes, (np.arange(1, result.num_rounds + 1), megabytes(result).mean(axis=0))):
            color, line = styles[name].color, styles[name].line
            axis.plot(x, mean, color=color, linestyle=line, linewidth=1.8, label=name)
            low, high = mean - deviation, np.minimum(mean + deviation, 1)
            axis.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
    axes[0].set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
    axes[1].set(xlabel="megabytes sent, down and up")
    for axis in axes:
        axis.grid(alpha=0.25)
    axes[0].legend(loc="lower right", frameon=False)
    display(figure)
    plt.close(figure)


show_curves()

# %% [markdown]
# ## The bill
#
# `result.ledger` counts the traffic of a federation, per seed and round, in exact integers. The traffic beyond that of `random`
# is the price of a strategy's information. (A client that is queried and then selected receives the model only once.)


# %%
def show_bill() -> None:
    figure, axis = plt.subplots(figsize=(8.5, 0.5 * len(results) + 1.2), layout="constrained")
    base = results["random"].ledger
    for place, result in enumerate(results.values()):
        parts = (
            ("the cohort's models", (base.bytes_down + base.bytes_up), "#999999"),
            ("information, down", result.ledger.bytes_down - base.bytes_down, "#56B4E9"),
            ("information, up", result.ledger.bytes_up - base.bytes_up, "#D55E00"),
        )
        left = 0.0
        for words, sent, color in parts:
            width = sent.sum(axis=1).mean() / MEGABYTE
            axis.barh(place, width, left=left, color=color, label=words if place == 0 else None)
            left += width
        axis.annotate(f" {left:.1f}", (left, place), va="center")
    axis.set_yticks(range(len(results)), results)
    axis.invert_yaxis()
    axis.set(xlabel=f"megabytes in {ROUNDS} rounds, mean over the seeds")
    axis.margins(x=0.1)
    axis.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.45, 1.17))
    display(figure)
    plt.close(figure)


show_bill()

# %% [markdown]
# ## Cost of an equal accuracy
#
# The target is the final mean accuracy of random selection, rounded down. How many rounds and megabytes does each strategy need
# to reach it? If some seed never reaches the target, the mean is undefined, and the table shows only the number of seeds that
# did.

# %%
from fedjax_sel import metrics

TARGET = np.floor(100 * metrics.mean_of_last_rounds(results["random"].test_accuracy, 10).mean()) / 100


def show_costs_of_target() -> None:
    rows = {}
    for name, result in results.items():
        reached = result.rounds_to_target(TARGET)
        spent = metrics.amount_at_round((result.ledger.bytes_down + result.ledger.bytes_up) / MEGABYTE, reached)
        arrived = int((~np.isnan(reached)).sum())
        all_did = arrived == len(reached)
        rows[name] = {
            f"rounds to {TARGET:.0%}": f"{reached.mean():.1f} ± {reached.std(ddof=1):.1f}" if all_did else "N/A",
            "megabytes until then": f"{spent.mean():.1f} ± {spent.std(ddof=1):.1f}" if all_did else "N/A",
            "seeds that arrived": f"{arrived} of {len(reached)}",
        }
    table(rows)


show_costs_of_target()

# %% [markdown]
# ## Statistical significance
#
# The seeds are paired, so a sign-flip test applies: if a strategy were no better than `random`, each seed's difference could
# equally have the opposite sign. The joint p-values account for the four simultaneous tests. The second table repeats the tests
# at equal cost: the last ten rounds until each run had sent the total megabytes of `random`.


# %%
def compare(words: str, accuracy: dict[str, np.ndarray]) -> None:
    """Compare with random, paired by seed; accuracy [seeds] of each strategy."""
    others = [name for name in accuracy if name != "random"]
    found = statistics.compare(np.stack([accuracy[name] - accuracy["random"] for name in others]))
    table({
        name: {
            words: f"{accuracy[name].mean():.3f}",
            "more than random": f"{one.difference:+.3f}",
            "interval": f"{one.low:+.3f} to {one.high:+.3f}",
            "joint p": f"{one.p_family:.3f}",
            "leads in": f"{one.leads} of {one.seeds}",
            "verdict": one.verdict,
        }
        for name, one in zip(others, found)
    })  # fmt: skip


def at_equal_cost(result) -> np.ndarray:
    """The mean accuracy of the last ten rounds that the budget pays for; 0 where it pays for none, [seeds]."""
    affordable = (megabytes(result) <= megabytes(results["random"])[:, -1:]).sum(axis=1)
    paid = [row[max(rounds - 10, 0) : rounds] for row, rounds in zip(result.test_accuracy, affordable)]
    return np.array([row.mean() if len(row) else 0.0 for row in paid])


compare(f"accuracy, last 10 of {ROUNDS} rounds", {
    name: metrics.mean_of_last_rounds(result.test_accuracy, 10) for name, result in results.items()
})  # fmt: skip
compare("accuracy for the same megabytes", {name: at_equal_cost(result) for name, result in results.items()})

# %% [markdown]
# The difference between the two tables matters here, not the ranking: this is a toy problem with small images and extremely
# different clients. On larger problems the ranking differs; see the package's `results` folder.

# %% [markdown]
# ## Your turn
#
# FedCor pays for a *warm-up*, the losses of all clients in rounds 1 to 16, and for *probes*: every ten rounds all clients
# evaluate two models. Does it need both? Shorten the warm-up, or choose another strategy, such as `oort`, `afl` or `fed_cbs`,
# run the cell, and compare.

# %%
ANOTHER, ARGUMENTS = None, {}  # for example "fedcor", {"warmup": 8}

if ANOTHER is not None:
    label = f"{ANOTHER} {ARGUMENTS or ''}".strip()
    folder = RUNS / "".join(c if c.isalnum() or c in "._-" else "_" for c in label)
    results[label] = fedjax_sel.run(SETTING.replace(algo=ANOTHER, algo_args=ARGUMENTS), out=str(folder), progress=True)
    show_curves()
    show_bill()
    show_costs_of_target()

# %% [markdown]
# In a terminal, `python -m fedjax_sel compare --algos random pow_d fl_dp3s divfl fedcor --seeds 8 --rounds 50 --out
# runs/compared` does the same, with more plots and tables, and resumes in the same way.
