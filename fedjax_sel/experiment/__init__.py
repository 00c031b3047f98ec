"""What is run: a configuration's names become values, and values the problem that the compiled rounds work on."""

from fedjax_sel.experiment.values import VALUE, Deal, Experiment, experiment_of, is_value

__all__ = ["VALUE", "Deal", "Experiment", "experiment_of", "is_value"]
