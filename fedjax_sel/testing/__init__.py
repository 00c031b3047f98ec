"""The public conformance kit: the same battery for built-in strategies and for anybody's own.

    from fedjax_sel.testing import check_strategy
    check_strategy(my_strategy)          # raises, with a sentence for each check that failed
    print(examine(my_strategy))          # all checks, passed or not

    python -m fedjax_sel test my_module:my_strategy

What clients answer is made up from the strategy's own requests; nothing is trained but for the last check, which
compares the ledger of a small real run with what the requests imply.
"""

from fedjax_sel.testing.battery import CHECKS, Check, check_strategy, examine
from fedjax_sel.testing.report import ConformanceError, Finding, Report

__all__ = ["CHECKS", "Check", "ConformanceError", "Finding", "Report", "check_strategy", "examine"]
