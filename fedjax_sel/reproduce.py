"""`python -m fedjax_sel.reproduce`: the papers' tables and figures, run again. The command is in `cli/reproduce.py`."""

import sys

from fedjax_sel.cli.reproduce import entry_point

if __name__ == "__main__":
    sys.exit(entry_point())
