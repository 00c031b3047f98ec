"""The configuration of a setting, how to run it again, and on what its runs were computed."""

import base64
import json
import shlex
from html import escape
from typing import Any

from fedjax_sel.reporting.html.sources import Chapter
from fedjax_sel.runs import run_files


def section(chapter: Chapter) -> str:
    """Return the part of a page that says how its runs were made."""
    config = chapter.runs[0].result.config.to_json()
    config["selection"].pop("algo")
    config["selection"].pop("algo_args")
    config["run"].pop("out")
    text = json.dumps(config, indent=2)
    link = "data:application/json;base64," + base64.b64encode((text + "\n").encode()).decode()
    algos = shlex.join(_algo(run.result.config.selection) for run in chapter.runs)
    command = f"fedjax-sel compare --config config.json --algos {algos} --out runs/again"
    return (
        "<p>Save the configuration as <code>config.json</code> "
        f'(<a download="config.json" href="{link}">download</a>), and run its strategies again:</p>'
        f'<pre class="command">{escape(command)}</pre>'
        f"<details><summary>config.json</summary><pre>{escape(text)}</pre></details>" + _origins(chapter)
    )


def _algo(selection: Any) -> str:
    values = ",".join(f"{key}={value}" for key, value in selection.algo_args)
    return f"{selection.algo}[{values}]" if values else selection.algo


def _origins(chapter: Chapter) -> str:
    """Return where each run lies, and what its folder tells of its making."""
    parts = []
    for run in chapter.runs:
        told = run_files.read_json(run.path / run_files.ENVIRONMENT)
        told = told if isinstance(told, dict) else {}
        lines = {
            "folder": str(run.path),
            "command": shlex.join(map(str, told["command"])) if isinstance(told.get("command"), list) else "",
            "versions": _versions(told),
            "devices": ", ".join(map(str, told["devices"])) if isinstance(told.get("devices"), list) else "",
            "commit": str(told.get("commit") or ""),
        }
        listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in lines.items() if text)
        parts.append(
            f'<details data-run="{escape(run.name)}"><summary>{escape(run.name)}</summary><dl>{listed}</dl></details>'
        )
    return "<h4>Where each run comes from</h4>" + "".join(parts)


def _versions(told: dict[str, Any]) -> str:
    packages = told.get("packages")
    known = {"fedjax_sel": told.get("fedjax_sel"), "Python": told.get("python")}
    known |= packages if isinstance(packages, dict) else {}
    return ", ".join(f"{name} {version}" for name, version in known.items() if version)
