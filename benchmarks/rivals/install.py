"""Create one virtual environment per rival, from PyPI with the pinned versions in requirements/.

    python benchmarks/rivals/install.py
    python benchmarks/rivals/install.py --only torch pfl --pip-args "--extra-index-url https://download.pytorch.org/whl/cpu"
    python benchmarks/rivals/install.py --only fedjax_source --fedjax-source <a checkout of google/fedjax>

On Linux, PyPI's torch installs CUDA's libraries (gigabytes); the second command installs the smaller CPU build. If an
environment cannot be created, it is reported, and the others are still created.
"""

import argparse
import shlex
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
DEFAULT_FOLDER = Path.home() / ".cache" / "fedjax_sel" / "rivals"
NAMES = ("torch", "fedjax", "fedjax_newest", "pfl", "flower", "fedjax_source")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="folder of the environments")
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, metavar="NAME", help=f"rivals to install: {', '.join(NAMES)}"
    )
    parser.add_argument("--fedjax-source", type=Path, metavar="FOLDER", help="checkout of FedJAX, for fedjax_source")
    parser.add_argument("--pip-args", default="", help="extra arguments for `pip install`, in one string")
    arguments = parser.parse_args()
    wanted = arguments.only or [name for name in NAMES if name != "fedjax_source" or arguments.fedjax_source]
    if "fedjax_source" in wanted and arguments.fedjax_source is None:
        parser.error("fedjax_source: give a checkout of FedJAX with --fedjax-source")
    failed = [name for name in wanted if not install(name, arguments)]
    print(f"in {arguments.dir}: {', '.join(name for name in wanted if name not in failed) or 'nothing new'}")
    if failed:
        sys.exit(f"installation failed: {', '.join(failed)}")


def install(name: str, arguments: argparse.Namespace) -> bool:
    """Create one environment, and return whether it succeeded."""
    folder = arguments.dir / name
    what = ["-r", str(HERE / "requirements" / f"{name}.txt")]
    if name == "fedjax_source":
        what.append(str(arguments.fedjax_source))
    print(f"{name}: {' '.join(what)}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = [python_of(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return subprocess.run([*pip, *what, *shlex.split(arguments.pip_args)], check=False).returncode == 0


def python_of(folder: Path) -> str:
    """Return the interpreter of an environment."""
    return str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))


if __name__ == "__main__":
    main()
