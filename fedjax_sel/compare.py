"""`python -m fedjax_sel.compare`: several strategies under the same conditions. The command is in `cli/compare.py`."""

import sys

from fedjax_sel.cli.compare import entry_point

if __name__ == "__main__":
    sys.exit(entry_point())
