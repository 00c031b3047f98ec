"""All strategies in the papers' setting (FedCor's), with equal tuning and the price of information.

settings      settings, strategies with their hyperparameters, and the run configurations
grids         runs of each part, by name
standings     table of a setting: means, intervals and significance
across        all settings together: interquartile means and performance profiles
tuning        equal hyperparameter tuning for all strategies
information   studies of the cost and the value of information
price         page on the price of information
pages, tuning_page, pictures   Markdown and PNG
"""
