"""HTML tables of results and paired differences; this module escapes all texts."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from fedjax_sel.reporting import comparison, comparison_pairs
from fedjax_sel.reporting.comparison_pairs import Pair


def table(head: Sequence[str], lines: Iterable[tuple[str, Sequence[str]]], caption: str) -> str:
    """Return a table with one strategy per line, so that the page can hide a strategy's lines.

    Args:
        head: column headings.
        lines: strategy and cells of each line.
        caption: the table's caption.
    """
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        f'<tr data-run="{escape(run)}"><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in others)
        + "</tr>"
        for run, (first, *others) in lines
    )
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def results(rows: Sequence[comparison.Row], unfinished: Mapping[str, str]) -> str:
    """Return the table of results and costs, without empty columns.

    Args:
        rows: rows of one setting, at least one.
        unfinished: completed rounds of each unfinished strategy, as text.
    """
    columns = {head: cells for head, cells in comparison.columns(rows).items() if any(cells)}
    if unfinished:
        columns = {"rounds so far": [unfinished.get(row.algo, "all") for row in rows]} | columns
    lines = [(row.algo, [row.algo, *cells]) for row, cells in zip(rows, zip(*columns.values()))]
    return table(["strategy", *columns], lines, "Results and costs per strategy: mean ± standard deviation over seeds")


def differences(pairs: Sequence[Pair]) -> str:
    """Return the table of paired differences in one measure.

    Args:
        pairs: pairs with one measure and one baseline, at least one.
    """
    head = [f"strategy minus {pairs[0].baseline}", "difference", "interval", "p after Holm", "verdict"]
    lines = [(pair.algo, [pair.algo, *comparison_pairs.texts_of(pair)]) for pair in pairs]
    few = comparison_pairs.too_few_seeds(pairs)
    return table(head, lines, pairs[0].words) + (f"<p>{escape(few)}</p>" if few else "")
