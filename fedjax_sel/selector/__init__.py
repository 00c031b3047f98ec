"""Ask-and-tell interface to the strategies, for servers with real clients."""

from fedjax_sel.selector.account import Bill, Spent
from fedjax_sel.selector.questions import Ask
from fedjax_sel.selector.selector import Selector

__all__ = ["Ask", "Bill", "Selector", "Spent"]
