"""The page section on reproduction: configuration, command, and the provenance of each run."""

import base64
import json
import shlex
from html import escape
from typing import Any

from fedjax_sel.reporting.html.sources import Chapter
from fedjax_sel.runs import run_files


def section(chapter: Chapter) -> str:
    """Return the HTML of the section for one setting."""
    config = chapter.runs[0].result.config.to_json()
    config["selection"].pop("algo")
    config["selection"].pop("algo_args")
    config["run"].pop("out")
    text = json.dumps(config, indent=2)
    link = "data:application/json;base64," + base64.b64encode((text + "\n").encode()).decode()
    algos = shlex.join(_algo(run.result.config.selection) for run in chapter.runs)
    command = f"fedjax-sel compare --config config.json --algos {algos} --out runs/again"
    return (
        "<p>To repeat these runs, save the configuration as <code>config.json</code> "
        f'(<a download="config.json" href="{link}">download</a>), and run:</p>'
        f'<pre class="command">{escape(command)}</pre>'
        f"<details><summary>config.json</summary><pre>{escape(text)}</pre></details>" + _origins(chapter)
    )


def _algo(selection: Any) -> str:
    values = ",".join(f"{key}={value}" for key, value in selection.algo_args)
    return f"{selection.algo}[{values}]" if values else selection.algo


def _origins(chapter: Chapter) -> str:
    """Return each run's folder, command, versions, devices and commit as HTML."""
    parts = []
    for run in chapter.runs:
        environment = run_files.read_json(run.path / run_files.ENVIRONMENT)
        environment = environment if isinstance(environment, dict) else {}
        command, devices = environment.get("command"), environment.get("devices")
        lines = {
            "folder": str(run.path),
            "command": shlex.join(map(str, command)) if isinstance(command, list) else "",
            "versions": _versions(environment),
            "devices": ", ".join(map(str, devices)) if isinstance(devices, list) else "",
            "commit": str(environment.get("commit") or ""),
        }
        listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in lines.items() if text)
        parts.append(
            f'<details data-run="{escape(run.name)}"><summary>{escape(run.name)}</summary><dl>{listed}</dl></details>'
        )
    return "<h4>Provenance of each run</h4>" + "".join(parts)


def _versions(environment: dict[str, Any]) -> str:
    packages = environment.get("packages")
    versions = {"fedjax_sel": environment.get("fedjax_sel"), "Python": environment.get("python")}
    versions |= packages if isinstance(packages, dict) else {}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)
