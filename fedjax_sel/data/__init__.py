"""Data sets and partitions. All modules but `federation.py` need only NumPy, and import quickly.

``load`` returns the arrays of a data set; ``partition.make`` assigns its training examples to clients.
"""

from fedjax_sel.data import partition
from fedjax_sel.data.dataset import Dataset
from fedjax_sel.data.partition import Partition
from fedjax_sel.data.sources import load, names

__all__ = ["Dataset", "Partition", "load", "names", "partition"]
