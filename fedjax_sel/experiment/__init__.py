"""Experiments: from a configuration and Python values to the problem that the compiled rounds solve."""

from fedjax_sel.experiment.values import VALUE, Deal, Experiment, experiment_of, is_value

__all__ = ["VALUE", "Deal", "Experiment", "experiment_of", "is_value"]
