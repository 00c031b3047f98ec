"""Ask-and-tell interface to the strategies, for servers with real clients."""

from fedjax_sel.selector.selector import Selector
from fedjax_sel.selector.standing import Ask, SelectorBill, Spent

__all__ = ["Ask", "Selector", "SelectorBill", "Spent"]
