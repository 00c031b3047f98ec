"""Generator of the pages, tables and pictures from the available series; also `--pages`."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_sel import UserError, statistics
from fedjax_sel.core import files as whole_files
from fedjax_sel.core.parsing import cell
from studies import aggregates
from studies.boards import check as checks
from studies.boards import series
from studies.boards.grid import BASELINE, contender
from studies.boards.measures import LAST_SHARE, last_rounds
from studies.papers.entries import fedcor
from studies.papers.entry import Cell
from studies.papers.page import Row as PaperRow
from studies.papers.page import as_csv, png_bytes
from studies.papers_setting import across, clock, pictures, price, settings, standings, tuning_page
from studies.papers_setting.grids import GRIDS, RATES, REFERENCE, WITHOUT_DROPOUT
from studies.papers_setting.standings import Standings

NOTES = f"""± is the sample standard deviation over seeds.

The target is random selection's mean accuracy over seeds and the last ten rounds, rounded down to a whole percent; each
page has its own. A seed arrives in the first round in which the mean of its last ten rounds reaches the target. A seed
that never arrives counts all rounds and all megabytes (10^6 bytes). ≥ marks means with such seeds: rounds are then a
restricted mean, and megabytes cannot be compared between rows.

Equal MB is the smallest traffic (down and up) of a seed of random selection. Accuracy at equal MB is the mean of the
last third, at most ten, of the rounds within this traffic; the same holds for MB up alone. A row that sends less is
taken in its last round. A row with expensive queries may still be in its warm-up there, with randomly selected clients.
Lost reports count no upload.

Areas are means of the accuracy, over rounds and over megabytes up to equal MB. The worst tenth is the tenth of clients
with the lowest accuracy on their training data, over the last {100 * LAST_SHARE:g} % of the rounds. Selection time is
that of one round and seed, without training, on a machine with other work.

Differences are paired by seed. Intervals are 95 % BCa bootstrap intervals of each difference alone. P-values are from
a two-sided joint sign-flip test of a family: all comparisons of a column (docs/statistics.md). A verdict needs both the
interval and the p-value. "Leads in" counts the seeds in which the row is better. Not significant does not mean equal:
the interval shows the possible difference."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Files = dict[str, "str | Callable[[], Figure]"]
"""Texts, and functions that draw the pictures, by file name."""

FAIRNESS = (
    "The Gini index is 0 and the Jain index 1 if all clients are equal, in their numbers of selections or in their "
    "accuracy on their training data after the last round. The participation gap is the difference between the most "
    "and the least frequently selected client, as a share of the rounds. Rows of runs that are older than these "
    "measures are missing."
)
FIRST = ("fmnist-1spc", "fmnist-2spc")
IN_SHORT = (
    "Some strategies in two settings: means and standard deviations over seeds. The dotted line marks the megabytes of "
    "random selection's last round. The second picture shows all strategies."
)
PROFILES = (
    "The picture shows the share of all settings' seeds whose lead over random selection with the same seed is more "
    "than tau: further right is better."
)
OF_THE_PAPERS = """FedCor's setting, with its dropout of 0.5 and a learning rate that nobody tuned. The
[leaderboard](../leaderboard/README.md) has tuned rates and more tasks, and is the basis of our advice."""
ANSWER = """\
Which strategies are more accurate than random selection, and for how much traffic?

{best}

The table lists strategies that are significantly better after {rounds} rounds in at least half of {settings} settings,
and worse in none; cheapest first, with random + fedyogi for comparison. Leads are over random selection under FedAvg.
"Better / worse" counts settings, against random selection under the same optimizer. At equal MB, each run stops once it
has sent random selection's megabytes."""
HEAD_TO_HEAD = """\
The strategies of this table head to head, at most the four with the best means, without `full`: each seed's accuracy,
mean over the settings. The pairs are one family of tests; they hold for other seeds, not for other settings."""
METHOD = "method.md"
"""Name of the page on the method."""
SUMMARY, SECONDS = ".", "seconds"
"""Folders of the pages on all parts, in the results folder."""
FINDINGS = "accuracy.md"
"""Name of the page with findings, written by hand."""


def write(out: Path, changed: Collection[str] | None = None) -> list[str]:
    """Write all pages and tables, and the pictures of changed parts, for the series in a results folder.

    Args:
        out: results folder.
        changed: parts whose pictures are drawn again, 20 seconds each; None: all.

    Returns:
        Names of the parts with results.

    Raises:
        UserError: a series is damaged, or a file cannot be written.
    """
    changed = set(GRIDS) if changed is None else set(changed)
    drawn_from = {SUMMARY: {*settings.SETTINGS}, SECONDS: {one for one in GRIDS if one.startswith(clock.PREFIX)}}
    folders = _folders(out)
    for folder, files in folders.items():
        _save(out / folder, files, not changed.isdisjoint(drawn_from.get(folder, {folder})))
    return [name for name in folders if name in GRIDS]


def check(out: Path) -> list[str]:
    """Return a line per file that does not follow from its curves, and per part with a run older than the settings."""
    texts = {
        str(Path(folder, name)): text
        for folder, files in _folders(out).items()
        for name, text in files.items()
        if isinstance(text, str)
    }
    return checks.differences(out, texts, Path(settings.__file__), GRIDS)


def _folders(out: Path) -> dict[str, Files]:
    """Return the files of each folder in a results folder: those of the parts with results, and of all together."""
    found = {name: held for name in GRIDS if (held := series.read(out / name)) is not None}
    tables = {name: standings_of(held) for name, held in found.items()}
    folders = {
        name: _draws(name, held) if tuning_page.is_draws(name) else _setting(name, found, tables[name])
        for name, held in found.items()
    }
    if clock.has_results(tables):
        picture = partial(pictures.leads_in_seconds, clock.leads(tables))
        folders[SECONDS] = {"README.md": clock.markdown(found, tables), "leads_in_seconds.png": picture}
    if found:
        folders[SUMMARY] = _summary(found, tables, out)
    return folders


def price_of_information(out: Path, link: str) -> str:
    """Return the short page on the price of information for the available results.

    Args:
        out: results folder.
        link: link from the short page to that folder.
    """
    boards = {name: held for name in settings.SETTINGS if (held := series.read(out / name)) is not None}
    return price.conclusions(boards, {name: standings_of(held) for name, held in boards.items()}, link)


def _draws(name: str, held: series.Setting) -> Files:
    heading = f"# {held.about['title']} (`{name}`)"
    return {"README.md": "\n\n".join([heading, *_about(held.about), *tuning_page.of_draws(held)]) + "\n"}


def standings_of(held: series.Setting) -> Standings:
    """Return the standings of a setting's rows."""
    selection = {
        name: one["selection_seconds"] for name, one in held.about["rows"].items() if "selection_seconds" in one
    }
    fairness = {name: one["fairness"] for name, one in held.about["rows"].items() if "fairness" in one}
    return standings.of_setting(held.rows, held.about["num_classes"], selection, fairness)


def _setting(name: str, found: Mapping[str, series.Setting], table: Standings) -> Files:
    held = found[name]
    page = [f"# {held.about['title']} (`{name}`)", *_about(held.about), standings.as_markdown(table)]
    over_all = [over for over in pictures.OVER if over != "seconds" or table.shared.seconds is not None]
    page += [f"![accuracy by {over}](accuracy_by_{over}.png)" for over in over_all]
    if name.startswith(tuning_page.PREFIX):
        page += tuning_page.of_best(name, found)
    if pairs := standings.pairs_as_markdown(table):
        page += ["## What is significant", pairs]
    if table.leaders:
        words = (standings.TESTED | standings.TESTED_IN_SECONDS)[standings.main(table.shared)][0]
        page += ["## Leaders, head to head", standings.LEADERS.format(words=words)]
        page.append(standings.leaders_as_markdown(table.leaders))
    if table.shared.target is not None:
        target, megabytes = 100 * table.shared.target, table.shared.megabytes
        page.append(f"Target: {target:g} % test accuracy. Equal MB: {megabytes:.0f}, down and up.")
    if table.shared.seconds is not None:
        page.append(
            f"Equal seconds: {table.shared.seconds:.0f} simulated seconds, the smallest total of any row and seed. "
            "Their accuracy is the mean over the last third of the rounds that fit, at most ten. A seed that has not "
            "reached the target by then counts the equal seconds."
        )
    if standings.has_fairness(table):
        page.append(FAIRNESS)
    page += ["## Terms", NOTES]
    return {
        "README.md": "\n\n".join(page) + "\n",
        "table.csv": standings.as_csv(table),
        "seeds.csv": standings.seeds_as_csv(held.rows, table),
        "pairs.csv": standings.pairs_as_csv(table),
        **{
            f"accuracy_by_{over}.png": partial(pictures.of_setting, held.about["title"], held.rows, over)
            for over in over_all
        },
    }


def _about(about: Mapping[str, Any]) -> list[str]:
    lines = ["```\n" + "\n".join(about["commands"]) + "\n```"]
    rows = about["rows"].values()
    minutes = sum(row["seconds"] for row in rows) / 60
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"])) or "not known"
    devices = ", ".join(dict.fromkeys(row["devices"] for row in rows))
    lines.append(
        f"Data: {about.get('data_source', '')}. Commit {commits}; the runs took {minutes:.0f} minutes ({devices})."
    )
    if about["other_than_usual"]:
        lines.append(f"**Other than usual:** {about['other_than_usual']}.")
    if missing := [name for name in about["planned"] if name not in about["rows"]]:
        lines.append(f"**Not run yet:** {', '.join(missing)}.")
    lines += [f"Failed: {cell(name)}: {cell(why)}" for name, why in about["failed"].items()]
    return lines


def _summary(found: Mapping[str, series.Setting], tables: Mapping[str, Standings], out: Path) -> Files:
    files: Files = {}
    boards = {name: held for name, held in found.items() if name in settings.SETTINGS}
    groups = across.groups(boards)
    together = {group: across.of_settings({name: tables[name] for name in names}) for group, names in groups.items()}
    together = {group: rows for group, rows in together.items() if rows}
    shown = {name: tables[name] for name in boards}
    page = ["# The papers' setting", OF_THE_PAPERS]
    if panels := _leads(boards, tables):
        costs = {
            title: {one.name: price.wording.times_random(one.name, names, boards) for one in rows}
            for title, (names, rows) in panels.items()
        }
        files[pictures.LEADS_BY_COST] = partial(
            pictures.leads_by_cost, {title: rows for title, (_, rows) in panels.items()}, costs
        )
    first, rows = next(iter(together.items()), ("", []))
    if leading := [one for one in rows if across.ahead(one) and one.name != BASELINE]:
        names = groups[first]
        rounds, best = tables[names[0]].shared.rounds, _best(leading, names, boards)
        again = settings.Contender(BASELINE, settings.SERVER_OPTIMIZER).name
        page += [ANSWER.format(best=best, rounds=rounds, settings=len(names))]
        page.append(price.table(names, boards, tables, [*(one.name for one in leading), again]))
        score = next(iter(across.SCORES))
        values = {one.name: one.leads[score].mean(axis=0) for one in leading if one.name != settings.UPPER_REFERENCE}
        if leaders := statistics.head_to_head(values):
            page += [HEAD_TO_HEAD, standings.leaders_as_markdown(leaders)]
        page.append(f"![lead against cost]({pictures.LEADS_BY_COST})")
    gains = tuning_page.in_short(found)
    page.append(_words(found, bool(gains)))
    if boards:
        page += ["## The settings", _list(boards, tables), f"[Terms]({METHOD}#terms) explains target and MB."]
    if boards and (missing := [one.title for name, one in settings.SETTINGS.items() if name not in boards]):
        page.append(f"Not run here: {'; '.join(missing)}.")
    method = ["# How these tables are made", "## The strategies' own settings", _own_settings()]
    method += ["## Terms", NOTES]
    if together:
        method += ["## Families of tests", across.false_verdicts(shown)]
    for group, rows in together.items():
        slug = group.replace(" ", "_").lower()
        part = [f"## {group}: {len(groups[group])} settings", across.as_markdown(rows)]
        part.append(f"![performance profiles](performance_profiles_{slug}.png)")
        files[f"across_{slug}.csv"] = across.as_csv(rows)
        files[f"performance_profiles_{slug}.png"] = partial(pictures.profiles, rows)
        if group == first:
            page += [part[0], across.ABOUT_LEADS, part[1], PROFILES, part[2]]
        else:
            method += part
    if boards:
        page.append("## Accuracy against megabytes")
        if two := {boards[name].about["title"]: boards[name].rows for name in FIRST if name in boards}:
            page += [IN_SHORT, "![in short](in_short.png)"]
            files["in_short.png"] = partial(pictures.in_short, two)
        page.append("![accuracy by megabytes](accuracy_by_megabytes.png)")
        fashion = {name: held for name, held in boards.items() if name.startswith("fmnist")} or boards
        under_fedavg = {held.about["title"]: _under_fedavg(held.rows) for held in fashion.values()}
        files["accuracy_by_megabytes.png"] = partial(pictures.together, under_fedavg, "megabytes")
        files["budgets.png"] = partial(pictures.budgets, boards, {name: table.shared for name, table in shown.items()})
    if few := [boards[name].about["title"] for name in boards if _too_few(tables[name])]:
        page.append(
            f"{'; '.join(few)}: fewer than {statistics.least_pairs()} seeds; nothing is called better or worse."
        )
    if gains:
        page += ["## What tuning is worth", tuning_page.ABOUT, gains]
    page += ["## More", _more(found, out)]
    if rows := _papers_curves(boards):
        files["papers_curves.csv"] = as_csv(rows)
    files[METHOD] = "\n\n".join(method) + "\n"
    if boards:
        files[price.DETAILS] = price.markdown(found, shown)
    return {**files, "README.md": "\n\n".join(page) + "\n"}


def _best(leading: list[across.Together], names: list[str], boards: Mapping[str, series.Setting]) -> str:
    """Return a sentence on the largest leads: for random selection's megabytes, also under FedAvg, and for more."""
    sent = {one.name: price.wording.times_random(one.name, names, boards) for one in leading}

    def lead(one: across.Together) -> str:
        return f"`{one.name}` ({aggregates.interquartile_mean(one.leads['last_rounds_accuracy']):+.3f})"

    cheap = [one for one in leading if sent[one.name] <= price.wording.DEAR]
    dear = [one for one in leading if one not in cheap]
    fedavg = [one for one in cheap if contender(one.name).optimizer == "fedavg"]
    parts = [f"For about random selection's traffic, {lead(cheap[0])} leads in test accuracy"] if cheap else []
    parts += [f"under FedAvg, {lead(fedavg[0])}"] if fedavg and fedavg[0] is not cheap[0] else []
    parts += [f"for {sent[dear[0].name]:.3g} times the traffic, {lead(dear[0])}"] if dear else []
    return f"**{'; '.join(parts)}.**"


def _more(found: Mapping[str, series.Setting], out: Path) -> str:
    """Return links to the other pages, those of one study in one line."""
    lines = [f"* [How these tables are made]({METHOD}): each strategy's settings, terms, families of tests"]
    if (out / FINDINGS).exists():
        lines.append(f"* [Accuracy by setting, with findings]({FINDINGS})")
    if any(name in settings.SETTINGS for name in found):
        lines.append(f"* [The price of information: all tables]({price.DETAILS})")
    if any(name.startswith(clock.PREFIX) for name in found):
        lines.append("* [Which leads survive slow devices](seconds/README.md)")
    studies: dict[str, list[str]] = {}
    for name, held in found.items():
        if name not in settings.SETTINGS and not name.startswith(clock.PREFIX):
            setting, _, study = held.about["title"].partition(": ")
            studies.setdefault(study, []).append(f"[{setting}]({name}/README.md)")
    return "\n".join([*lines, *(f"* {study}: {'; '.join(links)}" for study, links in studies.items())])


def _leads(
    boards: Mapping[str, series.Setting], tables: Mapping[str, Standings]
) -> dict[str, tuple[list[str], list[across.Together]]]:
    """Return the panels of the picture of leads by costs: names of the settings, and the rows, by title."""
    panels = {}
    for title, ends in pictures.GROUPS.items():
        names = [name for name in boards if name.startswith(("fmnist", "mnist")) and name.endswith(ends)]
        if names and (together := across.of_settings({name: tables[name] for name in names})):
            panels[f"{title}: {len(names)} settings"] = names, together
    return panels


def _papers_curves(boards: Mapping[str, series.Setting]) -> list[PaperRow]:
    """Apply the rules of fedcor/fig4 and fedgp/fig2 to these curves."""
    curves = {
        Cell(name, row): one.test_accuracy.astype(np.float64)
        for name, held in boards.items()
        if name in fedcor.COLUMNS
        for row, one in held.rows.items()
    }
    return [row for winner in ("fedcor", "fedgp") for row in fedcor.smooth_rows(curves, winner)]


def _under_fedavg(rows: Mapping[str, series.Series]) -> dict[str, series.Series]:
    return {name: one for name, one in rows.items() if contender(name).optimizer == "fedavg"}


def _too_few(table: Standings) -> bool:
    """Return whether even the largest possible difference would not be significant."""
    return bool(table.pairs) and all(pair.found.verdict == statistics.TOO_FEW_SEEDS for pair in table.pairs)


def _words(found: Mapping[str, series.Setting], tuned: bool) -> str:
    of = next((one for name, one in settings.SETTINGS.items() if name in found), settings.SETTINGS["fmnist-2spc"])
    config, training, dropout = of.config, of.config.training, of.config.model.model_dropout
    if of.task == "fmnist":
        code = f"""the dropout, the hold-out, the normalization by MNIST's constants, and the
  {training.local_epochs} epochs (24 steps; the paper states 20). That MNIST has the same setting is our choice."""
    else:
        code = f"""the hold-out and the {training.local_epochs} epochs."""
    parts = [
        f"""## The setting is FedCor's{", and hard" if dropout else ""}

* **Data**: {config.partition.num_clients} clients. A round has 10 of them with one label per client and under skewness
  0.8, else 5. Each client holds out {100 * config.data.holdout:g} % of its data, on which it reports losses. The server
  keeps {100 * settings.SERVER_VALIDATION:g} % of the images in all runs, because GPFL needs them.
* **Training**: model `{config.model.model}`{f" with a dropout of {dropout:g}" if dropout else ""}. Clients train
  {training.local_epochs} epochs with learning rate {training.learning_rate:g} and batches of {training.batch_size}. All
  updates have equal weight.
* **From FedCor's code, not from its paper**: {code}
* **Paired**: all strategies have equal partitions, initial weights and random streams per seed.
* **Not tuned**: see [each strategy's own settings]({METHOD}){", and [tuning](#what-tuning-is-worth)" if tuned else ""}.
* **Server optimizer**: {settings.WHY_NOT_ALL}"""
    ]
    if handicap := _without_dropout(found):
        parts.append(handicap)
    parts.append(
        "`python -m studies papers-setting --list` shows the parts. To compare your own strategy in such a setting:\n\n"
        "```bash\nfedjax-sel compare --preset fedcor/fmnist-2spc --rounds 150 --seeds 10 \\\n"
        f"  --server-validation {settings.SERVER_VALIDATION:g} --algos random clustered mypackage.module:factory --out "
        "runs/mine\n```"
    )
    return "\n\n".join(parts)


def _without_dropout(found: Mapping[str, series.Setting]) -> str:
    """Return a table of random selection without dropout beside the best row with it; empty without results."""
    names = [name for name in WITHOUT_DROPOUT if name in found and f"no-dropout-{name}" in found]
    if not names:
        return ""
    columns = []
    for name in names:
        usual = {row: float(last_rounds(one).mean()) for row, one in _under_fedavg(found[name].rows).items()}
        bare = float(last_rounds(found[f"no-dropout-{name}"].rows[BASELINE]).mean())
        best = max((row for row in usual if row != settings.UPPER_REFERENCE), key=usual.__getitem__)
        columns.append(
            (f"{usual[BASELINE]:.3f}", f"{bare:.3f}", _reference(found, name), f"{usual[best]:.3f} ({best})")
        )
    heads = (
        "random selection, dropout 0.5", "random selection, no dropout", "random selection, no dropout, tuned rate",
        "best strategy but `full`, dropout 0.5",
    )  # fmt: skip
    lines = [
        f"| accuracy under FedAvg | {' | '.join(cell(settings.SETTINGS[name].title) for name in names)} |",
        "|---|" + "---|" * len(names),
        *(f"| {head} | {' | '.join(row)} |" for head, row in zip(heads, zip(*columns))),
    ]
    if any(bare <= best for _, bare, _, best in columns):  # as text: equal lengths, and the best row's name follows
        return "\n".join(lines)
    return (
        "Dropout costs more than selection gains. Under FedAvg, random selection without dropout is more accurate than "
        "all strategies with dropout but `full`.\n\n" + "\n".join(lines)
    )


def _reference(found: Mapping[str, series.Setting], name: str) -> str:
    """Return the accuracy of random selection without dropout with its tuned learning rate; "not run" without it."""
    held = found.get(REFERENCE + name)
    if held is None:
        return "not run"
    rate = held.about["rows"][BASELINE]["learning_rate"]
    edge = ", the largest tried" if rate == RATES[-1] else ""
    return f"{float(last_rounds(held.rows[BASELINE]).mean()):.3f} (rate {rate:g}{edge})"


def _own_settings() -> str:
    lines = ["| strategy | what it is given |", "|---|---|"]
    return "\n".join([*lines, *(f"| {algo} | {cell(words)} |" for algo, words in settings.STRATEGY_SETTINGS.items())])


def _list(found: Mapping[str, series.Setting], tables: Mapping[str, Standings]) -> str:
    lines = ["| setting | rows | seeds | rounds | target | equal MB |", "|---|---|---|---|---|---|"]
    for name, held in found.items():
        shared, first = tables[name].shared, next(iter(held.rows.values()))
        target = "" if shared.target is None else f"{100 * shared.target:g} %"
        of = f"{len(held.rows)} of {len(held.about['planned'])}"
        lines.append(
            f"| [{cell(held.about['title'])}]({name}/README.md) | {of} | {len(first.seeds)} | {shared.rounds} | "
            f"{target} | {shared.megabytes:.0f} |"
        )
    return "\n".join(lines)


def _save(folder: Path, files: Files, draw: bool) -> None:
    """Write texts, and draw pictures if asked to, or if they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            if isinstance(content, str):
                whole_files.write(folder / name, content.encode())
            elif draw or not (folder / name).exists():
                whole_files.write(folder / name, png_bytes(content()))
    except OSError as error:
        raise UserError(f"--out: cannot write to {folder} ({error.strerror or error}); make room or move it") from error
