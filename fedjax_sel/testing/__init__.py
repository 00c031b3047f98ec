"""The conformance kit: one battery of checks for built-in and user-defined strategies.

    from fedjax_sel.testing import check_strategy
    check_strategy(my_strategy)          # raises an error that lists all failed checks
    print(examine(my_strategy))          # prints the result of every check

    python -m fedjax_sel test my_module:my_strategy

Clients' answers are synthetic and follow the strategy's requests. Only the last check trains: it compares the ledger of
a small real run with the cost implied by the requests.
"""

from fedjax_sel.testing.bench import ConformanceError, Finding, Report
from fedjax_sel.testing.checks import CHECKS, Check, check_strategy, examine

__all__ = ["CHECKS", "Check", "ConformanceError", "Finding", "Report", "check_strategy", "examine"]
