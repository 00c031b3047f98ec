"""The strategies for a server of real clients: ask and tell, outside of any compiled program."""

from fedjax_sel.selector.account import Bill, Spent
from fedjax_sel.selector.questions import Ask
from fedjax_sel.selector.selector import Selector

__all__ = ["Ask", "Bill", "Selector", "Spent"]
