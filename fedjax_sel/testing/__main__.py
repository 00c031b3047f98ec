"""`python -m fedjax_sel.testing NAME`: whether a strategy keeps the contract. The command is in `cli/test.py`."""

import sys

from fedjax_sel.cli.test import entry_point, main

__all__ = ["entry_point", "main"]

if __name__ == "__main__":
    sys.exit(entry_point())
