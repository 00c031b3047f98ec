"""`python -m fedjax_sel.report`: runs that are there, side by side. The command is in `cli/report.py`."""

import sys

from fedjax_sel.cli.report import entry_point

if __name__ == "__main__":
    sys.exit(entry_point())
