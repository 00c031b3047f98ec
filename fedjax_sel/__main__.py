"""`fedjax-sel` and `python -m fedjax_sel`: all commands by name. What they share is in `cli/__init__.py`."""

import sys

from fedjax_sel.cli import entry_point

if __name__ == "__main__":
    sys.exit(entry_point())
