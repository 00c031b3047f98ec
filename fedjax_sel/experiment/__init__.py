"""Experiments: from a configuration and Python values to the problem that the compiled rounds solve."""

from fedjax_sel.experiment.values import Experiment, experiment_of

__all__ = ["Experiment", "experiment_of"]
