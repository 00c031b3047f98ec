#!/usr/bin/env python3
"""Run the notebooks and store them with their outputs: notebooks/NAME.py -> notebooks/NAME.ipynb.

    tools/notebooks.py                            # all notebooks
    tools/notebooks.py 04_inside_fedcor_and_fl_dp3s
    tools/notebooks.py --text-only                # update the cells; unchanged cells keep their outputs

Each notebook runs in a kernel of this interpreter, in an empty folder, with this checkout of the package. A notebook is
not stored if it fails, writes to standard error, or exceeds the size limit.
"""

import argparse
import asyncio
import base64
import copy
import io
import json
import os
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import numpy as np
import PIL.Image
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
INSTALL = "FEDJAX_SEL_SOURCE ="  # marks the installation cell, identical in all notebooks
MOST_BYTES = 500_000
SECONDS = 1_800  # time limit per cell, generous for a busy machine


def texts() -> list[Path]:
    """Return the notebooks' source files, in order."""
    return sorted(FOLDER.glob("[0-9]*.py"))


def read(text: Path) -> Any:
    """Convert a notebook's source file to a notebook without outputs."""
    notebook = jupytext.read(text)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place:02d}"
    return nbformat.from_dict({**notebook, "nbformat": 4, "nbformat_minor": 5})


def execute(
    notebook: Any,
    folder: Path,
    settings: Mapping[str, str],
    python: str | Path = sys.executable,
    package: Path | None = ROOT,
) -> Any:
    """Run a notebook's cells in a kernel isolated from the user's Jupyter configuration.

    Args:
        notebook: the notebook, from `read`; it receives the outputs.
        folder: the working folder.
        settings: extra environment variables.
        python: the kernel's interpreter.
        package: the folder that contains the package; None uses the installed package.

    Returns:
        The notebook.
    """
    kernel = folder / "kernels" / "here"
    kernel.mkdir(parents=True, exist_ok=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    environment = {
        **os.environ,
        "PYTHONPATH": "" if package is None else str(package),
        "IPYTHONDIR": str(folder / "ipython"),
        "TMPDIR": str(folder),
        **settings,
    }
    environment.pop("MPLBACKEND", None)  # notebooks use the inline backend
    manager = AsyncKernelManager(
        kernel_name="here", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    )
    client = NotebookClient(notebook, km=manager, timeout=SECONDS, resources={"metadata": {"path": str(folder)}})
    before = os.environ.get("JUPYTER_RUNTIME_DIR")
    os.environ["JUPYTER_RUNTIME_DIR"] = str(folder / "runtime")
    try:
        return client.execute(env=environment)
    finally:
        asyncio.run(_end(manager))
        if before is None:
            del os.environ["JUPYTER_RUNTIME_DIR"]
        else:
            os.environ["JUPYTER_RUNTIME_DIR"] = before


async def _end(manager: Any) -> None:
    """Shut down a kernel; NotebookClient leaves a manager that it did not create running."""
    if manager.has_kernel:
        await manager.shutdown_kernel(now=True)


def complaints(notebook: Any) -> list[str]:
    """Return the reasons why a notebook with outputs should not be stored."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    red = [output["text"] for output in outputs if output.get("name") == "stderr"]
    reasons = [f"it writes to standard error: {text.strip()}" for text in red]
    size = len(as_text(notebook).encode())
    if size > MOST_BYTES:
        reasons.append(f"it has {size} bytes, more than {MOST_BYTES}")
    data = [output.get("data", {}).items() for output in outputs]
    shown = json.dumps([text for items in data for kind, text in items if not kind.startswith("image/")])
    shown += json.dumps([output["text"] for output in outputs if "text" in output])
    if places := [place for place in (str(ROOT), "/tmp/") if place in shown]:
        reasons.append(f"its outputs contain {places[0]}, a local folder")
    return reasons


def as_text(notebook: Any) -> str:
    """Serialize a notebook without timestamps and kernel details."""
    stored = copy.deepcopy(notebook)
    stored.metadata["language_info"] = {"name": "python"}
    for cell in stored.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("metadata", {}).pop("execution", None)
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = lighter(output.data["image/png"])
    return nbformat.writes(stored) + "\n"


def lighter(png: str) -> str:
    """Reduce a base64 image to 256 colors, if that is smaller and visually equivalent."""
    packed = io.BytesIO()
    with PIL.Image.open(io.BytesIO(base64.b64decode(png))) as file:
        if file.mode == "P":
            return png  # stored before: a second pass would change its colors
        picture = file.convert("RGB")
    few = picture.quantize(256, dither=PIL.Image.Dither.NONE)
    few.save(packed, "PNG", optimize=True)
    apart = np.abs(np.asarray(few.convert("RGB"), np.int16) - np.asarray(picture, np.int16)).max(axis=-1)
    found = base64.b64encode(packed.getvalue()).decode()
    return found if len(found) < len(png) and (apart > 16).mean() < 0.008 else png


def with_stored_outputs(notebook: Any, stored: Path) -> Any:
    """Copy the stored outputs to cells with unchanged source."""
    known = {}
    if stored.exists():
        known = {cell.source: cell for cell in nbformat.read(stored, as_version=4).cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        if cell.source in known:
            cell.outputs, cell.execution_count = known[cell.source].outputs, known[cell.source].execution_count
    return notebook


def badge(name: str) -> str | None:
    """Return the badge that opens a notebook on Colab; None if the project has no GitHub address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["address"]
    if not address.startswith("https://github.com/"):
        return None
    place = "/".join(address.removeprefix("https://github.com/").rstrip("/").split("/")[:2])
    link = f"https://colab.research.google.com/github/{place.removesuffix('.git')}/blob/main/notebooks/{name}.ipynb"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})"


def main() -> int:
    """Run and store the given notebooks, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks, such as 01_quickstart (default: all)")
    parser.add_argument("--text-only", action="store_true", help="update the cells without running them")
    flags = parser.parse_args()
    failed = 0
    if unknown := set(flags.names) - {text.stem for text in texts()}:
        parser.error(f"unknown notebook {sorted(unknown)[0]}; choose from {', '.join(text.stem for text in texts())}")
    for text in texts():
        if flags.names and text.stem not in flags.names:
            continue
        stored, begun = text.with_suffix(".ipynb"), time.monotonic()
        if flags.text_only:
            stored.write_text(as_text(with_stored_outputs(read(text), stored)), encoding="utf-8")
            continue
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(read(text), Path(folder), {})
        wrong = complaints(notebook)
        for why in wrong:
            print(f"{text.stem}: {why}", file=sys.stderr)
        failed += bool(wrong)
        if not wrong:
            stored.write_text(as_text(notebook), encoding="utf-8")
            print(f"{text.stem}: {time.monotonic() - begun:.0f} s, {stored.stat().st_size} bytes", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
