"""Summaries of committed results per strategy, as Markdown."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from studies.papers_setting.settings import SETTINGS

_BUDGETS = {  # budget -> measure on the leaderboard, and in the papers' setting; None: its runs have no clock
    "after equal rounds": ("accuracy", "last_rounds_accuracy"),
    "at equal megabytes": ("accuracy_at_equal_megabytes", "accuracy_at_100_percent_of_megabytes"),
    "at equal seconds": ("accuracy_at_equal_seconds", None),
}


def of_strategy(root: Path, name: str) -> str:
    """Return links to a strategy's results and the time of its selection; one sentence if there are no results."""
    parts = [part for part in (_more(root, name), _selection_cost(root, name)) if part]
    return "\n\n".join(parts) or "None are committed yet."


def in_short(root: Path, name: str) -> dict[str, str]:
    """Return the measured rows of a strategy's fact box: head -> text.

    Args:
        root: the repository's root.
        name: the strategy's name.
    """
    tuned, settings = list(_tuned(root, name)), list(_settings(root, name))
    if not tuned and not settings:
        return {"measured": "not on the leaderboard yet"}
    board = f"{len(tuned)} [settings with tuned rates](../../results/leaderboard/README.md)"
    papers = f"{len(settings)} [settings](../../results/papers_setting/README.md)"
    if name == "random":
        return {"measured": f"the baseline in all {board} and in all {papers} of the papers"}
    ratios = sorted(
        [float(row["times_random"]) for _, row in tuned]
        + [_megabytes(row) / _megabytes(baseline) for _, _, row, baseline in settings]
    )
    shown = list(dict.fromkeys(f"{ratio:.2f}" for ratio in (ratios[0], ratios[-1])))
    found = {"megabytes": f"{' to '.join(shown)} times random selection's"}
    across = _read(root / "results" / "papers_setting" / "across_fashion-mnist_and_mnist.csv")
    for budget, (measure, measure_of_papers) in _BUDGETS.items():
        if tuned:
            verdicts = [(title, row[f"{measure}_verdict"]) for title, row in tuned]
            found[budget] = f"{_counts(verdicts)} of {board}"
            for kind in ("better", "worse") if budget != "at equal megabytes" else ():
                titles = [title for title, verdict in verdicts if verdict == kind]
                found |= {f"{kind} {budget}": _by_data_set(titles)} if titles else {}
        if not settings or measure_of_papers is None:
            continue
        lead = ""
        for row in across:
            if row["row"] == name:
                iqm, low, high = (float(row[f"{measure_of_papers}_{column}"]) for column in ("iqm", "low", "high"))
                lead = f"{iqm:+.3f} accuracy over random ({low:+.3f} to {high:+.3f}); "
        verdicts = [(title, row[f"{measure_of_papers}_verdict"]) for _, title, row, _ in settings]
        found[f"{budget}, papers' setting"] = f"{lead}{_counts(verdicts)} of {papers}"
    return found


def _counts(verdicts: list[tuple[str, str]]) -> str:
    better, worse = (sum(verdict == kind for _, verdict in verdicts) for kind in ("better", "worse"))
    return f"better in {better}, worse in {worse}"


def _tuned(root: Path, name: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the leaderboard's settings under FedAvg: title, and the strategy's row."""
    for page in sorted((root / "results" / "leaderboard").glob("*/README.md")):
        for row in _read(page.parent / "table.csv"):
            if row["row"] == name:
                title = _title(page.parent).replace(", MLP", "").replace(", GRU", "")
                yield title.replace(" features, one hidden layer", " features").replace("; a look", " (a look)"), row


def _by_data_set(titles: list[str]) -> str:
    """Return titles such as "MNIST, Dirichlet 0.2" grouped by their data set."""
    groups: dict[str, list[str]] = {}
    for title in titles:
        data, _, partition = title.partition(", ")
        groups.setdefault(data, []).append(partition)
    return "; ".join(f"{data}: {', '.join(ways)}" if any(ways) else data for data, ways in groups.items())


def _settings(root: Path, name: str) -> Iterator[tuple[Path, str, dict[str, str], dict[str, str]]]:
    """Yield the papers' settings under FedAvg: folder, title, the strategy's row, and random selection's."""
    for path in sorted((root / "results" / "papers_setting").glob("*/table.csv")):
        if path.parent.name not in SETTINGS:  # a part of the papers' setting under other conditions
            continue
        rows = {row["algo"]: row for row in _read(path) if row["optimizer"] in ("", "fedavg")}
        if name in rows:
            yield path.parent, _title(path.parent), rows[name], rows["random"]


def _title(folder: Path) -> str:
    """Return a setting's title: the first line of its page."""
    page = folder / "README.md"
    if not page.is_file():
        return folder.name
    with page.open(encoding="utf-8") as file:
        title = file.readline().strip("# \n").partition(" (`")[0]
    return title


def _megabytes(row: dict[str, str]) -> float:
    return float(row["megabytes_down"]) + float(row["megabytes_up"])


_MORE = {  # a file with a row per strategy -> what it compares
    "papers_setting/no-dropout-fmnist-1spc/table.csv": "without dropout",
    "papers_setting/lenet-fmnist-1spc/table.csv": "with LeNet-5",
    "optimizers/comparison.csv": "five optimizers",
    "absence/available_1.csv": "unavailable clients",
}


def _more(root: Path, name: str) -> str:
    """Return links to other results in which a strategy occurs."""
    links = [
        f"[{about}](../../results/{Path(file).parent}/README.md)"
        for file, about in _MORE.items()
        if any(row["algo"] == name for row in _read(root / "results" / file))
    ]
    clocks = (root / "results" / "papers_setting").glob("clock-*/table.csv")
    if any(row["algo"] == name for path in clocks for row in _read(path)):
        links.append("[against simulated seconds](../../results/papers_setting/seconds/README.md)")
    if any(_settings(root, name)):
        links.insert(0, "[accuracies in all settings](../../results/papers_setting/accuracy.md)")
    text = ", ".join(links)
    return text[:1] + text[1:2].upper() + text[2:]


def _selection_cost(root: Path, name: str) -> str:
    found = json.loads((root / "results" / "selection_cost.json").read_text(encoding="utf-8"))
    cases = [case for case in found["cases"] if case["algo"] == name and "milliseconds_per_round" in case]
    if not cases:
        return ""
    times = ", ".join(f"{case['milliseconds_per_round']:.1f} ms for {case['num_clients']:,} clients" for case in cases)
    return f"Selection per round on [two CPU cores](../../results/selection_cost.json): {times}."


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
