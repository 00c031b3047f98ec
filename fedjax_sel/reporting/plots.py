"""Curves of runs, with their standard deviation over seeds."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedjax_sel.config import VALUE, Config, is_value
from fedjax_sel.core import texts, whole_files
from fedjax_sel.errors import UserError
from fedjax_sel.reporting import bands, styles
from fedjax_sel.runs.records import Result


def title(config: Config, data_source: str) -> str:
    """Return a one-line description of a run's setting and its data source."""
    settings = config.partition
    detail = {
        "shards": f", {settings.shards_per_client} per client",
        "skewness": f" {settings.skewness}",
        "dirichlet_qp": f" {settings.alpha:g}",
        "dirichlet": f" {settings.alpha:g} ({settings.dirichlet_form})",
    }.get(settings.partition, "")
    seeds = len(config.run.seeds)
    training = config.training
    arguments = ", ".join(f"{key}={value}" for key, value in training.optimizer_args)
    optimizer = f"; {training.optimizer.removeprefix(VALUE)}" + (f" ({arguments})" if arguments else "")
    data = config.data.dataset
    data = data.removeprefix(VALUE) if is_value(data) else data.split(":")[0]
    return (
        f"{data} ({data_source}), {settings.partition.removeprefix(VALUE)}{detail}; "
        f"{settings.num_clients} clients, "
        f"{config.selection.num_selected} per round, {seeds} seed{'s' if seeds > 1 else ''}"
        f"{'' if training.optimizer == 'fedavg' else optimizer}"
    )


def curves_if_lost(results: Mapping[str, Result], path: Path) -> None:
    """Draw the curves of a run if the file is missing; see `curves`."""
    if not path.exists():
        curves(results, path)


def curves(results: Mapping[str, Result], path: Path) -> None:
    """Draw accuracy, loss and GEMD over rounds, and accuracy over megabytes moved.

    Lines are means over seeds; bands are plus and minus one sample standard deviation, clipped to the measure's range.
    With 100 rounds or more, a running mean over 2 % of the rounds is drawn over the faint raw mean.

    Args:
        results: results by name.
        path: the image file.

    Raises:
        UserError: the file cannot be written.
    """
    from matplotlib.figure import Figure  # not pyplot, which would change the caller's backend

    first, chosen = next(iter(results.values())), styles.styles_of(results)
    test, _, train, *_ = first.measured
    words = first.measure_in_words
    trained = any(not np.isnan(result.measured[train]).all() for result in results.values())
    panels = ["test accuracy", *(["training accuracy"] if trained else []), "test loss", "GEMD", "by megabytes"]
    columns = 2 if len(panels) <= 4 else 3
    figure = Figure(figsize=(5.2 * columns, 7.2), layout="constrained")
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
    measures = {
        "test accuracy": (test, f"test {words}"),
        "training accuracy": (train, f"{words} on all clients' training data"),
        "test loss": ("test_loss", "test loss (nats)"),
        "GEMD": ("gemd", "GEMD of the cohort (lower: more diverse)"),
        "by megabytes": (test, f"test {words}"),
    }
    for axis, panel in zip(axes.flat, panels):
        name, label = measures[panel]
        for run, result in results.items():
            values = np.asarray(result.measured[name], np.float64)
            present = ~np.isnan(values)
            # GEMD is missing for empty cohorts, which occur in different rounds for each seed. Other measures are
            # evaluated for all seeds at once, so a NaN there is a non-finite value, which leaves no mean.
            measured = present.any(axis=0) if name == "gemd" else present.all(axis=0)
            if not measured.any():
                continue
            moved = (result.ledger.bytes_down + result.ledger.bytes_up).cumsum(axis=1).mean(axis=0) / 1e6
            x = moved if panel == "by megabytes" else np.arange(1, result.num_rounds + 1)
            highest = 1.0 if "accuracy" in name else np.inf
            bands.draw(
                axis, x[measured], values[:, measured], run, chosen[run], highest, raw=True, together=len(results)
            )
        axis.set_xlabel("megabytes moved, down and up" if panel == "by megabytes" else "round")
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
        target = next(iter(results.values())).config.run.target_accuracy
        if target is not None and panel in ("test accuracy", "by megabytes"):
            axis.axhline(target, color="gray", linewidth=0.8, linestyle="--")
        axis.set_ylim(bottom=max(axis.get_ylim()[0], 0.0))
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    handles, names = axes.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=min(len(names), 3 * columns), frameon=False, handlelength=3.5
    )
    figure.suptitle(texts.label(title(first.config, first.data_source)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = io.BytesIO()  # in memory first, so that the file is written atomically
        figure.savefig(picture, format=path.suffix.removeprefix(".") or "png", dpi=110)
        whole_files.write(path, picture.getvalue())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot write the plot to {path} ({error}); give another --out") from error
