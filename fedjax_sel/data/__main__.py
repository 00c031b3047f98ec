"""`python -m fedjax_sel.data`: look at a partition before training on it. The command is in `cli/data.py`."""

import sys

from fedjax_sel.cli.data import entry_point, main

__all__ = ["entry_point", "main"]

if __name__ == "__main__":
    sys.exit(entry_point())
