"""`python -m fedjax_sel.train`: train a model whose cohorts a strategy chooses. The command is in `cli/train.py`."""

import sys

from fedjax_sel.cli import command_line, train

if __name__ == "__main__":
    sys.exit(command_line.guarded(train.main))
