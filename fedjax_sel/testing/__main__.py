"""The command `python -m fedjax_sel.testing NAME`, which checks a strategy. Its code is in `cli/test.py`."""

import sys

from fedjax_sel.cli.test import entry_point, main

__all__ = ["entry_point", "main"]

if __name__ == "__main__":
    sys.exit(entry_point())
