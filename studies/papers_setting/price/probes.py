"""FedCor's lead by the interval between its probes."""

from collections.abc import Mapping

import numpy as np

from fedjax_sel import statistics
from fedjax_sel.core.parsing import cell
from studies.boards import measures
from studies.boards.grid import BASELINE
from studies.boards.series import Setting as Held
from studies.papers_setting import information, standings
from studies.papers_setting.price import as_many, wording
from studies.papers_setting.settings import SETTINGS


def section(found: Mapping[str, Held]) -> list[str]:
    """Return FedCor's lead for each interval between probes."""
    parts: list[str] = []
    missing: list[str] = []
    for setting in information.SETTINGS:
        held = found.get(f"information-probes-{setting}")
        usual = information.row_of_interval(information.USUAL_INTERVAL)
        rows = [] if held is None else [name for name in held.rows if name != BASELINE]
        if held is None or BASELINE not in held.rows or not rows:
            missing.append(setting)
            continue
        last = {name: measures.last_rounds(series) for name, series in held.rows.items()}
        leads = dict(zip(rows, statistics.compare(np.stack([last[name] - last[BASELINE] for name in rows]))))
        others = [name for name in rows if name != usual] if usual in rows else []
        differences = [last[name] - last[usual] for name in others]
        kept = dict(zip(others, statistics.compare(np.stack(differences)))) if others else {}
        longer = found.get(as_many.longer_of(setting))
        lasting = as_many.less(held, rows, longer.rows[BASELINE]) if longer and BASELINE in longer.rows else {}
        full = leads[usual].difference if usual in leads and leads[usual].verdict == statistics.BETTER else np.nan
        lines = [f"| | times random's MB | lead over random, last 10 rounds | share of the lead of {usual} | "
                 f"minus {usual} | minus random with equal MB |", "|---|---|---|---|---|---|"]  # fmt: skip
        for name in rows:
            times = held.rows[name].megabytes[:, -1].mean() / held.rows[BASELINE].megabytes[:, -1].mean()
            share = "" if np.isnan(full) else f"{100 * leads[name].difference / full:.0f} %"
            against, longest = (standings.difference(of[name], 3) if name in of else "" for of in (kept, lasting))
            lines.append(
                f"| {cell(name)} | {times:.2f} | {standings.difference(leads[name], 3)} | {share} | {against} | "
                f"{longest} |"
            )
        parts += [f"{SETTINGS[setting].title}:", "\n".join(lines)]
        ahead, worse = wording.with_verdict(leads, statistics.BETTER), wording.with_verdict(kept, statistics.WORSE)
        words = f"Significantly ahead of random selection: {wording.listed(ahead, '; ')}. "
        words += f"Worse than {usual}: {wording.listed(worse, '; ')}."
        if lasting:
            better = wording.with_verdict(lasting, statistics.BETTER)
            words += f" Better than random selection with equal MB: {wording.listed(better, '; ')}."
        parts.append(words)
    return [*parts, *wording.missing(missing)] if parts else [wording.NONE]
