"""FedCor Fig. 7 and FedGP Fig. 4: clients with the same label have neighboring embeddings after the warm-up."""

from functools import partial
from typing import Any

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.strategies.fedcor_presets import look_up
from studies.papers import state, tables, verdicts
from studies.papers.entries.fedcor import PAPER_SEEDS, about, configuration, task_of
from studies.papers.entry import Cell, Entry, Results, Scale
from studies.papers.page import Page, Row

COLUMNS = ("fmnist-1spc", "cifar10-1spc")
MOST = 0.5
EMBEDDINGS = ".strategy.embeddings"  # path in the final state, [seeds, d, N]
RULE = (
    "The number is the share of clients whose nearest neighbor has the same label. Neighbors are by the angle between "
    "embeddings in the round after the warm-up. Reproduced if the 95 % interval of the mean over seeds lies above "
    f"{MOST}; contradicted if it lies below the value of random embeddings, the share of other clients with the label."
)


def purity(embeddings: np.ndarray, labels: np.ndarray) -> float:
    """Return the fraction of clients whose nearest neighbor by angle has the same label.

    Args:
        embeddings: embeddings of the clients, [d, N].
        labels: labels of the clients, int [N].
    """
    directions = embeddings / np.linalg.norm(embeddings, axis=0)
    cosines = directions.T @ directions
    np.fill_diagonal(cosines, -np.inf)
    return float((labels[cosines.argmax(axis=1)] == labels).mean())


def chance(labels: np.ndarray) -> float:
    """Return the expected purity of random embeddings.

    Args:
        labels: labels of the clients, int [N].
    """
    alike = (labels[:, None] == labels).sum(axis=1) - 1
    return float(alike.mean() / (len(labels) - 1))


def _judge(row: str, results: Results, scale: Scale) -> Page:
    rows: list[Row] = []
    pictures: dict[str, Any] = {}
    for cell, result in results.items():
        embeddings, labels = state.after(result)[EMBEDDINGS], state.main_labels(result)
        found = np.array([purity(one, own) for one, own in zip(embeddings, labels)])
        by_chance = float(np.mean([chance(own) for own in labels]))
        low, high = map(float, statistics.mean_interval(found))
        verdict = verdicts.of_bound(low, high, len(found), MOST, other=by_chance, whole=scale.whole_rounds)
        rows.append(
            Row(cell.column, f"{row}: nearest neighbors with the same label", "clusters (picture)",
                f"{tables.mean_and_sd(found, 2)}; by chance {by_chance:.2f}", len(found),
                tables.interval(float(found.mean()) - by_chance, low - by_chance, high - by_chance, 2), verdict)
        )  # fmt: skip
        pictures[f"{cell.column}.png"] = _figure(embeddings[0], labels[0])
    return Page(rows, ["The pictures show the first seed.", *about(results)] if results else (), pictures)


def _figure(embeddings: np.ndarray, labels: np.ndarray) -> Any:
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    directions = (embeddings / np.linalg.norm(embeddings, axis=0)).T
    perplexity = min(10.0, (len(directions) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(directions)
    figure = Figure(figsize=(5.2, 4.4), layout="constrained")
    axis = figure.subplots()
    for label in np.unique(labels):
        axis.scatter(*places[labels == label].T, s=22, label=str(label), color=f"C{label % 10}")
    axis.legend(title="label", frameon=False, ncols=2)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_title("t-SNE of normalized embeddings")
    return figure


def _entry(name: str, algo: str) -> Entry:
    runs = {}
    for column in COLUMNS:
        warmup = look_up(algo, "paper", task_of(column)).warmup
        # The model is fitted to the warm-up's last sample at the start of the next round.
        runs[Cell(column, algo)] = configuration(column, algo).replace(rounds=warmup + 1, seeds=PAPER_SEEDS)
    cost = "Fashion-MNIST 1 minute; CIFAR-10 half an hour on a CPU"
    return Entry(name, RULE, runs, partial(_judge, algo), cost, state.keeping(EMBEDDINGS))


ENTRIES = (_entry("fedgp/fig4", "fedgp"), _entry("fedcor/fig7", "fedcor"))
