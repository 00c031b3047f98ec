"""Entry point of `python -m fedjax_sel.leaderboard`; the command is in `cli/leaderboard.py`."""

import sys

from fedjax_sel.cli.leaderboard import entry_point

if __name__ == "__main__":
    sys.exit(entry_point())
