"""Data sets and who holds what: NumPy only (but for `federation.py`), and cheap to import.

``load`` gives the arrays of a data set, ``partition.make`` deals its training examples to clients.
"""

from fedjax_sel.data import partition
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.data.sources import load, names

__all__ = ["Dataset", "Partition", "load", "names", "partition"]
