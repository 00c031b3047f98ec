#!/usr/bin/env python3
"""Builds the site in build/site; a warning ends it. Needs `pip install -e ".[docs]"` and no network.

python tools/build_site.py            # then open build/site/index.html
python tools/build_site.py serve      # shows it at http://127.0.0.1:8000 and follows changes
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    # Two notes on the future of the theme, which are not warnings of ours: pyproject.toml holds the versions.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "mkdocs", *(sys.argv[1:] or ["build"])]
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment).returncode)
