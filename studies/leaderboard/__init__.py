"""Leaderboard of all strategies under the same settings, with equal tuning and the price of information.

settings      settings, strategies with their hyperparameters, and the run configurations
grids         runs of each part of the leaderboard, by name
running       execution of a part: finished runs are read, unfinished ones resume
series        accuracy and bytes of each round, in files small enough to commit
measures      metrics per seed, from the series of a setting
standings     table of a setting: means, intervals and significance
across        all settings together: interquartile means and performance profiles
tuning        equal hyperparameter tuning for all strategies
information   studies of the cost and the value of information
price         page on the price of information
pages, tuning_page, pictures   Markdown and PNG
"""
