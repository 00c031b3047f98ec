#!/usr/bin/env python3
"""Build the documentation site in build/site, offline; warnings are errors. Needs `pip install -e ".[docs]"`.

python tools/build_site.py            # then open build/site/index.html
python tools/build_site.py serve      # serve it at http://127.0.0.1:8000 and rebuild on changes
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    # Silence the theme's notices about its future versions; pyproject.toml pins the versions in use.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "mkdocs", *(sys.argv[1:] or ["build"])]
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment).returncode)
