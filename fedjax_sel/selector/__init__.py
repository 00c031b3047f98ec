"""Ask-and-tell interface to the strategies, for servers with real clients."""

from fedjax_sel.selector.answers import Perturbed
from fedjax_sel.selector.selector import Selector
from fedjax_sel.selector.standing import Ask, SelectorBill, Spent
from fedjax_sel.strategies.privacy import ClientNoise

__all__ = ["Ask", "ClientNoise", "Perturbed", "Selector", "SelectorBill", "Spent"]
