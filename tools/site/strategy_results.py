"""What committed results say of a strategy, as Markdown; nothing is typed."""

import csv
import json
from pathlib import Path

_GRIDS = {  # folder with a comparison.csv -> what it is
    "fmnist_eleven": "eleven strategies on Fashion-MNIST",
    "optimizers": "three strategies under five optimizers, Fashion-MNIST",
}
_COLUMNS = {  # of comparison.csv: name -> heading, digits
    "last_rounds_accuracy": ("accuracy of the last 10 rounds", 3),
    "rounds_to_target": ("rounds to the target", 0),
    "megabytes_down_to_target": ("MB down until then", 0),
    "gemd": ("GEMD of the cohorts", 2),
}


def of_strategy(root: Path, name: str) -> str:
    """Return tables of a strategy's results; one sentence if there are no results."""
    parts = [part for part in (_leaderboard(root, name),) if part]
    for folder, about in _GRIDS.items():
        path = root / "results" / folder / "comparison.csv"
        rows = [row for row in _read(path) if row["algo"] == name]
        if rows:
            parts.append(f"**{about[0].upper()}{about[1:]}** ([{path.parent.name}](../../results/{folder}/README.md)), "
                         "mean ± standard deviation over seeds:\n\n" + _table(rows))  # fmt: skip
    absent = _absence(root, name)
    if absent:
        parts.append(absent)
    cost = _selection_cost(root, name)
    if cost:
        parts.append(cost)
    return "\n\n".join(parts) or "None are committed yet."


_BOARD = {  # of the leaderboard's table.csv: name -> heading, digits
    "last_rounds_accuracy": ("accuracy of the last 10 rounds", 3),
    "accuracy_at_100_percent_of_megabytes": ("accuracy at equal megabytes", 3),
    "rounds_to_target": ("rounds to the target", 1),
    "megabytes_down_to_target": ("MB down until then", 0),
}


_STUDIES = ("tuned-", "information")  # of other numbers than the usual ones, or under other conditions


def _leaderboard(root: Path, name: str) -> str:
    """Return what the leaderboard has of a strategy; nothing before it is there."""
    lines = []
    for path in sorted((root / "results" / "leaderboard").glob("*/table.csv")):
        if path.parent.name.startswith(_STUDIES):
            continue
        for row in _read(path):
            if row["algo"] == name:
                setting = f"[{path.parent.name}](../../results/leaderboard/{path.parent.name}/README.md)"
                cells = [setting, row["optimizer"] or "fedavg", row["seeds"]]
                cells += [
                    _at_least(row, column) + _number(row, column, digits) for column, (_, digits) in _BOARD.items()
                ]
                lines.append("| " + " | ".join([*cells, row.get("last_rounds_accuracy_verdict", "")]) + " |")
    if not lines:
        return ""
    heads = ["setting", "optimizer", "seeds", *(head for head, _ in _BOARD.values()), "against random"]
    table = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *lines]
    about = (
        "**The leaderboard** ([all of it](../../results/leaderboard/README.md)), mean ± standard deviation over seeds "
        "(≥: some seed misses the target and counts all rounds). The last column compares the accuracy with random "
        "selection's under the same optimizer. It also covers tuned strategies, unavailable clients and lost reports:"
    )
    return about + "\n\n" + "\n".join(table)


def _at_least(row: dict[str, str], column: str) -> str:
    """Return the sign of a mean in which seeds that do not arrive count what they have had."""
    return f"{row['at_least']}\u00a0" if column.endswith("_to_target") and row.get("at_least") else ""


def _table(rows: list[dict[str, str]]) -> str:
    under = any(row.get("optimizer") for row in rows)
    heads = ["setting", *(["optimizer"] if under else []), "seeds", *(head for head, _ in _COLUMNS.values())]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        target = f" (target {row['target_accuracy']})" if row.get("target_accuracy") else ""
        cells = [f"`{row['setting']}`{target}", *([row["optimizer"]] if under else []), row["seeds"]]
        cells += [_number(row, column, digits) for column, (_, digits) in _COLUMNS.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(row: dict[str, str], column: str, digits: int) -> str:
    mean = row.get(f"{column}_mean", "")
    if mean == "N/A":
        reached = row.get(f"{column}_seeds_reached")
        return f"N/A ({reached} of {row['seeds']} seeds)" if reached else "N/A"
    # with spaces at which no line breaks
    return f"{float(mean):.{digits}f}\u00a0±\u00a0{float(row[f'{column}_sd']):.{digits}f}" if mean else ""


def _absence(root: Path, name: str) -> str:
    lines = []
    for share in ("1", "0.7", "0.5"):
        for row in _read(root / "results" / "absence" / f"available_{share}.csv"):
            if row["algo"] == name:
                accuracy, gemd = _number(row, "last_rounds_accuracy", 3), _number(row, "gemd", 2)
                lines.append(f"| {float(share):.0%} | {accuracy} | {gemd} |")
    if not lines:
        return ""
    head = "| clients that can be reached | accuracy of the last 10 rounds | GEMD of the cohorts |\n|---|---|---|\n"
    return "**Where clients are away** ([absence](../../results/absence/README.md)):\n\n" + head + "\n".join(lines)


def _selection_cost(root: Path, name: str) -> str:
    found = json.loads((root / "results" / "selection_cost.json").read_text(encoding="utf-8"))
    cases = [case for case in found["cases"] if case["algo"] == name and "milliseconds_per_round" in case]
    if not cases:
        return ""
    times = ", ".join(f"{case['milliseconds_per_round']:.1f} ms for {case['num_clients']:,} clients" for case in cases)
    return f"**What selection itself takes a round**, on two CPU cores ([selection_cost.json]" \
           f"(../../results/selection_cost.json)): {times}."  # fmt: skip


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def grid(root: Path, folder: str) -> str:
    """Return a table a setting of all strategies in a committed comparison."""
    rows = _read(root / "results" / folder / "comparison.csv")
    heads = ["strategy", *(head for head, _ in _COLUMNS.values()), "MB down in all", "MB up in all"]
    parts = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        here = [row for row in rows if row["setting"] == setting]
        parts += [f"**`{setting}`**, target {here[0]['target_accuracy']}:", ""]
        parts += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        for row in here:
            cells = [f"[`{row['algo']}`](strategies/{row['algo']}.md)"]
            cells += [_number(row, column, digits) for column, (_, digits) in _COLUMNS.items()]
            cells += [f"{float(row[f'megabytes_{way}_mean']):,.0f}" for way in ("down", "up")]
            parts.append("| " + " | ".join(cells) + " |")
        parts.append("")
    return "\n".join(parts)
